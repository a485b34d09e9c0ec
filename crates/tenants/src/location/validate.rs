//! Which storage locations of tenants are accepted, and the Velero location made of one that is.
//!
//! Pure: the Secret comes in as it was found. A tenant's location always lies under a prefix named
//! after its namespace, whatever bucket it names.

use std::time::Duration;

use api::duration::GoDuration;
use api::velero::BackupStorageLocationSpec;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::credentials;
use crate::endpoint;
use crate::enforce;
use crate::settings::{Settings, VELERO_SYNC};
use crate::spec::{self, Verdict};
use crate::world::is_name;

/// Settings of providers that a tenant may give. Others name files and secrets of the executor.
const CONFIG_KEYS: &[(&str, &[&str])] = &[
    (
        "aws",
        &[
            "region",
            "s3Url",
            "publicUrl",
            "s3ForcePathStyle",
            "profile",
            "checksumAlgorithm",
            "insecureSkipTLSVerify",
            "kmsKeyId",
            "serverSideEncryption",
            "tagging",
            "signatureVersion",
            "enableSharedConfig",
        ],
    ),
    ("azure", &["resourceGroup", "storageAccount", "subscriptionId", "blockSizeInBytes", "useAAD"]),
    ("gcp", &["kmsKeyName", "serviceAccount"]),
];

/// The Secret with the tenant's credentials, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    Found,
    Missing,
    Unreadable(String),
    /// Found, and not to be copied: why.
    Unfit(String),
}

/// The location as it counts: with what administrators enforce.
pub fn filled(location: &Map<String, Value>, settings: &Settings) -> Map<String, Value> {
    let mut made = location.clone();
    made.retain(|_, value| !value.is_null());
    enforce::fill(&mut made, &settings.enforce_location);
    made
}

/// Name of the Secret that a location names.
pub fn secret_name(location: &Map<String, Value>) -> Option<&str> {
    let name = location.get("credential")?.get("name")?.as_str()?;
    (!name.is_empty()).then_some(name)
}

/// What of this Secret cannot be copied, if anything: only the key that the location names is read.
pub fn unfit(location: &Map<String, Value>, secret: &Secret) -> Option<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = text(location.get("credential").and_then(|it| it.get("key")));
    let config = location.get("config");
    let profile = text(config.and_then(|it| it.get("profile")));
    let profile = if profile.is_empty() { "default" } else { &profile };
    let Some(found) = secret.data.as_ref().and_then(|it| it.get(&key)) else {
        return Some(format!("has no key \"{key}\""));
    };
    let why = credentials::fault(&text(location.get("provider")), profile, &found.0)?;
    Some(format!("key \"{key}\" {why}"))
}

/// Judges `spec` of a tenant's location, as it stands in the object.
///
/// `is_local`: tenants are on this machine, and reach what it reaches.
pub fn judge(
    spec: &Value,
    credentials: &Credentials,
    settings: &Settings,
    is_local: bool,
) -> Verdict {
    let path = "NonAdminBackupStorageLocation spec.backupStorageLocationSpec";
    let Some(location) = spec.get("backupStorageLocationSpec").and_then(Value::as_object) else {
        return Verdict::Invalid(format!("{path} is not set"));
    };
    if let Some(message) = spec::bad_duration(path, location) {
        return Verdict::Invalid(message);
    }
    let filled = filled(location, settings);
    let typed = match BackupStorageLocationSpec::deserialize(&filled) {
        Ok(typed) => typed,
        Err(error) => {
            let message = format!("NonAdminBackupStorageLocation spec cannot be read: {error}");
            return Verdict::Invalid(message);
        }
    };
    if let Some(message) = fault(&typed, location, settings, is_local) {
        return Verdict::Invalid(message);
    }
    let name = secret_name(&filled).unwrap_or_default();
    match credentials {
        Credentials::Found => Verdict::Valid,
        Credentials::Missing => Verdict::NotYet(format!(
            "BSL credentials secret not found: Secret \"{name}\" not found"
        )),
        Credentials::Unreadable(error) => {
            Verdict::NotYet(format!("failed to get BSL credentials secret: {error}"))
        }
        Credentials::Unfit(why) => Verdict::NotYet(format!(
            "BSL credentials secret can not be used: Secret \"{name}\" {why}"
        )),
    }
}

fn fault(
    typed: &BackupStorageLocationSpec,
    location: &Map<String, Value>,
    settings: &Settings,
    is_local: bool,
) -> Option<String> {
    if typed.default == Some(true) {
        return Some("NonAdminBackupStorageLocation cannot be used as a default BSL".into());
    }
    let path = "NonAdminBackupStorageLocation spec.bslSpec";
    let Some(credential) = &typed.credential else {
        return Some(format!("{path}.credential is not set"));
    };
    if credential.name.as_deref().unwrap_or_default().is_empty() || credential.key.is_empty() {
        return Some(format!("{path}.credential.name or spec.bslSpec.credential.key is not set"));
    }
    if !credential.name.as_deref().is_some_and(is_name) {
        return Some(format!("{path}.credential.name is not the name of a Secret"));
    }
    let own = typed.backup_sync_period.as_ref().and_then(|period| period.get().ok());
    let period = own.unwrap_or(VELERO_SYNC);
    if let Some(sync) = settings.sync_period.filter(|sync| period >= *sync) {
        return Some(format!(
            "NABSL spec.backupStorageLocationSpec.backupSyncPeriod ({}) can not be greater or \
             equal non admin backupSyncPeriod ({})",
            go(period),
            go(sync)
        ));
    }
    enforcement(location, settings)
        .or_else(|| reach(typed, path))
        .or_else(|| address(typed, path, settings, is_local))
}

fn go(duration: Duration) -> GoDuration {
    duration.into()
}

fn enforcement(location: &Map<String, Value>, settings: &Settings) -> Option<String> {
    let found = enforce::conflict(location, &settings.enforce_location)?;
    let text =
        |key: &str| found.enforced.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let how = match (found.field, found.enforced) {
        ("objectStorage", _) => format!(
            "objectStorage field value(s) to: bucket: {}, prefix: {}, caCert: {}",
            text("bucket"),
            text("prefix"),
            text("caCert")
        ),
        ("credential", _) => {
            format!("credential field to: name: {}, key: {}", text("name"), text("key"))
        }
        (field, Value::Object(map)) => {
            let pairs =
                map.iter().map(|(key, value)| format!("{key}: {}", enforce::show(key, value)));
            format!("{field} field to: {}", pairs.collect::<Vec<_>>().join(", "))
        }
        (field, value) => format!("{field} field to: {}", enforce::show(field, value)),
    };
    Some(format!("the administrator has restricted spec.backupStorageLocationSpec.{how}"))
}

/// What would let a tenant out of its prefix, or at files and secrets of the executor.
fn reach(typed: &BackupStorageLocationSpec, path: &str) -> Option<String> {
    let provider = typed.provider.as_deref().unwrap_or_default();
    let short = provider.strip_prefix("velero.io/").unwrap_or(provider);
    let Some((_, keys)) = CONFIG_KEYS.iter().find(|(name, _)| *name == short) else {
        return Some(format!("{path}.provider is restricted, can only be aws, azure or gcp"));
    };
    let storage = typed.object_storage.clone().unwrap_or_default();
    if storage.bucket.is_empty() {
        return Some(format!("{path}.objectStorage.bucket is not set"));
    }
    if !is_bucket(&storage.bucket) {
        return Some(format!(
            "{path}.objectStorage.bucket is restricted, can only have letters, digits, dots, \
             hyphens and underscores"
        ));
    }
    let prefix = storage.prefix.as_deref().unwrap_or_default();
    let climbs = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\\');
    if !prefix.is_empty() && prefix.split('/').any(climbs) {
        return Some(format!(
            "{path}.objectStorage.prefix is restricted, can not be absolute nor have empty or \
             relative parts"
        ));
    }
    if storage.ca_cert_ref.is_some() {
        return Some(format!("{path}.objectStorage.caCertRef is restricted, use caCert"));
    }
    let config = typed.config.iter().flatten();
    config.map(|(key, _)| key).find(|key| !keys.contains(&key.as_str())).map(|key| {
        format!("{path}.config.{key} is restricted, can only be one of: {}", keys.join(", "))
    })
}

/// Whom the executor would ask.
fn address(
    typed: &BackupStorageLocationSpec,
    path: &str,
    settings: &Settings,
    is_local: bool,
) -> Option<String> {
    let get = |key: &str| typed.config.as_ref()?.get(key).filter(|it| !it.is_empty());
    let is_aws = matches!(typed.provider.as_deref(), Some("aws" | "velero.io/aws"));
    let enforced = settings.enforce_location.get("config");
    let is_enforced = |key: &str| enforced.is_some_and(|it| it.get(key).is_some());
    let region = get("region").map_or("us-east-1", String::as_str);
    // It becomes part of a name, and after some marks the name would be another.
    if !region.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
        return Some(format!(
            "{path}.config.region is restricted, can only have letters, digits and hyphens"
        ));
    }
    if !is_aws || is_enforced("s3Url") {
        return None;
    }
    let usual = format!("https://s3.{region}.amazonaws.com");
    let url = get("s3Url").unwrap_or(&usual);
    let why = endpoint::fault(url, settings.allowed_endpoints.as_deref(), is_local)?;
    Some(format!("{path}.config.s3Url {why}"))
}

/// Anything else would be read as more than a name by whoever makes an address of it.
fn is_bucket(name: &str) -> bool {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    match name.strip_prefix("arn:") {
        Some(rest) => rest.chars().all(|it| plain(it) || matches!(it, ':' | '/')),
        None => name.chars().all(plain) && !name.starts_with('.'),
    }
}

/// The spec of the Velero location: under the namespace's prefix, with the copied Secret.
pub fn velero_spec(
    namespace: &str,
    nacuuid: &str,
    location: &Map<String, Value>,
    settings: &Settings,
) -> Map<String, Value> {
    let mut made = filled(location, settings);
    made.remove("default");
    let key = made.get("credential").and_then(|it| it.get("key")).cloned().unwrap_or_default();
    made.insert("credential".into(), json!({"name": nacuuid, "key": key}));
    if let Some(Value::Object(storage)) = made.get_mut("objectStorage") {
        let own = storage.get("prefix").and_then(Value::as_str).unwrap_or_default();
        let prefix =
            if own.is_empty() { namespace.to_owned() } else { format!("{namespace}/{own}") };
        storage.insert("prefix".into(), json!(prefix));
    }
    let is_aws =
        matches!(made.get("provider").and_then(Value::as_str), Some("aws" | "velero.io/aws"));
    if let (true, Some(Value::Object(config))) = (is_aws, made.get_mut("config")) {
        config.entry("checksumAlgorithm").or_insert_with(|| json!(""));
        if let Some(Value::String(url)) = config.get_mut("s3Url") {
            *url = without_default_port(url);
        }
    }
    made
}

/// Signatures are made over the host as clients send it: without the port everybody knows.
fn without_default_port(url: &str) -> String {
    let port = if url.starts_with("https://") { ":443" } else { ":80" };
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}://{}{path}", host.strip_suffix(port).unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Value {
        json!({
            "provider": "aws",
            "objectStorage": {"bucket": "b", "prefix": "mine"},
            "config": {"region": "r", "s3Url": "http://s3:80/x"},
            "credential": {"name": "cloud", "key": "k"},
            "backupSyncPeriod": "1m",
        })
    }

    fn with(change: &Value) -> Value {
        let mut spec = good();
        for (key, value) in change.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"backupStorageLocationSpec": spec})
    }

    fn judged(change: &Value) -> Verdict {
        judge(&with(change), &Credentials::Found, &Settings::default(), false)
    }

    #[test]
    fn each_fault_is_refused_with_the_words_users_know() {
        let table = [
            (
                json!({"default": true}),
                "NonAdminBackupStorageLocation cannot be used as a default BSL",
            ),
            (
                json!({"credential": null}),
                "NonAdminBackupStorageLocation spec.bslSpec.credential is not set",
            ),
            (
                json!({"credential": {"name": "", "key": "k"}}),
                "NonAdminBackupStorageLocation spec.bslSpec.credential.name or spec.bslSpec.credential.key is not set",
            ),
            (
                json!({"backupSyncPeriod": "2m"}),
                "NABSL spec.backupStorageLocationSpec.backupSyncPeriod (2m0s) can not be greater or equal non admin backupSyncPeriod (2m0s)",
            ),
            (
                json!({"backupSyncPeriod": "30d"}),
                "NonAdminBackupStorageLocation spec.backupStorageLocationSpec.backupSyncPeriod: \"30d\" is not a duration; write it as 1h30m or 45s",
            ),
        ];
        for (change, message) in table {
            assert_eq!(judged(&change), Verdict::Invalid(message.into()), "{change}");
        }
        assert_eq!(judged(&json!({})), Verdict::Valid);
    }

    #[test]
    fn nothing_leads_out_of_the_prefix_or_to_the_executors_files() {
        let storage = |prefix: &str| json!({"objectStorage": {"bucket": "b", "prefix": prefix}});
        for (change, part) in [
            (storage("../other"), "prefix is restricted"),
            (storage("/etc"), "prefix is restricted"),
            (storage("a//b"), "prefix is restricted"),
            (storage("a/"), "prefix is restricted"),
            (storage("a/../../b"), "prefix is restricted"),
            (storage("."), "prefix is restricted"),
            (json!({"objectStorage": {"bucket": "b/other"}}), "bucket is restricted"),
            (json!({"objectStorage": {"bucket": ""}}), "bucket is not set"),
            (json!({"objectStorage": {"bucket": "shared#"}}), "bucket is restricted"),
            (json!({"objectStorage": {"bucket": "b?path_style=true&region=x#"}}), "is restricted"),
            (json!({"objectStorage": {"bucket": "b%2Fc"}}), "bucket is restricted"),
            (json!({"objectStorage": {"bucket": ".."}}), "bucket is restricted"),
            (
                json!({"credential": {"name": "../../openshift-adp/secrets/cloud", "key": "k"}}),
                "credential.name is not the name of a Secret",
            ),
            (
                json!({"objectStorage": {"bucket": "b", "caCertRef": {"name": "s", "key": "k"}}}),
                "caCertRef is restricted",
            ),
            (json!({"provider": "directory"}), "provider is restricted"),
            (json!({"config": {"credentialsFile": "x"}}), "config.credentialsFile is restricted"),
            (
                json!({"config": {"customerKeyEncryptionFile": "x"}}),
                "config.customerKeyEncryptionFile is restricted",
            ),
        ] {
            let found = judged(&change);
            assert!(
                matches!(&found, Verdict::Invalid(text) if text.contains(part)),
                "{change}: {found:?}"
            );
        }
    }

    #[test]
    fn a_tenant_does_not_make_the_executor_ask_inner_addresses() {
        let config = |key: &str, value: &str| json!({"config": {key: value}});
        let inner = config("s3Url", "http://127.0.0.1:24900");
        let of = |change: &Value, settings: &str, is_local| {
            let settings = Settings::parse(settings).unwrap();
            judge(&with(change), &Credentials::Found, &settings, is_local)
        };
        let message = "NonAdminBackupStorageLocation spec.bslSpec.config.s3Url is restricted, \
                       127.0.0.1 is an inner address; an administrator can allow it in \
                       allowedEndpoints";
        assert_eq!(of(&inner, "", false), Verdict::Invalid(message.into()));
        assert_eq!(of(&inner, "", true), Verdict::Valid);
        let listed = "nonAdmin: {allowedEndpoints: ['127.0.0.1:24900']}";
        assert_eq!(of(&inner, listed, false), Verdict::Valid);
        let enforced = "nonAdmin: {enforceBSLSpec: {config: {s3Url: 'http://127.0.0.1:24900'}}}";
        assert_eq!(of(&inner, enforced, false), Verdict::Valid);
        // Without an address it is Amazon's.
        let usual = config("region", "eu-central-1");
        assert!(matches!(of(&usual, listed, false), Verdict::Invalid(_)));
        let amazon = "nonAdmin: {allowedEndpoints: ['*.amazonaws.com']}";
        assert_eq!(of(&usual, amazon, false), Verdict::Valid);
        let forged = config("region", "x@127.0.0.1/");
        let found = of(&forged, "", true);
        assert!(
            matches!(&found, Verdict::Invalid(text) if text.contains("config.region is restricted")),
            "{found:?}"
        );
    }

    #[test]
    fn the_secret_must_be_there() {
        let message = "BSL credentials secret not found: Secret \"cloud\" not found";
        let found = judge(&with(&json!({})), &Credentials::Missing, &Settings::default(), false);
        assert_eq!(found, Verdict::NotYet(message.into()));
    }

    #[test]
    fn enforced_values_bind() {
        let settings = Settings::parse(
            "nonAdmin: {enforceBSLSpec: {provider: aws, objectStorage: {bucket: admin}, config: {b: '2', a: '1'}}}",
        )
        .unwrap();
        let judged = |change: Value| judge(&with(&change), &Credentials::Found, &settings, false);
        let prefix = "the administrator has restricted spec.backupStorageLocationSpec.";
        let message = format!("{prefix}config field to: a: 1, b: 2");
        assert_eq!(judged(json!({})), Verdict::Invalid(message));
        let message =
            format!("{prefix}objectStorage field value(s) to: bucket: admin, prefix: , caCert: ");
        assert_eq!(judged(json!({"config": null})), Verdict::Invalid(message));
        let unsaid = json!({"provider": null, "objectStorage": null, "config": null});
        assert!(
            matches!(judged(unsaid), Verdict::Invalid(text) if text.contains("config.a is restricted")),
            "judged as it is filled in"
        );
        let usable = Settings::parse(
            "nonAdmin: {enforceBSLSpec: {provider: aws, objectStorage: {bucket: admin}, credential: {name: c, key: k}}}",
        )
        .unwrap();
        let unsaid = with(&json!({"provider": null, "objectStorage": null, "credential": null}));
        assert_eq!(judge(&unsaid, &Credentials::Found, &usable, false), Verdict::Valid);
        let message = format!("{prefix}provider field to: aws");
        let change =
            json!({"config": null, "objectStorage": {"bucket": "admin"}, "provider": "gcp"});
        assert_eq!(judged(change), Verdict::Invalid(message));
    }

    #[test]
    fn the_velero_location_lies_under_the_namespace() {
        let made = velero_spec("a", "a-l-1", good().as_object().unwrap(), &Settings::default());
        assert_eq!(
            Value::Object(made),
            json!({
                "provider": "aws",
                "objectStorage": {"bucket": "b", "prefix": "a/mine"},
                "config": {"region": "r", "s3Url": "http://s3/x", "checksumAlgorithm": ""},
                "credential": {"name": "a-l-1", "key": "k"},
                "backupSyncPeriod": "1m",
            })
        );
        for (url, want) in [
            ("https://s3:443", "https://s3"),
            ("https://s3:80/x", "https://s3:80/x"),
            ("http://s3:9000", "http://s3:9000"),
            ("s3:80", "s3:80"),
        ] {
            assert_eq!(without_default_port(url), want);
        }
    }
}
