use super::*;
use proptest::prelude::*;

fn request(flags: CommandFlags, command: Command) -> Request {
    Request { cookie: 0x0102_0304_0506_0708, flags, command }
}

fn flat(request: &Request) -> Vec<u8> {
    let (head, payload) = encode_request(request).unwrap();
    [head.as_slice(), &payload].concat()
}

/// Magic, flags, type, cookie, offset, length: big-endian, 28 bytes.
fn golden(flags: u8, kind: u8, offset: [u8; 8], len: [u8; 4]) -> Vec<u8> {
    let head = [0x25, 0x60, 0x95, 0x13, 0, flags, 0, kind, 1, 2, 3, 4, 5, 6, 7, 8];
    [head.as_slice(), &offset, &len].concat()
}

#[test]
fn requests_have_the_bytes_of_the_protocol_document() {
    use CommandFlags as F;
    let at = [0, 0, 0, 1, 0, 0, 0x20, 0];
    let (offset, len, size) = (0x1_0000_2000, 0x1000, [0, 0, 0x10, 0]);
    let mut write = golden(1, 1, at, [0, 0, 0, 4]);
    write.extend_from_slice(b"data");
    let data = Bytes::from_static(b"data");
    let table = [
        (request(F::DF, Command::Read { offset, len }), golden(4, 0, at, size)),
        (request(F::FUA, Command::Write { offset, data }), write),
        (request(F::NONE, Command::Disconnect), golden(0, 2, [0; 8], [0; 4])),
        (request(F::NONE, Command::Flush), golden(0, 3, [0; 8], [0; 4])),
        (request(F::FUA, Command::Trim { offset, len }), golden(1, 4, at, size)),
        (request(F::NONE, Command::Cache { offset, len }), golden(0, 5, at, size)),
        (
            request(F::NO_HOLE.with(F::FAST_ZERO), Command::WriteZeroes { offset, len }),
            golden(18, 6, at, size),
        ),
        (request(F::REQ_ONE, Command::BlockStatus { offset, len }), golden(8, 7, at, size)),
        (request(F::NONE, Command::Resize { size_bytes: offset }), golden(0, 8, at, [0; 4])),
    ];
    for (request, bytes) in table {
        assert_eq!(flat(&request), bytes);
        let mut buf = BytesMut::from(bytes.as_slice());
        assert_eq!(decode_request(&mut buf, 4), Ok(Some(request)));
        assert!(buf.is_empty());
    }
}

#[test]
fn an_unknown_command_is_left_to_the_server_and_the_stream_goes_on() {
    let mut buf = BytesMut::from(golden(0, 99, [0; 8], [9; 4]).as_slice());
    buf.extend_from_slice(&golden(0, 3, [0; 8], [0; 4]));
    let first = decode_request(&mut buf, 4).unwrap().unwrap();
    assert_eq!(first.command, Command::Unknown(99));
    let second = decode_request(&mut buf, 4).unwrap().unwrap();
    assert_eq!(second.command, Command::Flush);
}

#[test]
fn a_stream_out_of_step_and_a_write_too_long_end_the_connection() {
    let mut bytes = golden(0, 0, [0; 8], [0; 4]);
    bytes[0] = 0x26;
    let mut buf = BytesMut::from(bytes.as_slice());
    assert_eq!(decode_request(&mut buf, 4), Err(RequestError::Magic(0x2660_9513)));
    let mut buf = BytesMut::from(golden(0, 1, [0; 8], [0xff; 4]).as_slice());
    let before = buf.capacity();
    let refused = RequestError::TooLong { len: u64::from(u32::MAX), max: 4 };
    assert_eq!(decode_request(&mut buf, 4), Err(refused));
    assert_eq!(buf.capacity(), before);
}

#[test]
fn a_payload_is_a_slice_of_the_read_buffer() {
    let mut bytes = golden(0, 1, [0; 8], [0, 0, 0, 4]);
    bytes.extend_from_slice(b"data");
    let mut buf = BytesMut::from(bytes.as_slice());
    let at = buf[REQUEST_LEN..].as_ptr();
    let command = decode_request(&mut buf, 4).unwrap().unwrap().command;
    assert!(matches!(command, Command::Write { data, .. } if data.as_ptr() == at));
}

fn commands() -> impl Strategy<Value = Command> {
    let range = || (any::<u64>(), any::<u32>());
    prop_oneof![
        range().prop_map(|(offset, len)| Command::Read { offset, len }),
        (any::<u64>(), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(offset, data)| Command::Write { offset, data: data.into() }),
        Just(Command::Disconnect),
        Just(Command::Flush),
        range().prop_map(|(offset, len)| Command::Trim { offset, len }),
        range().prop_map(|(offset, len)| Command::Cache { offset, len }),
        range().prop_map(|(offset, len)| Command::WriteZeroes { offset, len }),
        range().prop_map(|(offset, len)| Command::BlockStatus { offset, len }),
        any::<u64>().prop_map(|size_bytes| Command::Resize { size_bytes }),
        (9u16..).prop_map(Command::Unknown),
    ]
}

fn requests() -> impl Strategy<Value = Request> {
    (any::<u64>(), any::<u16>(), commands()).prop_map(|(cookie, flags, command)| Request {
        cookie,
        flags: CommandFlags::from_bits(flags),
        command,
    })
}

fn in_pieces(whole: &[u8], cuts: &[usize]) -> (Vec<Request>, Option<RequestError>) {
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in crate::pieces(whole, cuts) {
        buf.extend_from_slice(&piece);
        loop {
            let before = buf.clone();
            match decode_request(&mut buf, 256) {
                Ok(Some(request)) => out.push(request),
                Ok(None) => {
                    assert_eq!(before, buf, "an unfinished request is left alone");
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
    fn any_split_decodes_alike(
        sent in prop::collection::vec(requests(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let whole: Vec<u8> = sent.iter().flat_map(flat).collect();
        let (got, error) = in_pieces(&whole, &cuts);
        prop_assert_eq!(error, None);
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn noise_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        let framed = [REQUEST_MAGIC.to_be_bytes().as_slice(), &noise].concat();
        for whole in [noise, framed] {
            prop_assert_eq!(in_pieces(&whole, &[]), in_pieces(&whole, &cuts));
        }
    }
}
