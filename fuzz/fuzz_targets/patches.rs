//! The three kinds of patches, on an object the fuzzer chooses too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::{builtin, json, patch, strategic};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (Ok(target), Ok(body)) = (json::decode(input.0), json::decode(input.1)) else { return };
    let _ = patch::json_patch(&mut target.value.clone(), &body.value);
    let mut merged = target.value.clone();
    patch::merge(&mut merged, &body.value);
    let once = merged.clone();
    patch::merge(&mut merged, &body.value);
    assert_eq!(once, merged, "merging twice is merging once");
    if let Some(pod) = builtin::node("", "v1", "Pod") {
        let _ = strategic::apply(&pod, &mut target.value.clone(), &body.value);
    }
});
