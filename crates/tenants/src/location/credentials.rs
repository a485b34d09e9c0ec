//! Which texts of credentials a tenant may have copied to where an executor reads them. Pure.
//!
//! The libraries of clouds read more than keys from such a text: commands to run, files to send as a
//! token, accounts to ask for. A Velero would do all that with the administrators' means. A text without
//! keys is as bad: the library then takes whatever identity the executor's machine has.

use std::collections::BTreeMap;

use serde_json::Value;

const AWS_KEYS: [&str; 4] =
    ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region"];
const AZURE_KEYS: [&str; 7] = [
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_RESOURCE_GROUP",
    "AZURE_CLOUD_NAME",
    "AZURE_STORAGE_ACCOUNT_ACCESS_KEY",
];

/// What is wrong with a text for this provider, if anything. `profile` is the part of it that counts, where
/// texts have parts.
pub fn fault(provider: &str, profile: &str, text: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(text) else { return Some("is not text".to_owned()) };
    // What one reader takes for the end of a line, another does not.
    let is_odd = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    if text.replace("\r\n", "\n").contains(is_odd) {
        return Some("has characters that are not text".to_owned());
    }
    match provider.strip_prefix("velero.io/").unwrap_or(provider) {
        "aws" => aws(profile, text),
        "azure" => azure(text),
        "gcp" => google(text),
        other => Some(format!("is for the provider {other:?}, of which nothing is known")),
    }
}

/// Keys and values by their part; an error for a line that is none, and for a key that is not known.
fn pairs<'t>(
    text: &'t str,
    known: &[&str],
) -> Result<BTreeMap<(&'t str, String), &'t str>, String> {
    let (mut part, mut all) = ("", BTreeMap::new());
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            part = name.trim().strip_prefix("profile ").unwrap_or(name).trim();
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err("has a line that is neither a part nor a key with a value".to_owned());
        };
        let key = key.trim();
        let found = known.iter().find(|it| it.eq_ignore_ascii_case(key));
        let Some(found) = found else {
            return Err(format!("can only have the keys {}, not {key}", known.join(", ")));
        };
        all.insert((part, (*found).to_owned()), value.trim());
    }
    Ok(all)
}

fn aws(profile: &str, text: &str) -> Option<String> {
    let found = match pairs(text, &AWS_KEYS) {
        Ok(found) => found,
        Err(why) => return Some(why),
    };
    let has = |key: &str| found.get(&(profile, key.to_owned())).is_some_and(|it| !it.is_empty());
    let is_whole = has("aws_access_key_id") && has("aws_secret_access_key");
    (!is_whole).then(|| {
        format!("needs aws_access_key_id and aws_secret_access_key in the part [{profile}]")
    })
}

fn azure(text: &str) -> Option<String> {
    let found = match pairs(text, &AZURE_KEYS) {
        Ok(found) => found,
        Err(why) => return Some(why),
    };
    let has = |key: &str| found.get(&("", key.to_owned())).is_some_and(|it| !it.is_empty());
    let is_whole = has("AZURE_STORAGE_ACCOUNT_ACCESS_KEY")
        || ["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"].into_iter().all(has);
    (!is_whole).then(|| {
        "needs AZURE_STORAGE_ACCOUNT_ACCESS_KEY, or AZURE_TENANT_ID, AZURE_CLIENT_ID and \
         AZURE_CLIENT_SECRET"
            .to_owned()
    })
}

fn google(text: &str) -> Option<String> {
    let found: Option<Value> = serde_json::from_str(text).ok();
    let text_of = |key: &str| found.as_ref()?.get(key)?.as_str().filter(|it| !it.is_empty());
    let is_account = text_of("type") == Some("service_account") && text_of("private_key").is_some();
    (!is_account).then(|| "can only be the key of a service account, as JSON".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(provider: &str, text: &str) -> String {
        fault(provider, "default", text.as_bytes()).unwrap_or_default()
    }

    const KEYS: &str = "aws_access_key_id = a\naws_secret_access_key=b\n";

    #[test]
    fn keys_are_enough() {
        for text in [
            format!("[default]\n{KEYS}"),
            format!("# mine\r\n[default]\r\n{}", KEYS.replace('\n', "\r\n")),
            format!("[profile default]\n{KEYS}aws_session_token=t\nregion=r\n[other]\n{KEYS}"),
        ] {
            assert_eq!(said("aws", &text), "", "{text}");
            assert_eq!(said("velero.io/aws", &text), "");
        }
        assert_eq!(said("azure", "AZURE_STORAGE_ACCOUNT_ACCESS_KEY=k\nAZURE_CLOUD_NAME=c"), "");
        let account = r#"{"type": "service_account", "private_key": "k", "client_email": "e"}"#;
        assert_eq!(said("gcp", account), "");
    }

    #[test]
    fn nothing_makes_the_executor_run_read_or_ask_for_more() {
        for line in [
            "credential_process = /bin/sh -c 'id'",
            "CREDENTIAL_PROCESS=/bin/id",
            "role_arn = arn:aws:iam::1:role/admin",
            "web_identity_token_file = /var/run/secrets/token",
            "credential_source = Ec2InstanceMetadata",
            "source_profile = other",
            "endpoint_url = http://10.0.0.1",
            "s3 =\n  addressing_style = path",
            "just a word",
        ] {
            for part in ["default", "other"] {
                let text = format!("[default]\n{KEYS}[{part}]\n{line}\n");
                assert!(!said("aws", &text).is_empty(), "{text}");
            }
        }
        for text in [
            r#"{"type": "external_account", "private_key": "k",
                "credential_source": {"file": "/var/run/secrets/token"}}"#,
            r#"{"type": "authorized_user"}"#,
            "",
        ] {
            assert!(!said("gcp", text).is_empty(), "{text}");
        }
        let token = "AZURE_STORAGE_ACCOUNT_ACCESS_KEY=k\nAZURE_FEDERATED_TOKEN_FILE=/etc/shadow";
        assert!(said("azure", token).contains("AZURE_FEDERATED_TOKEN_FILE"));
    }

    #[test]
    fn without_keys_the_identity_of_the_machine_would_be_used() {
        for text in ["", "[default]", "[default]\naws_access_key_id=a\naws_secret_access_key=\n"] {
            assert!(said("aws", text).ends_with("in the part [default]"), "{text}");
        }
        let elsewhere = format!("[other]\n{KEYS}");
        assert!(!said("aws", &elsewhere).is_empty());
        assert_eq!(fault("aws", "other", elsewhere.as_bytes()), None);
        assert!(!said("azure", "AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c").is_empty());
    }

    #[test]
    fn what_readers_would_take_apart_differently_is_refused() {
        let hidden = format!("[default]\n{KEYS}#\rcredential_process=/bin/id\n");
        assert!(said("aws", &hidden).contains("not text"));
        assert!(fault("aws", "default", b"\xff").is_some_and(|it| it == "is not text"));
    }
}
