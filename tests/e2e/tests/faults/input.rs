//! Requests that make no sense: the right Status, and the server goes on.

use bytes::Bytes;
use e2e::connection::{JSON, MERGE_PATCH};
use e2e::{Answer, Connection, Server};
use serde_json::json;

use crate::{MAPS, assert_refused};

const MIB: usize = 1 << 20;

async fn connected(server: &Server) -> Connection {
    server.endpoint().connect().await.unwrap()
}

async fn post(server: &Server, body: impl Into<Bytes>) -> Answer {
    connected(server).await.send("POST", MAPS, Some((JSON, body.into()))).await.unwrap()
}

#[tokio::test]
async fn a_body_over_the_limit_is_too_large() {
    let server = Server::start();
    let body = json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(4 * MIB)}});
    assert_refused(&post(&server, body.to_string()).await, 413, "RequestEntityTooLarge");
    let after = connected(&server).await.get(&format!("{MAPS}/big")).await.unwrap();
    assert_eq!(after.code(), 404);
}

#[tokio::test]
async fn deep_json_is_refused_and_does_not_end_the_server() {
    let server = Server::start();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [200, 10_000, 200_000] {
            let middle = if open == "[" { "" } else { "1" };
            let body = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
            let inside = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"data\":{body}}}");
            for text in [body, inside] {
                assert_refused(&post(&server, text).await, 400, "BadRequest");
            }
        }
    }
    assert_eq!(connected(&server).await.get("/readyz").await.unwrap().code(), 200);
}

#[tokio::test]
async fn bodies_that_are_no_objects_are_bad_requests() {
    let server = Server::start();
    for text in ["", "{", "null", "7", "\"text\"", "[]", "{}{}", "\u{0}", "{\"metadata\":7}"] {
        assert_eq!(post(&server, text.to_owned()).await.code(), 400, "{text:?}");
    }
    let not_text = vec![0xff, 0xfe, 0x00, 0x80];
    assert_eq!(post(&server, not_text).await.code(), 400);
    let wrong = post(&server, r#"{"metadata":{"name":"a"},"data":{"a":{"b":1}}}"#).await;
    assert_eq!(wrong.code(), 400);
    let unnamed = post(&server, r#"{"metadata":{},"data":{"a":"b"}}"#).await;
    assert_refused(&unnamed, 422, "Invalid");
    let bad_name = post(&server, r#"{"metadata":{"name":"../etc"}}"#).await;
    assert_refused(&bad_name, 422, "Invalid");
}

#[tokio::test]
async fn unknown_content_types_are_named_as_such() {
    let server = Server::start();
    let mut connection = connected(&server).await;
    let body = Bytes::from_static(b"{\"metadata\":{\"name\":\"a\"}}");
    let answer = connection.send("POST", MAPS, Some(("text/html", body))).await.unwrap();
    assert_refused(&answer, 415, "UnsupportedMediaType");
    let rubbish = Bytes::from_static(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let answer = connection.send("POST", MAPS, Some((protobuf, rubbish))).await.unwrap();
    assert_eq!(answer.code(), 400, "{:?}", answer.json());
}

#[tokio::test]
async fn queries_that_cannot_be_understood_are_bad_requests() {
    let server = Server::start();
    let mut connection = connected(&server).await;
    for query in [
        "labelSelector=a%20in%20%28",
        "labelSelector=%21%21a",
        "labelSelector=a%3D%3D%3Db",
        "fieldSelector=spec.nothing%3Da",
        "fieldSelector=a",
        "limit=many",
        "continue=rubbish",
        "resourceVersion=abc",
        "watch=true&resourceVersion=abc",
    ] {
        let answer = connection.get(&format!("{MAPS}?{query}")).await.unwrap();
        assert!((400..500).contains(&answer.code()), "{query}: {}", answer.json());
        assert_eq!(answer.json()["kind"], "Status", "{query}");
    }
}

#[tokio::test]
async fn paths_lead_nowhere_but_to_resources() {
    let server = Server::start();
    let mut connection = connected(&server).await;
    for path in [
        "/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/%ff%fe",
        "/api/v1/namespaces/default/configmaps/../../../../etc/passwd",
        "/api/v1/namespaces//configmaps/a",
        "/api/v1/namespaces/default/nothings",
        "/api/v9/pods",
        "/apis/nothing.example.com/v1",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
    ] {
        let answer = connection.get(path).await.unwrap();
        assert!((400..500).contains(&answer.code()), "{path}: {answer:?}");
    }
    let long = format!("{MAPS}/{}", "a".repeat(100_000));
    let answer = connected(&server).await.get(&long).await;
    assert!(answer.is_err() || answer.unwrap().status.is_client_error());
    assert_eq!(connected(&server).await.get("/readyz").await.unwrap().code(), 200);
}

#[tokio::test]
async fn tokens_that_are_not_known_get_401() {
    let server = Server::start();
    for token in ["nonsense", "admin-token2", "e30.e30.e30", "a.b.c", &"x".repeat(10_000)] {
        let mut connection = server.endpoint().as_user(token).connect().await.unwrap();
        assert_refused(&connection.get(MAPS).await.unwrap(), 401, "Unauthorized");
    }
}

#[tokio::test]
async fn patches_that_cannot_be_applied_change_nothing() {
    let server = Server::start();
    let mut connection = connected(&server).await;
    let body = json!({"metadata": {"name": "kept"}, "data": {"a": "b"}});
    let created = connection.post(MAPS, &body).await.unwrap().json();
    let path = format!("{MAPS}/kept");
    let many =
        format!("[{}]", vec![r#"{"op":"test","path":"/kind","value":"x"}"#; 10_001].join(","));
    for (kind, text, codes) in [
        ("application/json-patch+json", r#"[{"op":"fly","path":"/data"}]"#, [400, 422]),
        ("application/json-patch+json", r#"{"op":"add"}"#, [400, 422]),
        ("application/json-patch+json", r#"[{"op":"remove","path":"/data/z"}]"#, [422, 422]),
        ("application/json-patch+json", many.as_str(), [413, 413]),
        (MERGE_PATCH, "[1,2]", [400, 422]),
        (MERGE_PATCH, r#"{"metadata":{"name":"other"}}"#, [400, 422]),
        (MERGE_PATCH, r#"{"data":{"a":{}}}"#, [400, 422]),
        ("application/apply-patch+yaml", "{}", [400, 422]),
        ("text/plain", "x", [415, 415]),
    ] {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let answer = connection.send("PATCH", &path, Some((kind, body))).await.unwrap();
        let text = text.get(..60).unwrap_or(text);
        assert!(codes.contains(&answer.code()), "{kind} {text}: {}", answer.json());
        assert_eq!(answer.json()["kind"], "Status");
    }
    assert_eq!(connection.get(&path).await.unwrap().json(), created);
}
