//! Azure blob storage.

use blobs::{Credentials, Network};

use super::s3::REQUEST_TIMEOUT;
use super::{Address, Named};
use crate::store::error::StoreError;

const DOMAIN: &str = "blob.core.windows.net";

pub(super) fn address(named: &Named<'_>) -> Result<Address, StoreError> {
    let fields = named.need_fields()?;
    let account = fields.need("storageAccount")?;
    let endpoint = match (named.endpoint_override, fields.get("domain")) {
        (Some(endpoint), _) => endpoint.to_owned(),
        (None, domain) => format!("https://{account}.{}", domain.unwrap_or(DOMAIN)),
    };
    let mut settings = url::form_urlencoded::Serializer::new(String::new());
    settings.append_pair("account", account).append_pair("endpoint", &endpoint);
    Ok(Address {
        url: format!("azure://{}?{}", named.container, settings.finish()),
        credentials: Credentials::Azure { access_key: fields.need("storageKey")?.into() },
        network: Network { request_timeout: Some(REQUEST_TIMEOUT), ..Network::default() },
    })
}
