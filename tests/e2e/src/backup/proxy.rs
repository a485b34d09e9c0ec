//! A faulty way to an HTTP service: every call goes through, or meets the fault that the test has
//! chosen for it. One call a connection, so that a cut hits nobody else.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_mins(1);
const HEAD_MAX_BYTES: usize = 64 << 10;
const BODY_MAX_BYTES: usize = 64 << 20;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    None,
    /// Refused for now, as services do that are asked too much.
    SlowDown,
    /// The connection ends in the middle of the request; the service never sees it.
    CutRequest,
    /// It is done, and nobody says so.
    LostAnswer,
    /// The connection ends in the middle of the answer.
    CutAnswer,
    /// The answer ends early and claims to be whole.
    ShortAnswer,
    /// It takes so long.
    Slow(Duration),
    /// The credentials are no longer good.
    Expired,
}

/// A call as the proxy sees it.
#[derive(Debug, Clone)]
pub struct Call {
    /// From 1, since the last [`Proxy::rule`].
    pub number: u64,
    pub method: String,
    /// With the query.
    pub path: String,
    /// The user who signed it; empty if nobody did.
    pub user: String,
}

type Rule = Box<dyn FnMut(&Call) -> Fault + Send>;

struct Shared {
    to: SocketAddr,
    is_over: AtomicBool,
    calls: AtomicU64,
    faults: AtomicU64,
    rule: Mutex<Rule>,
}

/// A proxy that listens. Dropping it ends it.
pub struct Proxy {
    at: SocketAddr,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy without faults.
    pub fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            to,
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            rule: Mutex::new(Box::new(|_| Fault::None)),
        });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let own = Arc::clone(&own);
                // A client that hung up is no failure of the test.
                std::thread::spawn(move || stream.map(|stream| own.serve(stream)));
            }
        });
        Self { at, shared }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.at)
    }

    /// From now on; calls are counted anew.
    pub fn rule(&self, rule: impl FnMut(&Call) -> Fault + Send + 'static) {
        let mut current = self.shared.rule.lock().unwrap();
        *current = Box::new(rule);
        self.shared.calls.store(0, Ordering::Relaxed);
    }

    /// Calls since the last rule.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Calls that met a fault, since the beginning.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // So that it looks.
        let _ = TcpStream::connect(self.at);
    }
}

struct Request {
    head: String,
    body: Vec<u8>,
}

impl Shared {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(TIMEOUT))?;
        let (head, mut body) = read_head(&mut client)?;
        let call = described(&head);
        let fault = {
            let mut rule = self.rule.lock().unwrap();
            let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
            rule(&Call { number, ..call })
        };
        if fault != Fault::None {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        let len = length(&head).unwrap_or(0);
        if fault == Fault::CutRequest {
            let mut half = vec![0; (len / 2).saturating_sub(body.len())];
            client.read_exact(&mut half)?;
            return client.shutdown(Shutdown::Both);
        }
        let mut rest = vec![0; len.saturating_sub(body.len())];
        client.read_exact(&mut rest)?;
        body.extend(rest);
        let answer = match fault {
            Fault::SlowDown => rejection("503 Slow Down", "SlowDown"),
            Fault::Expired => rejection("403 Forbidden", "ExpiredToken"),
            Fault::Slow(pause) => {
                std::thread::park_timeout(pause);
                self.forward(&Request { head, body })?
            }
            Fault::LostAnswer => {
                self.forward(&Request { head, body })?;
                return client.shutdown(Shutdown::Both);
            }
            Fault::CutAnswer => cut(self.forward(&Request { head, body })?),
            Fault::ShortAnswer => shorten(self.forward(&Request { head, body })?),
            Fault::None | Fault::CutRequest => self.forward(&Request { head, body })?,
        };
        client.write_all(&answer)?;
        client.shutdown(Shutdown::Write)
    }

    /// The answer of the service, as it came.
    fn forward(&self, request: &Request) -> io::Result<Vec<u8>> {
        let mut service = TcpStream::connect_timeout(&self.to, TIMEOUT)?;
        service.set_read_timeout(Some(TIMEOUT))?;
        let mut head = head_without(&request.head, "connection");
        head.push_str("Connection: close\r\n\r\n");
        service.write_all(head.as_bytes())?;
        service.write_all(&request.body)?;
        let mut answer = Vec::new();
        service.take(BODY_MAX_BYTES as u64).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

fn described(head: &str) -> Call {
    let mut words = head.split(' ').map(str::to_owned);
    let user = head.split("Credential=").nth(1).and_then(|it| it.split('/').next());
    Call {
        number: 0,
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        user: user.unwrap_or_default().to_owned(),
    }
}

/// The lines of a head but for one field, which the caller writes anew.
fn head_without(head: &str, field: &str) -> String {
    let lines = head.lines().filter(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !line.is_empty() && !name.eq_ignore_ascii_case(field)
    });
    lines.flat_map(|line| [line, "\r\n"]).collect()
}

/// The head of a request with its empty line, and what of the body came with it.
fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut some = [0; 16 << 10];
    while bytes.len() < HEAD_MAX_BYTES {
        let count = client.read(&mut some)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&some[..count]);
        if let Some(end) = end_of_head(&bytes) {
            let body = bytes.split_off(end);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|it| it == b"\r\n\r\n").map(|at| at + 4)
}

fn length(head: &str) -> Option<usize> {
    let line =
        head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-length:"))?;
    line.split(':').nth(1)?.trim().parse().ok().filter(|len| *len <= BODY_MAX_BYTES)
}

fn rejection(status: &str, code: &str) -> Vec<u8> {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>by the test</Message></Error>"
    );
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    format!("{head}{body}").into_bytes()
}

/// Half of its body, or where it has none half of its head.
fn cut(mut answer: Vec<u8>) -> Vec<u8> {
    let end = end_of_head(&answer).unwrap_or(0);
    let keep = if answer.len() > end { end + (answer.len() - end) / 2 } else { end / 2 };
    answer.truncate(keep);
    answer
}

/// Half of its body, with a head that tells of no more. Without a body it stays as it is.
fn shorten(answer: Vec<u8>) -> Vec<u8> {
    let end = end_of_head(&answer).unwrap_or(0);
    let (head, body) = answer.split_at(end);
    if body.is_empty() {
        return answer;
    }
    let body = &body[..body.len() / 2];
    let head = head_without(&String::from_utf8_lossy(head), "content-length");
    let mut short = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    short.extend_from_slice(body);
    short
}
