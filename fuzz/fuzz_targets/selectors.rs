//! Label and field selectors, and continue tokens: whatever a query string may carry.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::page::Token;
use objects::selector::{FieldSelector, LabelSelector};

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        selector.matches(|key| (key.len() % 2 == 0).then_some("value"));
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        selector.matches(|_| None);
        let _ = selector.name();
    }
    if let Ok(token) = Token::decode(text) {
        assert_eq!(Token::decode(&token.encode()), Ok(token));
    }
});
