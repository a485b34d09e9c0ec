//! What the spec of a storage location means: which store, how it is reached, whose credentials.

use std::path::{Path, PathBuf};

use api::velero::BackupStorageLocation;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blobs::{Credentials, Key, Network};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::names;

/// The provider of locations that are directories of this machine.
pub const DIRECTORY: &str = "holdfast.io/directory";
const S3: [&str; 2] = ["aws", "velero.io/aws"];

/// The settings of an S3 location that are understood.
const KEYS: [&str; 14] = [
    "region",
    "s3Url",
    "publicUrl",
    "s3ForcePathStyle",
    "kmsKeyId",
    "customerKeyEncryptionFile",
    "customerKeyEncryptionSecret",
    "signatureVersion",
    "profile",
    "serverSideEncryption",
    "insecureSkipTLSVerify",
    "enableSharedConfig",
    "tagging",
    "checksumAlgorithm",
];
/// Of these, what would be wrong to leave undone silently.
const REFUSED: [&str; 5] = [
    "kmsKeyId",
    "customerKeyEncryptionFile",
    "customerKeyEncryptionSecret",
    "serverSideEncryption",
    "tagging",
];
const DEFAULT_PROFILE: &str = "default";
/// Where credentials are that a location does not name.
pub(crate) const DEFAULT_SECRET: (&str, &str) = ("cloud-credentials", "cloud");

/// Where the objects of a location are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    S3(Box<S3Place>),
    /// A folder, and the folder in it that is the root of the location.
    Directory {
        bucket: PathBuf,
        root: PathBuf,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct S3Place {
    pub(crate) url: String,
    /// As others reach it.
    pub(crate) public_url: String,
    pub(crate) profile: String,
    pub(crate) network: Network,
}

/// Reads a spec. `directories` is where this machine keeps its directories, if it has any.
pub(crate) fn place(
    location: &BackupStorageLocation,
    directories: Option<&Path>,
) -> Result<Place, String> {
    let spec = &location.spec;
    let storage = spec.object_storage.clone().unwrap_or_default();
    let bucket = storage.bucket.trim();
    if bucket.is_empty() {
        return Err("spec.objectStorage.bucket is empty".to_owned());
    }
    if bucket.contains('/') {
        return Err(format!(
            "backup storage location's bucket name {bucket:?} must not contain a '/' (if using a \
             prefix, put it in the 'Prefix' field instead)"
        ));
    }
    // It becomes part of an address, where other characters would mean something.
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    if !bucket.chars().all(plain) {
        return Err(format!(
            "backup storage location's bucket name {bucket:?} must have only letters, digits, dots, \
             hyphens and underscores"
        ));
    }
    let prefix = storage.prefix.as_deref().unwrap_or_default().trim_matches('/').to_owned();
    if !prefix.is_empty() {
        Key::parse(&prefix).map_err(|error| format!("spec.objectStorage.prefix: {error}"))?;
    }
    let provider = spec.provider.as_deref().unwrap_or_default();
    if S3.contains(&provider) {
        return s3(location, bucket, &prefix).map(|it| Place::S3(Box::new(it)));
    }
    if provider != DIRECTORY {
        return Err(format!(
            "there is no provider {provider:?} here; use aws for a store that speaks S3, or \
             {DIRECTORY} for a directory of the server"
        ));
    }
    let Some(directories) = directories else {
        return Err("this server keeps no directories; use provider aws".to_owned());
    };
    let of_tenant = location.metadata.annotations.as_ref();
    if of_tenant.is_some_and(|it| it.contains_key(names::TENANT_LOCATION_NAMESPACE)) {
        return Err("directories of the server are not for tenants; use provider aws".to_owned());
    }
    Key::parse(bucket).map_err(|error| format!("spec.objectStorage.bucket: {error}"))?;
    let bucket = directories.join(bucket);
    let root = if prefix.is_empty() { bucket.clone() } else { bucket.join(prefix) };
    Ok(Place::Directory { bucket, root })
}

fn s3(location: &BackupStorageLocation, bucket: &str, prefix: &str) -> Result<S3Place, String> {
    let config = location.spec.config.clone().unwrap_or_default();
    let get = |key: &str| config.get(key).map(String::as_str).filter(|it| !it.is_empty());
    let unknown: Vec<&str> =
        config.keys().map(String::as_str).filter(|key| !KEYS.contains(key)).collect();
    if !unknown.is_empty() {
        let (unknown, known) = (unknown.join(" "), KEYS.join(" "));
        return Err(format!("config has invalid keys [{unknown}]; valid keys are [{known}]"));
    }
    if let Some(key) = REFUSED.iter().find(|key| get(key).is_some()) {
        return Err(format!("config key {key} is not supported by this server; remove it"));
    }
    let storage = location.spec.object_storage.as_ref();
    let ca_cert = storage.and_then(|it| it.ca_cert.as_deref()).filter(|it| !it.is_empty());
    let has_ref = storage.is_some_and(|it| it.ca_cert_ref.is_some());
    if ca_cert.is_some() && has_ref {
        return Err("cannot specify both caCert and caCertRef in objectStorage".to_owned());
    }
    let mut network = Network {
        accept_any_certificate: flag("insecureSkipTLSVerify", get("insecureSkipTLSVerify"))?,
        ..Network::default()
    };
    if let Some(text) = ca_cert {
        let pem = STANDARD.decode(text.trim()).ok().and_then(|it| String::from_utf8(it).ok());
        network.ca_pem = Some(pem.ok_or("objectStorage.caCert is not base64 of PEM")?);
    }
    let path_style = flag("s3ForcePathStyle", get("s3ForcePathStyle"))?;
    let url = |endpoint: Option<&str>| {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let folders: Vec<String> = prefix.split('/').map(encode).collect();
        let region = encode(get("region").unwrap_or("us-east-1"));
        let mut url = format!("s3://{bucket}/{}?region={region}", folders.join("/"));
        if let Some(endpoint) = endpoint {
            url.push_str("&endpoint=");
            url.push_str(&encode(endpoint));
        }
        // Other stores than Amazon's are asked by path unless told otherwise.
        if path_style || endpoint.is_none() {
            url.push_str(if path_style { "&path_style=true" } else { "&path_style=false" });
        }
        url
    };
    let own = get("s3Url");
    Ok(S3Place {
        url: url(own),
        public_url: url(get("publicUrl").or(own)),
        profile: get("profile").unwrap_or(DEFAULT_PROFILE).to_owned(),
        network,
    })
}

fn flag(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("false" | "False" | "FALSE" | "0" | "f" | "F") => Ok(false),
        Some("true" | "True" | "TRUE" | "1" | "t" | "T") => Ok(true),
        Some(other) => Err(format!("config key {name}: {other:?} is neither true nor false")),
    }
}

/// The keys of one profile of a shared-credentials file.
pub(crate) fn credentials(text: &str, profile: &str) -> Result<Credentials, String> {
    let mut section = "";
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            section = name.trim().trim_start_matches("profile ").trim();
            continue;
        }
        if line.starts_with(['#', ';']) || section != profile {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim().to_owned();
        match key.trim() {
            "aws_access_key_id" => id = Some(value),
            "aws_secret_access_key" => secret = Some(value),
            "aws_session_token" => token = Some(value),
            _ => {}
        }
    }
    match (id, secret) {
        (Some(access_key_id), Some(secret)) => Ok(Credentials::S3 {
            access_key_id,
            secret_access_key: secret.into(),
            session_token: token.map(Into::into),
        }),
        _ => Err(format!(
            "unable to get credentials: the profile [{profile}] has no aws_access_key_id and \
             aws_secret_access_key"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn location(provider: &str, storage: Value, config: Value) -> BackupStorageLocation {
        serde_json::from_value(json!({"metadata": {"name": "l"}, "spec": {"provider": provider,
            "objectStorage": storage, "config": config}}))
        .unwrap()
    }

    fn url(storage: Value, config: Value) -> Result<String, String> {
        match place(&location("aws", storage, config), None)? {
            Place::S3(place) => Ok(place.url),
            Place::Directory { .. } => unreachable!(),
        }
    }

    #[test]
    fn the_settings_of_an_s3_location_become_a_url_that_opens() {
        let made = url(
            json!({"bucket": "b", "prefix": "/a b/c/"}),
            json!({"region": "r", "s3Url": "http://127.0.0.1:9", "s3ForcePathStyle": "true"}),
        )
        .unwrap();
        assert_eq!(
            made,
            "s3://b/a%20b/c?region=r&endpoint=http%3A%2F%2F127%2E0%2E0%2E1%3A9&path_style=true"
        );
        let keys =
            credentials("[default]\naws_access_key_id=a\naws_secret_access_key = b\n", "default");
        assert!(blobs::open(&made, &keys.unwrap()).is_ok());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let b = || json!({"bucket": "b"});
        for (storage, config, text) in [
            (json!({"bucket": "a/b"}), json!({}), "must not contain a '/'"),
            (json!({"bucket": "shared#"}), json!({}), "must have only letters"),
            (json!({"bucket": "b?path_style=true&region=x#"}), json!({}), "must have only letters"),
            (json!({"bucket": "b", "prefix": "a/../c"}), json!({}), "only dots"),
            (b(), json!({"reigon": "x"}), "config has invalid keys [reigon]"),
            (b(), json!({"kmsKeyId": "x"}), "kmsKeyId is not supported"),
            (b(), json!({"s3ForcePathStyle": "maybe"}), "neither true nor false"),
            (
                json!({"bucket": "b", "caCert": "eA==", "caCertRef": {"name": "n", "key": "k"}}),
                json!({}),
                "cannot specify both caCert and caCertRef",
            ),
        ] {
            let error = url(storage, config).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        let error = place(&location("gcp", b(), json!({})), None).unwrap_err();
        assert!(error.contains("there is no provider \"gcp\""), "{error}");
    }

    #[test]
    fn directories_stay_where_they_belong_and_are_not_for_tenants() {
        let root = Path::new("/stores");
        let mut own = location(DIRECTORY, json!({"bucket": "b", "prefix": "p"}), json!({}));
        let Place::Directory { root: made, .. } = place(&own, Some(root)).unwrap() else {
            unreachable!()
        };
        assert_eq!(made, Path::new("/stores/b/p"));
        assert!(place(&own, None).is_err());
        own.metadata.annotations = Some(
            [(names::TENANT_LOCATION_NAMESPACE.to_owned(), "t".to_owned())].into_iter().collect(),
        );
        assert!(place(&own, Some(root)).unwrap_err().contains("not for tenants"));
        let climbing = location(DIRECTORY, json!({"bucket": ".."}), json!({}));
        assert!(place(&climbing, Some(root)).is_err());
    }

    #[test]
    fn the_profile_chooses_the_keys() {
        let text = "[a]\naws_access_key_id=1\naws_secret_access_key=2\n[b]\naws_access_key_id=3\n\
                    aws_secret_access_key=4\naws_session_token=5\n";
        let Credentials::S3 { access_key_id, session_token, .. } = credentials(text, "b").unwrap()
        else {
            unreachable!()
        };
        assert_eq!((access_key_id.as_str(), session_token.is_some()), ("3", true));
        assert!(credentials(text, "c").unwrap_err().contains("[c]"));
    }
}
