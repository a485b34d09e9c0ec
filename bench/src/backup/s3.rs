//! An S3 server of the measurement's own, so that nothing but its clients is measured: objects are
//! files, their names are in memory, signatures are not looked at, nothing is synced. It knows what
//! backup programs ask for: buckets, single puts with conditions, ranges, listings, deletions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use backupstore::restore::{FileSink, Sink as _};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, Method, StatusCode};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const BODY_MAX: usize = 256 << 20;
const PAGE_MAX: usize = 1000;
/// Of memory.
const PAGE: usize = 4096;

pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    objects: Mutex<BTreeMap<String, Object>>,
    next: AtomicU64,
    requests: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

#[derive(Debug, Clone)]
struct Object {
    file: PathBuf,
    e_tag: String,
    len_bytes: u64,
    modified: SystemTime,
}

impl Server {
    pub(crate) fn start(root: PathBuf) -> Result<Self> {
        let shared = Arc::new(Shared {
            root,
            objects: Mutex::default(),
            next: AtomicU64::new(1),
            requests: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let service = Router::new().fallback(handle).with_state(Arc::clone(&shared));
        // It ends with the runtime.
        drop(runtime.spawn(async move { axum::serve(listener, service).await }));
        Ok(Self { port, shared, _runtime: runtime })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// All that came, whatever was asked.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Bytes of all bodies that came.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Bytes of all bodies that went.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Forgets all objects.
    pub(crate) fn clear(&self) {
        self.shared.objects().clear();
    }
}

type Answer = Result<Response, StatusCode>;

/// A body in memory that a disk can take it from: copies of the server's would be measured as its
/// clients'.
struct Received {
    memory: Vec<u8>,
    begin: usize,
}

impl Received {
    fn new(capacity: usize) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(capacity + PAGE);
        let begin = memory.as_ptr().align_offset(PAGE).min(PAGE);
        memory.resize(begin, 0);
        Self { memory, begin }
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.memory.extend_from_slice(bytes);
        self
    }

    async fn whole(headers: &HeaderMap, body: Body) -> Result<Self, StatusCode> {
        let len = headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        let mut received = Self::new(len.unwrap_or(0).min(BODY_MAX));
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            received = received.with(&piece.map_err(broken)?);
            if received.bytes().len() > BODY_MAX {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
        }
        Ok(received)
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get(self.begin..).unwrap_or_default()
    }

    fn write(&self, place: &Path) -> std::io::Result<()> {
        let bytes = self.bytes();
        let (pages, rest) = bytes.split_at(bytes.len() - bytes.len() % PAGE);
        let file = FileSink::create(place, bytes.len() as u64)?;
        file.write_at(0, pages)?;
        file.write_at(pages.len() as u64, rest)
    }
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let (parts, body) = request.into_parts();
    let path = percent_encoding::percent_decode_str(parts.uri.path()).decode_utf8_lossy();
    let path = path.trim_start_matches('/').to_owned();
    let is_bucket = !path.trim_end_matches('/').contains('/');
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let answer = match parts.method {
        Method::GET if is_bucket => Ok(shared.list(path.trim_end_matches('/'), &query)),
        Method::POST if is_bucket => shared.delete_many(path.trim_end_matches('/'), body).await,
        Method::HEAD | Method::PUT if is_bucket => Ok(plain(StatusCode::OK)),
        Method::PUT => shared.put(path, &parts.headers, body).await,
        Method::GET | Method::HEAD => shared.get(&path, &parts.method, &parts.headers).await,
        Method::DELETE => shared.delete(&path).await,
        _ => Err(StatusCode::NOT_IMPLEMENTED),
    };
    answer.unwrap_or_else(|status| {
        let code = match status {
            StatusCode::NOT_FOUND => "NoSuchKey",
            StatusCode::PRECONDITION_FAILED => "PreconditionFailed",
            StatusCode::RANGE_NOT_SATISFIABLE => "InvalidRange",
            StatusCode::NOT_IMPLEMENTED => "NotImplemented",
            _ => "InternalError",
        };
        let mut refused = Response::new(Body::from(format!("<Error><Code>{code}</Code></Error>")));
        *refused.status_mut() = status;
        refused
    })
}

fn plain(status: StatusCode) -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

fn broken<E>(_: E) -> StatusCode {
    StatusCode::INTERNAL_SERVER_ERROR
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, StatusCode> {
    tokio::task::spawn_blocking(work).await.map_err(broken)?.map_err(broken)
}

impl Shared {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put(&self, key: String, headers: &HeaderMap, body: Body) -> Answer {
        let body = if is_chunked(headers) {
            let body = to_bytes(body, BODY_MAX).await.map_err(broken)?;
            self.received.fetch_add(body.len() as u64, Ordering::Relaxed);
            Received::new(body.len()).with(&unchunked(body)?)
        } else {
            let body = Received::whole(headers, body).await?;
            self.received.fetch_add(body.bytes().len() as u64, Ordering::Relaxed);
            body
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (file, len_bytes) = (self.root.join(number.to_string()), body.bytes().len() as u64);
        let place = file.clone();
        blocking(move || body.write(&place)).await?;
        let e_tag = format!("\"{number:032x}\"");
        let object = Object { file, e_tag: e_tag.clone(), len_bytes, modified: SystemTime::now() };
        let old = self.swap(key, object, headers);
        let gone = old.as_ref().map_or_else(|object| Some(object.file.clone()), Clone::clone);
        if let Some(gone) = gone {
            blocking(move || std::fs::remove_file(gone)).await?;
        }
        old.map_err(|_| StatusCode::PRECONDITION_FAILED)?;
        Response::builder().header(ETAG, e_tag).body(Body::empty()).map_err(broken)
    }

    /// The file that was there before; the new object again where a condition does not hold.
    fn swap(
        &self,
        key: String,
        new: Object,
        headers: &HeaderMap,
    ) -> Result<Option<PathBuf>, Object> {
        let mut objects = self.objects();
        let old = objects.get(&key);
        let matches = headers
            .get(IF_MATCH)
            .is_none_or(|wanted| old.is_some_and(|old| wanted.as_bytes() == old.e_tag.as_bytes()));
        if !matches || (headers.contains_key(IF_NONE_MATCH) && old.is_some()) {
            return Err(new);
        }
        Ok(objects.insert(key, new).map(|old| old.file))
    }

    async fn get(&self, key: &str, method: &Method, headers: &HeaderMap) -> Answer {
        let object = self.objects().get(key).cloned().ok_or(StatusCode::NOT_FOUND)?;
        let mut answer = Response::builder()
            .header(ETAG, &object.e_tag)
            .header(LAST_MODIFIED, http_date(object.modified));
        if *method == Method::HEAD {
            return answer
                .header(CONTENT_LENGTH, object.len_bytes)
                .body(Body::empty())
                .map_err(broken);
        }
        let (mut from, mut to) = (0, object.len_bytes);
        if let Some(range) = headers.get(RANGE).and_then(|range| range.to_str().ok()) {
            (from, to) = range_of(range, to).ok_or(StatusCode::RANGE_NOT_SATISFIABLE)?;
            let range = format!("bytes {from}-{}/{}", to - 1, object.len_bytes);
            answer = answer.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, range);
        }
        let bytes = blocking(move || {
            let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
            std::fs::File::open(&object.file)?.read_exact_at(&mut bytes, from)?;
            Ok(bytes)
        });
        let bytes = bytes.await?;
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        answer.body(Body::from(bytes)).map_err(broken)
    }

    async fn delete(&self, key: &str) -> Answer {
        self.remove(key).await?;
        Ok(plain(StatusCode::NO_CONTENT))
    }

    async fn remove(&self, key: &str) -> Result<(), StatusCode> {
        let old = self.objects().remove(key);
        match old {
            Some(old) => blocking(move || std::fs::remove_file(old.file)).await,
            None => Ok(()),
        }
    }

    /// The names are in a document; so are those that the answer says were removed.
    async fn delete_many(&self, bucket: &str, body: Body) -> Answer {
        let body = to_bytes(body, BODY_MAX).await.map_err(broken)?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let mut removed = String::new();
        for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
            self.remove(&format!("{bucket}/{key}")).await?;
            // Writing to a string cannot fail.
            let _ = write!(removed, "<Deleted><Key>{key}</Key></Deleted>");
        }
        Ok(Response::new(Body::from(format!("<DeleteResult>{removed}</DeleteResult>"))))
    }

    fn list(&self, bucket: &str, query: &str) -> Response {
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let text = if query.contains_key("location") {
            "<LocationConstraint>us-east-1</LocationConstraint>".to_owned()
        } else {
            self.listing(bucket, &query)
        };
        self.sent.fetch_add(text.len() as u64, Ordering::Relaxed);
        Response::new(Body::from(text))
    }

    /// Names have no character that XML would have to escape.
    fn listing(&self, bucket: &str, query: &BTreeMap<String, String>) -> String {
        let get = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (format!("{bucket}/{}", get("prefix")), get("delimiter"));
        let after = format!("{bucket}/{}", get("continuation-token").max(get("start-after")));
        let (mut text, mut groups, mut last) = (String::new(), Vec::new(), "");
        let mut token = String::new();
        let objects = self.objects();
        let mut count = 0;
        for (key, object) in objects.range(after.max(prefix.clone())..) {
            let Some(rest) = key.strip_prefix(&prefix) else { break };
            let name = key.get(bucket.len() + 1..).unwrap_or_default();
            if [get("continuation-token"), get("start-after")].contains(&name) {
                continue;
            }
            if count == PAGE_MAX {
                token = format!("<NextContinuationToken>{last}</NextContinuationToken>");
                break;
            }
            last = name;
            if let Some(end) = rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
                let folder = rest.get(..=end).unwrap_or_default();
                let folder = format!("{}{folder}", get("prefix"));
                if groups.last() != Some(&folder) {
                    groups.push(folder);
                }
                continue;
            }
            count += 1;
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "<Contents><Key>{name}</Key><LastModified>{}</LastModified><ETag>{}</ETag>\
                 <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                iso_date(object.modified),
                object.e_tag.replace('"', "&quot;"),
                object.len_bytes
            );
        }
        for group in groups {
            let _ = write!(text, "<CommonPrefixes><Prefix>{group}</Prefix></CommonPrefixes>");
        }
        let more = !token.is_empty();
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>{bucket}</Name>\
             <IsTruncated>{more}</IsTruncated>{token}{text}</ListBucketResult>"
        )
    }
}

/// `bytes=from-to`, `bytes=from-` and `bytes=-last`, cut to what there is.
fn range_of(text: &str, len_bytes: u64) -> Option<(u64, u64)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) => (from, to.saturating_add(1).min(len_bytes)),
        (Ok(from), Err(_)) => (from, len_bytes),
        (Err(_), Ok(last)) => (len_bytes.saturating_sub(last), len_bytes),
        (Err(_), Err(_)) => return None,
    };
    (from < to).then_some((from, to))
}

fn is_chunked(headers: &HeaderMap) -> bool {
    let sum = headers.get("x-amz-content-sha256").and_then(|it| it.to_str().ok());
    sum.is_some_and(|sum| sum.starts_with("STREAMING-"))
}

/// Each chunk has a line with its length and signature before it, and a line's end after it.
fn unchunked(mut body: Bytes) -> Result<Bytes, StatusCode> {
    let mut out = BytesMut::with_capacity(body.len());
    loop {
        let line = body.iter().position(|byte| *byte == b'\n').ok_or(StatusCode::BAD_REQUEST)?;
        let head = body.split_to(line + 1);
        let head = std::str::from_utf8(&head).map_err(|_| StatusCode::BAD_REQUEST)?;
        let digits = head.split([';', '\r']).next().unwrap_or_default();
        let len = usize::from_str_radix(digits, 16).map_err(|_| StatusCode::BAD_REQUEST)?;
        if len == 0 {
            return Ok(out.freeze());
        }
        if body.len() < len + 2 {
            return Err(StatusCode::BAD_REQUEST);
        }
        out.extend_from_slice(&body.split_to(len));
        body.advance(2);
    }
}

/// Days since 1970 as year, month and day.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, date)
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn clock(at: SystemTime) -> String {
    let second = seconds(at) % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

fn iso_date(at: SystemTime) -> String {
    let (year, month, day) = civil(seconds(at) / 86_400);
    format!("{year:04}-{month:02}-{day:02}T{}.000Z", clock(at))
}

fn http_date(at: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds(at) / 86_400;
    let (year, month, day) = civil(days);
    let pick = |names: &[&'static str], at: u64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or_default()
    };
    let (name, month) = (pick(&DAYS, days % 7), pick(&MONTHS, month - 1));
    format!("{name}, {day:02} {month} {year:04} {} GMT", clock(at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_http_and_xml() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_212_353);
        assert_eq!(http_date(at), "Thu, 29 Feb 2024 13:12:33 GMT");
        assert_eq!(iso_date(at), "2024-02-29T13:12:33.000Z");
    }

    #[test]
    fn ranges_are_cut_to_what_there_is() {
        for (text, found) in [
            ("bytes=0-3", Some((0, 4))),
            ("bytes=0-99", Some((0, 10))),
            ("bytes=4-", Some((4, 10))),
            ("bytes=-3", Some((7, 10))),
            ("bytes=10-12", None),
            ("lines=1-2", None),
        ] {
            assert_eq!(range_of(text, 10), found, "{text}");
        }
    }

    #[test]
    fn signed_chunks_are_put_together() {
        let body = "5;chunk-signature=ab\r\nhello\r\n1;chunk-signature=cd\r\n!\r\n0;x=y\r\n\r\n";
        assert_eq!(unchunked(Bytes::from_static(body.as_bytes())).unwrap(), "hello!");
        assert!(unchunked(Bytes::from_static(b"5;x\r\nhel")).is_err());
    }

    #[test]
    fn listings_go_on_where_they_stopped() {
        let scratch = testkit::process::Scratch::new().unwrap();
        let server = Server::start(scratch.path().to_owned()).unwrap();
        for number in 0..1500 {
            let object = Object {
                file: PathBuf::new(),
                e_tag: "\"x\"".to_owned(),
                len_bytes: 1,
                modified: SystemTime::now(),
            };
            server.shared.objects().insert(format!("b/{}/{number:04}", number % 2), object);
        }
        let ask = |more: &[(&str, &str)]| {
            let query = more.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            server.shared.listing("b", &query.collect())
        };
        let keys = |text: &str| text.matches("<Key>").count();
        assert_eq!(keys(&ask(&[("prefix", "0/")])), 750);
        let first = ask(&[]);
        let token = first.split("Token>").nth(1).unwrap().split('<').next().unwrap();
        assert_eq!((keys(&first), token), (1000, "1/0499"));
        assert_eq!(keys(&ask(&[("continuation-token", token)])), 500);
        let level = ask(&[("delimiter", "/")]);
        assert_eq!((keys(&level), level.matches("<CommonPrefixes>").count()), (0, 2));
    }
}
