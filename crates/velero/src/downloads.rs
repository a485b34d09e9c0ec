//! Files of locations that are directories of this machine, for whoever has an address that we signed.
//!
//! An address names one file and the second after which it is worth nothing. The key it is signed with
//! lives as long as the process.
//!
//! Anybody may connect, and the process has other doors: whoever says nothing, takes nothing, or comes
//! when all places are taken is shown out.

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
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tasks::{Tasks, WriteTimeout};
use telemetry::Seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

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

/// What clients get.
#[derive(Debug, Clone, Copy)]
struct Limits {
    connections: usize,
    /// A request line and its headers must be there by then.
    headers: Duration,
    /// A client that takes nothing of a file for so long is cut off.
    writes: Duration,
}

const LIMITS: Limits =
    Limits { connections: 64, headers: Duration::from_secs(10), writes: Duration::from_secs(30) };
/// When accepting fails (no file descriptors left), trying again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const SAY_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Serves until it is dropped; its connections end with `tasks`.
pub(crate) async fn serve(world: Arc<World>, listener: TcpListener, tasks: Tasks) {
    let router = Router::new().route("/downloads/{location}/{*key}", get(fetch)).with_state(world);
    accept(listener, router, LIMITS, &tasks).await;
}

async fn accept(listener: TcpListener, router: Router, limits: Limits, tasks: &Tasks) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let rejections = Seldom::new(SAY_AGAIN_AFTER);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if let Some(unsaid) = rejections.pass() {
                    tracing::warn!(%error, unsaid, "cannot accept a download");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            if let Some(unsaid) = rejections.pass() {
                let max = limits.connections;
                tracing::warn!(max, unsaid, "too many downloads at once, refused one");
            }
            continue;
        };
        let router = router.clone();
        tasks.spawn("download", async move {
            speak(stream, router, limits).await;
            drop(place);
        });
    }
}

/// One file for each connection: none idles between two.
async fn speak(stream: TcpStream, router: Router, limits: Limits) {
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(limits.headers);
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.writes));
    let done = builder.serve_connection(stream, TowerToHyperService::new(router)).await;
    if let Err(error) = done {
        tracing::debug!(%error, "a download ended with an error");
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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

    async fn start(limits: Limits) -> (SocketAddr, Tasks) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let below = tasks.clone();
        let router = Router::new().fallback(|| async { "here" });
        tasks.spawn("door", async move { accept(listener, router, limits, &below).await });
        (address, tasks)
    }

    async fn all_of(stream: &mut TcpStream) -> String {
        let mut said = Vec::new();
        // A reset is an end as well.
        let _ = tokio::time::timeout(Duration::from_mins(2), stream.read_to_end(&mut said))
            .await
            .expect("the connection is still open");
        String::from_utf8_lossy(&said).into_owned()
    }

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    #[tokio::test]
    async fn who_says_nothing_is_shown_out_and_who_asks_gets_one_answer() {
        let limits = Limits { headers: Duration::from_millis(100), ..LIMITS };
        let (address, tasks) = start(limits).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert_eq!(all_of(&mut silent).await, "");
        let mut slow = TcpStream::connect(address).await.unwrap();
        let _ = slow.write_all(b"GET / HTTP/1.1\r\nhost: ").await;
        assert!(!all_of(&mut slow).await.contains("here"));
        let usual = start(LIMITS).await;
        let mut asks = TcpStream::connect(usual.0).await.unwrap();
        let _ = asks.write_all(ASK).await;
        // The end of the stream came with the answer, not after a wait.
        assert!(all_of(&mut asks).await.ends_with("here"));
        for tasks in [tasks, usual.1] {
            let _ = tasks.stop(Duration::from_mins(1)).await;
        }
    }

    #[tokio::test]
    async fn one_too_many_is_turned_away() {
        let limits = Limits { connections: 1, headers: Duration::from_mins(5), ..LIMITS };
        let (address, tasks) = start(limits).await;
        // Accepted in the order they came: the first has the place.
        let inside = TcpStream::connect(address).await.unwrap();
        let mut newcomer = TcpStream::connect(address).await.unwrap();
        let _ = newcomer.write_all(ASK).await;
        assert_eq!(all_of(&mut newcomer).await, "");
        drop(inside);
        let _ = tasks.stop(Duration::from_mins(1)).await;
    }
}
