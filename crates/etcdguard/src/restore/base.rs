//! Brings a full snapshot from the store to its file: unpacked, its checksum looked at and left off.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::store::{SnapStore, Snapshot};

use super::progress::Progress;
use super::{RestoreError, cut};

/// Pieces go from the unpacking to the writing side in this size, a few at a time.
const PIECE: usize = 256 << 10;
const PIECES: usize = 16;
const HASH: usize = 32;
/// A database is a multiple of this long, and what is left over is the checksum.
const SECTOR: u64 = 512;

/// Writes the database in `snapshot` to `path`, durably.
pub(super) async fn fetch(
    store: &SnapStore,
    snapshot: &Snapshot,
    path: &Path,
    skip_hash_check: bool,
    progress: &Progress,
) -> Result<(), RestoreError> {
    let name = snapshot.snap_name.clone();
    let source = store.open_plain(snapshot).await?;
    let (pieces, written) = mpsc::channel(PIECES);
    let (target, progress) = (path.to_owned(), progress.clone());
    let writer = tokio::task::spawn_blocking(move || {
        let file = cut::create(&target)?;
        let sink = Sink { file, hash: Context::new(&SHA256), tail: Vec::new(), length: 0 };
        write(sink, written, &target, &progress)
    });
    let read = pump(source, pieces).await;
    let end = writer.await.map_err(|_| RestoreError::Stopped)??;
    read.map_err(|source| RestoreError::Fetch { name: name.clone(), source })?;
    end.close(skip_hash_check, path, &name).await
}

async fn pump(
    mut source: impl AsyncRead + Unpin,
    pieces: mpsc::Sender<Bytes>,
) -> std::io::Result<()> {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        let read = source.read_buf(&mut buffer).await?;
        if read == 0 || buffer.len() >= PIECE / 2 {
            let piece = buffer.split().freeze();
            // A writer that is gone has its own error to tell.
            if (!piece.is_empty() && pieces.send(piece).await.is_err()) || read == 0 {
                return Ok(());
            }
            buffer.reserve(PIECE);
        }
    }
}

fn write(
    mut sink: Sink,
    mut pieces: mpsc::Receiver<Bytes>,
    path: &Path,
    progress: &Progress,
) -> Result<Sink, RestoreError> {
    while let Some(piece) = pieces.blocking_recv() {
        sink.take(&piece).map_err(RestoreError::io("write", path))?;
        progress.add_base(u64::try_from(piece.len()).unwrap_or(0));
    }
    Ok(sink)
}

/// Holds back the last bytes: they may be the checksum.
struct Sink {
    file: File,
    hash: Context,
    tail: Vec<u8>,
    length: u64,
}

impl Sink {
    fn take(&mut self, piece: &[u8]) -> std::io::Result<()> {
        self.length = self.length.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        let (body, end) = piece.split_at(piece.len().saturating_sub(HASH));
        let older = (self.tail.len() + end.len()).saturating_sub(HASH).min(self.tail.len());
        let older: Vec<u8> = self.tail.drain(..older).collect();
        for bytes in [older.as_slice(), body] {
            self.hash.update(bytes);
            self.file.write_all(bytes)?;
        }
        self.tail.extend_from_slice(end);
        Ok(())
    }

    async fn close(
        mut self,
        skip_hash_check: bool,
        path: &Path,
        name: &str,
    ) -> Result<(), RestoreError> {
        let refuse = |what| Err(RestoreError::Base { name: name.to_owned(), what });
        let left = self.length % SECTOR;
        let is_database = left == 0 && self.length > 0;
        let has_hash = u64::try_from(HASH).is_ok_and(|hash| left == hash && self.length > hash);
        let is_right = self.hash.clone().finish().as_ref() == self.tail.as_slice();
        match (has_hash, is_database, skip_hash_check) {
            (true, _, false) if !is_right => return refuse("its checksum is wrong"),
            (true, ..) => self.tail.clear(),
            (false, true, true) => {}
            (false, true, false) => return refuse("it has no checksum"),
            (false, false, _) => return refuse("its length is not that of a database"),
        }
        let path = path.to_owned();
        let sync = move || {
            self.file.write_all(&self.tail)?;
            self.file.sync_all()
        };
        let synced = tokio::task::spawn_blocking(sync).await.map_err(|_| RestoreError::Stopped)?;
        synced.map_err(RestoreError::io("sync", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_checksum_is_held_back_however_the_bytes_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let body: Vec<u8> = (0..1024u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let sum = aws_lc_rs::digest::digest(&SHA256, &body);
        let whole = [&body, sum.as_ref()].concat();
        for step in [1, 5, 31, 32, 33, 64, 500, 5000] {
            let path = dir.path().join("db");
            let file = cut::create(&path).unwrap();
            let hash = Context::new(&SHA256);
            let mut sink = Sink { file, hash, tail: Vec::new(), length: 0 };
            whole.chunks(step).for_each(|piece| sink.take(piece).unwrap());
            sink.close(false, &path, "x").await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), body, "{step}");
        }
    }

    #[tokio::test]
    async fn a_checksum_that_is_missing_or_wrong_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        for (length, skip, is_fine) in [
            (1024 + 32, false, false),
            (1024 + 32, true, true),
            (1024, false, false),
            (1024, true, true),
            (1000, true, false),
            (32, true, false),
            (0, true, false),
        ] {
            let file = cut::create(&path).unwrap();
            let hash = Context::new(&SHA256);
            let mut sink = Sink { file, hash, tail: Vec::new(), length: 0 };
            sink.take(&vec![7; length]).unwrap();
            assert_eq!(sink.close(skip, &path, "x").await.is_ok(), is_fine, "{length} {skip}");
        }
        assert_eq!(path.metadata().unwrap().len(), 0);
    }
}
