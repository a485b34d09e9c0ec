//! Server-side apply on an arbitrary live object, and the reader of `managedFields`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::managed::{self, Writer};
use objects::{builtin, json};

fuzz_target!(|input: (&[u8], &[u8], bool)| {
    let (Ok(live), Ok(config)) = (json::decode(input.0), json::decode(input.1)) else { return };
    let Some(pod) = builtin::node("", "v1", "Pod") else { return };
    let writer = Writer {
        manager: "fuzzer",
        api_version: "v1",
        subresource: None,
        now: "2026-01-01T00:00:00Z",
    };
    let _ = managed::apply(&pod, Some(&live.value), &config.value, &writer, input.2);
    let mut changed = config.value.clone();
    managed::track_update(&pod, Some(&live.value), &mut changed, &writer);
});
