//! Rules of `ConfigMap` and `Secret`.
//!
//! Owns: keys, sizes, base64, and what "immutable" freezes. Never: shows a value of a Secret in a
//! message.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use super::check_immutable;
use crate::access::{at, is_true, members, object_mut, remove, set_default, text};
use crate::cause::{Cause, Reason};
use crate::names;

/// Bytes all values of one object may have together.
pub(super) const CONTENT_MAX_BYTES: usize = 1024 * 1024;

/// Padded, as Go clients write it; bits beyond the last byte do not matter, as Go readers have it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

pub(super) fn config_map_defaults(obj: &mut Value) {
    canonical_base64(obj, "binaryData");
    drop_empty(obj, &["data", "binaryData"]);
}

/// An empty map is an absent one.
fn drop_empty(obj: &mut Value, names: &[&str]) {
    for name in names {
        if members(obj, name).next().is_none() {
            remove(obj, name);
        }
    }
}

/// Folds `stringData`, which is never stored, into `data`.
pub(super) fn secret_defaults(obj: &mut Value) {
    if let Some(Value::Object(plain)) = remove(obj, "stringData")
        && !plain.is_empty()
        && let Some(data) = object_mut(obj, "data")
    {
        for (key, value) in plain {
            let value = value.as_str().unwrap_or_default();
            data.insert(key, BASE64.encode(value).into());
        }
    }
    canonical_base64(obj, "data");
    drop_empty(obj, &["data"]);
    set_default(obj, "type", "Opaque");
}

/// The first key under `member` whose value is not base64.
pub(super) fn bad_base64(obj: &Value, member: &str) -> Option<String> {
    members(obj, member).find_map(|(key, value)| match value {
        Value::Null => None,
        _ if value.as_str().is_some_and(|value| decode(value).is_some()) => None,
        _ => Some(format!("{member}[{key:?}]: not base64")),
    })
}

pub(super) fn check_config_map(obj: &Value, causes: &mut Vec<Cause>) {
    let mut bytes = 0_usize;
    for (key, value) in members(obj, "data") {
        check_key(key, "data", causes);
        if at(obj, "binaryData").is_some_and(|binary| binary.get(key).is_some()) {
            let detail = "the key is also in binaryData";
            causes.push(Cause::invalid(format!("data[{key}]"), &key.as_str().into(), detail));
        }
        bytes = bytes.saturating_add(value.as_str().map_or(0, str::len));
    }
    for (key, value) in members(obj, "binaryData") {
        check_key(key, "binaryData", causes);
        bytes = bytes.saturating_add(decoded_len(value));
    }
    check_size(bytes, "", causes);
}

pub(super) fn check_config_map_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    check_frozen(old, new, &["data", "binaryData"], causes);
}

pub(super) fn check_secret(obj: &Value, causes: &mut Vec<Cause>) {
    let mut bytes = 0_usize;
    for (key, value) in members(obj, "data") {
        check_key(key, "data", causes);
        bytes = bytes.saturating_add(decoded_len(value));
    }
    check_size(bytes, "data", causes);
    check_typed_secret(obj, causes);
}

pub(super) fn check_secret_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    check_immutable(old, new, "type", causes);
    check_frozen(old, new, &["data"], causes);
}

/// Types that promise certain keys.
fn check_typed_secret(obj: &Value, causes: &mut Vec<Cause>) {
    let data = at(obj, "data");
    let has = |key: &str| data.is_some_and(|data| data.get(key).is_some());
    let mut needs = |key: &str| {
        if !has(key) {
            causes.push(Cause::required(format!("data[{key}]"), ""));
        }
    };
    match text(obj, "type") {
        "kubernetes.io/tls" => {
            needs("tls.crt");
            needs("tls.key");
        }
        "kubernetes.io/ssh-auth" => needs("ssh-privatekey"),
        "kubernetes.io/dockercfg" => check_json(obj, ".dockercfg", causes),
        "kubernetes.io/dockerconfigjson" => check_json(obj, ".dockerconfigjson", causes),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            needs("username");
            needs("password");
        }
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let name = at(obj, "metadata.annotations").and_then(|all| all.get(key));
            if name.and_then(Value::as_str).unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        _ => {}
    }
}

/// The key must hold a JSON document.
fn check_json(obj: &Value, key: &str, causes: &mut Vec<Cause>) {
    let field = format!("data[{key}]");
    let Some(value) = at(obj, "data").and_then(|data| data.get(key)) else {
        causes.push(Cause::required(field, ""));
        return;
    };
    let bytes = value.as_str().and_then(decode).unwrap_or_default();
    if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err() {
        // The content is secret and stays out of the message.
        causes.push(Cause::invalid(field, &"<secret contents redacted>".into(), "must be JSON"));
    }
}

/// `immutable: true` freezes the content and itself.
fn check_frozen(old: &Value, new: &Value, content: &[&str], causes: &mut Vec<Cause>) {
    if !is_true(old, "immutable") {
        return;
    }
    let detail = "the object is marked immutable";
    if !is_true(new, "immutable") {
        causes.push(Cause::forbidden("immutable", detail));
    }
    let keys = |obj: &Value, member: &str| -> BTreeSet<(String, String)> {
        let pair = |(key, value): (&String, &Value)| (key.clone(), value.to_string());
        members(obj, member).map(pair).collect()
    };
    for member in content {
        if keys(old, member) != keys(new, member) {
            causes.push(Cause::forbidden(*member, detail));
        }
    }
}

fn check_key(key: &str, member: &str, causes: &mut Vec<Cause>) {
    if let Err(detail) = names::config_key(key) {
        causes.push(Cause::invalid(format!("{member}[{key}]"), &key.into(), &detail));
    }
}

fn check_size(bytes: usize, field: &str, causes: &mut Vec<Cause>) {
    if bytes > CONTENT_MAX_BYTES {
        let message = format!("Too long: may not be more than {CONTENT_MAX_BYTES} bytes");
        causes.push(Cause::new(Reason::TooLong, field, message));
    }
}

/// Rewrites what decodes to its one canonical spelling, so that equal content is equal text.
fn canonical_base64(obj: &mut Value, member: &str) {
    let Some(Value::Object(map)) = obj.get_mut(member) else { return };
    for value in map.values_mut() {
        if value.is_null() {
            *value = "".into();
        } else if let Some(bytes) = value.as_str().and_then(decode) {
            let text = BASE64.encode(bytes);
            if value.as_str() != Some(text.as_str()) {
                *value = text.into();
            }
        }
    }
}

/// Line breaks inside base64 are ignored.
fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.contains(['\r', '\n']) {
        return BASE64.decode(text).ok();
    }
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    BASE64.decode(text).ok()
}

fn decoded_len(value: &Value) -> usize {
    value.as_str().and_then(decode).map_or(0, |bytes| bytes.len())
}
