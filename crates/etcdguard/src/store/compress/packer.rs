//! Packing of what comes piece by piece, in one thread.

use std::fmt;
use std::io::{self, Write};

use flate2::Compression as Level;
use flate2::write::{GzEncoder, ZlibEncoder};
use weezl::BitOrder;

use super::{Compression, LEVEL};

/// Codes of LZW begin with this many bits of literals.
pub(super) const LZW_BITS: u8 = 8;
const LZW_BUFFER_BYTES: usize = 64 * 1024;

/// Writes packed bytes to `W`; nothing is whole before [`Packer::finish`].
pub struct Packer<W: Write>(Inner<W>);

enum Inner<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zlib(ZlibEncoder<W>),
    Lzw(Box<Lzw<W>>),
}

impl<W: Write> fmt::Debug for Packer<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Packer")
    }
}

impl<W: Write> Packer<W> {
    pub fn new(compression: Option<Compression>, target: W) -> Self {
        let level = Level::new(LEVEL);
        Self(match compression {
            None => Inner::Plain(target),
            Some(Compression::Gzip) => Inner::Gzip(GzEncoder::new(target, level)),
            Some(Compression::Zlib) => Inner::Zlib(ZlibEncoder::new(target, level)),
            Some(Compression::Lzw) => Inner::Lzw(Box::new(Lzw::new(target))),
        })
    }

    pub fn target(&self) -> &W {
        match &self.0 {
            Inner::Plain(target) => target,
            Inner::Gzip(packer) => packer.get_ref(),
            Inner::Zlib(packer) => packer.get_ref(),
            Inner::Lzw(packer) => &packer.target,
        }
    }

    pub fn target_mut(&mut self) -> &mut W {
        match &mut self.0 {
            Inner::Plain(target) => target,
            Inner::Gzip(packer) => packer.get_mut(),
            Inner::Zlib(packer) => packer.get_mut(),
            Inner::Lzw(packer) => &mut packer.target,
        }
    }

    /// Writes what is left, and the end of the format.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Inner::Plain(target) => Ok(target),
            Inner::Gzip(packer) => packer.finish(),
            Inner::Zlib(packer) => packer.finish(),
            Inner::Lzw(packer) => packer.finish(),
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Inner::Plain(target) => target.write(bytes),
            Inner::Gzip(packer) => packer.write(bytes),
            Inner::Zlib(packer) => packer.write(bytes),
            Inner::Lzw(packer) => packer.write_all(bytes).map(|()| bytes.len()),
        }
    }

    /// The target only: a flush in the middle would cost bytes.
    fn flush(&mut self) -> io::Result<()> {
        self.target_mut().flush()
    }
}

struct Lzw<W> {
    encoder: weezl::encode::Encoder,
    buffer: Vec<u8>,
    target: W,
}

impl<W: Write> Lzw<W> {
    fn new(target: W) -> Self {
        let encoder = weezl::encode::Encoder::new(BitOrder::Lsb, LZW_BITS);
        Self { encoder, buffer: vec![0; LZW_BUFFER_BYTES], target }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let step = self.encoder.encode_bytes(bytes, &mut self.buffer);
            self.target.write_all(self.buffer.get(..step.consumed_out).unwrap_or_default())?;
            bytes = bytes.get(step.consumed_in..).unwrap_or_default();
            step.status.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<W> {
        self.encoder.finish();
        loop {
            let step = self.encoder.encode_bytes(&[], &mut self.buffer);
            self.target.write_all(self.buffer.get(..step.consumed_out).unwrap_or_default())?;
            match step.status.map_err(io::Error::other)? {
                weezl::LzwStatus::Ok => {}
                weezl::LzwStatus::Done | weezl::LzwStatus::NoProgress => return Ok(self.target),
            }
        }
    }
}
