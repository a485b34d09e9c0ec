//! Swift, the object store of `OpenStack`, with the tokens of a Keystone.
//!
//! Owns: its requests ([`store`]), who we are to it ([`keystone`]), and objects that are written in
//! segments ([`segments`]). Puts have no conditions here: Swift has none that hold.

mod keystone;
mod segments;
mod store;

use std::sync::Arc;

use keystone::Keystone;
pub use keystone::SwiftIdentity;
use store::SwiftStore;
use url::Url;

use crate::open::{OpenError, Place};
use crate::store::Store;

pub(crate) fn open(place: &Place, identity: &SwiftIdentity) -> Result<Arc<dyn Store>, OpenError> {
    let text = place.setting("auth_url").ok_or(OpenError::Missing { what: "auth_url" })?;
    let bad = || OpenError::Value {
        name: "auth_url",
        value: text.to_owned(),
        allowed: "a URL that begins with https:// or http://",
    };
    let url = Url::parse(text).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad());
    }
    // The catalogue names other addresses, which are not known before; a cloud that signs tokens
    // without TLS may hold its objects without it.
    let options = place.client(url.scheme() == "http")?;
    let client = place.connector().waiting(&options).map_err(crate::open::failed)?;
    let region = place.setting("region").map(str::to_owned);
    let keystone = Keystone { url, region, identity: identity.clone() };
    Ok(Arc::new(SwiftStore::new(client, keystone, &place.bucket, place.prefix.folder())))
}
