//! Opening a target with the credentials of an environment: that of the process, or one that came
//! with a request.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use blobs::wrap::{Limited, Policy, Retrying};
use blobs::{Credentials, LocalStore, Network, Store};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

use super::known::Trust;
use super::mount;
use super::url::TargetUrl;
use crate::error::Error;
use crate::store::BackupStore;

/// What is read from an environment; nothing else is looked at or passed on.
pub(super) const KNOWN: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINTS",
    "AWS_CERT",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "VIRTUAL_HOSTED_STYLE",
    "AWS_SIGN_ACCEPT_ENCODING",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "CIFS_USERNAME",
    "CIFS_PASSWORD",
    "AZBLOB_ACCOUNT_NAME",
    "AZBLOB_ACCOUNT_KEY",
    "AZBLOB_ENDPOINT",
    "AZBLOB_CERT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
];
/// Calls to one target at a time.
const CALLS_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Credentials and the like, by the names of environment variables. Values are never shown.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, SecretString>);

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        Self::from_pairs(KNOWN.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?))))
    }

    /// Those of `pairs` that are known.
    pub fn from_pairs<K: AsRef<str>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let known = pairs.into_iter().filter(|(name, _)| KNOWN.contains(&name.as_ref()));
        let values = known.map(|(name, value)| (name.as_ref().to_owned(), value.into()));
        let given = values.filter(|(_, value): &(String, String)| !value.is_empty());
        Self(given.map(|(name, value)| (name, value.into())).collect())
    }

    /// To be handed on to another process.
    pub fn to_pairs(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, it)| (name.clone(), it.expose_secret().to_owned())).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(ExposeSecret::expose_secret)
    }

    /// Both or none.
    fn pair(
        &self,
        target: &TargetUrl,
        id: &str,
        secret: &str,
    ) -> Result<Option<(&str, &str)>, Error> {
        match (self.get(id), self.get(secret)) {
            (Some(id), Some(secret)) => Ok(Some((id, secret))),
            (None, None) => Ok(None),
            _ => Err(target.refuse(&format!("give both {id} and {secret}, or neither"))),
        }
    }

    fn network(&self, certificate: &str, is_plain: bool) -> Network {
        let proxy = if is_plain { "HTTP_PROXY" } else { "HTTPS_PROXY" };
        Network {
            ca_pem: self.get(certificate).map(str::to_owned),
            proxy: self.get(proxy).map(str::to_owned),
            proxy_excludes: self.get("NO_PROXY").map(str::to_owned),
            ..Network::default()
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

impl BackupStore {
    /// Opens a target. Object stores are not asked anything yet; shares are mounted.
    /// What it can do is tried before the first lock is taken.
    pub async fn open(url: &TargetUrl, environment: &Environment) -> Result<Self, Error> {
        let mut caveat = None;
        let mut shared = |directory: PathBuf| {
            caveat = mount::caveat(&directory);
            local(directory)
        };
        let (store, trust): (Arc<dyn Store>, Trust) = match url.scheme() {
            "vfs" => (shared(directory_of(url)?), Trust::Settable),
            "nfs" => (shared(mount::nfs(url).await?), Trust::Settable),
            "cifs" => (shared(mount::cifs(url, environment).await?), Trust::Settable),
            "s3" => open_remote(&s3(url, environment)?)?,
            "azblob" => open_remote(&azure(url, environment)?)?,
            "gs" => open_remote(&google(url, environment)?)?,
            other => return Err(Error::Scheme { scheme: other.to_owned() }),
        };
        let store = Retrying::around(Limited::around(store, CALLS_MAX), Policy::default());
        Ok(Self { caveat, ..Self::new(store, url.clone()).trusted(trust) })
    }
}

impl TargetUrl {
    /// Of a target that is a directory of this machine.
    pub fn directory(&self) -> Option<PathBuf> {
        (self.scheme() == "vfs").then(|| directory_of(self).ok()).flatten()
    }
}

fn local(directory: PathBuf) -> Arc<dyn Store> {
    Arc::new(LocalStore::at(directory))
}

fn directory_of(url: &TargetUrl) -> Result<PathBuf, Error> {
    if !url.authority().is_empty() {
        return Err(url.refuse("a vfs target has no host, as in vfs:///directory"));
    }
    if url.path().is_empty() {
        return Err(url.refuse("it names no directory, as in vfs:///directory"));
    }
    Ok(PathBuf::from(decoded(url)?))
}

/// The path as it is meant, which must not climb.
pub(super) fn decoded(url: &TargetUrl) -> Result<String, Error> {
    let path = percent_decode_str(url.path()).decode_utf8();
    let path = path.map_err(|_| url.refuse("its path is not UTF-8"))?;
    if path.split('/').any(|part| part == "..") || path.chars().any(char::is_control) {
        return Err(url.refuse("its path has parts that no target has"));
    }
    Ok(path.into_owned())
}

/// What the library of stores is asked for.
#[derive(Debug)]
struct Remote {
    url: String,
    credentials: Credentials,
    network: Network,
}

fn open_remote(remote: &Remote) -> Result<(Arc<dyn Store>, Trust), Error> {
    let store = blobs::open_over(&remote.url, &remote.credentials, &remote.network);
    Ok((store.map_err(Error::Open)?, Trust::probed(&remote.url)))
}

/// `container@where`, or the container alone.
fn split_authority(url: &TargetUrl) -> (&str, Option<&str>) {
    match url.authority().split_once('@') {
        Some((container, place)) => (container, Some(place).filter(|place| !place.is_empty())),
        None => (url.authority(), None),
    }
}

fn remote_url(
    scheme: &str,
    bucket: &str,
    url: &TargetUrl,
    settings: &[(&str, &str)],
) -> Result<String, Error> {
    if bucket.is_empty() {
        let example = match scheme {
            "s3" => "it names no bucket, as in s3://bucket@region/path",
            "gs" => "it names no bucket, as in gs://bucket/path",
            _ => "it names no container, as in azblob://container/path",
        };
        return Err(url.refuse(example));
    }
    if url.path().is_empty() {
        return Err(url.refuse("its path is empty; at least a slash must follow the bucket"));
    }
    let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let path = decoded(url)?;
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let path: Vec<String> = parts.map(escape).collect();
    let settings: Vec<String> =
        settings.iter().map(|(key, value)| format!("{key}={}", escape(value))).collect();
    Ok(format!("{scheme}://{bucket}/{}?{}", path.join("/"), settings.join("&")))
}

/// An endpoint without a scheme is asked over TLS.
fn with_scheme(endpoint: &str) -> String {
    let endpoint = endpoint.trim().trim_end_matches('/');
    if endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") }
}

fn s3(url: &TargetUrl, environment: &Environment) -> Result<Remote, Error> {
    let (bucket, region) = split_authority(url);
    let region = region
        .or_else(|| environment.get("AWS_REGION"))
        .or_else(|| environment.get("AWS_DEFAULT_REGION"));
    let virtual_hosted = environment.get("VIRTUAL_HOSTED_STYLE") == Some("true");
    let endpoint = environment.get("AWS_ENDPOINTS").map(with_scheme);
    // The library wants to be told the host of the bucket itself.
    let endpoint = endpoint.map(|endpoint| match endpoint.split_once("://") {
        Some((scheme, host)) if virtual_hosted => format!("{scheme}://{bucket}.{host}"),
        _ => endpoint,
    });
    let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let path_style = (endpoint.is_some() && !virtual_hosted).to_string();
    let mut settings = vec![("path_style", path_style.as_str())];
    settings.extend(region.map(|region| ("region", region)));
    settings.extend(endpoint.as_deref().map(|endpoint| ("endpoint", endpoint)));
    let keys = environment.pair(url, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")?;
    let credentials = keys.map_or(Credentials::Ambient, |(id, secret)| Credentials::S3 {
        access_key_id: id.to_owned(),
        secret_access_key: secret.into(),
        session_token: environment.get("AWS_SESSION_TOKEN").map(Into::into),
    });
    let network = environment.network("AWS_CERT", is_plain);
    Ok(Remote { url: remote_url("s3", bucket, url, &settings)?, credentials, network })
}

fn azure(url: &TargetUrl, environment: &Environment) -> Result<Remote, Error> {
    let (container, suffix) = split_authority(url);
    let keys = environment.pair(url, "AZBLOB_ACCOUNT_NAME", "AZBLOB_ACCOUNT_KEY")?;
    let (account, key) = keys.ok_or_else(|| {
        url.refuse("no credentials were given: give AZBLOB_ACCOUNT_NAME and AZBLOB_ACCOUNT_KEY")
    })?;
    let endpoint = match (environment.get("AZBLOB_ENDPOINT"), suffix) {
        (Some(endpoint), _) => Some(with_scheme(endpoint)),
        (None, Some(suffix)) => Some(format!("https://{account}.blob.{suffix}")),
        (None, None) => None,
    };
    let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut settings = vec![("account", account)];
    settings.extend(endpoint.as_deref().map(|endpoint| ("endpoint", endpoint)));
    Ok(Remote {
        url: remote_url("azure", container, url, &settings)?,
        credentials: Credentials::Azure { access_key: key.into() },
        network: environment.network("AZBLOB_CERT", is_plain),
    })
}

fn google(url: &TargetUrl, environment: &Environment) -> Result<Remote, Error> {
    let key = environment.get("GOOGLE_SERVICE_ACCOUNT_KEY");
    Ok(Remote {
        url: remote_url("gs", url.authority(), url, &[])?,
        credentials: key.map_or(Credentials::Ambient, |key| Credentials::Google {
            service_account_key: key.into(),
        }),
        network: environment.network("", false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<(&'static str, &'static str)> {
        vec![("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden")]
    }

    fn target(text: &str) -> TargetUrl {
        TargetUrl::parse(text).unwrap()
    }

    fn s3_of(text: &str, more: &[(&'static str, &'static str)]) -> Result<Remote, Error> {
        s3(&target(text), &Environment::from_pairs([keys(), more.to_vec()].concat()))
    }

    #[test]
    fn a_bucket_its_region_and_its_endpoint_are_found() {
        for (url, more, expected) in [
            ("s3://b@eu-1/a/b/", &[][..], "s3://b/a/b?path_style=false&region=eu%2D1"),
            ("s3://b/", &[("AWS_REGION", "r1")], "s3://b/?path_style=false&region=r1"),
            (
                "s3://b@r1/x",
                &[("AWS_ENDPOINTS", "http://minio:9000")],
                "s3://b/x?path_style=true&region=r1&endpoint=http%3A%2F%2Fminio%3A9000",
            ),
            (
                "s3://b@r1/x",
                &[("AWS_ENDPOINTS", "oss.example"), ("VIRTUAL_HOSTED_STYLE", "true")],
                "s3://b/x?path_style=false&region=r1&endpoint=https%3A%2F%2Fb%2Eoss%2Eexample",
            ),
        ] {
            assert_eq!(s3_of(url, more).unwrap().url, expected, "{url}");
        }
        assert!(s3_of("s3://b@r1", &[]).unwrap_err().to_string().contains("its path is empty"));
        assert!(s3_of("s3:///x", &[]).unwrap_err().to_string().contains("no bucket"));
        assert!(s3_of("s3://b@r/../x", &[]).is_err());
        let half = Environment::from_pairs([("AWS_ACCESS_KEY_ID", "id")]);
        assert!(s3(&target("s3://b@r/x"), &half).unwrap_err().to_string().contains("or neither"));
    }

    #[test]
    fn a_proxy_is_that_of_the_scheme() {
        let proxies = [("HTTPS_PROXY", "http://tls"), ("HTTP_PROXY", "http://plain")];
        let proxy =
            |more: &[_]| s3_of("s3://b@r/x", &[&proxies, more].concat()).unwrap().network.proxy;
        assert_eq!(proxy(&[]).as_deref(), Some("http://tls"));
        assert_eq!(proxy(&[("AWS_ENDPOINTS", "http://m")]).as_deref(), Some("http://plain"));
    }

    #[test]
    fn an_azure_container_is_found() {
        let environment = Environment::from_pairs([
            ("AZBLOB_ACCOUNT_NAME", "acc"),
            ("AZBLOB_ACCOUNT_KEY", "aGk="),
        ]);
        let remote = azure(&target("azblob://c@core.example/p/"), &environment).unwrap();
        let endpoint = "https%3A%2F%2Facc%2Eblob%2Ecore%2Eexample";
        assert_eq!(remote.url, format!("azure://c/p?account=acc&endpoint={endpoint}"));
        assert!(azure(&target("azblob://c/p"), &Environment::default()).is_err());
    }

    #[tokio::test]
    async fn targets_that_cannot_be_used_say_so() {
        for (url, part) in [
            ("ftp://x/y", "driver ftp is not supported"),
            ("gs:///x", "as in gs://bucket/path"),
            ("nfs://h", "as in nfs://host:/share/path"),
            ("vfs://host/y", "has no host"),
            ("vfs://", "names no directory"),
            ("vfs:///a/../b", "parts that no target has"),
        ] {
            let refused = BackupStore::open(&target(url), &Environment::default()).await;
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        for url in ["s3://b@r/x", "gs://b/x"] {
            let environment = Environment::from_pairs(keys());
            BackupStore::open(&target(url), &environment).await.unwrap();
        }
    }

    #[test]
    fn only_what_is_known_is_kept_and_no_value_is_shown() {
        let environment =
            Environment::from_pairs([keys(), vec![("PATH", "/bin"), ("AWS_CERT", "")]].concat());
        assert_eq!(environment.to_pairs().len(), 2);
        assert!(!format!("{environment:?}").contains("hidden"));
    }
}
