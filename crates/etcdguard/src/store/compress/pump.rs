//! A task that makes pieces ahead of whoever reads them, and ends with its reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::{Stream, StreamExt};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Pieces made ahead.
const AHEAD: usize = 4;

/// Reads what a task makes. An end is said by the task; if it dies, reading fails.
#[derive(Debug)]
pub(super) struct Pump {
    pieces: mpsc::Receiver<io::Result<Option<Bytes>>>,
    piece: Bytes,
    ended: bool,
    /// Aborted when the reader goes.
    _task: JoinSet<()>,
}

impl Pump {
    /// Must be called on a runtime.
    pub(super) fn of(source: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut source = std::pin::pin!(source);
            while let Some(piece) = source.next().await {
                let failed = piece.is_err();
                if sender.send(piece.map(Some)).await.is_err() || failed {
                    return;
                }
            }
            // Nobody is left to be told where this fails.
            let _ = sender.send(Ok(None)).await;
        });
        Self { pieces, piece: Bytes::new(), ended: false, _task: task }
    }
}

impl AsyncRead for Pump {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.piece.is_empty() && !self.ended {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Ok(Some(piece))) => self.piece = piece,
                Some(Ok(None)) => self.ended = true,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let len = self.piece.len().min(buffer.remaining());
        if let Some(bytes) = self.piece.get(..len) {
            buffer.put_slice(bytes);
        }
        self.piece.advance(len);
        Poll::Ready(Ok(()))
    }
}
