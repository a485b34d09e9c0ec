//! S3, and those who speak as it does: ECS, OCS and OSS.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use blobs::{Credentials, Network};
use url::{Host, Url};

use super::credentials::Fields;
use super::{Address, Named};
use crate::store::config::Provider;
use crate::store::error::StoreError;

/// Where a service asks for a region and has none.
const ANY_REGION: &str = "us-east-1";
const ECS_REGION: &str = "US-Standard";
/// Of one request: a part is sent in one.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_mins(3);
const CUSTOMER_KEY_BYTES: usize = 32;

/// One such service, whatever its credentials were called.
struct Service {
    endpoint: Option<String>,
    region: Option<String>,
    /// None: as the host of the endpoint suggests.
    path_style: Option<bool>,
    /// Sent with each object; buckets that lock objects take none without.
    checksum: bool,
    credentials: Credentials,
    network: Network,
}

pub(super) fn address(named: &Named<'_>) -> Result<Address, StoreError> {
    let service = match named.provider {
        Provider::S3 => s3(named)?,
        Provider::Ecs => ecs(named)?,
        Provider::Ocs => ocs(named)?,
        Provider::Oss => oss(named)?,
        Provider::Local | Provider::Abs | Provider::Gcs | Provider::Swift | Provider::Failed => {
            return Err(StoreError::Unsupported {
                provider: named.provider.name(),
                what: "be spoken to as S3",
            });
        }
    };
    Ok(service.address(named.container))
}

impl Service {
    fn address(self, bucket: &str) -> Address {
        let mut url = format!("s3://{bucket}");
        let mut settings = url::form_urlencoded::Serializer::new(String::new());
        if let Some(region) = &self.region {
            settings.append_pair("region", region);
        }
        if let Some(endpoint) = &self.endpoint {
            let path_style = self.path_style.unwrap_or_else(|| has_no_buckets(endpoint));
            let endpoint =
                if path_style { endpoint.clone() } else { with_bucket(endpoint, bucket) };
            settings.append_pair("endpoint", &endpoint);
            settings.append_pair("path_style", if path_style { "true" } else { "false" });
        } else if let Some(path_style) = self.path_style {
            settings.append_pair("path_style", if path_style { "true" } else { "false" });
        }
        if self.checksum {
            settings.append_pair("checksum", "true");
        }
        // Names say what objects hold; nothing here is created only once.
        settings.append_pair("conditional_put", "false");
        url.push('?');
        url.push_str(&settings.finish());
        Address { url, credentials: self.credentials, network: self.network }
    }
}

/// Hosts that cannot have a name for each bucket: numbers, and names of one part.
fn has_no_buckets(endpoint: &str) -> bool {
    match Url::parse(endpoint).ok().and_then(|url| url.host().map(|host| host.to_owned())) {
        Some(Host::Domain(name)) => !name.contains('.') || name.parse::<IpAddr>().is_ok(),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => true,
    }
}

fn with_bucket(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if !host.starts_with(&format!("{bucket}.")) => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => endpoint.to_owned(),
    }
}

fn with_scheme(endpoint: &str, is_plain: bool) -> String {
    if endpoint.contains("://") {
        return endpoint.to_owned();
    }
    format!("{}://{endpoint}", if is_plain { "http" } else { "https" })
}

fn keys(id: &str, secret: &str) -> Credentials {
    Credentials::S3 {
        access_key_id: id.to_owned(),
        secret_access_key: secret.into(),
        session_token: None,
    }
}

fn network(fields: Option<&Fields>) -> Result<Network, StoreError> {
    let skip = fields.map(|fields| fields.switch("insecureSkipVerify")).transpose()?.flatten();
    Ok(Network {
        ca_pem: fields.and_then(|fields| fields.get("trustedCaCert")).map(str::to_owned),
        accept_any_certificate: skip.unwrap_or(false),
        request_timeout: Some(REQUEST_TIMEOUT),
        ..Network::default()
    })
}

fn s3(named: &Named<'_>) -> Result<Service, StoreError> {
    let fields = named.fields()?;
    let overridden = named.endpoint_override.map(|endpoint| with_scheme(endpoint, false));
    let Some(fields) = fields else {
        return Ok(Service {
            endpoint: overridden,
            region: None,
            path_style: None,
            checksum: true,
            credentials: Credentials::Ambient,
            network: network(None)?,
        });
    };
    let named_endpoint = || fields.get("endpoint").map(|endpoint| with_scheme(endpoint, false));
    Ok(Service {
        endpoint: overridden.or_else(named_endpoint),
        region: Some(fields.need("region")?.to_owned()),
        path_style: fields.switch("s3ForcePathStyle")?,
        checksum: match fields.get("requestChecksumCalculation").map(str::to_ascii_lowercase) {
            None => true,
            Some(when) if when == "when_supported" => true,
            Some(when) if when == "when_required" => false,
            Some(_) => {
                let what = "requestChecksumCalculation is neither when_supported nor when_required";
                return Err(fields.bad(what));
            }
        },
        credentials: with_customer_key(&fields, s3_identity(&fields)?)?,
        network: network(Some(&fields))?,
    })
}

fn s3_identity(fields: &Fields) -> Result<Credentials, StoreError> {
    let Some(role_arn) = fields.get("roleARN") else {
        return Ok(keys(fields.need("accessKeyID")?, fields.need("secretAccessKey")?));
    };
    let token_file = match fields.get("tokenPath") {
        Some(path) => PathBuf::from(path),
        None => fields.path().join("token"),
    };
    Ok(Credentials::S3WebIdentity { role_arn: role_arn.to_owned(), token_file })
}

/// The service wants 32 bytes: their base64, or 32 characters as they are.
fn with_customer_key(fields: &Fields, identity: Credentials) -> Result<Credentials, StoreError> {
    let (key, algorithm) = (fields.get("sseCustomerKey"), fields.get("sseCustomerAlgorithm"));
    let key = match (key, algorithm) {
        (None, None) => return Ok(identity),
        (Some(key), None | Some("AES256")) => key,
        (Some(_), Some(_)) => return Err(fields.bad("sseCustomerAlgorithm is not AES256")),
        (None, Some(_)) => return Err(fields.bad("sseCustomerKey is missing")),
    };
    let decoded = BASE64_STANDARD.decode(key).ok().filter(|key| key.len() == CUSTOMER_KEY_BYTES);
    let bytes = match decoded {
        Some(bytes) => bytes,
        None if key.len() == CUSTOMER_KEY_BYTES => key.as_bytes().to_vec(),
        None => return Err(fields.bad("sseCustomerKey is not 32 bytes, nor their base64")),
    };
    Ok(Credentials::S3CustomerKey {
        identity: Box::new(identity),
        key_base64: BASE64_STANDARD.encode(bytes).into(),
    })
}

/// From plain variables; those with the prefix of the store win.
fn ecs(named: &Named<'_>) -> Result<Service, StoreError> {
    let get = |name: &str| {
        let prefixed = format!("{}{name}", named.prefix);
        named.environment.get(&prefixed).or_else(|| named.environment.get(name))
    };
    let need = |name: &'static str| {
        get(name).ok_or_else(|| StoreError::NoCredentials {
            provider: named.provider.name(),
            variables: "ECS_ENDPOINT, ECS_ACCESS_KEY_ID and ECS_SECRET_ACCESS_KEY".to_owned(),
        })
    };
    let is_on = |name: &str| matches!(get(name), Some("true" | "True" | "TRUE" | "1" | "t" | "T"));
    Ok(Service {
        endpoint: Some(with_scheme(need("ECS_ENDPOINT")?, is_on("ECS_DISABLE_SSL"))),
        region: Some(ECS_REGION.to_owned()),
        path_style: Some(true),
        checksum: false,
        credentials: keys(need("ECS_ACCESS_KEY_ID")?, need("ECS_SECRET_ACCESS_KEY")?),
        network: Network {
            accept_any_certificate: is_on("ECS_INSECURE_SKIP_VERIFY"),
            ..network(None)?
        },
    })
}

fn ocs(named: &Named<'_>) -> Result<Service, StoreError> {
    let fields = named.need_fields()?;
    let is_plain = fields.switch("disableSSL")?.unwrap_or(false);
    Ok(Service {
        endpoint: Some(with_scheme(fields.need("endpoint")?, is_plain)),
        region: Some(fields.get("region").unwrap_or(ANY_REGION).to_owned()),
        path_style: Some(true),
        checksum: false,
        credentials: keys(fields.need("accessKeyID")?, fields.need("secretAccessKey")?),
        network: network(Some(&fields))?,
    })
}

fn oss(named: &Named<'_>) -> Result<Service, StoreError> {
    let fields = named.need_fields()?;
    let endpoint = with_scheme(fields.need("storageEndpoint")?, false);
    Ok(Service {
        region: Some(oss_region(&endpoint).unwrap_or(ANY_REGION).to_owned()),
        endpoint: Some(endpoint),
        path_style: None,
        checksum: false,
        credentials: keys(fields.need("accessKeyID")?, fields.need("accessKeySecret")?),
        network: network(Some(&fields))?,
    })
}

/// From an endpoint such as `https://oss-eu-central-1.aliyuncs.com`.
fn oss_region(endpoint: &str) -> Option<&str> {
    let (_, host) = endpoint.split_once("://")?;
    let (name, _) = host.split_once('.')?;
    let region = name.strip_prefix("oss-")?;
    Some(region.strip_suffix("-internal").unwrap_or(region))
}

#[cfg(test)]
mod tests;
