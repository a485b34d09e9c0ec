use std::io::{self, Read, Write};

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::*;

async fn read(mut source: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(work)
}

/// Text that packs, and some that does not.
fn sample(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let digits = std::format!("{:016x}", state >> 13);
        bytes.extend_from_slice(if state >> 60 == 0 { &[0; 300] } else { digits.as_bytes() });
    }
    bytes.truncate(len);
    bytes
}

/// By readers that know nothing of how it was packed.
fn other_reader(compression: Compression, packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match compression {
        // Of one member only.
        Compression::Gzip => flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).unwrap(),
        Compression::Zlib => {
            flate2::read::ZlibDecoder::new(packed).read_to_end(&mut plain).unwrap()
        }
        Compression::Lzw => {
            plain = weezl::decode::Decoder::new(weezl::BitOrder::Lsb, 8).decode(packed).unwrap();
            0
        }
    };
    plain
}

#[test]
fn streams_of_any_length_are_read_by_others_and_by_us() {
    let block = 512 * 1024;
    let plain = sample(2 * block + 77);
    for compression in Compression::ALL {
        for len in [0, 31, block - 1, block, block + 1, plain.len()] {
            let plain = plain[..len].to_vec();
            let packed = on_runtime(async {
                read(pack(Some(compression), io::Cursor::new(plain.clone()))).await.unwrap()
            });
            assert!(other_reader(compression, &packed) == plain, "{compression} {len}");
            let back = on_runtime(async {
                read(unpack(Some(compression), io::Cursor::new(packed.clone()))).await.unwrap()
            });
            assert!(back == plain, "{compression} {len}");
        }
    }
}

/// The tool that everybody has: it also sees an end that is not right.
#[test]
fn gzip_reads_what_several_cores_packed() {
    use std::process::{Command, Stdio};

    let plain = sample(1_300_000);
    let packed = on_runtime(async {
        read(pack(Some(Compression::Gzip), io::Cursor::new(plain.clone()))).await.unwrap()
    });
    assert!(packed.len() < plain.len() * 6 / 10, "{} of {}", packed.len(), plain.len());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&packed).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    let mut gzip = Command::new("gzip");
    let done = gzip.arg("-dc").stdin(Stdio::from(file)).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.stdout == plain);
}

#[test]
fn pieces_are_packed_as_they_come() {
    let plain = sample(100_000);
    for compression in
        [None, Some(Compression::Gzip), Some(Compression::Zlib), Some(Compression::Lzw)]
    {
        let mut writer = Packer::new(compression, Vec::new());
        plain.chunks(777).for_each(|piece| writer.write_all(piece).unwrap());
        let packed = writer.finish().unwrap();
        let back = on_runtime(async { read(unpack(compression, io::Cursor::new(packed))).await });
        assert!(back.unwrap() == plain, "{compression:?}");
    }
}

#[test]
fn members_that_follow_each_other_are_one_stream() {
    let mut packed = Vec::new();
    for piece in ["one ", "", "two"] {
        let mut writer = Packer::new(Some(Compression::Gzip), Vec::new());
        writer.write_all(piece.as_bytes()).unwrap();
        packed.extend(writer.finish().unwrap());
    }
    let unpacked = |packed: Vec<u8>| {
        on_runtime(async { read(unpack(Some(Compression::Gzip), io::Cursor::new(packed))).await })
    };
    assert_eq!(unpacked(packed.clone()).unwrap(), b"one two");
    packed.extend(b"no member");
    assert!(unpacked(packed).is_err());
}

#[test]
fn what_is_cut_or_changed_is_an_error() {
    let plain = sample(50_000);
    for compression in Compression::ALL {
        let unpacked = |packed: Vec<u8>| {
            on_runtime(async { read(unpack(Some(compression), io::Cursor::new(packed))).await })
        };
        let mut writer = Packer::new(Some(compression), Vec::new());
        writer.write_all(&plain).unwrap();
        let packed = writer.finish().unwrap();
        for len in [0, 1, 2, 10, packed.len() / 2, packed.len() - 1] {
            // The end of LZW is one code, which may lie in the byte before the last.
            let cut = unpacked(packed[..len].to_vec());
            assert!(cut.is_err() || cut.unwrap() == plain, "{compression} cut at {len}");
        }
        assert!(unpacked(packed[..packed.len() / 2].to_vec()).is_err());
        if compression != Compression::Lzw {
            for at in [12, packed.len() / 2, packed.len() - 6, packed.len() - 1] {
                let mut changed = packed.clone();
                changed[at] ^= 0x10;
                assert!(unpacked(changed).is_err(), "{compression} changed at {at}");
            }
            let mut longer = packed.clone();
            longer.push(7);
            assert!(unpacked(longer).is_err());
        }
    }
}

#[test]
fn a_source_that_fails_makes_the_stream_fail() {
    for compression in Compression::ALL {
        let source = || {
            let pieces = [Ok(bytes::Bytes::from(sample(700_000))), Err(io::Error::other("gone"))];
            Box::pin(tokio_util::io::StreamReader::new(futures::stream::iter(pieces)))
        };
        let failed = on_runtime(async { read(pack(Some(compression), source())).await });
        assert_eq!(failed.unwrap_err().to_string(), "gone");
    }
}

#[test]
fn a_bomb_is_unpacked_a_little_at_a_time() {
    let mut writer = Packer::new(Some(Compression::Gzip), Vec::new());
    writer.write_all(&vec![0; 2 << 20]).unwrap();
    let mut packed = bytes::BytesMut::from(writer.finish().unwrap().as_slice());
    let mut unpacker = Unpacker::new(Compression::Gzip);
    let mut total = 0;
    loop {
        let piece = unpacker.step(&mut packed).unwrap();
        assert!(piece.len() <= 128 * 1024);
        total += piece.len();
        if piece.is_empty() {
            break;
        }
    }
    unpacker.end(&packed).unwrap();
    assert_eq!(total, 2 << 20);
}

#[test]
fn policies_have_names() {
    for compression in Compression::ALL {
        assert_eq!(compression.policy().parse(), Ok(compression));
        assert_eq!(Compression::of_suffix(compression.suffix()), Some(compression));
    }
    assert!("zstd".parse::<Compression>().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn noise_is_refused_or_unpacked(noise in prop::collection::vec(any::<u8>(), 0..400), which in 0_usize..3) {
        let mut unpacker = Unpacker::new(Compression::ALL[which]);
        let mut input = bytes::BytesMut::from(noise.as_slice());
        while let Ok(piece) = unpacker.step(&mut input) {
            if piece.is_empty() {
                let _ = unpacker.end(&input);
                break;
            }
        }
    }
}
