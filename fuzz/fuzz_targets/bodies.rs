//! Request bodies in every syntax.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::{json, proto};

fuzz_target!(|bytes: &[u8]| {
    let _ = json::decode(bytes);
    let _ = json::decode_yaml(bytes);
    let _ = proto::decode(bytes);
    let mut enveloped = proto::MAGIC.to_vec();
    enveloped.extend_from_slice(bytes);
    let _ = proto::decode(&enveloped);
});
