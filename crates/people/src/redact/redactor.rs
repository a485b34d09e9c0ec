//! Three nets, each for what slips through the one before: fields that are named like secrets, texts
//! that look like secrets, and the very values that are known to be secret wherever they stand.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use super::{HIDDEN, password, url};

/// Shorter values are words, not secrets: hiding them everywhere would hide everything.
const MIN_SECRET: usize = 6;

/// What a field or variable is called that holds a secret.
static SECRET_NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        "(?i)(passw(or)?d|passphrase|passcode|pass$|[_-]pass[_-]|pwd$|secret|token|credential|(api|access",
        "|private|client|account|enc|encryption|shared|master|storage|customer|signing|session|sse)",
        "[_-]?key|signature|authorization|cookie|^auth$|^sas$)"
    ))
});
/// Names that only look so: they say which secret, or of whose token, not what it is.
static PLAIN_NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        "(?i)((secret|token|credential|key)s?[_-]?(auth[_-]?)?(name|ref|file|namespace|path|review",
        "|type|size|count|version)s?$|credentialSecret$|automount|expiration)"
    ))
});
static SHAPES: LazyLock<[Regex; 6]> = LazyLock::new(|| {
    [
        // Private keys, whole or cut off at an end.
        pattern("(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"),
        pattern("-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=]|\\s|\\\\n)*"),
        pattern("(?:[A-Za-z0-9+/=]{16,}(?:\\s|\\\\n)*)+-----END [A-Z ]*PRIVATE KEY-----"),
        // Signed tokens.
        pattern("eyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]*"),
        // What follows a scheme of HTTP.
        pattern("(?i)\\b(?:bearer|basic)\\s+[A-Za-z0-9._~+/=-]{6,}"),
        // Keys of S3.
        pattern("\\b(?:AKIA|ASIA)[A-Z0-9]{16}\\b"),
    ]
});
/// A name, and what stands between it and its value.
static NAME: LazyLock<Regex> =
    LazyLock::new(|| pattern("([A-Za-z0-9_.-]+)\\\\?[\"']?\\s*[=:]\\s*"));
/// `--password hunter2`.
static FLAG: LazyLock<Regex> = LazyLock::new(|| pattern("(--[A-Za-z0-9_.-]+)[ \\t]+"));
/// In quotes, which a text in a text escapes, or all up to the next space: too much is better than
/// too little.
static VALUE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        "^(?:\\\\\"(?:[^\"\\\\]|\\\\[^\"])*\\\\\"|\"(?:[^\"\\\\]|\\\\.)*\"",
        "|'[^']*'|[^\\s\"'\\\\]\\S*)"
    ))
});
/// The text of a field over several lines.
static BLOCK: LazyLock<Regex> = LazyLock::new(|| pattern("^[|>][+-]?[0-9]?[ \\t]*\n"));
/// What colours a text on a terminal; it can stand between a name and its value.
static COLOURS: LazyLock<Regex> = LazyLock::new(|| pattern("\x1b\\[[0-9;]*[A-Za-z]"));
static URLS: LazyLock<Regex> =
    LazyLock::new(|| pattern("[a-zA-Z][a-zA-Z0-9+.-]*://[^\\s\"'<>\\\\]+"));
/// Members of a Secret that are no secret, and whose values stand everywhere.
const PLAIN_MEMBERS: [&str; 9] = [
    "namespace",
    "ca.crt",
    "tls.crt",
    "service-ca.crt",
    "region",
    "bucket",
    "AWS_ENDPOINTS",
    "AWS_REGION",
    "VIRTUAL_HOSTED_STYLE",
];

#[expect(clippy::expect_used, reason = "the patterns are of this file, and a test compiles them")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("it is a pattern")
}

/// Whether what has this name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    SECRET_NAME.is_match(name) && !PLAIN_NAME.is_match(name)
}

/// Values of a document that are secret by their place: in a Secret, under a name of a secret, in an
/// address.
pub fn harvest(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            let is_secret = value.get("kind").and_then(Value::as_str) == Some("Secret");
            for of in ["data", "stringData"] {
                let Some(found) = value.get(of).and_then(Value::as_object) else { continue };
                if is_secret {
                    let found = found.iter().filter(|(name, _)| is_kept(name));
                    into.extend(found.filter_map(|(_, it)| it.as_str().map(str::to_owned)));
                }
            }
            if let Some(text) = named_value(value) {
                into.insert(text.to_owned());
            }
            for (name, member) in members {
                match member {
                    Value::String(text) if is_secret_name(name) => {
                        into.insert(text.clone());
                    }
                    other => harvest(other, into),
                }
            }
        }
        Value::Array(items) => {
            into.extend(
                follows_flag(items).filter_map(|at| items.get(at)?.as_str().map(str::to_owned)),
            );
            for it in items {
                harvest(it, into);
            }
        }
        Value::String(text) => {
            into.extend(password(text).map(str::to_owned));
            if let Some(inner) = document(text) {
                harvest(&inner, into);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Which words of a command line follow an option that is named like a secret.
fn follows_flag(words: &[Value]) -> impl Iterator<Item = usize> + use<> {
    let is_flag = |it: &Value| {
        let name = it.as_str().and_then(|it| it.strip_prefix('-')).unwrap_or_default();
        is_secret_name(name.trim_start_matches('-')) && !name.contains('=')
    };
    let all: Vec<usize> =
        (1..words.len()).filter(|at| words.get(at - 1).is_some_and(is_flag)).collect();
    all.into_iter()
}

/// Whether a member of a Secret is one.
fn is_kept(name: &str) -> bool {
    !PLAIN_MEMBERS.contains(&name)
}

/// The value of a variable, as containers have them, if its name says that it is a secret.
fn named_value(value: &Value) -> Option<&str> {
    let name = value.get("name").and_then(Value::as_str)?;
    value.get("value").and_then(Value::as_str).filter(|_| is_secret_name(name))
}

/// What a text holds that is a document itself.
fn document(text: &str) -> Option<Value> {
    let looks_so = text.trim_start().starts_with(['{', '[']);
    looks_so.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Hides secrets in whatever it is given.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The longest first, so that none is hidden in part.
    values: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.values.len())
    }
}

impl Redactor {
    /// One that knows these values to be secret.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let parts: BTreeSet<String> = values.into_iter().flat_map(|it| parts(&it)).collect();
        let mut values: Vec<String> =
            parts.into_iter().filter(|it| it.chars().count() >= MIN_SECRET).collect();
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        Self { values }
    }

    pub fn text(&self, text: &str) -> String {
        let mut shown = COLOURS.replace_all(text, "").into_owned();
        for value in &self.values {
            if shown.contains(value.as_str()) {
                shown = shown.replace(value.as_str(), HIDDEN);
            }
        }
        for shape in SHAPES.iter() {
            shown = shape.replace_all(&shown, HIDDEN).into_owned();
        }
        shown = URLS.replace_all(&shown, |found: &Captures<'_>| url(&found[0])).into_owned();
        assigned(&assigned(&shown, &NAME), &FLAG)
    }

    /// Lines of a log: documents by what they say, others as they are.
    pub fn log(&self, text: &str) -> String {
        let (mut shown, mut plain) = (String::new(), String::new());
        for line in text.split_inclusive('\n') {
            let Some(mut inner) = document(line) else {
                plain += line;
                continue;
            };
            shown += &self.text(&std::mem::take(&mut plain));
            self.json(&mut inner);
            shown += &inner.to_string();
            shown.push('\n');
        }
        shown + &self.text(&plain)
    }

    /// An object, or a list of them.
    pub fn json(&self, value: &mut Value) {
        if value.get("kind").and_then(Value::as_str) == Some("Secret") {
            hide_members(value, "data");
            hide_members(value, "stringData");
        }
        let is_named = named_value(value).is_some();
        match value {
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    if is_secret_name(name) || (is_named && name == "value") {
                        hide_plain(member);
                    }
                    self.json(member);
                }
            }
            Value::Array(items) => {
                for at in follows_flag(items) {
                    items.get_mut(at).into_iter().for_each(hide_plain);
                }
                for it in items {
                    self.json(it);
                }
            }
            // What was applied is kept there whole, a Secret's data with it.
            Value::String(text) => match document(text) {
                Some(mut inner) => {
                    self.json(&mut inner);
                    *text = inner.to_string();
                }
                None => *text = self.text(text),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A value as it may be found elsewhere: whole, line by line, and what is assigned in its lines.
fn parts(value: &str) -> Vec<String> {
    let whole = value.trim();
    let mut parts = vec![whole.to_owned()];
    if let Some(inner) = document(whole) {
        let mut found = BTreeSet::new();
        harvest(&inner, &mut found);
        parts.extend(found.iter().flat_map(|it| parts_of_lines(it)));
    } else {
        parts.extend(parts_of_lines(whole));
    }
    // As one text of JSON has it.
    let escaped = Value::from(whole).to_string();
    parts.push(escaped.trim_matches('"').to_owned());
    // As an address has it.
    let encoded: String = url::form_urlencoded::byte_serialize(whole.as_bytes()).collect();
    parts.extend([encoded.replace('+', "%20"), encoded]);
    parts
}

fn parts_of_lines(value: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for line in value.lines().map(str::trim) {
        if line.starts_with("-----") || (line.starts_with('[') && line.ends_with(']')) {
            continue;
        }
        match line.split_once(['=', ':']) {
            // `region = here` is no secret, though it lies in a Secret.
            Some((name, assigned)) if value.lines().count() > 1 && !assigned.trim().is_empty() => {
                if is_secret_name(name.trim()) {
                    parts.push(assigned.trim().trim_matches(['"', '\'']).to_owned());
                }
            }
            _ => parts.push(line.to_owned()),
        }
    }
    parts
}

/// Hides what is assigned to names of secrets; values of other names are looked into as well.
fn assigned(text: &str, names: &Regex) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(found) = names.captures(rest) {
        let Some(whole) = found.get(0) else { break };
        let (before, after) = rest.split_at(whole.end());
        shown += before;
        rest = after;
        let is_secret = is_secret_name(&found[1]);
        if let Some(head) = BLOCK.find(rest).filter(|_| is_secret) {
            let (head, lines) = rest.split_at(head.end());
            shown += head;
            rest = skip_block(
                lines,
                indent(shown.trim_end_matches('\n').lines().last().unwrap_or("")),
            );
            shown += "  ";
            shown += HIDDEN;
            shown.push('\n');
            continue;
        }
        let value = VALUE.find(rest).filter(|_| is_secret);
        if let Some(value) = value {
            let quotes = ["\\\"", "\"", "'"];
            let quote = quotes.into_iter().find(|it| rest.starts_with(it)).unwrap_or("");
            shown += &[quote, HIDDEN, quote].concat();
            rest = rest.split_at(value.end()).1;
        }
    }
    shown + rest
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// What comes after the lines that stand further in than the one they belong to.
fn skip_block(mut lines: &str, outer: usize) -> &str {
    while let Some(line) = lines.split_inclusive('\n').next() {
        if !line.trim().is_empty() && indent(line) <= outer {
            break;
        }
        lines = lines.split_at(line.len()).1;
    }
    lines
}

fn hide_members(value: &mut Value, of: &str) {
    if let Some(members) = value.get_mut(of).and_then(Value::as_object_mut) {
        members.values_mut().for_each(|it| *it = Value::from(HIDDEN));
    }
}

/// What is a secret by its name: a text, a number, or some of them.
fn hide_plain(value: &mut Value) {
    match value {
        Value::String(text) if text.is_empty() => {}
        Value::String(_) | Value::Number(_) => *value = Value::from(HIDDEN),
        Value::Array(items) => items.iter_mut().for_each(hide_plain),
        Value::Object(_) | Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_only_point_at_secrets_are_not_secret() {
        for name in [
            "password",
            "OS_PASSWORD",
            "AWS_SECRET_ACCESS_KEY",
            "token",
            "clientKey",
            "api_key",
            "client-key-data",
            "secret-access-key",
            "CRYPTO_KEY_VALUE_PASSPHRASE",
            "auth",
            "DB_PASS",
            "MYSQL_PWD",
            "passcode",
            "STORAGE_KEY",
            "AWS_SSE_CUSTOMER_KEY",
            "encKey",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "secretName",
            "credentialSecret",
            "token-auth-file",
            "secretRef",
            "secret_namespace",
            "name",
            "key",
            "author",
            "tokenExpirationSeconds",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn what_looks_like_a_secret_is_hidden_in_any_text() {
        let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl";
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----";
        let half = "MIGHAgEAMBMGMIGHAgEAMBMG\n-----END EC PRIVATE KEY-----";
        for (text, secret) in [
            (format!("Authorization: Bearer {jwt}"), jwt),
            (format!("see {jwt} there"), jwt),
            (format!("a\n{key}\nb"), "MIGHAgEAMBMG"),
            (format!("a {} b", key.replace('\n', "\\n")), "MIGHAgEAMBMG"),
            (half.to_owned(), "MIGHAgEAMBMG"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIGHAgEAMBMG".to_owned(), "MIGHAgEAMBMG"),
            ("postgres://ann:hunter22@db/x".to_owned(), "hunter22"),
            ("password=hunter22 user=ann".to_owned(), "hunter22"),
            ("password: \"correct hunter22\"".to_owned(), "hunter22"),
            ("passphrase = 'correct hunter22'".to_owned(), "hunter22"),
            ("{\"secretKey\": \"hunter22\"}".to_owned(), "hunter22"),
            ("{\\\"secretKey\\\": \\\"my hunter22\\\"}".to_owned(), "hunter22"),
            ("etcdctl --password hunter22 get".to_owned(), "hunter22"),
            ("X-Auth-Token: hunter22".to_owned(), "hunter22"),
            ("//host/share cifs rw,username=ann,password=hunter22,uid=0".to_owned(), "hunter22"),
            ("postgres://ann:hunter22/x@db/y".to_owned(), "hunter22"),
            ("postgres://ann:hun/hunter22@db/y".to_owned(), "hunter22"),
            ("\u{1b}[3mpassword\u{1b}[0m\u{1b}[2m=\u{1b}[0mhunter22".to_owned(), "hunter22"),
            ("a:\n  password: |\n    correct\n    hunter22\n  user: ann".to_owned(), "hunter22"),
            ("key AKIAIOSFODNN7EXAMPLE used".to_owned(), "AKIAIOSFODNN7EXAMPLE"),
        ] {
            let shown = Redactor::default().text(&text);
            assert!(!shown.contains(secret), "{text} is shown as {shown}");
        }
        for plain in [
            "volume data: attached to node-1, 3 of 3 copies; secretName=store",
            "the token of ann is over",
            "time=2026-11-16T02:00:00Z level=info message=\"the secret store is there\"",
        ] {
            assert_eq!(Redactor::default().text(plain), plain);
        }
    }

    #[test]
    fn a_value_that_is_known_is_hidden_wherever_it_stands() {
        let redactor = Redactor::new(["correct horse\nbattery staple".to_owned(), "ab".to_owned()]);
        assert_eq!(redactor.text("x correct horse y ab"), "x … y ab");
        let mut object = json!({"status": {"message": "tried battery staple in vain"}});
        redactor.json(&mut object);
        assert_eq!(object["status"]["message"], "tried … in vain");
        assert!(!format!("{redactor:?}").contains("horse"));
    }

    #[test]
    fn what_is_assigned_in_a_known_file_is_known_and_its_plain_lines_are_not() {
        let cloud = "[default]\naws_secret_access_key = hunter22\nregion = us-east-1\n";
        let account = r#"{"type":"service_account","private_key":"planted-key"}"#;
        let redactor = Redactor::new([cloud.to_owned(), account.to_owned()]);
        let shown = redactor.text("default hunter22 us-east-1 planted-key service_account");
        assert_eq!(shown, "default … us-east-1 … service_account");
    }

    #[test]
    fn secrets_lose_their_data_and_nothing_else() {
        let mut object = json!({
            "kind": "Secret", "metadata": {"name": "store", "annotations": {
                "applied": "{\"kind\":\"Secret\",\"stringData\":{\"a\":\"planted-1\"}}"}},
            "data": {"AWS_ENDPOINTS": "cGxhbnRlZC0y"}, "stringData": {"b": "planted-3"},
        });
        Redactor::default().json(&mut object);
        let text = object.to_string();
        assert!(!text.contains("planted") && !text.contains("cGxhbnRlZC0y"), "{text}");
        assert!(text.contains("AWS_ENDPOINTS") && text.contains("store"), "{text}");
    }

    #[test]
    fn variables_lists_and_numbers_are_hidden_by_their_names() {
        let mut object = json!({
            "env": [{"name": "DB_PASSWORD", "value": "planted-1"}, {"name": "HOME", "value": "/root"}],
            "tokens": ["planted-2", {"secretName": "store"}], "accessKey": 123_456,
            "args": ["--token=planted-3"], "command": ["dump", "--password", "planted-5", "--user", "ann"], "list": "[{\"password\":\"planted-4\"}]",
        });
        let mut known = BTreeSet::new();
        harvest(&object, &mut known);
        assert!(known.contains("planted-1") && known.contains("planted-4"), "{known:?}");
        Redactor::default().json(&mut object);
        let text = object.to_string();
        assert!(!text.contains("planted") && !text.contains("123456"), "{text}");
        assert!(text.contains("/root") && text.contains("store") && text.contains("ann"), "{text}");
    }

    #[test]
    fn what_follows_a_secret_of_several_lines_stays() {
        let text = "a:\n  password: |\n    hunter22\n\n    more\n  user: ann\n";
        assert_eq!(Redactor::default().text(text), "a:\n  password: |\n  …\n  user: ann\n");
        let known = Redactor::new(["correct horse/battery".to_owned()]);
        assert_eq!(
            known.text("https://host/x%3F correct%20horse%2Fbattery"),
            "https://host/x%3F …"
        );
    }

    #[test]
    fn a_log_stays_lines_of_documents() {
        let log = "{\"message\":\"token=planted-1\",\"level\":\"info\"}\npassword=planted-2;x\n";
        let shown = Redactor::default().log(log);
        assert_eq!(shown, "{\"level\":\"info\",\"message\":\"token=…\"}\npassword=…\n");
    }

    #[test]
    fn passwords_of_addresses_and_members_of_secrets_are_harvested() {
        let mut known = BTreeSet::new();
        let secret = json!({"kind": "Secret", "data": {"k": "cGxhbnRlZA==", "namespace": "bnM="}});
        harvest(&json!([{"url": "cifs://ann:planted@host/share"}, secret]), &mut known);
        let known: Vec<_> = known.into_iter().collect();
        assert_eq!(known, ["cGxhbnRlZA==", "planted"]);
    }
}
