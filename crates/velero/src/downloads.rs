//! Files of locations that are directories of this machine, for whoever has an address that we signed.
//!
//! An address names one file and the second after which it is worth nothing. The key it is signed with
//! lives as long as the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blobs::Key;
use http::{StatusCode, header};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::net::TcpListener;

use crate::world::World;

/// What is written in other words within a path.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'?').add(b'%').add(b'`');

/// Signs addresses and knows its own.
#[derive(Clone)]
pub(crate) struct Downloads {
    address: SocketAddr,
    key: Arc<hmac::Key>,
}

impl std::fmt::Debug for Downloads {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Downloads").field("address", &self.address).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Claim {
    expires: i64,
    signature: String,
}

impl Claim {
    fn parse(query: &str) -> Option<Self> {
        let (expires, signature) = query.split_once('&')?;
        Some(Self {
            expires: expires.strip_prefix("expires=")?.parse().ok()?,
            signature: signature.strip_prefix("signature=")?.to_owned(),
        })
    }
}

impl Downloads {
    /// `None` if this machine has no random numbers.
    pub(crate) fn new(address: SocketAddr) -> Option<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?;
        Some(Self { address, key: Arc::new(key) })
    }

    pub(crate) fn address(
        &self,
        location: &str,
        key: &Key,
        lifetime: Duration,
        now: Timestamp,
    ) -> String {
        let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or_default();
        let expires = now.as_second().saturating_add(lifetime);
        let signature = hmac::sign(&self.key, said(location, key.as_str(), expires).as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature);
        let path = format!("{location}/{key}");
        let path = utf8_percent_encode(&path, ESCAPED);
        format!("http://{}/downloads/{path}?expires={expires}&signature={signature}", self.address)
    }

    fn allows(&self, location: &str, key: &str, claim: &Claim, now: Timestamp) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(&claim.signature) else { return false };
        let said = said(location, key, claim.expires);
        now.as_second() < claim.expires
            && hmac::verify(&self.key, said.as_bytes(), &signature).is_ok()
    }
}

fn said(location: &str, key: &str, expires: i64) -> String {
    format!("{location}\n{key}\n{expires}")
}

/// Serves until it is dropped.
pub(crate) async fn serve(world: Arc<World>, listener: TcpListener) {
    let router = Router::new().route("/downloads/{location}/{*key}", get(fetch)).with_state(world);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "downloads are not served any more");
    }
}

async fn fetch(
    State(world): State<Arc<World>>,
    Path((location, key)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let claim = query.as_deref().and_then(Claim::parse);
    let downloads = world.settings.downloads.as_ref();
    let is_allowed = claim.zip(downloads).is_some_and(|(claim, downloads)| {
        downloads.allows(&location, &key, &claim, Timestamp::now())
    });
    if !is_allowed {
        return said_no(StatusCode::FORBIDDEN, "the address is wrong or has expired");
    }
    let (Some(location), Ok(key)) = (world.location(&location), Key::parse(&key)) else {
        return said_no(StatusCode::NOT_FOUND, "there is no such file");
    };
    let Ok(opened) = world.open(&location).await else {
        return said_no(StatusCode::SERVICE_UNAVAILABLE, "the storage location cannot be opened");
    };
    match opened.store.get_stream(&key).await {
        Ok((meta, body)) => Response::builder()
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, meta.len_bytes)
            .body(Body::from_stream(body))
            .unwrap_or_default(),
        Err(error) if error.is_not_found() => {
            said_no(StatusCode::NOT_FOUND, "there is no such file")
        }
        Err(error) => {
            tracing::warn!(%key, error = %telemetry::Chain(&error), "a file cannot be read");
            said_no(StatusCode::BAD_GATEWAY, "the file cannot be read")
        }
    }
}

fn said_no(status: StatusCode, why: &'static str) -> Response {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_good_for_its_file_and_its_time_only() {
        let downloads = Downloads::new(([127, 0, 0, 1], 80).into()).unwrap();
        let key = Key::parse("backups/b/b-logs.gz").unwrap();
        let now = Timestamp::from_second(1000).unwrap();
        let url = downloads.address("loc", &key, Duration::from_mins(1), now);
        assert!(url.starts_with("http://127.0.0.1:80/downloads/loc/backups/b/b-logs.gz?"), "{url}");
        let signature = url.rsplit_once("signature=").unwrap().1.to_owned();
        let claim = |expires| Claim { expires, signature: signature.clone() };
        assert!(downloads.allows("loc", key.as_str(), &claim(1060), now));
        assert!(!downloads.allows("loc", "backups/b/b.tar.gz", &claim(1060), now));
        assert!(!downloads.allows("other", key.as_str(), &claim(1060), now));
        assert!(!downloads.allows("loc", key.as_str(), &claim(2000), now));
        let late = Timestamp::from_second(1060).unwrap();
        assert!(!downloads.allows("loc", key.as_str(), &claim(1060), late));
        let other = Downloads::new(([127, 0, 0, 1], 80).into()).unwrap();
        assert!(!other.allows("loc", key.as_str(), &claim(1060), now));
    }
}
