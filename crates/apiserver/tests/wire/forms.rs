use std::io::Read as _;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{MAPS, TABLE, WIDGETS, World, widget};

#[tokio::test]
async fn what_is_acceptable_is_served_and_what_is_not_is_refused() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let one = format!("{MAPS}/a");
    let protobuf = "application/vnd.kubernetes.protobuf";
    for accept in [
        "*/*",
        "application/*",
        "application/json",
        "application/json;q=0.3, text/html",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        &format!("{protobuf},application/json"),
        "application/json; charset=utf-8",
    ] {
        let answer = world.get_as(&one, accept).await;
        assert_eq!(answer.header("content-type"), "application/json", "{accept}");
        assert_eq!(answer.header("cache-control"), "no-cache, private");
        assert_eq!(answer.is(200)["kind"], "ConfigMap", "{accept}");
    }
    for accept in ["text/html", &TABLE.replace("v=v1", "v=v9"), "application/json;q=0"] {
        let text = world.get_as(&one, accept).await.fails(406, "NotAcceptable");
        assert!(text.contains("application/json"), "{text}");
    }
    world.widgets().await;
    world.get_as(WIDGETS, protobuf).await.fails(406, "NotAcceptable");
    let any_order = "application/json;v=v1;g=meta.k8s.io;as=PartialObjectMetadata";
    assert_eq!(world.get_as(&one, any_order).await.is(200)["kind"], "PartialObjectMetadata");
    // Metadata was wanted first: nobody gets whole objects for it because a plain clause follows.
    let metadata = format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let first = world.get_as(&one, &format!("{metadata},application/json")).await;
    assert_eq!(first.header("content-type"), protobuf, "{}", first.text());
    let both = format!("{metadata},{any_order},application/json");
    assert_eq!(world.get_as(&one, &both).await.is(200)["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn yaml_goes_in_and_out() {
    let world = World::start().await;
    let request = Request::post(MAPS).header("content-type", "application/yaml");
    let text = "metadata:\n  name: yam\ndata:\n  k: \"1\"\n";
    world.send(request, Body::from(text)).await.is(201);
    let answer = world.get_as(&format!("{MAPS}/yam"), "application/yaml").await;
    assert_eq!(answer.header("content-type"), "application/yaml");
    assert!(answer.text().contains("kind: ConfigMap"), "{}", answer.text());
    let list = world.get_as(MAPS, "application/yaml").await;
    assert!(list.text().contains("kind: ConfigMapList"), "{}", list.text());
    world.get_as(&format!("{MAPS}/none"), "application/yaml").await.fails_as_yaml(404);
}

#[tokio::test]
async fn people_get_indented_text() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let lines = async |path: &str, agent: &str| {
        let request = Request::get(path).header("user-agent", agent);
        world.send(request, Body::empty()).await.text().lines().count()
    };
    let one = format!("{MAPS}/a");
    let curl = "curl/8.0";
    for path in [&one, MAPS, "/apis", "/version", "/api/v1", &format!("{MAPS}/none")] {
        assert!(lines(path, curl).await > 1, "{path}");
        assert!(lines(&format!("{path}?pretty=true"), "x").await > 1, "{path}");
        assert_eq!(lines(path, "x").await, 1, "{path}");
        assert_eq!(lines(&format!("{path}?pretty=false"), curl).await, 1, "{path}");
    }
}

#[tokio::test]
async fn bodies_in_forms_nobody_speaks_are_refused() {
    let world = World::start().await;
    world.widgets().await;
    let body = widget("a", "x").to_string();
    for form in ["text/plain", "application/xml", "application/vnd.kubernetes.protobuf"] {
        let request = Request::post(WIDGETS).header("content-type", form);
        let answer = world.send(request, Body::from(body.clone())).await;
        let text = answer.fails(415, "UnsupportedMediaType");
        assert!(text.contains("application/json"), "{text}");
    }
    for form in ["application/json", "application/json; charset=utf-8"] {
        let request = Request::post(format!("{WIDGETS}?dryRun=All")).header("content-type", form);
        world.send(request, Body::from(body.clone())).await.is(201);
    }
    world.post(WIDGETS, &widget("a", "x")).await.is(201);
    for form in ["application/json", "application/strategic-merge-patch+json", ""] {
        let request = Request::patch(format!("{WIDGETS}/a")).header("content-type", form);
        let answer = world.send(request, Body::from("{}")).await;
        let text = answer.fails(415, "UnsupportedMediaType");
        assert!(text.contains("application/merge-patch+json"), "{text}");
    }
}

#[tokio::test]
async fn too_much_is_too_much() {
    let world = World::start().await;
    let huge = json!({"metadata": {"name": "h"}, "data": {"k": "x".repeat(3 << 20)}});
    world.post(MAPS, &huge).await.fails(413, "RequestEntityTooLarge");
    world.maps(&["a"]).await;
    let operations = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
    let request =
        Request::patch(format!("{MAPS}/a")).header("content-type", "application/json-patch+json");
    let answer = world.send(request, Body::from(json!(operations).to_string())).await;
    answer.fails(413, "RequestEntityTooLarge");
}

#[tokio::test]
async fn big_answers_are_compressed_when_that_is_welcome() {
    let world = World::start().await;
    let text = "abc ".repeat(50_000);
    world.post(MAPS, &json!({"metadata": {"name": "big"}, "data": {"k": text}})).await.is(201);
    world.maps(&["small"]).await;
    let ask = async |path: &str, encoding: &str| {
        let request = Request::get(path).header("accept-encoding", encoding);
        world.send(request, Body::empty()).await
    };
    // That of a list is the server's, which writes leases and events of its own meanwhile.
    let but_for_the_revision = |text: &str| {
        let mut read: Value = serde_json::from_str(text).unwrap();
        read["metadata"]["resourceVersion"].take();
        read
    };
    for path in [format!("{MAPS}/big"), MAPS.to_owned()] {
        let packed = ask(&path, "gzip, deflate").await;
        assert_eq!(packed.header("content-encoding"), "gzip", "{path}");
        assert_eq!(packed.header("vary"), "Accept-Encoding");
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut plain).unwrap();
        let unpacked = ask(&path, "identity").await.text();
        assert_eq!(but_for_the_revision(&plain), but_for_the_revision(&unpacked));
        assert!(packed.body.len() < plain.len() / 10);
    }
    assert_eq!(ask(&format!("{MAPS}/small"), "gzip").await.header("content-encoding"), "");
    assert_eq!(ask(&format!("{MAPS}/big"), "gzip;q=0").await.header("content-encoding"), "");
    assert_eq!(world.get(MAPS).await.header("content-encoding"), "");
}

#[tokio::test]
async fn the_head_of_an_answer_can_be_had_alone() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    for path in [MAPS, &format!("{MAPS}/a"), "/version", "/livez", &format!("{MAPS}?watch=true")] {
        let head = world.send(Request::head(path), Body::empty()).await;
        assert_eq!(head.code, 200, "{path}");
        assert!(head.body.is_empty(), "{path}");
        let plain = path.trim_end_matches("?watch=true");
        let length = world.get(plain).await.body.len().to_string();
        assert_eq!(head.header("content-length"), length, "{path}");
    }
    let none = world.send(Request::head(format!("{MAPS}/none")), Body::empty()).await;
    assert_eq!((none.code.as_u16(), none.body.len()), (404, 0));
}

#[tokio::test]
async fn warnings_travel_in_headers() {
    let world = World::start().await;
    world.widgets().await;
    let mut body = widget("a", "x");
    body["spec"]["colour"] = json!("red");
    body["spec"]["taste"] = json!("sour");
    let made = world.post(WIDGETS, &body).await;
    made.is(201);
    let warnings: Vec<&str> =
        made.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().all(|one| one.starts_with("299 - \"") && one.ends_with('"')));
    assert!(warnings[0].contains(r#"unknown field \"spec.colour\""#), "{warnings:?}");
}

/// Nobody shall believe in a backup that does not happen.
#[tokio::test]
async fn who_makes_what_no_controller_acts_on_is_told() {
    let world = World::start().await;
    world.widgets().await;
    let quiet = world.post(WIDGETS, &widget("a", "x")).await;
    quiet.is(201);
    assert!(!quiet.headers.contains_key("warning"), "{:?}", quiet.headers);
    world.server.declare_unattended(["widgets.example.com".to_owned()].into());
    let warnings = |answer: &crate::support::Answer| {
        let all = answer.headers.get_all("warning").iter();
        all.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let made = world.post(WIDGETS, &widget("b", "x")).await;
    made.is(201);
    assert_eq!(warnings(&made).len(), 1, "{:?}", made.headers);
    assert!(warnings(&made)[0].contains("no controller of this Holdfast acts on Widget yet"));
    // What is there already is changed without it, and others are made without it.
    let changed =
        world.merge(&format!("{WIDGETS}/b"), &json!({"metadata": {"labels": {"l": "v"}}})).await;
    changed.is(200);
    let map = json!({"metadata": {"name": "m"}});
    let other = world.post("/api/v1/namespaces/default/configmaps", &map).await;
    other.is(201);
    assert!(warnings(&changed).is_empty() && warnings(&other).is_empty());
}
