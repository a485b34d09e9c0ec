//! A client of the 26-byte frames: a replica's data port, or the socket frontend. One request at a
//! time.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use wire::frame::{self, Limits, Outcome, Reply, Request};

use super::{MIB, TIMEOUT};

trait Stream: Read + Write + Debug + Send {}
impl<T: Read + Write + Debug + Send> Stream for T {}

#[derive(Debug)]
pub struct Frames {
    stream: Box<dyn Stream>,
    input: BytesMut,
    sequence: u32,
}

impl Frames {
    /// A port of loopback.
    #[track_caller]
    pub fn tcp(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self::over(stream)
    }

    #[track_caller]
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path);
        let stream = stream.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self::over(stream)
    }

    fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), input: BytesMut::new(), sequence: 0 }
    }

    pub fn read(&mut self, offset: i64, size: u32) -> io::Result<Outcome> {
        self.call(|sequence| Request::Read { sequence, offset, size })
    }

    pub fn write(&mut self, offset: i64, data: Bytes) -> io::Result<Outcome> {
        self.call(|sequence| Request::Write { sequence, offset, data })
    }

    pub fn unmap(&mut self, offset: i64, size: u32) -> io::Result<Outcome> {
        self.call(|sequence| Request::Unmap { sequence, offset, size })
    }

    pub fn ping(&mut self) -> io::Result<Outcome> {
        self.call(|sequence| Request::Ping { sequence })
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: impl FnOnce(u32) -> Request) -> io::Result<Outcome> {
        self.sequence += 1;
        let frame = frame::encode_request(&request(self.sequence), Limits::default());
        let mut bytes = BytesMut::new();
        frame.map_err(io::Error::other)?.put(&mut bytes);
        self.stream.write_all(&bytes)?;
        loop {
            let reply = frame::decode_reply(&mut self.input, Limits::default());
            match reply.map_err(io::Error::other)? {
                Some(Reply::Answer(answer)) if answer.sequence == self.sequence => {
                    return Ok(answer.outcome);
                }
                Some(other) => return Err(io::Error::other(format!("unexpected {other:?}"))),
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        let len = self.stream.read(&mut chunk)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.input.extend_from_slice(&chunk[..len]);
        Ok(())
    }

    #[track_caller]
    pub fn read_all(&mut self, size_bytes: u64) -> Vec<u8> {
        let mut contents = Vec::with_capacity(usize::try_from(size_bytes).unwrap());
        let mut offset = 0;
        while offset < size_bytes {
            let len = u32::try_from(MIB.min(size_bytes - offset)).unwrap();
            match self.read(i64::try_from(offset).unwrap(), len).unwrap() {
                Outcome::Data(data) if data.len() == len as usize => {
                    contents.extend_from_slice(&data);
                }
                other => panic!("read of {len} bytes at {offset}: {other:?}"),
            }
            offset += u64::from(len);
        }
        contents
    }
}
