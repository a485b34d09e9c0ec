//! Receive buffers of one connection.
//!
//! Owns: reading as much as there is, and using a buffer again as soon as nobody holds a payload
//! in it. Never: decodes. Payloads handed out are slices of these buffers; a connection that keeps
//! many of them alive is [`crowded`](Intake::crowded) and should not be read from.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

/// Dozens of small requests, or a good part of a large one.
const BUFFER: usize = 256 << 10;

/// A buffer with less room than this is put aside, unless it holds a large beginning of a frame.
const LEAST_ROOM: usize = 32 << 10;

/// Buffers that may be waiting for their payloads to be dropped: 16 MiB of them.
const MOST_PARKED: usize = 64;

/// Buffers kept for later although nobody uses them.
const MOST_SPARE: usize = 2;

/// Larger ones were made for one large request and are not kept for the next.
const LARGEST_KEPT: usize = 4 << 20;

#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Received and not yet decoded.
    pub(crate) bytes: BytesMut,
    /// Handles on buffers whose payloads may still be in use.
    parked: Vec<BytesMut>,
}

impl Intake {
    /// Continues with bytes that came already.
    pub(crate) fn with(bytes: BytesMut) -> Self {
        Self { bytes, parked: Vec::new() }
    }

    /// Whether so many buffers are in use that no more should be read.
    pub(crate) fn crowded(&mut self) -> bool {
        if self.parked.len() >= MOST_PARKED {
            self.sweep();
        }
        self.parked.len() >= MOST_PARKED
    }

    /// Reads what there is; 0 at the end of the stream.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: what was read is in `bytes`.
    pub(crate) async fn fill(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        poll_fn(|context| self.poll_fill(context, reader)).await
    }

    pub(crate) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        poll_read_buf(Pin::new(reader), context, &mut self.bytes)
    }

    fn make_room(&mut self) {
        let room = self.bytes.capacity().saturating_sub(self.bytes.len());
        let large_beginning = self.bytes.len() > LEAST_ROOM;
        if room >= LEAST_ROOM || (large_beginning && room > 0) {
            return;
        }
        self.sweep();
        if self.bytes.try_reclaim(BUFFER.saturating_sub(self.bytes.len())) {
            return;
        }
        let mut next = self.unused().unwrap_or_else(|| BytesMut::with_capacity(BUFFER));
        next.extend_from_slice(&self.bytes);
        let mut full = std::mem::replace(&mut self.bytes, next);
        full.clear();
        // A handle without room: it can be reclaimed exactly if nobody else has one.
        drop(full.split_off(0));
        if self.parked.len() >= MOST_PARKED {
            self.parked.remove(0);
        }
        self.parked.push(full);
    }

    /// A parked buffer that nobody uses any more.
    fn unused(&mut self) -> Option<BytesMut> {
        let index = self.parked.iter_mut().position(|buffer| buffer.try_reclaim(BUFFER))?;
        Some(self.parked.swap_remove(index))
    }

    /// Frees the parked buffers that nobody uses any more, but for a few.
    fn sweep(&mut self) {
        let mut spare = 0;
        self.parked.retain_mut(|buffer| {
            if buffer.capacity() < BUFFER && !buffer.try_reclaim(1) {
                return true;
            }
            if !buffer.try_reclaim(BUFFER) || buffer.capacity() > LARGEST_KEPT {
                return false;
            }
            spare += 1;
            spare <= MOST_SPARE
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(intake: &mut Intake, bytes: &[u8]) {
        let mut from = bytes;
        while !from.is_empty() {
            intake.fill(&mut from).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_buffer_whose_payloads_are_gone_is_used_again() {
        let mut intake = Intake::default();
        let mut places = std::collections::HashSet::new();
        for _ in 0..64 {
            read(&mut intake, &vec![7; 100_000]).await;
            places.insert(intake.bytes.split_to(100_000).freeze().as_ptr() as usize / BUFFER);
        }
        assert!(places.len() <= 4, "{places:?}");
    }

    #[tokio::test]
    async fn payloads_in_use_are_left_alone_and_crowd_the_intake() {
        let mut intake = Intake::default();
        let mut kept = Vec::new();
        let mut number = 0_u8;
        while !intake.crowded() {
            number = number.wrapping_add(1);
            read(&mut intake, &vec![number; BUFFER]).await;
            let mut all = intake.bytes.split().freeze();
            kept.push((number, all.split_to(10)));
            assert!(kept.len() <= 4 * MOST_PARKED, "never crowded");
        }
        assert!(kept.iter().all(|(number, bytes)| bytes.iter().all(|byte| byte == number)));
        kept.clear();
        read(&mut intake, &vec![1; 2 * BUFFER]).await;
        assert!(!intake.crowded());
    }
}
