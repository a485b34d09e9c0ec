//! Token files and certificates from strangers.
#![no_main]

use apiserver::auth::{certificate, tokens::StaticTokens};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = StaticTokens::parse(text);
    }
    if let Ok(now) = "2026-01-01T00:00:00Z".parse() {
        let _ = certificate::user(bytes, now);
    }
});
