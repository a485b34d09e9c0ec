//! Unpacking, with bounded memory whatever the bytes say.

use std::fmt;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use futures::{Stream, stream};
use tokio::io::{AsyncRead, AsyncReadExt};
use weezl::{BitOrder, LzwStatus};

use super::Compression;
use super::packer::LZW_BITS;
use super::pump::Pump;

const INPUT_BYTES: usize = 128 * 1024;
const OUTPUT_BYTES: usize = 128 * 1024;

/// `source`, unpacked by a task of its own that stays a few pieces ahead. Bytes that are no such
/// format, that end too early or whose checksum is wrong fail with [`io::ErrorKind::InvalidData`]
/// or [`io::ErrorKind::UnexpectedEof`].
///
/// Must be called on a runtime.
pub fn unpack(
    compression: Option<Compression>,
    source: impl AsyncRead + Send + Unpin + 'static,
) -> Box<dyn AsyncRead + Send + Unpin> {
    let Some(compression) = compression else { return Box::new(source) };
    Box::new(Pump::of(pieces(Unpacker::new(compression), Box::new(source))))
}

type Source = Box<dyn AsyncRead + Send + Unpin>;

fn pieces(unpacker: Unpacker, source: Source) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let state = (unpacker, source, BytesMut::new());
    stream::try_unfold(state, |(mut unpacker, mut source, mut input)| async move {
        loop {
            let piece = unpacker.step(&mut input)?;
            if !piece.is_empty() {
                return Ok(Some((piece, (unpacker, source, input))));
            }
            input.reserve(INPUT_BYTES);
            if source.read_buf(&mut input).await? == 0 {
                unpacker.end(&input)?;
                return Ok(None);
            }
        }
    })
}

/// Takes packed bytes as they come and gives unpacked ones, a bounded number at a time.
pub struct Unpacker {
    inner: Inner,
    output: Vec<u8>,
    place: Place,
}

enum Inner {
    Inflate { inflate: Box<Decompress>, has_members: bool },
    Lzw(Box<weezl::decode::Decoder>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing was read yet.
    Before,
    Inside,
    /// The format said its end.
    After,
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Unpacker").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Unpacker {
    pub fn new(compression: Compression) -> Self {
        let inner = match compression {
            Compression::Gzip => {
                Inner::Inflate { inflate: Box::new(new_member()), has_members: true }
            }
            Compression::Zlib => {
                Inner::Inflate { inflate: Box::new(Decompress::new(true)), has_members: false }
            }
            Compression::Lzw => {
                Inner::Lzw(Box::new(weezl::decode::Decoder::new(BitOrder::Lsb, LZW_BITS)))
            }
        };
        Self { inner, output: vec![0; OUTPUT_BYTES], place: Place::Before }
    }

    /// Takes from the front of `input` what it can. An empty answer asks for more input.
    pub fn step(&mut self, input: &mut BytesMut) -> io::Result<Bytes> {
        loop {
            if self.place == Place::After && !input.is_empty() {
                self.begin_member()?;
            }
            if self.place == Place::Before && input.is_empty() {
                return Ok(Bytes::new());
            }
            let (taken, given) = self.unpack_once(input)?;
            input.advance(taken.min(input.len()));
            if given > 0 {
                return Ok(Bytes::copy_from_slice(self.output.get(..given).unwrap_or_default()));
            }
            if taken == 0 && self.place != Place::After {
                return Ok(Bytes::new());
            }
            if self.place == Place::After && input.is_empty() {
                return Ok(Bytes::new());
            }
        }
    }

    /// What follows the end can only be another member, and only of gzip.
    fn begin_member(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Inflate { inflate, has_members: true } => {
                **inflate = new_member();
                self.place = Place::Before;
                Ok(())
            }
            Inner::Inflate { has_members: false, .. } | Inner::Lzw(_) => {
                Err(invalid("bytes follow the end of the packed ones"))
            }
        }
    }

    fn unpack_once(&mut self, input: &[u8]) -> io::Result<(usize, usize)> {
        if self.place == Place::After {
            return Ok((0, 0));
        }
        self.place = Place::Inside;
        match &mut self.inner {
            Inner::Inflate { inflate, .. } => {
                let (taken, given) = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(input, &mut self.output, FlushDecompress::None);
                let status = status.map_err(|error| invalid(&error.to_string()))?;
                if status == Status::StreamEnd {
                    self.place = Place::After;
                }
                let step = |now: u64, then: u64| usize::try_from(now - then).unwrap_or(usize::MAX);
                Ok((step(inflate.total_in(), taken), step(inflate.total_out(), given)))
            }
            Inner::Lzw(decoder) => {
                let step = decoder.decode_bytes(input, &mut self.output);
                match step.status {
                    Ok(LzwStatus::Done) => self.place = Place::After,
                    Ok(LzwStatus::Ok | LzwStatus::NoProgress) => {}
                    Err(error) => return Err(invalid(&error.to_string())),
                }
                Ok((step.consumed_in, step.consumed_out))
            }
        }
    }

    /// Checks that the input may end here.
    pub fn end(&self, left: &[u8]) -> io::Result<()> {
        match self.place {
            Place::After if left.is_empty() => Ok(()),
            Place::Before | Place::Inside | Place::After => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the packed bytes end too early"))
            }
        }
    }
}

const WINDOW_BITS: u8 = 15;

fn new_member() -> Decompress {
    Decompress::new_gzip(WINDOW_BITS)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
