//! A definition's schema with its rules, and an object checked against it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::{defaults, json, prune, schema, validate};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (Ok(text), Ok(object)) = (json::decode(input.0), json::decode(input.1)) else { return };
    let Ok(node) = schema::parse(&text.value, "schema") else { return };
    let mut new = object.value.clone();
    let _ = validate::types(&node, &new);
    prune::prune(&node, &mut new);
    defaults::drop_nulls(&node, &mut new);
    defaults::apply(&node, &mut new);
    let _ = validate::validate(&node, &new, Some(&object.value));
    let _ = schema::to_openapi(&node);
});
