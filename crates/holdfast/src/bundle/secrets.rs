//! Values that must not get out, as far as this machine knows them.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use people::redact::{harvest, is_secret_name};
use serde_json::{Value, json};

use crate::config::{Config, Resolved};

const MAX_FILE_BYTES: usize = 1 << 20;

/// From the environment, the settings and the files of the data directory.
pub(super) fn of_machine(config: &Config, resolved: &Resolved) -> Vec<String> {
    let variables = std::env::vars_os();
    let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
    let mut named: Vec<(String, String)> =
        variables.map(|(name, value)| (text(name), text(value))).collect();
    named.extend(resolved.values().map(|(key, value, _)| ((*key).to_owned(), value.clone())));
    let mut values: Vec<String> = named
        .iter()
        .filter(|(name, _)| is_secret_name(name))
        .map(|(_, value)| value.clone())
        .collect();
    // Passwords of addresses.
    let all: Vec<Value> = named.into_iter().map(|(_, value)| json!(value)).collect();
    let mut found = std::collections::BTreeSet::new();
    harvest(&Value::Array(all), &mut found);
    values.extend(found);
    for file in files(config) {
        values.extend(read(&file));
    }
    if let Some(tokens) = config.token_auth_file.as_deref().and_then(read) {
        let first = |line: &str| line.split(',').next().map(|it| it.trim_matches('"').to_owned());
        values.extend(tokens.lines().filter_map(first));
    }
    if let Some(text) = read(&config.data_dir.join("kubeconfig")) {
        values.extend(text.lines().filter_map(credential));
    }
    values
}

/// What the data directory keeps to itself.
fn files(config: &Config) -> Vec<PathBuf> {
    let pki = std::fs::read_dir(config.data_dir.join("pki")).into_iter().flatten();
    let keys = pki.filter_map(|it| Some(it.ok()?.path()));
    let mut files: Vec<PathBuf> =
        keys.filter(|it| it.extension().is_some_and(|it| it == "key")).collect();
    files.push(crate::dashboard::token_file(&config.data_dir));
    files
}

/// A line of a kubeconfig, if it is a credential.
fn credential(line: &str) -> Option<String> {
    let (name, value) = line.trim().split_once(':')?;
    let is_secret = matches!(name, "client-key-data" | "token" | "password");
    is_secret.then(|| value.trim_matches([' ', '"', '\'']).to_owned())
}

fn read(path: &Path) -> Option<String> {
    let bytes = durable::read_limited(path, MAX_FILE_BYTES).ok()?;
    String::from_utf8(bytes).ok()
}

/// A value plain, as it is sent in a Secret, and what it is if it was sent so.
pub(super) fn forms(value: String) -> Vec<String> {
    let mut forms = vec![STANDARD.encode(value.trim())];
    let sent = STANDARD.decode(value.trim()).ok().and_then(|it| String::from_utf8(it).ok());
    // Words are letters of this alphabet, too: what they decode to is not text.
    forms.extend(sent.filter(|it| !it.chars().any(|it| it.is_control() && !it.is_whitespace())));
    forms.push(value);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_known_as_they_are_and_as_they_are_sent() {
        let sent = forms("cGxhbnRlZC1zZWNyZXQ=".to_owned());
        assert!(sent.contains(&"planted-secret".to_owned()), "{sent:?}");
        let plain = forms("planted-secret".to_owned());
        assert!(plain.contains(&"cGxhbnRlZC1zZWNyZXQ=".to_owned()), "{plain:?}");
    }

    #[test]
    fn credentials_of_a_kubeconfig_are_known() {
        assert_eq!(credential("    client-key-data: QUJD"), Some("QUJD".to_owned()));
        assert_eq!(credential("    token: \"abc\""), Some("abc".to_owned()));
        assert_eq!(credential("    server: https://127.0.0.1"), None);
    }
}
