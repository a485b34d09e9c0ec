//! Packing of a stream on several cores.
//!
//! gzip and zlib: blocks are packed at the same time, each with the end of the one before as its
//! dictionary, and put together as one member: any reader takes it for the work of one core. LZW
//! has no blocks and takes one core.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Compression as Level, Crc, FlushCompress, Status};
use futures::{Stream, StreamExt, stream};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::{JoinHandle, spawn_blocking};

use super::pump::Pump;
use super::{Compression, LEVEL, Packer};

const BLOCK_BYTES: usize = 512 * 1024;
/// As far as deflate looks back.
const DICTIONARY_BYTES: usize = 32 * 1024;
/// Blocks at the same time, whatever the machine has.
const AT_ONCE_MAX: usize = 8;
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
const ADLER_MODULUS: u32 = 65_521;
/// So many bytes can be summed before the sums must be reduced.
const ADLER_STEP_BYTES: usize = 5552;

/// `source`, packed. It reads ahead by a few blocks, and fails where `source` does.
///
/// Must be called on a runtime.
pub fn pack(
    compression: Option<Compression>,
    source: impl AsyncRead + Send + Unpin + 'static,
) -> Box<dyn AsyncRead + Send + Unpin> {
    match compression {
        None => Box::new(source),
        Some(Compression::Gzip) => Box::new(Pump::of(deflate(Box::new(source), Wrapping::gzip()))),
        Some(Compression::Zlib) => Box::new(Pump::of(deflate(Box::new(source), Wrapping::zlib()))),
        Some(Compression::Lzw) => Box::new(Pump::of(lzw(Box::new(source)))),
    }
}

type Source = Box<dyn AsyncRead + Send + Unpin>;

/// The header and the trailer around the deflated blocks.
enum Wrapping {
    Gzip(Crc),
    Zlib(Adler),
}

impl Wrapping {
    fn gzip() -> Self {
        Self::Gzip(Crc::new())
    }

    const fn zlib() -> Self {
        Self::Zlib(Adler::EMPTY)
    }

    const fn header(&self) -> &'static [u8] {
        match self {
            Self::Gzip(_) => &GZIP_HEADER,
            Self::Zlib(_) => &ZLIB_HEADER,
        }
    }

    fn empty_sum(&self) -> Sum {
        match self {
            Self::Gzip(_) => Sum::Crc(Crc::new()),
            Self::Zlib(_) => Sum::Adler(Adler::EMPTY),
        }
    }

    fn add(&mut self, sum: &Sum) {
        match (self, sum) {
            (Self::Gzip(whole), Sum::Crc(block)) => whole.combine(block),
            (Self::Zlib(whole), Sum::Adler(block)) => whole.combine(block),
            (Self::Gzip(_), Sum::Adler(_)) | (Self::Zlib(_), Sum::Crc(_)) => {}
        }
    }

    fn trailer(&self) -> Vec<u8> {
        match self {
            Self::Gzip(crc) => {
                let mut trailer = crc.sum().to_le_bytes().to_vec();
                trailer.extend_from_slice(&crc.amount().to_le_bytes());
                trailer
            }
            Self::Zlib(adler) => adler.sum().to_be_bytes().to_vec(),
        }
    }
}

/// The checksum of one block.
enum Sum {
    Crc(Crc),
    Adler(Adler),
}

impl Sum {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(crc) => crc.update(bytes),
            Self::Adler(adler) => adler.update(bytes),
        }
    }
}

/// The checksum of zlib, of which two that follow each other can be combined.
#[derive(Clone, Copy)]
struct Adler {
    a: u32,
    b: u32,
    len_bytes: u64,
}

impl Adler {
    const EMPTY: Self = Self { a: 1, b: 0, len_bytes: 0 };

    fn update(&mut self, bytes: &[u8]) {
        for step in bytes.chunks(ADLER_STEP_BYTES) {
            for byte in step {
                self.a += u32::from(*byte);
                self.b += self.a;
            }
            self.a %= ADLER_MODULUS;
            self.b %= ADLER_MODULUS;
        }
        self.len_bytes += bytes.len() as u64;
    }

    fn combine(&mut self, next: &Self) {
        let modulus = u64::from(ADLER_MODULUS);
        let (a, next_len) = (u64::from(self.a), next.len_bytes % modulus);
        // Every byte of the next block adds what the first one summed up to, less the 1 that the
        // next began with.
        let carried = next_len * ((a + modulus - 1) % modulus);
        let b = (u64::from(self.b) + u64::from(next.b) + carried) % modulus;
        let a = (a + u64::from(next.a) + modulus - 1) % modulus;
        self.a = u32::try_from(a).unwrap_or(0);
        self.b = u32::try_from(b).unwrap_or(0);
        self.len_bytes += next.len_bytes;
    }

    const fn sum(self) -> u32 {
        (self.b << 16) | self.a
    }
}

/// A block on its way through a core.
struct Block {
    bytes: Bytes,
    dictionary: Bytes,
    is_last: bool,
}

impl Block {
    fn deflate(&self, mut sum: Sum) -> io::Result<(Bytes, Sum)> {
        sum.update(&self.bytes);
        let mut deflate = Compress::new(Level::new(LEVEL), false);
        if !self.dictionary.is_empty() {
            deflate.set_dictionary(&self.dictionary).map_err(io::Error::other)?;
        }
        // A sync ends a block at a whole byte, so that the next can follow.
        let flush = if self.is_last { FlushCompress::Finish } else { FlushCompress::Sync };
        let mut packed = Vec::with_capacity(self.bytes.len() / 2 + 1024);
        loop {
            let done = usize::try_from(deflate.total_in()).unwrap_or(usize::MAX);
            let rest = self.bytes.get(done..).unwrap_or_default();
            let status =
                deflate.compress_vec(rest, &mut packed, flush).map_err(io::Error::other)?;
            let is_full = packed.len() == packed.capacity();
            if status == Status::StreamEnd || (!self.is_last && rest.is_empty() && !is_full) {
                return Ok((packed.into(), sum));
            }
            if is_full {
                packed.reserve(self.bytes.len() / 4 + 1024);
            }
        }
    }
}

struct Deflating {
    source: Source,
    wrapping: Wrapping,
    running: VecDeque<JoinHandle<io::Result<(Bytes, Sum)>>>,
    dictionary: Bytes,
    ended: bool,
}

fn deflate(source: Source, wrapping: Wrapping) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let header = Bytes::from_static(wrapping.header());
    let state = Deflating {
        source,
        wrapping,
        running: VecDeque::new(),
        dictionary: Bytes::new(),
        ended: false,
    };
    let blocks = stream::try_unfold(Some(state), |state| async move {
        let Some(mut state) = state else { return Ok(None) };
        match state.next().await? {
            Some(packed) => Ok(Some((packed, Some(state)))),
            None => Ok(Some((state.wrapping.trailer().into(), None))),
        }
    });
    stream::iter([Ok(header)]).chain(blocks)
}

impl Deflating {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let at_once = available_parallelism().map_or(1, NonZeroUsize::get).min(AT_ONCE_MAX);
        while !self.ended && self.running.len() <= at_once {
            let block = self.read_block().await?;
            let sum = self.wrapping.empty_sum();
            self.running.push_back(spawn_blocking(move || block.deflate(sum)));
        }
        let Some(first) = self.running.pop_front() else { return Ok(None) };
        let (packed, sum) = first.await.map_err(io::Error::other)??;
        self.wrapping.add(&sum);
        Ok(Some(packed))
    }

    /// The last one is shorter than the others, and may be empty.
    async fn read_block(&mut self) -> io::Result<Block> {
        let bytes = read_full(&mut self.source, BLOCK_BYTES).await?;
        self.ended = bytes.len() < BLOCK_BYTES;
        let tail = bytes.slice(bytes.len().saturating_sub(DICTIONARY_BYTES)..);
        let dictionary = std::mem::replace(&mut self.dictionary, tail);
        Ok(Block { bytes, dictionary, is_last: self.ended })
    }
}

/// Less than `len` only at the end.
async fn read_full(source: &mut Source, len: usize) -> io::Result<Bytes> {
    let mut bytes = BytesMut::with_capacity(len);
    while bytes.len() < len {
        let missing = (len - bytes.len()) as u64;
        if source.take(missing).read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(bytes.freeze())
}

fn lzw(source: Source) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let packer = Packer::new(Some(Compression::Lzw), Vec::new());
    stream::try_unfold(Some((source, packer)), |state| async move {
        let Some((mut source, mut packer)) = state else { return Ok(None) };
        let bytes = read_full(&mut source, BLOCK_BYTES).await?;
        let packing = spawn_blocking(move || {
            packer.write_all(&bytes)?;
            Ok::<_, io::Error>(if bytes.len() < BLOCK_BYTES {
                (packer.finish()?, None)
            } else {
                (std::mem::take(packer.target_mut()), Some(packer))
            })
        });
        let (bytes, rest) = packing.await.map_err(io::Error::other)??;
        Ok(Some((bytes.into(), rest.map(|packer| (source, packer)))))
    })
}
