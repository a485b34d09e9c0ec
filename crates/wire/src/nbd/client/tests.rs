use super::*;
use crate::nbd::{Chunk, Errno, Extent, ExtentFlags, encode_chunk, encode_simple};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

const READ_LEN: u32 = 5;

fn in_pieces(whole: &[u8], cuts: &[usize]) -> (Vec<Reply>, Option<ReplyDecodeError>) {
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in crate::pieces(whole, cuts) {
        buf.extend_from_slice(&piece);
        loop {
            // Odd cookies stand for reads.
            let read_len = |cookie: u64| if cookie % 2 == 1 { READ_LEN } else { 0 };
            match decode_reply(&mut buf, 256, read_len) {
                Ok(Some(reply)) => out.push(reply),
                Ok(None) => break,
                Err(error) => return (out, Some(error)),
            }
        }
    }
    (out, None)
}

fn errnos() -> impl Strategy<Value = Errno> {
    prop::sample::select(vec![Errno::Perm, Errno::Io, Errno::NoSpc, Errno::Shutdown])
}

fn chunks() -> impl Strategy<Value = Chunk> {
    let extent = (any::<u32>(), 0u32..4)
        .prop_map(|(len, bits)| Extent { len, flags: ExtentFlags::from_bits(bits) });
    prop_oneof![
        Just(Chunk::None),
        (any::<u64>(), prop::collection::vec(any::<u8>(), 1..100))
            .prop_map(|(offset, data)| Chunk::Data { offset, data: data.into() }),
        (any::<u64>(), any::<u32>()).prop_map(|(offset, len)| Chunk::Hole { offset, len }),
        (any::<u32>(), prop::collection::vec(extent, 0..9))
            .prop_map(|(context, extents)| Chunk::BlockStatus { context, extents }),
        (errnos(), "[a-zé]{0,20}").prop_map(|(errno, message)| Chunk::Error { errno, message }),
        (errnos(), "[a-zé]{0,20}", any::<u64>())
            .prop_map(|(errno, message, offset)| Chunk::ErrorAt { errno, message, offset }),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    let simple = prop_oneof![
        any::<u64>().prop_map(|cookie| {
            let data = vec![7; if cookie % 2 == 1 { READ_LEN as usize } else { 0 }];
            (cookie, Ok(Bytes::from(data)))
        }),
        (any::<u64>(), errnos()).prop_map(|(cookie, errno)| (cookie, Err(errno))),
    ];
    prop_oneof![
        simple.prop_map(|(cookie, outcome)| Reply::Simple { cookie, outcome }),
        (any::<u64>(), chunks(), any::<bool>()).prop_map(|(cookie, chunk, done)| Reply::Chunk {
            cookie,
            chunk,
            done
        }),
    ]
}

fn put(reply: &Reply, buf: &mut BytesMut) {
    match reply {
        Reply::Simple { cookie, outcome } => {
            let data = outcome.clone().unwrap_or_default();
            encode_simple(*cookie, outcome.clone().map(|_| ()), data).put(buf);
        }
        Reply::Chunk { cookie, chunk, done } => {
            encode_chunk(*cookie, chunk, *done).unwrap().put(buf);
        }
    }
}

#[test]
fn a_reply_beyond_the_limit_is_refused_before_memory_is_reserved() {
    let mut buf =
        BytesMut::from(&b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x01\xff\xff\xff\xff"[..]);
    let before = buf.capacity();
    let refused = ReplyDecodeError::TooLong { len: u32::MAX, max: 256 + 64 };
    assert_eq!(decode_reply(&mut buf, 256, |_| 0), Err(refused));
    assert_eq!(buf.capacity(), before);
}

proptest! {
    #[test]
    fn replies_read_back_however_they_are_cut(
        sent in prop::collection::vec(replies(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut whole = BytesMut::new();
        for reply in &sent {
            put(reply, &mut whole);
        }
        let (got, error) = in_pieces(&whole, &cuts);
        prop_assert_eq!(error, None);
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn noise_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(vec![0u16, 1, 2, 5, 0x8001, 0x8002, 7]),
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        let len = u32::try_from(noise.len()).unwrap();
        let chunk = [
            b"\x66\x8e\x33\xef\0\x01".as_slice(), &kind.to_be_bytes(), &[0; 8], &len.to_be_bytes(), &noise,
        ].concat();
        for whole in [noise, chunk] {
            prop_assert_eq!(in_pieces(&whole, &[]), in_pieces(&whole, &cuts));
        }
    }

    #[test]
    fn a_noisy_server_never_makes_the_dialling_panic(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        method in prop::sample::select(vec![Method::Go, Method::ExportName]),
        asks in any::<bool>(),
    ) {
        let dial = Dial { export: "v".into(), method, structured: asks, allocation: asks };
        let greeting = b"NBDMAGICIHAVEOPT\0\x03".as_slice();
        for whole in [noise.clone(), [greeting, &noise].concat()] {
            let mut dialing = Dialing::new(dial.clone());
            let _ = dialing.feed(&mut BytesMut::from(whole.as_slice()), &mut BytesMut::new());
        }
    }
}
