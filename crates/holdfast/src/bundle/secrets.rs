//! Values that must not get out, as far as this machine knows them.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use people::redact::{harvest, is_secret_name};
use serde_json::{Value, json};

use crate::config::{Config, Resolved};

const MAX_FILE_BYTES: usize = 1 << 20;
const MAX_FILES_NAMED: usize = 64;

/// Where units of this machine find their variables (`deploy/systemd`).
const UNIT_VARIABLES: &str = "/etc/holdfast/environment";

/// From the environment, the settings, the files of the data directory and those that variables and
/// arguments name. `kubeconfig` is the one that is asked.
pub(super) fn of_machine(
    config: &Config,
    resolved: &Resolved,
    kubeconfig: Option<&Path>,
) -> Vec<String> {
    let variables = std::env::vars_os();
    let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
    let mut named: Vec<(String, String)> =
        variables.map(|(name, value)| (text(name), text(value))).collect();
    named.extend(resolved.values().map(|(key, value, _)| ((*key).to_owned(), value.clone())));
    named.extend(read(Path::new(UNIT_VARIABLES)).iter().flat_map(|it| variables_in(it)));
    let named_files = files_named(&named);
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
    let beside = config.data_dir.join("kubeconfig");
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed).collect();
    let usual = std::env::home_dir().map(|it| it.join(".kube/config"));
    let all = listed.into_iter().chain(usual).chain(kubeconfig.map(Path::to_owned));
    for file in all.chain([beside]) {
        values.extend(read(&file).iter().flat_map(|it| it.lines().filter_map(credential)));
    }
    values.extend(named_files.iter().flat_map(|it| credentials_in(it)));
    values
}

/// Lines of a file of variables, as systemd reads them.
fn variables_in(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|it| !it.starts_with('#'));
    let pairs = lines.filter_map(|it| it.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim_matches(['"', '\'']).to_owned()))
        .collect()
}

/// What a file that a variable names as one of credentials holds: itself, if it is short, and each value
/// in it that has a name of a secret.
fn credentials_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if text.lines().count() <= 1 {
        found.push(text.trim().to_owned());
    }
    if let Ok(document) = serde_json::from_str::<Value>(text) {
        let mut known = std::collections::BTreeSet::new();
        harvest(&document, &mut known);
        found.extend(known);
    }
    let pairs = text.lines().filter_map(|it| it.split_once(['=', ':']));
    let secret = pairs.filter(|(name, _)| is_secret_name(name.trim().trim_matches('"')));
    found.extend(secret.map(|(_, it)| it.trim().trim_matches(['"', '\'', ',']).to_owned()));
    found
}

/// Files of credentials that are named in variables: `AWS_SHARED_CREDENTIALS_FILE`,
/// `GOOGLE_APPLICATION_CREDENTIALS`, `PGPASSFILE` and their like; a folder of them, too.
fn files_named(named: &[(String, String)]) -> Vec<String> {
    let is_one = |name: &str| {
        let name = name.to_ascii_uppercase();
        ["CREDENTIAL", "PASS", "TOKEN", "SECRET", "KEY_FILE"].iter().any(|it| name.contains(it))
    };
    let paths = named.iter().filter(|(name, _)| is_one(name)).map(|(_, it)| PathBuf::from(it));
    let mut texts = Vec::new();
    for path in paths.filter(|it| it.is_absolute()) {
        match std::fs::read_dir(&path) {
            Ok(folder) => {
                let files = folder.flatten().take(MAX_FILES_NAMED).map(|it| it.path());
                texts.extend(files.filter_map(|it| read(&it)));
            }
            Err(_) => texts.extend(read(&path)),
        }
    }
    texts
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
    fn files_that_variables_name_are_known_by_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        let text = "[default]\naws_access_key_id = AKID\naws_secret_access_key = planted-one\n";
        durable::replace(&shared, text.as_bytes()).unwrap();
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        durable::replace(folder.join("secretAccessKey"), b"planted-two\n").unwrap();
        let account = dir.path().join("account.json");
        durable::replace(&account, br#"{"private_key": "planted-three", "type": "x"}"#).unwrap();
        let named = [
            ("AWS_SHARED_CREDENTIALS_FILE", &shared),
            ("AWS_APPLICATION_CREDENTIALS", &folder),
            ("GOOGLE_APPLICATION_CREDENTIALS", &account),
            ("PATH", &dir.path().join("other")),
        ];
        let named = named.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let found: Vec<String> =
            files_named(&named).iter().flat_map(|it| credentials_in(it)).collect();
        for planted in ["planted-one", "planted-two", "planted-three"] {
            assert!(found.contains(&planted.to_owned()), "{planted}: {found:?}");
        }
        let unit = variables_in("# a\nHOLDFAST_X=1\nOS_PASSWORD=\"planted\"\n");
        assert_eq!(unit[1], ("OS_PASSWORD".to_owned(), "planted".to_owned()));
    }

    #[test]
    fn credentials_of_a_kubeconfig_are_known() {
        assert_eq!(credential("    client-key-data: QUJD"), Some("QUJD".to_owned()));
        assert_eq!(credential("    token: \"abc\""), Some("abc".to_owned()));
        assert_eq!(credential("    server: https://127.0.0.1"), None);
    }
}
