//! A replica for tests: a disk in memory behind the frames, with vices.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use rpc::{Address, Features};
use wire::frame::{
    Answer, Limits, Outcome, Reply, Request, Run, decode_request, encode_reply, encode_runs,
};

use engine::volume::DataTarget;

/// What a replica does to the next reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vice {
    None,
    BadMagic,
    WrongSequence,
    /// Half a frame, then the end.
    ShortFrame,
    /// One byte more than was asked for.
    LongAnswer,
    Disconnect,
    Error(&'static str),
    /// Answers nothing at all, pings and flushes included.
    Stall,
}

struct Inner {
    disk: Mutex<Vec<u8>>,
    vice: Mutex<Vice>,
    seen: Mutex<Vec<Request>>,
    connections: AtomicUsize,
}

#[derive(Clone)]
pub(crate) struct Fake {
    inner: Arc<Inner>,
    port: u16,
}

/// Everything a replica of ours understands, but for the unix socket.
pub(crate) fn all_features() -> Features {
    Features::FLUSH | Features::ZERO | Features::STATUS | Features::ORDERED
}

impl Fake {
    pub(crate) fn start(size_bytes: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            disk: Mutex::new(vec![0; usize::try_from(size_bytes).unwrap()]),
            vice: Mutex::new(Vice::None),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let fake = Self { inner, port };
        let serving = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (serving, stream) = (serving.clone(), stream.unwrap());
                serving.inner.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        fake
    }

    pub(crate) fn target(&self) -> DataTarget {
        DataTarget::Tcp(Address::new("127.0.0.1", self.port))
    }

    pub(crate) fn turn(&self, vice: Vice) {
        *self.inner.vice.lock().unwrap() = vice;
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.inner.disk.lock().unwrap()[offset..offset + len].to_vec()
    }

    pub(crate) fn connections(&self) -> usize {
        self.inner.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.inner.seen.lock().unwrap().clone()
    }

    fn serve(&self, mut stream: TcpStream) {
        let (mut buf, mut chunk) = (BytesMut::new(), vec![0; 64 << 10]);
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            buf.extend_from_slice(&chunk[..count]);
            while let Some(request) = decode_request(&mut buf, Limits::default()).unwrap() {
                self.inner.seen.lock().unwrap().push(request.clone());
                if !self.answer(&mut stream, request) {
                    return;
                }
            }
        }
    }

    /// False ends the connection.
    fn answer(&self, stream: &mut TcpStream, request: Request) -> bool {
        let vice = *self.inner.vice.lock().unwrap();
        let is_data = matches!(request, Request::Read { .. } | Request::Write { .. });
        let Some(mut answer) = self.perform(request) else { return false };
        match vice {
            Vice::Stall => return true,
            _ if !is_data => {}
            Vice::None | Vice::BadMagic | Vice::ShortFrame => {}
            Vice::WrongSequence => answer.sequence = answer.sequence.wrapping_add(7777),
            Vice::LongAnswer => answer.outcome = longer(answer.outcome),
            Vice::Disconnect => return false,
            Vice::Error(text) => answer.outcome = Outcome::Error(text.to_owned()),
        }
        let mut bytes = BytesMut::new();
        encode_reply(&Reply::Answer(answer), Limits::default()).unwrap().put(&mut bytes);
        let whole = match vice {
            Vice::BadMagic if is_data => {
                bytes[0] ^= 0xff;
                true
            }
            Vice::ShortFrame if is_data => {
                bytes.truncate(13);
                false
            }
            _ => true,
        };
        stream.write_all(&bytes).is_ok() && whole
    }

    fn perform(&self, request: Request) -> Option<Answer> {
        let mut disk = self.inner.disk.lock().unwrap();
        let at = |disk: &[u8], offset: i64, len: usize| {
            let start = usize::try_from(offset).unwrap();
            disk[start..start + len].to_vec()
        };
        let (sequence, offset, outcome) = match request {
            Request::Read { sequence, offset, size } => {
                (sequence, offset, Outcome::Data(Bytes::from(at(&disk, offset, size as usize))))
            }
            Request::Write { sequence, offset, data } => {
                let start = usize::try_from(offset).unwrap();
                disk[start..start + data.len()].copy_from_slice(&data);
                (sequence, offset, Outcome::Count(data.len() as u32))
            }
            Request::Zero { sequence, offset, size } => {
                let start = usize::try_from(offset).unwrap();
                disk[start..start + size as usize].fill(0);
                (sequence, offset, Outcome::Count(size))
            }
            Request::Unmap { sequence, offset, size }
            | Request::Discard { sequence, offset, size } => {
                let end = (usize::try_from(offset).unwrap() + size as usize) / 4096 * 4096;
                let start = usize::try_from(offset).unwrap().next_multiple_of(4096).min(end);
                disk[start..end].fill(0);
                (sequence, offset, Outcome::Count((end - start) as u32))
            }
            Request::Status { sequence, offset, size } => {
                let runs = runs(&at(&disk, offset, size as usize));
                (sequence, offset, Outcome::Data(encode_runs(&runs)))
            }
            Request::Flush { sequence }
            | Request::Ping { sequence }
            | Request::Hello { sequence, .. }
            | Request::Record { sequence, .. } => (sequence, 0, Outcome::Count(0)),
            Request::Close => return None,
        };
        Some(Answer { sequence, offset, outcome })
    }
}

/// Pages of zeros are holes.
fn runs(bytes: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for page in bytes.chunks(4096) {
        let (len, hole) = (page.len() as u32, page.iter().all(|byte| *byte == 0));
        match runs.last_mut() {
            Some(last) if last.hole == hole => last.len += len,
            _ => runs.push(Run { len, hole }),
        }
    }
    runs
}

fn longer(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Data(data) => Outcome::Data([&data[..], b"x"].concat().into()),
        Outcome::Count(count) => Outcome::Count(count + 1),
        other => other,
    }
}
