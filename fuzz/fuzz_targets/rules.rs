//! One validation rule, parsed, type-checked and run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::{schema, validate};
use serde_json::json;

fuzz_target!(|rule: &str| {
    let definition = json!({
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule}],
        "properties": {
            "text": {"type": "string", "maxLength": 64},
            "number": {"type": "integer"},
            "list": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 8}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    });
    let Ok(node) = schema::parse(&definition, "schema") else { return };
    let object = json!({"text": "a", "number": 3, "list": ["a", "b"], "map": {"a": 1}});
    let _ = validate::validate(&node, &object, Some(&object));
});
