//! The receiving end of the file protocol: an HTTP server for one file on one port, which ends when
//! the file is closed or nobody comes. Owns: parsing and bounding what a sender says. What a call
//! does to the file is in `target`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use backupstore::Hasher;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use futures::StreamExt;
use tasks::{BlockingError, CancellationToken};
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;

use super::content::recorded;
use super::target::{Before, Hashable, Target, TargetError};
use crate::agent::Agent;
use crate::agent::error::JobError;
use crate::agent::names::FileName;
use crate::disk::{SECTOR_BYTES, checksum_file};

/// Without a call for this long, nobody is coming any more.
const IDLE: Duration = Duration::from_mins(5);
/// A body that stops coming is given up.
const BODY_STALL: Duration = Duration::from_mins(1);
/// Calls that are worked on at a time; the rest wait. It bounds the memory of bodies.
const CALLS_MAX: usize = 16;
/// Collected before it is written.
const WRITE_BYTES: usize = 1024 * 1024;
/// After the file is closed, for the answer to get out.
const LINGER: Duration = Duration::from_secs(5);
const WORD_MAX_BYTES: usize = 128;

/// The receivers that run, by file: a new one takes the place of an old one.
#[derive(Debug, Default)]
pub(crate) struct Receivers(Mutex<HashMap<FileName, CancellationToken>>);

/// A receiver that listens. Dropping it leaves it running.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) port: u16,
    pub(crate) meter: Arc<Meter>,
    stop: CancellationToken,
}

impl Launched {
    /// The sender says that it is done; this is whether all of it is on disk here.
    pub(crate) fn check_received(&self, file: &FileName) -> Result<(), JobError> {
        if self.meter.is_closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(JobError::NotReceived(file.to_string()))
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

/// How far into its file the sender has come, and whether it was closed well.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    at: AtomicU64,
    size: AtomicU64,
    is_closed: AtomicBool,
}

impl Meter {
    pub(crate) fn percent(&self) -> u64 {
        let at = self.at.load(Ordering::Relaxed).saturating_mul(100);
        at.checked_div(self.size.load(Ordering::Relaxed)).unwrap_or(0).min(100)
    }
}

/// Listens on the next free port for somebody to send this file.
pub(crate) async fn launch(agent: &Arc<Agent>, file: FileName) -> Result<Launched, JobError> {
    let (listener, port) = agent.ports.listen().await?;
    let stop = agent.tasks.token().child_token();
    let meter = Arc::new(Meter::default());
    let old = agent.receivers.lock().insert(file.clone(), stop.clone());
    if let Some(old) = old {
        old.cancel();
    }
    let receiver = Arc::new(Receiver {
        agent: Arc::clone(agent),
        file,
        meter: Arc::clone(&meter),
        opened: AsyncMutex::new(None),
        calls: Semaphore::new(CALLS_MAX),
        hasher: Hasher::default(),
        last_call: Mutex::new(Instant::now()),
        stop: stop.clone(),
    });
    tracing::debug!(file = %receiver.file, port, "waiting for a file");
    agent.tasks.spawn_draining("receive a file", move |_| serve(receiver, listener));
    Ok(Launched { port, meter, stop })
}

impl Receivers {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<FileName, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(receiver: Arc<Receiver>, listener: TcpListener) {
    let stop = receiver.stop.clone();
    let routes = Router::new()
        .route("/v1-ssync/open", get(open))
        .route("/v1-ssync/sendHole", post(send_hole))
        .route("/v1-ssync/getChecksum", get(get_checksum))
        .route("/v1-ssync/writeData", post(write_data))
        .route("/v1-ssync/getRecordedMetadata", get(get_recorded))
        .route("/v1-ssync/close", post(close))
        .with_state(Arc::clone(&receiver));
    let server =
        axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    let ended = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = receiver.nobody_comes() => {
                tracing::warn!(file = %receiver.file, "nobody sent the file");
                stop.cancel();
            }
        }
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        outcome = server.into_future() => {
            if let Err(error) = outcome {
                tracing::warn!(file = %receiver.file, %error, "the receiver ended");
            }
        }
        () = ended => {}
    }
    stop.cancel();
    let mut running = receiver.agent.receivers.lock();
    // Only our own entry: a newer receiver may have taken the place.
    if running.get(&receiver.file).is_some_and(CancellationToken::is_cancelled) {
        running.remove(&receiver.file);
    }
}

#[derive(Debug)]
struct Receiver {
    agent: Arc<Agent>,
    file: FileName,
    meter: Arc<Meter>,
    opened: AsyncMutex<Option<Arc<Target>>>,
    calls: Semaphore,
    hasher: Hasher,
    last_call: Mutex<Instant>,
    stop: CancellationToken,
}

impl Receiver {
    async fn nobody_comes(&self) {
        loop {
            let last = *self.last_call.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = self.calls.available_permits() == CALLS_MAX;
            if is_idle && last.elapsed() >= IDLE {
                return;
            }
            let until = if is_idle { last + IDLE } else { Instant::now() + IDLE };
            tokio::time::sleep_until(until).await;
        }
    }

    /// Runs one call, on the open file, on a thread where it may block.
    async fn on_file<T, W>(&self, range: Option<&Range<u64>>, work: W) -> Result<T, Rejection>
    where
        T: Send + 'static,
        W: FnOnce(&Target) -> Result<T, TargetError> + Send + 'static,
    {
        let target = self.opened.lock().await.clone().ok_or_else(Rejection::not_open)?;
        if let Some(range) = range {
            self.meter.at.fetch_max(range.end.min(target.size_bytes()), Ordering::Relaxed);
        }
        Ok(self.agent.tasks.blocking("receive", move || work(&target)).await??)
    }

    /// Counts a call while the result lives.
    async fn enter(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Rejection> {
        *self.last_call.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.calls.acquire().await.map_err(|_| Rejection::not_open())
    }

    /// The last range as it is in the file: senders of the other kind round its end up.
    fn within_file(&self, range: Range<u64>) -> Range<u64> {
        let size_bytes = self.meter.size.load(Ordering::Relaxed);
        // As senders of the other kind do.
        let is_rounded = range.end == size_bytes.next_multiple_of(SECTOR_BYTES);
        if is_rounded && range.start < size_bytes { range.start..size_bytes } else { range }
    }

    async fn open(&self, size_bytes: u64) -> Result<Before, Rejection> {
        let mut opened = self.opened.lock().await;
        let (dir, file) = (self.agent.dir.clone(), self.file.clone());
        let open = move || Target::open(&dir, &file, size_bytes);
        let (target, before) = self.agent.tasks.blocking("open a file", open).await??;
        self.meter.size.store(size_bytes, Ordering::Relaxed);
        *opened = Some(Arc::new(target));
        Ok(before)
    }
}

type Shared = State<Arc<Receiver>>;

async fn open(State(receiver): Shared, uri: Uri) -> Result<Response, Rejection> {
    let _call = receiver.enter().await?;
    let range = range(&uri)?;
    if range.start != 0 {
        return Err(Rejection::bad(format!("a file begins at 0, not at {}", range.start)));
    }
    let before = receiver.open(range.end).await?;
    Ok(json(if before == Before::Existed { "true" } else { "false" }))
}

async fn send_hole(State(receiver): Shared, uri: Uri) -> Result<(), Rejection> {
    let _call = receiver.enter().await?;
    let range = receiver.within_file(range(&uri)?);
    let hole = range.clone();
    receiver.on_file(Some(&range), move |target| target.punch(hole.start, hole.end)).await
}

async fn get_checksum(State(receiver): Shared, uri: Uri) -> Result<Response, Rejection> {
    let _call = receiver.enter().await?;
    let range = receiver.within_file(range(&uri)?);
    let asked = range.clone();
    let read = move |target: &Target| target.hashable(asked.start, asked.end);
    let hash = match receiver.on_file(Some(&range), read).await? {
        Some(Hashable::Piece(piece)) => {
            let sum = receiver.hasher.sum(piece).await.map_err(JobError::from);
            sum.map_err(|error| Rejection::failed(error.text()))?.to_vec()
        }
        Some(Hashable::Sum(sum)) => sum,
        None => return Ok(json("null")),
    };
    Ok(json(format!("\"{}\"", STANDARD.encode(hash))))
}

async fn write_data(
    State(receiver): Shared,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Rejection> {
    let _call = receiver.enter().await?;
    let range = receiver.within_file(range(&uri)?);
    let len = range.end - range.start;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.is_some_and(|text| text.parse() != Ok(len)) {
        return Err(Rejection::bad(format!("the body is not {len} bytes long, as its range is")));
    }
    // Refused before a byte of the body is read.
    let asked = range.clone();
    receiver.on_file(None, move |target| target.check(asked.start, asked.end)).await?;
    let mut at = range.start;
    let mut chunks = body.into_data_stream();
    let mut collected = BytesMut::new();
    loop {
        let next = tokio::time::timeout(BODY_STALL, chunks.next());
        let next = next.await.map_err(|_| Rejection::bad("the body stopped coming".into()))?;
        if let Some(chunk) = next {
            let chunk =
                chunk.map_err(|error| Rejection::bad(format!("the body broke: {error}")))?;
            collected.extend_from_slice(&chunk);
            if at + collected.len() as u64 > range.end {
                return Err(Rejection::bad(format!("the body is longer than {len} bytes")));
            }
            if collected.len() < WRITE_BYTES {
                continue;
            }
        }
        if collected.is_empty() {
            break;
        }
        let (piece, begin) = (collected.split().freeze(), at);
        at += piece.len() as u64;
        let written = begin..at;
        receiver.on_file(Some(&written), move |target| target.write(&piece, begin)).await?;
    }
    if at != range.end {
        return Err(Rejection::bad(format!("the body is shorter than {len} bytes")));
    }
    Ok(())
}

async fn get_recorded(State(receiver): Shared) -> Result<Response, Rejection> {
    let _call = receiver.enter().await?;
    let none = || Rejection { status: StatusCode::NOT_FOUND, text: "no checksum".into() };
    let disk = receiver.file.disk().ok_or_else(none)?;
    let dir = receiver.agent.dir.clone();
    let find = move || {
        let is_there = dir.join(checksum_file(&disk)).is_file();
        is_there.then(|| recorded(&dir, &disk))
    };
    match receiver.agent.tasks.blocking("look for a checksum", find).await? {
        None => Err(none()),
        Some(None) => Err(Rejection::failed("the file changed after its checksum was made".into())),
        Some(Some(record)) => match serde_json::to_string(&record) {
            Ok(text) => Ok(json(text)),
            Err(error) => Err(Rejection::failed(error.to_string())),
        },
    }
}

async fn close(State(receiver): Shared, uri: Uri) -> Result<(), Rejection> {
    let _call = receiver.enter().await?;
    let method = word(&uri, "checksumMethod")?;
    let checksum = word(&uri, "checksum")?;
    let opened = receiver.opened.lock().await.take();
    // Whatever comes of it, there is no more to receive here.
    let _stop = receiver.stop.clone().drop_guard();
    let closed = || receiver.meter.is_closed.store(true, Ordering::SeqCst);
    let Some(target) = opened else {
        // The sender found that the file is here already.
        closed();
        return Ok(());
    };
    let closing = move || {
        let record = method.as_deref().zip(checksum.as_deref());
        target.close(record, &crate::agent::now())
    };
    receiver.agent.tasks.blocking("close a file", closing).await??;
    closed();
    Ok(())
}

/// The value of a key in the query; the last one counts.
fn value<'u>(uri: &'u Uri, key: &str) -> Option<&'u str> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.split_once('=')).rfind(|(name, _)| *name == key).map(|pair| pair.1)
}

fn range(uri: &Uri) -> Result<Range<u64>, Rejection> {
    let number = |key: &str| {
        value(uri, key)
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or_else(|| Rejection::bad(format!("{key} is no number of bytes")))
    };
    let (begin, end) = (number("begin")?, number("end")?);
    if begin > end {
        return Err(Rejection::bad(format!("a range cannot begin at {begin} and end at {end}")));
    }
    Ok(begin..end)
}

/// A short word of letters and digits, as methods and checksums are; empty is none.
fn word(uri: &Uri, key: &str) -> Result<Option<String>, Rejection> {
    let Some(text) = value(uri, key).filter(|text| !text.is_empty()) else { return Ok(None) };
    let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-' || letter == b'_';
    if text.len() > WORD_MAX_BYTES || !text.bytes().all(is_plain) {
        return Err(Rejection::bad(format!("{key} is not a word")));
    }
    Ok(Some(text.to_owned()))
}

fn json(text: impl Into<Bytes>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text.into()).into_response()
}

/// An answer that is none.
#[derive(Debug)]
struct Rejection {
    status: StatusCode,
    text: String,
}

impl Rejection {
    fn bad(text: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text }
    }

    fn failed(text: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, text }
    }

    fn not_open() -> Self {
        Self::bad("the file is not open".into())
    }
}

impl From<BlockingError> for Rejection {
    fn from(error: BlockingError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<TargetError> for Rejection {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Range { .. }
            | TargetError::TooLarge(_)
            | TargetError::Incomplete
            | TargetError::Dropped => Self::bad(error.to_string()),
            TargetError::NoHoles => Self::failed(error.to_string()),
            TargetError::Disk(error) => {
                let status = match error.kind() {
                    Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
                        StatusCode::INSUFFICIENT_STORAGE
                    }
                    Some(_) | None => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Self { status, text: error.text() }
            }
            TargetError::Durable(error) => Self::failed(error.to_string()),
        }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        tracing::debug!(status = %self.status, text = self.text, "refused");
        (self.status, self.text).into_response()
    }
}
