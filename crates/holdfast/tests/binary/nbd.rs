//! Just enough of an NBD client to write, flush and read.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use wire::nbd::client::{Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Command, CommandFlags, Request, encode_request};

/// A server that is alive answers in far less.
const TIMEOUT: Duration = Duration::from_mins(3);
const PAYLOAD_MAX_BYTES: u32 = 32 << 20;

pub(crate) struct Nbd {
    socket: UnixStream,
    input: BytesMut,
    cookie: u64,
    pub(crate) size_bytes: u64,
}

impl Nbd {
    pub(crate) fn connect(path: &Path, export: &str) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut nbd = Self { socket, input: BytesMut::new(), cookie: 0, size_bytes: 0 };
        let mut dialing = Dialing::new(Dial { export: export.to_owned(), ..Dial::default() });
        loop {
            nbd.read_some();
            let mut output = BytesMut::new();
            let agreed = dialing.feed(&mut nbd.input, &mut output).unwrap();
            nbd.socket.write_all(&output).unwrap();
            if let Some(agreed) = agreed {
                nbd.size_bytes = agreed.size_bytes;
                return nbd;
            }
        }
    }

    fn read_some(&mut self) {
        let mut piece = [0; 16_384];
        let count = self.socket.read(&mut piece).unwrap();
        assert_ne!(count, 0, "the server hung up");
        self.input.extend_from_slice(&piece[..count]);
    }

    fn ask(&mut self, command: Command, answer_bytes: u32) -> Bytes {
        self.cookie += 1;
        let request = Request { cookie: self.cookie, flags: CommandFlags::default(), command };
        let (head, payload) = encode_request(&request).unwrap();
        self.socket.write_all(head.as_ref()).unwrap();
        self.socket.write_all(&payload).unwrap();
        loop {
            let reply = decode_reply(&mut self.input, PAYLOAD_MAX_BYTES, |_| answer_bytes).unwrap();
            match reply {
                Some(Reply::Simple { cookie, outcome }) => {
                    assert_eq!(cookie, self.cookie);
                    return outcome.unwrap();
                }
                Some(chunk @ Reply::Chunk { .. }) => panic!("not asked for: {chunk:?}"),
                None => self.read_some(),
            }
        }
    }

    /// Fills a range with one letter and flushes it.
    pub(crate) fn fill(&mut self, offset: u64, len: u32, letter: u8) {
        let data = Bytes::from(vec![letter; len as usize]);
        self.ask(Command::Write { offset, data }, 0);
        self.ask(Command::Flush, 0);
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.ask(Command::Write { offset, data: Bytes::copy_from_slice(bytes) }, 0);
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.ask(Command::Read { offset, len }, len).to_vec()
    }

    /// The letter a whole range is filled with.
    pub(crate) fn letter(&mut self, offset: u64, len: u32) -> u8 {
        let data = self.ask(Command::Read { offset, len }, len);
        assert_eq!(data.len(), len as usize);
        assert!(data.iter().all(|byte| *byte == data[0]), "more than one letter at {offset}");
        data[0]
    }
}
