//! Clients that read protobuf and nothing else.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{Answer, MAPS, WIDGETS, World};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The fields of a message that have a length, as the wire format defines them.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let varint = |bytes: &mut &[u8]| {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a message that ends in a number");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        if key & 7 == 2 {
            let (head, rest) = bytes.split_at(usize::try_from(value).unwrap());
            found.push((key >> 3, head));
            bytes = rest;
        }
    }
    found
}

fn field(bytes: &[u8], number: u64) -> &[u8] {
    fields(bytes).into_iter().find(|(one, _)| *one == number).map_or(&[], |(_, value)| value)
}

#[track_caller]
fn object(answer: &Answer, code: u16) -> Value {
    assert_eq!(answer.code.as_u16(), code, "{}", answer.text());
    assert_eq!(answer.header("content-type"), PROTOBUF, "{}", answer.text());
    objects::proto::decode(&answer.body).unwrap().value
}

#[tokio::test]
async fn objects_and_rejections_are_protobuf() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let one = format!("{MAPS}/a");
    let plain = world.get(&one).await.is(200);
    assert_eq!(object(&world.get_as(&one, PROTOBUF).await, 200), plain);
    let missing = object(&world.get_as(&format!("{MAPS}/none"), PROTOBUF).await, 404);
    assert_eq!((&missing["kind"], &missing["reason"]), (&json!("Status"), &json!("NotFound")));
    let request = || Request::post(MAPS).header("accept", PROTOBUF);
    let map = json!({"metadata": {"name": "b"}, "data": {"k": "v"}}).to_string();
    let made = world.send(request(), Body::from(map.clone())).await;
    assert_eq!(object(&made, 201)["data"], json!({"k": "v"}));
    assert_eq!(object(&world.send(request(), Body::from(map)).await, 409)["code"], 409);
    let request = Request::delete(&one).header("accept", PROTOBUF);
    let gone = object(&world.send(request, Body::empty()).await, 200);
    assert_eq!(gone["status"], "Success");
    // What no protobuf form exists of is refused in what every client reads.
    world.widgets().await;
    let refused = world.get_as(WIDGETS, PROTOBUF).await;
    assert_eq!(refused.header("content-type"), "application/json");
    refused.fails(406, "NotAcceptable");
}

#[tokio::test]
async fn lists_are_protobuf_however_long() {
    let world = World::start().await;
    let names: Vec<String> = (0..300).map(|number| format!("m{number:03}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    world.maps(&all).await;
    let list = world.get_as(MAPS, PROTOBUF).await;
    assert_eq!(list.header("content-type"), PROTOBUF, "{}", list.text());
    let envelope = list.body.strip_prefix(b"k8s\0").unwrap();
    assert_eq!(field(field(envelope, 1), 2), b"ConfigMapList");
    let raw = field(envelope, 2);
    let plain = world.get(MAPS).await.is(200);
    let revision = plain["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(field(field(raw, 1), 2), revision.as_bytes());
    let items: Vec<&[u8]> =
        fields(raw).into_iter().filter(|(number, _)| *number == 2).map(|(_, item)| item).collect();
    let found: Vec<&str> =
        items.iter().map(|item| str::from_utf8(field(field(item, 1), 1)).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(found, all);
}

#[tokio::test]
async fn watches_are_frames_of_protobuf() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=4");
    let answer = world.get_as(&path, PROTOBUF).await;
    assert_eq!(answer.header("content-type"), format!("{PROTOBUF};stream=watch"));
    let (length, rest) = answer.body.split_first_chunk::<4>().unwrap();
    let event = rest.get(..u32::from_be_bytes(*length) as usize).unwrap();
    assert_eq!(field(event, 1), b"ADDED");
    let object = objects::proto::decode(field(field(event, 2), 1)).unwrap().value;
    assert_eq!(object, world.get(&format!("{MAPS}/a")).await.is(200));
    let path = format!("{MAPS}?watch=true&resourceVersion=99999999");
    let expired = world.get_as(&path, PROTOBUF).await;
    let event = expired.body.get(4..).unwrap();
    assert_eq!(field(event, 1), b"ERROR");
    let status = objects::proto::decode(field(field(event, 2), 1)).unwrap().value;
    assert_eq!(status["code"], 410, "{status}");
}

/// What metadata informers of Go ask for when they read protobuf only.
fn only(kind: &str) -> String {
    format!("{PROTOBUF};as={kind};g=meta.k8s.io;v=v1")
}

/// The type in an envelope, and the message itself.
fn opened(body: &[u8]) -> (String, &[u8]) {
    let envelope = body.strip_prefix(b"k8s\0").expect("an envelope");
    let of = |number| str::from_utf8(field(field(envelope, 1), number)).unwrap();
    (format!("{} {}", of(1), of(2)), field(envelope, 2))
}

/// Name, uid and labels of a message that has nothing but metadata.
fn known(message: &[u8]) -> (String, String, Vec<(String, String)>) {
    assert!(fields(message).iter().all(|(number, _)| *number == 1), "more than metadata");
    let metadata = field(message, 1);
    let text = |bytes: &[u8]| str::from_utf8(bytes).unwrap().to_owned();
    let labels = fields(metadata).into_iter().filter(|(number, _)| *number == 11);
    let labels = labels.map(|(_, entry)| (text(field(entry, 1)), text(field(entry, 2)))).collect();
    (text(field(metadata, 1)), text(field(metadata, 5)), labels)
}

#[tokio::test]
async fn metadata_informers_of_every_type_read_protobuf() {
    let world = World::start().await;
    world.widgets().await;
    let map = json!({"metadata": {"name": "a", "labels": {"k": "v"}}, "data": {"secret": "x"}});
    world.post(MAPS, &map).await.is(201);
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "labels": {"k": "v"}},
    });
    world.post(WIDGETS, &widget).await.is(201);
    for path in [MAPS, WIDGETS] {
        let plain = world.get(&format!("{path}/a")).await.is(200);
        let uid = plain["metadata"]["uid"].as_str().unwrap().to_owned();
        let expected = ("a".to_owned(), uid, vec![("k".to_owned(), "v".to_owned())]);

        let one = world.get_as(&format!("{path}/a"), &only("PartialObjectMetadata")).await;
        assert_eq!(one.header("content-type"), PROTOBUF, "{}", one.text());
        let (kind, message) = opened(&one.body);
        assert_eq!(kind, "meta.k8s.io/v1 PartialObjectMetadata");
        assert_eq!(known(message), expected);

        let list = world.get_as(path, &only("PartialObjectMetadataList")).await;
        assert_eq!(list.header("content-type"), PROTOBUF, "{}", list.text());
        let (kind, message) = opened(&list.body);
        assert_eq!(kind, "meta.k8s.io/v1 PartialObjectMetadataList");
        let revision = str::from_utf8(field(field(message, 1), 2)).unwrap();
        assert!(revision.parse::<u64>().unwrap() > 0, "{revision}");
        let found = fields(message)
            .into_iter()
            .find(|(number, item)| *number == 2 && field(field(item, 1), 1) == b"a");
        assert_eq!(known(found.expect("the object in the list").1), expected);

        let watch = format!(
            "{path}?watch=true&timeoutSeconds=4&fieldSelector=metadata.name%3Da&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        );
        let watched = world.get_as(&watch, &only("PartialObjectMetadata")).await;
        assert_eq!(watched.header("content-type"), format!("{PROTOBUF};stream=watch"));
        let mut rest: &[u8] = &watched.body;
        let mut seen = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (event, next) = after.split_at(u32::from_be_bytes(*length) as usize);
            let (kind, message) = opened(field(field(event, 2), 1));
            assert_eq!(kind, "meta.k8s.io/v1 PartialObjectMetadata");
            seen.push((field(event, 1).to_vec(), message.to_vec()));
            rest = next;
        }
        let (added, message) = seen.first().expect("an event");
        assert_eq!((added.as_slice(), known(message)), (b"ADDED".as_slice(), expected));
        let (mark, message) = seen.get(1).expect("a bookmark");
        assert_eq!(mark.as_slice(), b"BOOKMARK");
        assert_eq!(field(field(field(message, 1), 12), 1), b"k8s.io/initial-events-end");

        let gone = world.get_as(&format!("{path}/none"), &only("PartialObjectMetadata")).await;
        assert_eq!(object(&gone, 404)["reason"], "NotFound");
        // No server has such forms.
        world.get_as(path, &only("PartialObjectMetadata")).await.fails(406, "NotAcceptable");
        world.get_as(path, &only("Table")).await.fails(406, "NotAcceptable");
    }
}
