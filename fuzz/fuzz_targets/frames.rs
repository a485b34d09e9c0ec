//! Frames of the replica protocol: both directions, whole and in two pieces.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use wire::frame::{self, FrameError, Limits};

const LIMITS: Limits = Limits { max_payload: 4096, max_text: 256 };

/// Everything that comes out of `bytes` when they arrive in two pieces.
fn decode<T>(
    bytes: &[u8],
    cut: usize,
    mut next: impl FnMut(&mut BytesMut) -> Result<Option<T>, FrameError>,
) -> (Vec<T>, Option<FrameError>) {
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in [first, second] {
        buf.extend_from_slice(piece);
        loop {
            match next(&mut buf) {
                Ok(Some(value)) => out.push(value),
                Ok(None) => break,
                Err(error) => return (out, Some(error)),
            }
        }
    }
    (out, None)
}

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = (usize::from(input.0), input.1);
    let requests = decode(bytes, cut, |buf| frame::decode_request(buf, LIMITS));
    assert_eq!(requests, decode(bytes, 0, |buf| frame::decode_request(buf, LIMITS)));
    for request in &requests.0 {
        let mut buf = BytesMut::new();
        frame::encode_request(request, LIMITS).expect("it came within the limits").put(&mut buf);
        assert_eq!(frame::decode_request(&mut buf, LIMITS).as_ref(), Ok(&Some(request.clone())));
    }
    let replies = decode(bytes, cut, |buf| frame::decode_reply(buf, LIMITS));
    assert_eq!(replies, decode(bytes, 0, |buf| frame::decode_reply(buf, LIMITS)));
    for reply in &replies.0 {
        // A text that was mended may have grown beyond the limit, so the reply need not be equal.
        assert!(frame::encode_reply(reply, LIMITS).is_ok());
    }
});
