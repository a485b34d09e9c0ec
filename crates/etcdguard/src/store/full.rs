//! Contents of full snapshots: the bytes of a database, and after them their SHA-256. Deltas end the
//! same way, and are checked the same way where their events are not asked for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest::{Context as Hash, SHA256};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use super::snapshot::Kind;

pub const HASH_BYTES: usize = 32;
/// A database is a multiple of this long.
const UNIT_BYTES: u64 = 512;
const READ_BYTES: usize = 64 * 1024;

/// Passes a full snapshot on as it is, and fails at its end where the checksum is missing or is not
/// that of what precedes it. What reads it must therefore publish nothing before its end.
pub struct Checked<R> {
    source: R,
    hash: Hash,
    /// Held back: it may be the checksum.
    held: BytesMut,
    buffer: Box<[u8]>,
    len_bytes: u64,
    kind: Kind,
    ended: bool,
}

impl<R> std::fmt::Debug for Checked<R> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Checked").field("len_bytes", &self.len_bytes).finish_non_exhaustive()
    }
}

impl<R> Checked<R> {
    /// A full snapshot.
    pub fn new(source: R) -> Self {
        Self::of(Kind::Full, source)
    }

    pub fn of(kind: Kind, source: R) -> Self {
        Self {
            source,
            kind,
            hash: Hash::new(&SHA256),
            held: BytesMut::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            len_bytes: 0,
            ended: false,
        }
    }

    /// How much may be passed on before more is read.
    fn free(&self) -> usize {
        if self.ended { self.held.len() } else { self.held.len().saturating_sub(HASH_BYTES) }
    }

    fn check(&self) -> io::Result<()> {
        let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let has_hash = match self.kind {
            Kind::Full => self.len_bytes % UNIT_BYTES == HASH_BYTES as u64,
            Kind::Incr => true,
        };
        if self.held.len() != HASH_BYTES || !has_hash {
            return wrong("the snapshot has no checksum at its end");
        }
        if self.hash.clone().finish().as_ref() != self.held.as_ref() {
            return wrong("the snapshot does not have the checksum at its end");
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Checked<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.free() == 0 && !this.ended {
            let mut buffer = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.source).poll_read(cx, &mut buffer))?;
            let fresh = buffer.filled();
            let fresh_bytes = fresh.len() as u64;
            this.held.extend_from_slice(fresh);
            if fresh_bytes == 0 {
                this.check()?;
                this.ended = true;
            } else {
                this.len_bytes = this.len_bytes.saturating_add(fresh_bytes);
                let free = this.free();
                this.hash.update(this.held.get(..free).unwrap_or_default());
            }
        }
        let len = this.free().min(out.remaining());
        out.put_slice(this.held.get(..len).unwrap_or_default());
        this.held.advance(len);
        Poll::Ready(Ok(()))
    }
}

/// Whether bytes are wrong, and not the way to them.
pub fn is_junk(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<blobs::Error>() {
            return false;
        }
        cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

#[cfg(test)]
mod tests;
