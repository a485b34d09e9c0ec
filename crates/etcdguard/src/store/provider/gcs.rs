//! Google Cloud Storage.

use std::path::PathBuf;

use blobs::{Credentials, Network};
use serde::Deserialize;

use super::credentials::read;
use super::s3::REQUEST_TIMEOUT;
use super::{Address, Named};
use crate::store::config::Environment;
use crate::store::error::StoreError;

const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// A file beside the credentials; the setting of the store is preferred.
const ENDPOINT_FILE: &str = "storageAPIEndpoint";
const SERVICE_ACCOUNT: &str = "service_account";
const EXTERNAL_ACCOUNT: &str = "external_account";
/// What a key of a service account holds, and nothing else: a file that names other places to ask
/// would send our requests there.
const MEMBERS: [&str; 11] = [
    "type",
    "project_id",
    "private_key_id",
    "private_key",
    "client_email",
    "client_id",
    "auth_uri",
    "token_uri",
    "auth_provider_x509_cert_url",
    "client_x509_cert_url",
    "universe_domain",
];

#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    project_id: String,
    #[serde(flatten)]
    others: std::collections::BTreeMap<String, serde_json::Value>,
}

/// Of this store; that of the first store serves where it has none of its own.
pub(super) fn file(prefix: &str, environment: &Environment) -> Option<PathBuf> {
    let own = environment.get(&format!("{prefix}{VARIABLE}"));
    own.or_else(|| environment.get(VARIABLE)).map(PathBuf::from)
}

pub(super) fn address(named: &Named<'_>) -> Result<Address, StoreError> {
    let file = file(named.prefix, named.environment);
    let endpoint = match named.endpoint_override {
        Some(endpoint) => Some(endpoint.to_owned()),
        None => file.as_ref().and_then(|file| beside(file)),
    };
    let is_emulator = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let credentials = match (is_emulator, file) {
        (true, _) => Credentials::Anonymous,
        (false, Some(file)) => account(&file)?,
        (false, None) => {
            let variables = format!("{}{VARIABLE}", named.prefix);
            return Err(StoreError::NoCredentials { provider: named.provider.name(), variables });
        }
    };
    let mut settings = url::form_urlencoded::Serializer::new(String::new());
    if let Some(endpoint) = &endpoint {
        settings.append_pair("endpoint", &without_api_path(endpoint));
    }
    Ok(Address {
        url: format!("gs://{}?{}", named.container, settings.finish()),
        credentials,
        network: Network { request_timeout: Some(REQUEST_TIMEOUT), ..Network::default() },
    })
}

fn beside(file: &std::path::Path) -> Option<String> {
    let bytes = read(&file.parent()?.join(ENDPOINT_FILE)).ok()?;
    Some(String::from_utf8(bytes).ok()?.trim().to_owned()).filter(|endpoint| !endpoint.is_empty())
}

/// Endpoints are given with the path of the JSON interface; the one we use has none.
fn without_api_path(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    endpoint.strip_suffix("/storage/v1").unwrap_or(endpoint).to_owned()
}

fn account(path: &std::path::Path) -> Result<Credentials, StoreError> {
    let bytes = read(path)?;
    let bad = |what: String| StoreError::BadCredentials { path: path.to_owned(), what };
    let key: KeyFile = serde_json::from_slice(&bytes)
        .map_err(|_| bad("they are no JSON object with a type".to_owned()))?;
    match key.kind.as_str() {
        SERVICE_ACCOUNT => {}
        // Its tokens are read, and exchanged, as they are needed.
        EXTERNAL_ACCOUNT => {
            let text = String::from_utf8(bytes).map_err(|_| bad("they are no text".to_owned()))?;
            return Ok(Credentials::GoogleExternal { account: text.into() });
        }
        kind => {
            let what = "neither the key of a service account nor an external account";
            return Err(bad(format!("{kind:?} is {what}")));
        }
    }
    if let Some(name) = key.others.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(bad(format!("{name} has no place in the key of a service account")));
    }
    let is_id =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-:.".contains(&byte);
    if key.project_id.is_empty() || !key.project_id.bytes().all(is_id) {
        return Err(bad("project_id is no name of a project".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("they are no text".to_owned()))?;
    Ok(Credentials::Google { service_account_key: text.into() })
}

#[cfg(test)]
mod tests;
