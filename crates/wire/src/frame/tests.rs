use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { max_payload: 1024, max_text: 64 };

fn buffer(bytes: &[u8]) -> BytesMut {
    BytesMut::from(bytes)
}

fn flat(frame: &Frame) -> Vec<u8> {
    let mut buf = BytesMut::new();
    frame.put(&mut buf);
    buf.to_vec()
}

fn raw(magic: u16, kind: u32, size: u32, len: u32, payload: &[u8]) -> BytesMut {
    let mut buf = BytesMut::new();
    buf.put_u16_le(magic);
    buf.put_u32_le(9);
    buf.put_u32_le(kind);
    buf.put_i64_le(0);
    buf.put_u32_le(size);
    buf.put_u32_le(len);
    buf.put_slice(payload);
    buf
}

fn answer(outcome: Outcome) -> Reply {
    Reply::Answer(Answer { sequence: 7, offset: 4096, outcome })
}

const GOLDEN_WRITE: [u8; 30] = [
    0x01, 0x1b, 0x07, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, b'd',
    b'a', b't', b'a',
];
const GOLDEN_READ: [u8; 26] = [
    0x01, 0x1b, 0x04, 0x03, 0x02, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
    0,
];
const GOLDEN_ERROR: [u8; 29] = [
    0x01, 0x1b, 0x07, 0, 0, 0, 3, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, b'E',
    b'I', b'O',
];
const GOLDEN_CLOSE: [u8; 26] =
    [0x01, 0x1b, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn requests_have_the_bytes_of_the_reference() {
    let write = Request::Write { sequence: 7, offset: 4096, data: Bytes::from_static(b"data") };
    let read = Request::Read { sequence: 0x0102_0304, offset: 1 << 32, size: 4096 };
    for (request, golden) in [
        (write, GOLDEN_WRITE.as_slice()),
        (read, GOLDEN_READ.as_slice()),
        (Request::Close, GOLDEN_CLOSE.as_slice()),
    ] {
        assert_eq!(flat(&encode_request(&request, LIMITS).unwrap()), golden);
        assert_eq!(decode_request(&mut buffer(golden), LIMITS), Ok(Some(request)));
    }
}

#[test]
fn replies_have_the_bytes_of_the_reference() {
    for (reply, golden) in [
        (answer(Outcome::Error("EIO".into())), GOLDEN_ERROR.as_slice()),
        (Reply::Close, GOLDEN_CLOSE.as_slice()),
    ] {
        assert_eq!(flat(&encode_reply(&reply, LIMITS).unwrap()), golden);
        assert_eq!(decode_reply(&mut buffer(golden), LIMITS), Ok(Some(reply)));
    }
}

#[test]
fn every_type_has_its_number() {
    let kind = |frame: Frame| u32::from_le_bytes(frame.header[6..10].try_into().unwrap());
    let request = |request| kind(encode_request(&request, LIMITS).unwrap());
    let reply = |outcome| kind(encode_reply(&answer(outcome), LIMITS).unwrap());
    assert_eq!(request(Request::Read { sequence: 1, offset: 0, size: 1 }), 0);
    assert_eq!(request(Request::Write { sequence: 1, offset: 0, data: Bytes::new() }), 1);
    assert_eq!(reply(Outcome::Count(1)), 2);
    assert_eq!(reply(Outcome::Data(Bytes::from_static(b"x"))), 2);
    assert_eq!(reply(Outcome::Error(String::new())), 3);
    assert_eq!(reply(Outcome::Eof(Bytes::new())), 4);
    assert_eq!(request(Request::Close), 5);
    assert_eq!(request(Request::Ping { sequence: 1 }), 6);
    assert_eq!(request(Request::Unmap { sequence: 1, offset: 0, size: 1 }), 7);
    assert_eq!(reply(Outcome::NoSpace(NO_SPACE_TEXT.into())), 8);
}

#[test]
fn a_farewell_with_magic_zero_is_a_farewell() {
    let mut zeroed = GOLDEN_CLOSE;
    zeroed[0] = 0;
    zeroed[1] = 0;
    assert_eq!(decode_reply(&mut buffer(&zeroed), LIMITS), Ok(Some(Reply::Close)));
    assert_eq!(decode_request(&mut buffer(&zeroed), LIMITS), Ok(Some(Request::Close)));
}

#[test]
fn magic_zero_is_forgiven_for_a_bare_farewell_only() {
    assert_eq!(decode_reply(&mut raw(0, 2, 0, 0, b""), LIMITS), Err(FrameError::Magic(0)));
    assert_eq!(decode_reply(&mut raw(0, 5, 0, 1, b"x"), LIMITS), Err(FrameError::Magic(0)));
}

#[test]
fn what_does_not_belong_is_refused() {
    use FrameError as E;
    let request = |mut buf: BytesMut| decode_request(&mut buf, LIMITS).unwrap_err();
    let reply = |mut buf: BytesMut| decode_reply(&mut buf, LIMITS).unwrap_err();
    assert_eq!(request(raw(0x1b00, 0, 0, 0, b"")), E::Magic(0x1b00));
    assert_eq!(E::Magic(0x1b00).to_string(), "wrong API version received: 0x1b00");
    assert_eq!(request(raw(MAGIC, 9, 0, 0, b"")), E::Type(9));
    assert_eq!(request(raw(MAGIC, 2, 0, 0, b"")), E::Type(2));
    assert_eq!(reply(raw(MAGIC, 0, 0, 0, b"")), E::Type(0));
    assert_eq!(reply(raw(MAGIC, u32::MAX, 0, 0, b"")), E::Type(u32::MAX));
    assert_eq!(request(raw(MAGIC, 0, 4, 4, b"data")), E::Mismatch { kind: 0, size: 4, len: 4 });
    assert_eq!(request(raw(MAGIC, 1, 5, 4, b"data")), E::Mismatch { kind: 1, size: 5, len: 4 });
    assert_eq!(reply(raw(MAGIC, 2, 5, 4, b"data")), E::Mismatch { kind: 2, size: 5, len: 4 });
    assert_eq!(reply(raw(MAGIC, 5, 0, 1, b"x")), E::Mismatch { kind: 5, size: 0, len: 1 });
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_memory_is_reserved() {
    for (kind, max) in [(2, 1024), (3, 64), (4, 1024), (8, 64)] {
        for len in [max + 1, u32::MAX] {
            let mut buf = raw(MAGIC, kind, len, len, b"");
            let before = buf.capacity();
            let refused = FrameError::TooLong { kind, len: u64::from(len), max };
            assert_eq!(decode_reply(&mut buf, LIMITS), Err(refused));
            assert_eq!(buf.capacity(), before);
        }
    }
    let refused = FrameError::TooLong { kind: 1, len: 1025, max: 1024 };
    assert_eq!(decode_request(&mut raw(MAGIC, 1, 1025, 1025, b""), LIMITS), Err(refused));
}

#[test]
fn a_payload_is_a_slice_of_the_read_buffer() {
    let mut buf = buffer(&GOLDEN_WRITE);
    let at = buf[HEADER_LEN..].as_ptr();
    let Ok(Some(Request::Write { data, .. })) = decode_request(&mut buf, LIMITS) else {
        panic!("a write");
    };
    assert_eq!(data.as_ptr(), at);
}

#[test]
fn an_encoded_payload_is_not_copied() {
    let data = Bytes::from(vec![5; 512]);
    let write = Request::Write { sequence: 1, offset: 0, data: data.clone() };
    assert_eq!(encode_request(&write, LIMITS).unwrap().payload.as_ptr(), data.as_ptr());
    let reply = answer(Outcome::Data(data.clone()));
    assert_eq!(encode_reply(&reply, LIMITS).unwrap().payload.as_ptr(), data.as_ptr());
}

#[test]
fn long_texts_are_cut_between_characters_and_long_data_is_refused() {
    let frame = encode_reply(&answer(Outcome::Error("é".repeat(40))), LIMITS).unwrap();
    assert_eq!(frame.payload.len(), 64);
    let odd = Limits { max_text: 63, ..LIMITS };
    let frame = encode_reply(&answer(Outcome::Error("é".repeat(40))), odd).unwrap();
    assert_eq!(frame.payload.len(), 62);
    let data = Bytes::from(vec![0; 1025]);
    let refused = Err(FrameError::TooLong { kind: 2, len: 1025, max: 1024 });
    assert_eq!(encode_reply(&answer(Outcome::Data(data)), LIMITS), refused);
}

#[test]
fn an_error_text_that_is_not_utf8_is_still_an_error() {
    let reply = decode_reply(&mut raw(MAGIC, 3, 2, 2, &[b'x', 0xff]), LIMITS).unwrap();
    assert!(matches!(
        reply,
        Some(Reply::Answer(Answer { outcome: Outcome::Error(text), .. })) if text == "x\u{fffd}"
    ));
}

fn bytes(least: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), least..200).prop_map(Bytes::from)
}

fn requests() -> impl Strategy<Value = Request> {
    let place = (any::<u32>(), any::<i64>(), any::<u32>());
    prop_oneof![
        place.prop_map(|(sequence, offset, size)| Request::Read { sequence, offset, size }),
        place.prop_map(|(sequence, offset, size)| Request::Unmap { sequence, offset, size }),
        (any::<u32>(), any::<i64>(), bytes(0))
            .prop_map(|(sequence, offset, data)| Request::Write { sequence, offset, data }),
        any::<u32>().prop_map(|sequence| Request::Ping { sequence }),
        any::<u32>().prop_map(|sequence| Request::Flush { sequence }),
        any::<(u32, i64, u32)>().prop_map(|(sequence, offset, size)| Request::Zero {
            sequence,
            offset,
            size
        }),
        any::<(u32, i64, u32)>().prop_map(|(sequence, offset, size)| Request::Status {
            sequence,
            offset,
            size
        }),
        any::<(u32, i64, u32)>().prop_map(|(sequence, offset, size)| Request::Discard {
            sequence,
            offset,
            size
        }),
        (any::<u32>(), any::<u64>(), bytes(0)).prop_map(|(sequence, generation, name)| {
            let engine = name.slice(..name.len().min(ENGINE_MAX as usize));
            Request::Hello { sequence, generation, engine }
        }),
        (any::<u32>(), any::<bool>(), bytes(0))
            .prop_map(|(sequence, mark, data)| Request::Record { sequence, mark, data }),
        Just(Request::Close),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    let outcome = prop_oneof![
        any::<u32>().prop_map(Outcome::Count),
        bytes(1).prop_map(Outcome::Data),
        bytes(0).prop_map(Outcome::Eof),
        "[a-zé ]{0,30}".prop_map(Outcome::Error),
        "[a-zé ]{0,30}".prop_map(Outcome::NoSpace),
    ];
    prop_oneof![
        8 => (any::<u32>(), any::<i64>(), outcome)
            .prop_map(|(sequence, offset, outcome)| Reply::Answer(Answer { sequence, offset, outcome })),
        1 => Just(Reply::Close),
        1 => any::<u64>().prop_map(|generation| Reply::CutOff { generation }),
    ]
}

/// Feeds `whole` in pieces that end at `cuts` and collects what comes out.
fn in_pieces<T>(
    whole: &[u8],
    cuts: &[usize],
    mut decode: impl FnMut(&mut BytesMut) -> Result<Option<T>, FrameError>,
) -> (Vec<T>, Option<FrameError>) {
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in crate::pieces(whole, cuts) {
        buf.extend_from_slice(&piece);
        loop {
            let before = buf.clone();
            match decode(&mut buf) {
                Ok(Some(value)) => out.push(value),
                Ok(None) => {
                    assert_eq!(before, buf, "an unfinished frame is left alone");
                    break;
                }
                Err(error) => return (out, Some(error)),
            }
        }
    }
    (out, None)
}

proptest! {
    /// However the stream is cut, the same requests come out, and no byte is lost.
    #[test]
    fn any_split_of_requests_decodes_alike(
        sent in prop::collection::vec(requests(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut whole = BytesMut::new();
        for r in &sent {
            encode_request(r, LIMITS).unwrap().put(&mut whole);
        }
        let (got, error) = in_pieces(&whole, &cuts, |buf| decode_request(buf, LIMITS));
        prop_assert_eq!(error, None);
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn any_split_of_replies_decodes_alike(
        sent in prop::collection::vec(replies(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut whole = BytesMut::new();
        for r in &sent {
            encode_reply(r, LIMITS).unwrap().put(&mut whole);
        }
        let (got, error) = in_pieces(&whole, &cuts, |buf| decode_reply(buf, LIMITS));
        prop_assert_eq!(error, None);
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn noise_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u32..10,
        size in 0u32..64,
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        let framed = raw(MAGIC, kind, size, size, &noise);
        for whole in [noise.as_slice(), &framed] {
            let once = in_pieces(whole, &[], |buf| decode_request(buf, LIMITS));
            prop_assert_eq!(&once, &in_pieces(whole, &cuts, |buf| decode_request(buf, LIMITS)));
            let once = in_pieces(whole, &[], |buf| decode_reply(buf, LIMITS));
            prop_assert_eq!(&once, &in_pieces(whole, &cuts, |buf| decode_reply(buf, LIMITS)));
        }
    }
}

#[test]
fn runs_survive_the_wire_and_odd_bytes_do_not() {
    let runs = vec![Run { len: 4096, hole: true }, Run { len: 1, hole: false }];
    let bytes = encode_runs(&runs);
    assert_eq!(decode_runs(bytes.clone()), Some(runs));
    assert_eq!(decode_runs(bytes.slice(..9)), None);
    assert_eq!(decode_runs(Bytes::from_static(&[1, 0, 0, 0, 2, 0, 0, 0])), None);
    assert_eq!(decode_runs(Bytes::new()), Some(Vec::new()));
}
