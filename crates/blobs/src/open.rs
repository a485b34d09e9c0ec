//! Opening a store by its URL.
//!
//! - `file:///var/backups`: a directory
//! - `memory:`: gone with the process
//! - `s3://bucket/prefix?region=eu-central-1&endpoint=http://minio:9000`
//! - `gs://bucket/prefix`
//! - `azure://container/prefix?account=name`
//! - `swift://container/prefix?auth_url=https://keystone:5000/v3&region=name`
//!
//! Secrets are never in the URL, which is logged and shown.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, Checksum, S3ConditionalPut,
};
use object_store::azure::{AzureCredential, MicrosoftAzureBuilder};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{
    Certificate, ClientOptions, ObjectStore, RetryConfig, StaticCredentialProvider,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::error::{Cause, Error};
use crate::google;
use crate::holds::{AzureHolds, GoogleHolds, Opened, S3Holds, bucket_url};
use crate::key::{Key, KeyError, Prefix};
use crate::local::LocalStore;
use crate::remote::{RemoteStore, memory};
use crate::store::{Capabilities, Listing, Store, Times};
use crate::swift::{self, SwiftIdentity};
use crate::timeouts::{CONNECT, TimedConnector, Timeouts};

/// How a role that we take on shows up in the records of the service.
const SESSION_NAME: &str = "holdfast";

const GOOGLE: &str = "https://storage.googleapis.com";
/// Of the library, where none is named.
const DEFAULT_REGION: &str = "us-east-1";
const AT_ONCE: Capabilities = Capabilities {
    conditional_put: true,
    durable: true,
    listing: Listing::AtOnce,
    times: Times::OfStore,
};

/// Who we are to a store.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    /// What the machine offers: environment, instance or workload identity.
    #[default]
    Ambient,
    /// Nobody.
    Anonymous,
    S3 {
        access_key_id: String,
        secret_access_key: SecretString,
        session_token: Option<SecretString>,
    },
    /// A role that is taken on with the token in a file, which is read again as it changes.
    S3WebIdentity {
        role_arn: String,
        token_file: PathBuf,
    },
    /// An identity for S3, and the key (32 bytes in base64) that the service encrypts objects with
    /// and does not keep.
    S3CustomerKey {
        identity: Box<Self>,
        key_base64: SecretString,
    },
    /// The JSON text of a service account's key.
    Google {
        service_account_key: SecretString,
    },
    /// The JSON text of an account of another party whose tokens Google takes (workload identity).
    GoogleExternal {
        account: SecretString,
    },
    Azure {
        access_key: SecretString,
    },
    Swift(SwiftIdentity),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{url:?} is not the URL of a store; write it as in s3://bucket/prefix or file:///directory"
    )]
    Url { url: String },
    #[error("{scheme}: is not a kind of store; use file, memory, s3, gs, azure or swift")]
    Scheme { scheme: String },
    #[error("the URL of the store names no {what}")]
    Missing { what: &'static str },
    #[error("the URL of the store holds a password; give it as a credential")]
    Secret,
    #[error("a {scheme} store has no setting {name:?}; it has: {}", known.join(", "))]
    Setting { scheme: String, name: String, known: &'static [&'static str] },
    #[error("the setting {name} of the store cannot be {value:?}; use {allowed}")]
    Value { name: &'static str, value: String, allowed: &'static str },
    #[error("the prefix of the store cannot be used")]
    Prefix(#[source] KeyError),
    #[error("these credentials are not for a {scheme} store")]
    Credentials { scheme: String },
    #[error("a {scheme} store gives no addresses to others")]
    Unsigned { scheme: String },
    #[error("the store cannot be set up")]
    Build { source: Cause },
    #[error("the directory of the store cannot be used")]
    Directory(#[source] Error),
}

/// The way to a store that is not on this machine.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// Certificates, as PEM, that are trusted beside those of the system.
    pub ca_pem: Option<String>,
    /// The URL of an HTTP proxy.
    pub proxy: Option<String>,
    /// Hosts that are asked directly, with commas between them.
    pub proxy_excludes: Option<String>,
    /// Whoever answers is believed. Only where the user asked for it.
    pub accept_any_certificate: bool,
    /// For a request that carries much, beside what its length takes at 16 KiB a second; a minute
    /// where it is not said.
    pub request_timeout: Option<Duration>,
    /// Without a byte of an answer to anything else; 20 seconds where it is not said.
    pub silence_timeout: Option<Duration>,
}

/// Opens a store. It asks nothing of it: wrong credentials show at the first call.
pub fn open(url: &str, credentials: &Credentials) -> Result<Arc<dyn Store>, OpenError> {
    open_over(url, credentials, &Network::default())
}

/// [`open`], by a way of one's own.
pub fn open_over(
    url: &str,
    credentials: &Credentials,
    network: &Network,
) -> Result<Arc<dyn Store>, OpenError> {
    open_held(url, credentials, network).map(|opened| opened.store)
}

/// [`open_over`], with what the service says of versions, locks and marks.
pub fn open_held(
    url: &str,
    credentials: &Credentials,
    network: &Network,
) -> Result<Opened, OpenError> {
    let mut place = Place::parse(url)?;
    place.network = network.clone();
    match place.scheme.as_str() {
        "memory" => Ok(Opened::plain(memory())),
        "file" => {
            let store = LocalStore::open(place.path).map_err(OpenError::Directory)?;
            Ok(Opened::plain(Arc::new(store)))
        }
        "s3" => open_s3(&place, credentials),
        "gs" => open_google(&place, credentials),
        "swift" => match credentials {
            Credentials::Swift(identity) => swift::open(&place, identity).map(Opened::plain),
            _ => Err(place.wrong_credentials()),
        },
        _ => open_azure(&place, credentials),
    }
}

/// A URL taken apart and checked.
#[derive(Debug)]
pub(crate) struct Place {
    scheme: String,
    pub(crate) bucket: String,
    /// Of a `file:` store.
    path: PathBuf,
    pub(crate) prefix: Prefix,
    settings: BTreeMap<String, String>,
    network: Network,
}

impl Place {
    fn parse(text: &str) -> Result<Self, OpenError> {
        let url = Url::parse(text).map_err(|_| OpenError::Url { url: text.to_owned() })?;
        if url.password().is_some() || !url.username().is_empty() {
            return Err(OpenError::Secret);
        }
        let scheme = url.scheme().to_owned();
        let known = known_settings(&scheme)?;
        let settings: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        if let Some(name) = settings.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(OpenError::Setting { scheme, name: name.clone(), known });
        }
        let mut place = Self {
            scheme,
            bucket: url.host_str().unwrap_or_default().to_owned(),
            path: PathBuf::new(),
            prefix: Prefix::ROOT,
            settings,
            network: Network::default(),
        };
        match place.scheme.as_str() {
            "memory" => {}
            "file" => {
                place.path =
                    url.to_file_path().map_err(|()| OpenError::Url { url: text.to_owned() })?;
            }
            _ if place.bucket.is_empty() => return Err(OpenError::Missing { what: "bucket" }),
            _ => place.prefix = decode_prefix(&url)?,
        }
        Ok(place)
    }

    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn switch(&self, name: &'static str, otherwise: bool) -> Result<bool, OpenError> {
        match self.setting(name) {
            None => Ok(otherwise),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(value) => {
                Err(OpenError::Value { name, value: value.to_owned(), allowed: "true or false" })
            }
        }
    }

    /// An endpoint without TLS is used only where the URL says so itself.
    fn endpoint(&self) -> Result<Option<(String, bool)>, OpenError> {
        let Some(value) = self.setting("endpoint") else { return Ok(None) };
        match Url::parse(value) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => {
                Ok(Some((value.trim_end_matches('/').to_owned(), url.scheme() == "http")))
            }
            _ => Err(OpenError::Value {
                name: "endpoint",
                value: value.to_owned(),
                allowed: "a URL that begins with https:// or http://",
            }),
        }
    }

    pub(crate) fn client(&self, allow_http: bool) -> Result<ClientOptions, OpenError> {
        let mut options = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout_disabled()
            .with_allow_invalid_certificates(self.network.accept_any_certificate)
            .with_allow_http(allow_http);
        if let Some(pem) = &self.network.ca_pem {
            // Our own client reads them again; what is none is refused here, before anything is asked.
            for certificate in Certificate::from_pem_bundle(pem.as_bytes()).map_err(failed)? {
                options = options.with_root_certificate(certificate);
            }
        }
        if let Some(proxy) = &self.network.proxy {
            options = options.with_proxy_url(proxy);
        }
        if let Some(excludes) = &self.network.proxy_excludes {
            options = options.with_proxy_excludes(excludes);
        }
        Ok(options)
    }

    pub(crate) fn connector(&self) -> TimedConnector {
        let Network { silence_timeout, request_timeout, .. } = self.network;
        let timeout = Timeouts::new(silence_timeout, request_timeout);
        TimedConnector { timeout, bucket: self.bucket.clone(), network: self.network.clone() }
    }

    fn finish<S>(&self, store: S, capabilities: Capabilities) -> RemoteStore
    where
        S: ObjectStore + MultipartStore + PaginatedListStore,
    {
        RemoteStore::new(store, self.prefix.folder(), capabilities)
    }

    fn wrong_credentials(&self) -> OpenError {
        OpenError::Credentials { scheme: self.scheme.clone() }
    }
}

fn known_settings(scheme: &str) -> Result<&'static [&'static str], OpenError> {
    Ok(match scheme {
        "memory" | "file" => &[],
        "gs" => &["endpoint"],
        "s3" => &["region", "endpoint", "path_style", "conditional_put", "checksum"],
        "azure" => &["account", "endpoint"],
        "swift" => &["auth_url", "region"],
        other => return Err(OpenError::Scheme { scheme: other.to_owned() }),
    })
}

fn decode_prefix(url: &Url) -> Result<Prefix, OpenError> {
    let path = Path::from_url_path(url.path().trim_matches('/'))
        .map_err(|error| OpenError::Build { source: error.into() })?;
    Prefix::parse(path.as_ref()).map_err(OpenError::Prefix)
}

/// Only the outermost loop retries.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

pub(crate) fn failed(error: object_store::Error) -> OpenError {
    OpenError::Build { source: error.into() }
}

/// For those requests, too, whose signature the library does not skip: without credentials it would
/// ask the machine it believes to be on.
fn nobody<C: fmt::Debug + Send + Sync>(credential: C) -> Arc<StaticCredentialProvider<C>> {
    Arc::new(StaticCredentialProvider::new(credential))
}

fn s3_builder(place: &Place, credentials: &Credentials) -> Result<AmazonS3Builder, OpenError> {
    Ok(match credentials {
        Credentials::Ambient => AmazonS3Builder::from_env(),
        Credentials::Anonymous => {
            let (key_id, secret_key) = (String::new(), String::new());
            AmazonS3Builder::new()
                .with_skip_signature(true)
                .with_credentials(nobody(AwsCredential { key_id, secret_key, token: None }))
        }
        Credentials::S3 { access_key_id, secret_access_key, session_token } => {
            let builder = AmazonS3Builder::new()
                .with_access_key_id(access_key_id)
                .with_secret_access_key(secret_access_key.expose_secret());
            match session_token {
                Some(token) => builder.with_token(token.expose_secret()),
                None => builder,
            }
        }
        Credentials::S3WebIdentity { role_arn, token_file } => AmazonS3Builder::new()
            .with_config(AmazonS3ConfigKey::RoleArn, role_arn)
            .with_config(AmazonS3ConfigKey::RoleSessionName, SESSION_NAME)
            .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, token_file.to_string_lossy()),
        Credentials::S3CustomerKey { identity, key_base64 } => {
            s3_builder(place, identity)?.with_ssec_encryption(key_base64.expose_secret())
        }
        Credentials::Google { .. }
        | Credentials::GoogleExternal { .. }
        | Credentials::Azure { .. }
        | Credentials::Swift(_) => return Err(place.wrong_credentials()),
    })
}

/// Where a store is and who we are to it; the rest is for whoever builds it.
struct Addressed {
    builder: AmazonS3Builder,
    allow_http: bool,
    path_style: bool,
}

fn address_s3(place: &Place, credentials: &Credentials) -> Result<Addressed, OpenError> {
    let endpoint = place.endpoint()?;
    let mut builder = s3_builder(place, credentials)?;
    let allow_http = endpoint.as_ref().is_some_and(|(_, http)| *http);
    // Stores other than Amazon's rarely have a name a bucket.
    let path_style = place.switch("path_style", endpoint.is_some())?;
    if let Some((endpoint, _)) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = place.setting("region") {
        builder = builder.with_region(region);
    }
    let builder = builder
        .with_bucket_name(&place.bucket)
        .with_virtual_hosted_style_request(!path_style)
        .with_retry(no_retries())
        .with_client_options(place.client(allow_http)?);
    Ok(Addressed { builder, allow_http, path_style })
}

/// An address from which anybody may read this one object, for a while. Nothing is asked of the store:
/// neither whether the object is there nor whether the credentials are good.
pub async fn signed_get(
    url: &str,
    credentials: &Credentials,
    network: &Network,
    key: &Key,
    lifetime: Duration,
) -> Result<String, OpenError> {
    let mut place = Place::parse(url)?;
    place.network = network.clone();
    if place.scheme != "s3" {
        return Err(OpenError::Unsigned { scheme: place.scheme });
    }
    let store = address_s3(&place, credentials)?.builder.build().map_err(failed)?;
    let path = match place.prefix.folder() {
        Some(folder) => format!("{folder}/{key}"),
        None => key.to_string(),
    };
    let path = Path::parse(path).map_err(|error| OpenError::Build { source: error.into() })?;
    let signed = store.signed_url(Method::GET, &path, lifetime).await.map_err(failed)?;
    Ok(signed.into())
}

fn open_s3(place: &Place, credentials: &Credentials) -> Result<Opened, OpenError> {
    let Addressed { mut builder, allow_http, path_style } = address_s3(place, credentials)?;
    let conditional_put = place.switch("conditional_put", true)?;
    let checksum = place.switch("checksum", false)?;
    if checksum {
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    // What the environment says, too.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
    let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
    let conditions =
        if conditional_put { S3ConditionalPut::ETagMatch } else { S3ConditionalPut::Disabled };
    let store = builder
        .with_conditional_put(conditions)
        .with_http_connector(place.connector())
        .build()
        .map_err(failed)?;
    // Services that came before conditions may be those whose listings came later.
    let listing = if conditional_put { Listing::AtOnce } else { Listing::Later };
    let credentials_of = Arc::clone(store.credentials());
    let store = place.finish(
        store,
        Capabilities { conditional_put, durable: true, listing, times: Times::OfStore },
    );
    let store = Arc::new(store.sending_hashes(checksum));
    let url = bucket_url(endpoint.as_deref(), path_style, &region, &place.bucket);
    let holds = S3Holds {
        store: Arc::clone(&store),
        client: place.connector().waiting(&place.client(allow_http)?).map_err(failed)?,
        credentials: credentials_of,
        url: url.ok_or(OpenError::Missing { what: "bucket" })?,
        region,
        is_anonymous: matches!(credentials, Credentials::Anonymous),
    };
    Ok(Opened { store, holds: Arc::new(holds) })
}

fn open_google(place: &Place, credentials: &Credentials) -> Result<Opened, OpenError> {
    let mut builder = match credentials {
        Credentials::Ambient => GoogleCloudStorageBuilder::from_env(),
        Credentials::Anonymous => GoogleCloudStorageBuilder::new()
            .with_skip_signature(true)
            .with_credentials(nobody(GcpCredential { bearer: String::new() })),
        Credentials::Google { service_account_key } => GoogleCloudStorageBuilder::new()
            .with_service_account_key(service_account_key.expose_secret()),
        Credentials::GoogleExternal { account } => {
            let provider = google::External::open(place, account.expose_secret())?;
            GoogleCloudStorageBuilder::new().with_credentials(Arc::new(provider))
        }
        Credentials::S3 { .. }
        | Credentials::S3WebIdentity { .. }
        | Credentials::S3CustomerKey { .. }
        | Credentials::Azure { .. }
        | Credentials::Swift(_) => return Err(place.wrong_credentials()),
    };
    let endpoint = place.endpoint()?;
    let allow_http = endpoint.as_ref().is_some_and(|(_, http)| *http);
    let url = endpoint.as_ref().map_or(GOOGLE, |(endpoint, _)| endpoint.as_str());
    let url = Url::parse(url).map_err(|_| OpenError::Url { url: url.to_owned() })?;
    if let Some((endpoint, _)) = &endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let store = builder
        .with_bucket_name(&place.bucket)
        .with_retry(no_retries())
        .with_client_options(place.client(allow_http)?)
        .with_http_connector(place.connector())
        .build()
        .map_err(failed)?;
    let credentials_of = Arc::clone(store.credentials());
    let store = Arc::new(place.finish(store, AT_ONCE));
    let client = || place.connector().waiting(&place.client(allow_http)?).map_err(failed);
    let (bucket, is_anonymous) = (&place.bucket, matches!(credentials, Credentials::Anonymous));
    let holds = GoogleHolds {
        store: Arc::clone(&store),
        client: client()?,
        credentials: credentials_of,
        url: url.clone(),
        bucket: bucket.clone(),
        is_anonymous,
    };
    let holds = Arc::new(holds);
    // Who asks neither for TLS nor for a name is an emulator.
    if allow_http && is_anonymous {
        let writes = google::JsonWrites { store, client: client()?, url, bucket: bucket.clone() };
        return Ok(Opened { store: Arc::new(writes), holds });
    }
    Ok(Opened { store, holds })
}

fn open_azure(place: &Place, credentials: &Credentials) -> Result<Opened, OpenError> {
    let account = place.setting("account").ok_or(OpenError::Missing { what: "account" })?;
    let mut builder = match credentials {
        Credentials::Ambient => MicrosoftAzureBuilder::from_env(),
        Credentials::Anonymous => MicrosoftAzureBuilder::new()
            .with_skip_signature(true)
            .with_credentials(nobody(AzureCredential::BearerToken(String::new()))),
        Credentials::Azure { access_key } => {
            MicrosoftAzureBuilder::new().with_access_key(access_key.expose_secret())
        }
        Credentials::S3 { .. }
        | Credentials::S3WebIdentity { .. }
        | Credentials::S3CustomerKey { .. }
        | Credentials::Google { .. }
        | Credentials::GoogleExternal { .. }
        | Credentials::Swift(_) => return Err(place.wrong_credentials()),
    };
    let endpoint = place.endpoint()?;
    let allow_http = endpoint.as_ref().is_some_and(|(_, http)| *http);
    let url = match &endpoint {
        Some((endpoint, _)) => format!("{endpoint}/{}", place.bucket),
        None => format!("https://{account}.blob.core.windows.net/{}", place.bucket),
    };
    let url = Url::parse(&url).map_err(|_| OpenError::Url { url })?;
    if let Some((endpoint, _)) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let store = builder
        .with_account(account)
        .with_container_name(&place.bucket)
        .with_retry(no_retries())
        .with_client_options(place.client(allow_http)?)
        .with_http_connector(place.connector())
        .build()
        .map_err(failed)?;
    let credentials_of = Arc::clone(store.credentials());
    let store = Arc::new(place.finish(store, AT_ONCE));
    let holds = AzureHolds {
        store: Arc::clone(&store),
        client: place.connector().waiting(&place.client(allow_http)?).map_err(failed)?,
        credentials: credentials_of,
        account: account.to_owned(),
        url,
        is_anonymous: matches!(credentials, Credentials::Anonymous),
    };
    Ok(Opened { store, holds: Arc::new(holds) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn s3_key() -> Credentials {
        Credentials::S3 {
            access_key_id: "id".to_owned(),
            secret_access_key: "hidden".into(),
            session_token: None,
        }
    }

    fn rejection(url: &str) -> String {
        open(url, &Credentials::Anonymous).unwrap_err().to_string()
    }

    #[test]
    fn a_url_that_cannot_be_used_says_what_to_do() {
        for (url, part) in [
            ("backups", "write it as in s3://bucket/prefix"),
            ("ftp://host/dir", "use file, memory, s3, gs, azure or swift"),
            ("s3:///prefix", "names no bucket"),
            ("azure://container/x", "names no account"),
            ("s3://id:secret@bucket", "give it as a credential"),
            ("s3://bucket?reigon=x", "it has: region, endpoint"),
            ("s3://bucket?path_style=yes", "use true or false"),
            ("s3://bucket?endpoint=minio:9000", "begins with https://"),
            ("s3://bucket/a//b", "the store cannot be set up"),
            ("file:///tmp?fsync=off", "has no setting \"fsync\""),
        ] {
            assert!(rejection(url).contains(part), "{url}: {}", rejection(url));
        }
    }

    #[test]
    fn every_kind_of_store_is_built_from_its_url() {
        let dir = tempfile::tempdir().unwrap();
        let file = format!("file://{}/new", dir.path().display());
        let azure = Credentials::Azure { access_key: "aGlkZGVu".into() };
        for (url, credentials) in [
            (file.as_str(), Credentials::Ambient),
            ("memory:", Credentials::Ambient),
            ("s3://bucket/a/b?region=eu-central-1", s3_key()),
            ("s3://bucket?endpoint=http://127.0.0.1:9000/&path_style=true", s3_key()),
            ("gs://bucket/a?endpoint=http://127.0.0.1:9000", Credentials::Anonymous),
            ("azure://container/a?account=name", azure),
        ] {
            let store = open(url, &credentials).unwrap_or_else(|error| panic!("{url}: {error:?}"));
            assert!(store.capabilities().conditional_put);
        }
        let store = open("s3://bucket?region=x&conditional_put=false", &s3_key()).unwrap();
        assert!(!store.capabilities().conditional_put);
        assert!(dir.path().join("new").is_dir());
    }

    #[test]
    fn the_prefix_is_the_path() {
        for (url, prefix) in
            [("s3://b", ""), ("s3://b/", ""), ("s3://b/a/b/", "a/b"), ("s3://b/a%20b", "a b")]
        {
            assert_eq!(Place::parse(url).unwrap().prefix.to_string(), prefix, "{url}");
        }
    }

    #[tokio::test]
    async fn an_address_is_signed_for_one_object_and_a_while() {
        let url = "s3://bucket/pre?region=x&endpoint=http://127.0.0.1:9000";
        let key = Key::parse("backups/a b").unwrap();
        let network = Network::default();
        let lifetime = Duration::from_mins(10);
        let signed = signed_get(url, &s3_key(), &network, &key, lifetime).await.unwrap();
        assert!(signed.starts_with("http://127.0.0.1:9000/bucket/pre/backups/a%20b?"), "{signed}");
        assert!(signed.contains("X-Amz-Expires=600") && signed.contains("X-Amz-Signature="));
        assert!(!signed.contains("hidden"));
        let file = signed_get("memory:", &Credentials::Ambient, &network, &key, lifetime).await;
        assert!(matches!(file, Err(OpenError::Unsigned { .. })), "{file:?}");
    }

    #[test]
    fn credentials_of_another_kind_are_refused() {
        let error = open("gs://bucket", &s3_key()).unwrap_err();
        assert_eq!(error.to_string(), "these credentials are not for a gs store");
    }

    /// What machines are asked for their own identity with, as the library calls it.
    const OF_MACHINES: [&str; 2] = ["InstanceCredentialProvider", "ImdsManagedIdentityProvider"];

    fn asks_the_machine(opened: &impl fmt::Debug) -> bool {
        let shown = format!("{opened:?}");
        OF_MACHINES.iter().any(|name| shown.contains(name))
    }

    #[test]
    fn a_machine_is_asked_for_its_identity_only_where_none_is_given_nor_refused() {
        let azure = Credentials::Azure { access_key: "aGlkZGVu".into() };
        let role = Credentials::S3WebIdentity {
            role_arn: "arn:aws:iam::1:role/r".to_owned(),
            token_file: "/token".into(),
        };
        let identity = Box::new(s3_key());
        let sealed = Credentials::S3CustomerKey { identity, key_base64: "aGlkZGVu".into() };
        let account = r#"{"type":"external_account","audience":"a","subject_token_type":"jwt",
            "token_url":"https://sts.example.org/","credential_source":{"file":"/token"}}"#;
        let account = Credentials::GoogleExternal { account: account.into() };
        let endpoint = "endpoint=http://127.0.0.1:9";
        for (url, credentials) in [
            ("s3://b?region=x", s3_key()),
            ("s3://b?region=x", role),
            ("s3://b?region=x", sealed),
            ("s3://b?region=x", Credentials::Anonymous),
            ("gs://b", Credentials::Anonymous),
            ("gs://b", account),
            ("azure://c?account=name", Credentials::Anonymous),
            ("azure://c?account=name", azure),
        ] {
            for url in [url.to_owned(), format!("{url}&{endpoint}").replace("b&", "b?")] {
                let opened = open_held(&url, &credentials, &Network::default()).unwrap();
                assert!(!asks_the_machine(&opened), "{url} {credentials:?}");
            }
        }
        // That is how it would be seen.
        let s3 = AmazonS3Builder::new().with_bucket_name("b").with_region("x");
        let azure = MicrosoftAzureBuilder::new().with_account("a").with_container_name("c");
        assert!(asks_the_machine(&s3.build()) && asks_the_machine(&azure.build()));
    }

    #[test]
    fn secrets_are_not_shown() {
        assert!(!format!("{:?}", s3_key()).contains("hidden"));
        let store = open("s3://bucket?region=x", &s3_key()).unwrap();
        assert!(!format!("{store:?}").contains("hidden"));
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in "(s3|gs|azure|memory|file|x)?(://|:)?[a-z/.?&=%@: ]{0,40}") {
            let _ = Place::parse(&noise);
        }
    }
}
