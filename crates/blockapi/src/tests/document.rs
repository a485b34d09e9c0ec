//! The document of the API, held against what handlers take.

use serde_json::{Value, json};

use super::rig::{NEW, PROJECT, Rig};
use crate::rest::openapi_document;

/// One body of an operation: what wraps it, and what is inside.
struct Body {
    method: String,
    path: String,
    name: String,
    inner: Value,
}

fn bodies() -> Vec<Body> {
    let document = openapi_document();
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                assert!(!["post", "put"].contains(&method.as_str()), "{method} {path} has no body");
                continue;
            }
            let one = [schema.clone()];
            let variants = schema["oneOf"].as_array().map_or(&one[..], Vec::as_slice);
            for variant in variants {
                let properties = variant["properties"].as_object().unwrap();
                let (name, inner) =
                    properties.iter().find(|(name, _)| !name.contains("SCH-HNT")).unwrap();
                let path = path.trim_start_matches("/v3");
                let path = path.replace("{id}", "11111111-1111-4111-8111-111111111111");
                let path = path.replace("{key}", "k").replace("{project}", PROJECT);
                all.push(Body {
                    method: method.to_uppercase(),
                    path,
                    name: name.clone(),
                    inner: inner.clone(),
                });
            }
        }
    }
    all
}

const UNEXPECTED: &str = "Additional properties are not allowed";

/// Every key the document tells of is one that handlers know, and where it says that there are no
/// others, handlers refuse others.
#[tokio::test]
async fn bodies_are_those_that_handlers_take() {
    let rig = Rig::new().await;
    let mut refused = 0;
    for body in bodies() {
        let Body { method, path, name, inner } = &body;
        let said = |answer: super::rig::Answer| {
            assert_ne!(answer.code, 500, "{method} {path} {name}: {answer:?}");
            answer.body.to_string()
        };
        if inner["additionalProperties"] == json!(false) {
            let unknown = json!({ name: {"surely-unknown": "x"} });
            let answer = rig.call(method, path, unknown, NEW).await;
            assert_eq!(answer.code, 400, "{method} {path} {name}: {answer:?}");
            let text = said(answer);
            assert!(text.contains(UNEXPECTED), "{method} {path} {name}: {text}");
            refused += 1;
        }
        for key in inner["properties"].as_object().into_iter().flat_map(|it| it.keys()) {
            let wrong = json!({ name: {key: ["no such value"]} });
            let text = said(rig.call(method, path, wrong, NEW).await);
            assert!(!text.contains(UNEXPECTED), "{method} {path} {name}.{key}: {text}");
            assert!(!text.contains("There is no such action"), "{name}: {text}");
        }
    }
    assert!(refused >= 12, "only {refused} bodies are closed");
}
