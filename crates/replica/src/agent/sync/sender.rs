//! The sending end of the file protocol: drives a receiver until its file equals ours, and sends
//! only what differs. Owns retries. Never: which file goes where.
//!
//! Hashing happens on both sides at once, on threads of their own, and for several ranges together:
//! so many are under way that each thread of both sides has a group of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backupstore::Hasher;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use reqwest::{Method, StatusCode};
use rpc::Address;
use tasks::Tasks;
use tokio::time::Instant;

use super::WINDOW_BYTES;
use super::content::Content;
use crate::agent::error::JobError;
use crate::disk::Checksum;

/// Sent and compared at a time.
const BATCH_BYTES: u64 = 2 * 1024 * 1024;
/// Two groups that are hashed together, and as many calls as a receiver takes.
const WORKERS: usize = 16;
const RETRIES: u32 = 5;
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long a receiver may take to be there.
const OPEN_TIMEOUT: Duration = Duration::from_mins(2);
const OPEN_RETRY_MIN: Duration = Duration::from_millis(100);
const OPEN_RETRY_MAX: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(10);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// A close waits until all is on disk.
const CLOSE_TIMEOUT_MIN: Duration = Duration::from_mins(5);
/// No answer of this protocol is longer.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
const SAID_MAX_CHARS: usize = 500;

/// How a file is sent.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    /// For messages.
    pub(crate) file: String,
    pub(crate) to: Address,
    /// Asks the receiver to bypass its cache.
    pub(crate) direct_io: bool,
    /// What we know the file's checksum to be: a receiver that knows the same has the file.
    pub(crate) recorded: Option<Checksum>,
    /// Whether such a receiver is believed.
    pub(crate) fast_sync: bool,
    pub(crate) timeout: Duration,
}

/// What it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sent {
    pub(crate) compared_bytes: u64,
    pub(crate) sent_bytes: u64,
}

pub(crate) fn timeout(seconds: i32) -> Duration {
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        Ok(_) | Err(_) => TIMEOUT_DEFAULT,
    }
}

/// Returns when the receiver has everything, on disk.
///
/// # Cancel safety
///
/// May be dropped: the receiver then gives up by itself, and a later send finds what it has.
pub(crate) async fn send(
    tasks: &Tasks,
    content: Arc<dyn Content>,
    manner: Manner,
) -> Result<Sent, JobError> {
    let client = reqwest::Client::builder()
        // Peers are in reach; a proxy of the environment is for other things.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .build()
        .map_err(JobError::Client)?;
    let sender = Sender {
        client,
        tasks: tasks.clone(),
        content,
        manner,
        hasher: Hasher::default(),
        compared_bytes: AtomicU64::new(0),
        sent_bytes: AtomicU64::new(0),
    };
    sender.run().await
}

#[derive(Debug)]
struct Sender {
    client: reqwest::Client,
    tasks: Tasks,
    content: Arc<dyn Content>,
    manner: Manner,
    hasher: Hasher,
    compared_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// One call's answer, whatever its status.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Hole(Range<u64>),
    Data(Range<u64>),
}

impl Sender {
    async fn run(&self) -> Result<Sent, JobError> {
        if self.is_there_already().await? {
            self.close(None).await?;
            return Ok(Sent::default());
        }
        let has_old = self.open().await?;
        if let Err(error) = self.send_pieces(has_old).await {
            // So that the receiver does not wait for more; it may well be gone.
            let _ = self.once("close", Method::POST, "", None).await;
            return Err(error);
        }
        self.close(self.manner.recorded.as_ref()).await?;
        Ok(Sent {
            compared_bytes: self.compared_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
        })
    }

    /// Whether both sides have recorded the same checksum for the file as it is.
    async fn is_there_already(&self) -> Result<bool, JobError> {
        let Some(own) = self.manner.recorded.as_ref().filter(|_| self.manner.fast_sync) else {
            return Ok(false);
        };
        let answer = self.in_time("getRecordedMetadata", "").await?;
        if !answer.status.is_success() {
            return Ok(false);
        }
        let theirs: Checksum = serde_json::from_slice(&answer.body).unwrap_or_default();
        let is_same = theirs.method == own.method && theirs.checksum == own.checksum;
        Ok(is_same && !own.checksum.is_empty() && !theirs.silently_corrupted)
    }

    /// Whether the receiver had the file before.
    async fn open(&self) -> Result<bool, JobError> {
        let query = format!(
            "?begin=0&end={}&directIO={}",
            self.content.size_bytes(),
            self.manner.direct_io
        );
        let answer = self.accepted("open", self.in_time("open", &query).await?)?;
        Ok(serde_json::from_slice(&answer).unwrap_or(true))
    }

    async fn close(&self, record: Option<&Checksum>) -> Result<(), JobError> {
        let query = match record {
            Some(Checksum { method, checksum, .. }) => {
                format!("?checksumMethod={method}&checksum={checksum}")
            }
            None => String::new(),
        };
        self.call("close", Method::POST, &query, None).await.map(drop)
    }

    async fn send_pieces(&self, has_old: bool) -> Result<(), JobError> {
        let pieces = Pieces::new(Arc::clone(&self.content), self.tasks.clone());
        let pieces = stream::try_unfold(pieces, |mut pieces| async move {
            Ok(pieces.next().await?.map(|piece| (piece, pieces)))
        });
        pieces
            .map_ok(|piece| async move {
                match piece {
                    // A new file is one hole to begin with.
                    Piece::Hole(_) if !has_old => Ok(()),
                    Piece::Hole(range) => self.send_hole(range).await,
                    Piece::Data(range) if has_old => self.compare_and_send(range).await,
                    Piece::Data(range) => {
                        let data = self.read(range.clone()).await?;
                        self.send_data(range, data).await
                    }
                }
            })
            .try_buffer_unordered(WORKERS)
            .try_for_each(|()| async { Ok(()) })
            .await
    }

    async fn send_hole(&self, range: Range<u64>) -> Result<(), JobError> {
        self.call("sendHole", Method::POST, &query(&range), None).await.map(drop)
    }

    async fn compare_and_send(&self, range: Range<u64>) -> Result<(), JobError> {
        let hashed = async {
            let data = self.read(range.clone()).await?;
            let hash = self.hasher.sum(data.clone()).await?;
            Ok::<_, JobError>((data, hash))
        };
        let query = query(&range);
        let asked = self.call("getChecksum", Method::GET, &query, None);
        let (hashed, answer) = futures::join!(hashed, asked);
        let (data, hash) = hashed?;
        self.compared_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        let theirs: Option<String> = serde_json::from_slice(&answer?).unwrap_or_default();
        let theirs = theirs.and_then(|text| STANDARD.decode(text).ok());
        if theirs.as_deref() == Some(&hash[..]) {
            return Ok(());
        }
        self.send_data(range, data).await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, JobError> {
        let content = Arc::clone(&self.content);
        self.tasks.blocking("read a range", move || read(&*content, &range)).await?
    }

    async fn send_data(&self, range: Range<u64>, data: Bytes) -> Result<(), JobError> {
        let len = data.len() as u64;
        self.call("writeData", Method::POST, &query(&range), Some(data)).await?;
        self.sent_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// A call to a receiver that may not be up yet.
    async fn in_time(&self, call: &'static str, query: &str) -> Result<Answer, JobError> {
        let started = Instant::now();
        let mut delay = OPEN_RETRY_MIN;
        loop {
            let outcome = self.once(call, Method::GET, query, None).await;
            let is_over = started.elapsed() >= OPEN_TIMEOUT;
            match outcome {
                Ok(answer) if is_over || !(call == "open" && is_passing(answer.status)) => {
                    return Ok(answer);
                }
                Err(error) if is_over => return Err(error),
                Ok(_) | Err(_) => tokio::time::sleep(delay).await,
            }
            delay = (delay * 2).min(OPEN_RETRY_MAX);
        }
    }

    /// A call that is made again where that may help.
    async fn call(
        &self,
        call: &'static str,
        method: Method,
        query: &str,
        body: Option<Bytes>,
    ) -> Result<Vec<u8>, JobError> {
        let mut attempt = 0;
        let mut broke_off = false;
        loop {
            let outcome = self.once(call, method.clone(), query, body.clone()).await;
            let is_last = attempt >= RETRIES;
            match outcome {
                Ok(answer) if is_last || !is_passing(answer.status) => {
                    return self.accepted(call, answer);
                }
                // A receiver of the peer ends itself while it answers a close, and its answer may be lost
                // by that: what is to be seen is that it took the call, and is not there any more. Where
                // its whole process died instead, so did the one who wants the file.
                Err(error) if call == "close" && broke_off && error.is_unreachable() => {
                    return Ok(Vec::new());
                }
                Err(error) if is_last => return Err(error),
                Ok(answer) => tracing::debug!(call, status = %answer.status, "again"),
                Err(error) => {
                    broke_off = !error.is_unreachable();
                    tracing::debug!(call, error = error.text(), "again");
                }
            }
            tokio::time::sleep(retry_delay(attempt)).await;
            attempt += 1;
        }
    }

    async fn once(
        &self,
        call: &'static str,
        method: Method,
        query: &str,
        body: Option<Bytes>,
    ) -> Result<Answer, JobError> {
        let timeout = match call {
            "close" => self.manner.timeout.max(CLOSE_TIMEOUT_MIN),
            _ => self.manner.timeout,
        };
        let url = format!("{}/v1-ssync/{call}{query}", self.manner.to.uri());
        let mut request = self.client.request(method, url).timeout(timeout);
        if let Some(body) = body {
            request = request.body(body);
        }
        let failed = |source| JobError::Http {
            call,
            file: self.manner.file.clone(),
            peer: self.manner.to.to_string(),
            source,
        };
        let mut response = request.send().await.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let room = ANSWER_MAX_BYTES.saturating_sub(body.len());
            body.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            if body.len() >= ANSWER_MAX_BYTES {
                break;
            }
        }
        Ok(Answer { status: response.status(), body })
    }

    fn accepted(&self, call: &'static str, answer: Answer) -> Result<Vec<u8>, JobError> {
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let said = String::from_utf8_lossy(&answer.body);
        Err(JobError::Answer {
            call,
            file: self.manner.file.clone(),
            peer: self.manner.to.to_string(),
            status: answer.status.as_u16(),
            said: said.trim().chars().take(SAID_MAX_CHARS).collect(),
        })
    }
}

/// Whether another try may find another answer. A disk that is full stays so.
fn is_passing(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || (status.is_server_error() && status != StatusCode::INSUFFICIENT_STORAGE)
}

/// At once for a connection that broke, then more and more slowly.
fn retry_delay(attempt: u32) -> Duration {
    match attempt {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1_u64 << attempt.min(5)).min(RETRY_MAX),
    }
}

fn query(range: &Range<u64>) -> String {
    format!("?begin={}&end={}", range.start, range.end)
}

fn read(content: &dyn Content, range: &Range<u64>) -> Result<Bytes, JobError> {
    let mut data = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
    content.read(&mut data, range.start)?;
    Ok(data.into())
}

/// Cuts the content into pieces, a window of its map at a time.
#[derive(Debug)]
struct Pieces {
    content: Arc<dyn Content>,
    tasks: Tasks,
    at: u64,
    /// Found, and not handed out yet.
    ready: VecDeque<Piece>,
    /// May go on in the next window.
    hole: Option<Range<u64>>,
}

impl Pieces {
    fn new(content: Arc<dyn Content>, tasks: Tasks) -> Self {
        Self { content, tasks, at: 0, ready: VecDeque::new(), hole: None }
    }

    async fn next(&mut self) -> Result<Option<Piece>, JobError> {
        while self.ready.is_empty() && self.at < self.content.size_bytes() {
            let end = self.content.size_bytes().min(self.at.saturating_add(WINDOW_BYTES));
            let (content, window) = (Arc::clone(&self.content), self.at..end);
            let runs = self.tasks.blocking("map a range", move || content.runs(window)).await??;
            self.at = end;
            for run in runs {
                self.add(run.offset..run.offset.saturating_add(run.len_bytes), run.is_data);
            }
        }
        Ok(self.ready.pop_front().or_else(|| self.hole.take().map(Piece::Hole)))
    }

    fn add(&mut self, range: Range<u64>, is_data: bool) {
        if !is_data {
            let start = self.hole.take().map_or(range.start, |hole| hole.start);
            self.hole = Some(start..range.end);
            return;
        }
        self.ready.extend(self.hole.take().map(Piece::Hole));
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at.saturating_add(BATCH_BYTES));
            self.ready.push_back(Piece::Data(at..end));
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Error, Stretch};

    #[derive(Debug)]
    struct Known(Vec<(u64, u64)>, u64);

    impl Content for Known {
        fn size_bytes(&self) -> u64 {
            self.1
        }

        fn runs(&self, range: Range<u64>) -> Result<Vec<Stretch>, Error> {
            let mut runs = Vec::new();
            let mut at = range.start;
            for (start, end) in &self.0 {
                let (start, end) = ((*start).max(at), (*end).min(range.end));
                if start >= end {
                    continue;
                }
                if at < start {
                    runs.push(Stretch { offset: at, len_bytes: start - at, is_data: false });
                }
                runs.push(Stretch { offset: start, len_bytes: end - start, is_data: true });
                at = end;
            }
            if at < range.end {
                runs.push(Stretch { offset: at, len_bytes: range.end - at, is_data: false });
            }
            Ok(runs)
        }

        fn read(&self, _buffer: &mut [u8], _offset: u64) -> Result<(), Error> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn pieces_cover_the_file_and_holes_are_joined_across_windows() {
        let size = 3 * WINDOW_BYTES;
        let data = vec![(4096, 4096 + 3 * BATCH_BYTES), (2 * WINDOW_BYTES + 4096, size - 4096)];
        let known = Arc::new(Known(data, size));
        let mut pieces = Pieces::new(known, Tasks::new());
        let (mut at, mut holes) = (0, 0);
        while let Some(piece) = pieces.next().await.unwrap() {
            let range = match piece {
                Piece::Hole(range) => {
                    holes += 1;
                    range
                }
                Piece::Data(range) => {
                    assert!(range.end - range.start <= BATCH_BYTES);
                    range
                }
            };
            assert_eq!(range.start, at);
            at = range.end;
        }
        assert_eq!((at, holes), (size, 3));
    }

    #[test]
    fn retries_slow_down_and_final_answers_are_final() {
        let delays: Vec<_> = (0..RETRIES).map(|attempt| retry_delay(attempt).as_secs()).collect();
        assert_eq!(delays, [0, 2, 4, 8, 16]);
        for status in [302, 400, 404, 507] {
            assert!(!is_passing(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        for status in [429, 500, 503] {
            assert!(is_passing(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        assert_eq!(timeout(0), TIMEOUT_DEFAULT);
        assert_eq!(timeout(-5), TIMEOUT_DEFAULT);
        assert_eq!(timeout(7), Duration::from_secs(7));
    }
}
