//! NBD in its transmission phase: requests to a server, replies to a client.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use wire::nbd::{
    BlockSize, Command, Context, Export, Request, RequestError, Session, TransmissionFlags, client,
    decode_request, encode_request,
};

const MAX_PAYLOAD: u32 = 4096;
const SIZE: u64 = 1 << 20;

/// Everything that comes out of `bytes` when they arrive in two pieces.
fn decode(bytes: &[u8], cut: usize) -> (Vec<Request>, Option<RequestError>) {
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in [first, second] {
        buf.extend_from_slice(piece);
        loop {
            match decode_request(&mut buf, MAX_PAYLOAD) {
                Ok(Some(request)) => out.push(request),
                Ok(None) => break,
                Err(error) => return (out, Some(error)),
            }
        }
    }
    (out, None)
}

/// What passes the check lies inside the export.
fn inside(command: &Command) -> bool {
    let fits = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= SIZE);
    match command {
        Command::Read { offset, len }
        | Command::Trim { offset, len }
        | Command::Cache { offset, len }
        | Command::WriteZeroes { offset, len }
        | Command::BlockStatus { offset, len } => fits(*offset, u64::from(*len)),
        Command::Write { offset, data } => fits(*offset, data.len() as u64),
        Command::Disconnect | Command::Flush | Command::Resize { .. } => true,
        Command::Unknown(_) => false,
    }
}

fuzz_target!(|input: (u16, u16, bool, &[u8])| {
    let (cut, flags, structured, bytes) = input;
    let flags = TransmissionFlags::from_bits(flags);
    let export = Export::new("v", SIZE, flags, BlockSize::default()).expect("a valid export");
    let contexts = if structured { vec![Context::BaseAllocation] } else { Vec::new() };
    let session = Session { export, structured, contexts, encrypted: false };
    let decoded = decode(bytes, usize::from(cut));
    assert_eq!(decoded, decode(bytes, 0));
    for request in &decoded.0 {
        assert!(encode_request(request).is_ok());
        match session.check(request) {
            Ok(()) => assert!(inside(&request.command)),
            Err(errno) => drop(session.failed(request, errno, "no")),
        }
    }
    let mut buf = BytesMut::from(bytes);
    let read_len = |cookie: u64| u32::try_from(cookie % 8).unwrap_or_default();
    while let Ok(Some(_)) = client::decode_reply(&mut buf, MAX_PAYLOAD, read_len) {}
});
