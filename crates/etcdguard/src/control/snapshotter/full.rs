//! Taking a full snapshot: the database of the etcd, checked, under the name of the revision that
//! is inside it.
//!
//! The stream is put into a file first. That frees the etcd soon, which keeps old pages for as
//! long as it streams, however slow the store is; and only the whole file tells its revision,
//! which its name must say. Where it is to be packed, that is done while it comes, into a second
//! file: the etcd and the disk leave the processors time for it.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use telemetry::Chain;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::io::StreamReader;

use super::tail::Tail;
use super::{SnapshotError, Tools};
use crate::bolt::Bolt;
use crate::datadir;
use crate::etcd::{Etcd, SnapshotStream};
use crate::nameless::nameless;
use crate::store::compress::{Compression, pack};
use crate::store::full::{Checked, is_junk};
use crate::store::{SnapStore, Snapshot};

const WRITE_BYTES: usize = 1 << 20;

/// A database from an etcd, checked, that is to be saved.
pub(super) struct Taken {
    pub(super) revision: i64,
    /// Its last changes.
    pub(super) tail: Tail,
    pub(super) body: File,
}

/// Brings the database of the etcd here.
pub(super) async fn take(tools: &Tools) -> Result<Taken, SnapshotError> {
    let compression = tools.config.compression;
    let Spooled { database, packed } =
        spool(&tools.etcd, &tools.config.temp_dir, compression).await?;
    let mut body = match packed {
        Some(packed) => packed,
        None => database.try_clone().map_err(SnapshotError::Spool)?,
    };
    let (revision, tail) = tools
        .tasks
        .blocking("read revision", move || look_into(database))
        .await
        .map_err(|error| SnapshotError::Spool(io::Error::other(error)))??;
    body.rewind().map_err(SnapshotError::Spool)?;
    Ok(Taken { revision, tail, body })
}

/// The revision inside: a request before the stream began could tell an older one.
fn look_into(database: File) -> Result<(i64, Tail), SnapshotError> {
    let bolt = Bolt::from_file(database)?;
    let current = datadir::current(&bolt)?.ok_or(SnapshotError::Foreign)?;
    Ok((current.revision, Tail::of_database(&bolt)?))
}

/// Why a full snapshot of the store could not be looked into.
#[derive(Debug, thiserror::Error)]
pub(in crate::control) enum StoredError {
    /// Its bytes are not what they should be.
    #[error("{0}")]
    Junk(String),
    /// It did not come here.
    #[error("{0}")]
    Unread(String),
}

/// Reads a full snapshot of the store to its end, and looks into it for its last changes.
pub(in crate::control) async fn stored(
    store: &SnapStore,
    full: &Snapshot,
    temp_dir: &Path,
) -> Result<Tail, StoredError> {
    let unread = |error: &dyn std::error::Error| StoredError::Unread(Chain(error).to_string());
    let file = nameless(temp_dir).map_err(|error| unread(&error))?;
    let plain = store.open_plain(full).await.map_err(|error| unread(&error))?;
    let kept = keep(Checked::new(plain), file, None).await.map_err(|error| {
        let text = Chain(&error).to_string();
        if is_junk(&error) { StoredError::Junk(text) } else { StoredError::Unread(text) }
    })?;
    let looked = spawn_blocking(move || look_into(kept)).await.map_err(|error| unread(&error))?;
    let (revision, tail) = looked.map_err(|error| StoredError::Junk(Chain(&error).to_string()))?;
    if revision < full.last_revision {
        let named = full.last_revision;
        let text = format!("it is named for revision {named}, and holds what was at {revision}");
        return Err(StoredError::Junk(text));
    }
    Ok(tail)
}

/// A snapshot in files that nobody else sees, and that go with their last handles.
struct Spooled {
    database: File,
    packed: Option<File>,
}

async fn spool(
    etcd: &Etcd,
    dir: &Path,
    compression: Option<Compression>,
) -> Result<Spooled, SnapshotError> {
    let database = nameless(dir).map_err(SnapshotError::Spool)?;
    let packed = compression.map(|_| nameless(dir)).transpose().map_err(SnapshotError::Spool)?;
    let stream = etcd.snapshot().await?;
    let source = Box::pin(Checked::new(Box::pin(StreamReader::new(bytes_of(stream)))));
    let Some(packed) = packed else {
        let database = keep(source, database, None).await.map_err(SnapshotError::Spool)?;
        return Ok(Spooled { database, packed: None });
    };
    let (tell, told) = watch::channel(0);
    let look = database.try_clone().map_err(SnapshotError::Spool)?;
    let packing = pack(compression, StreamReader::new(Box::pin(follow(look, told))));
    // An error of one ends the other: what is half packed is never taken for the whole.
    let kept = futures::try_join!(keep(source, database, Some(tell)), keep(packing, packed, None));
    let (database, packed) = kept.map_err(SnapshotError::Spool)?;
    Ok(Spooled { database, packed: Some(packed) })
}

/// All of `source` in a file; tells how much of it is there.
async fn keep(
    mut source: impl AsyncRead + Unpin,
    file: File,
    tell: Option<watch::Sender<u64>>,
) -> io::Result<File> {
    let mut target = tokio::fs::File::from_std(file);
    let mut buffer = Vec::with_capacity(WRITE_BYTES);
    let mut len_bytes = 0;
    loop {
        // Small writes are dear: each is a task of its own.
        buffer.clear();
        let mut rest = (&mut source).take(WRITE_BYTES as u64);
        if rest.read_to_end(&mut buffer).await? == 0 {
            return Ok(target.into_std().await);
        }
        target.write_all(&buffer).await?;
        target.flush().await?;
        len_bytes += buffer.len() as u64;
        if let Some(tell) = &tell {
            tell.send_replace(len_bytes);
        }
    }
}

/// What is in a file as it grows, until nobody tells of more. However far this is behind, whoever
/// writes does not wait for it.
fn follow(
    file: File,
    told: watch::Receiver<u64>,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold((Arc::new(file), told, 0), |(file, mut told, at)| async move {
        // An error is the end: no more is told.
        let _ = told.wait_for(|written| *written > at).await;
        let there = *told.borrow();
        let len = there.saturating_sub(at).min(WRITE_BYTES as u64);
        if len == 0 {
            return Ok(None);
        }
        let from = Arc::clone(&file);
        let read = move || {
            let mut piece = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            from.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        };
        let piece = spawn_blocking(read).await.map_err(io::Error::other)??;
        Ok(Some((piece, (file, told, at + len))))
    })
}

fn bytes_of(
    stream: SnapshotStream,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(stream, |mut stream| async move {
        let next = stream.next().await.map_err(io::Error::other)?;
        Ok(next.map(|bytes| (bytes, stream)))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::duplex;

    use super::*;

    /// Through a pipe that holds less than a piece, so that each waits for the other.
    #[tokio::test]
    async fn who_follows_a_file_gets_all_of_it_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 1, WRITE_BYTES, 3 * WRITE_BYTES + 7] {
            let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
            let (mut into, source) = duplex(1000);
            let file = nameless(dir.path()).unwrap();
            let (tell, told) = watch::channel(0);
            let mut following =
                StreamReader::new(Box::pin(follow(file.try_clone().unwrap(), told)));
            let mut followed = Vec::new();
            let all = bytes.clone();
            let send = async move {
                into.write_all(&all).await?;
                into.shutdown().await
            };
            let read = following.read_to_end(&mut followed);
            let (mut kept, (), _) =
                futures::try_join!(keep(source, file, Some(tell)), send, read).unwrap();
            let mut whole = Vec::new();
            kept.rewind().unwrap();
            kept.read_to_end(&mut whole).unwrap();
            assert!(whole == bytes && followed == bytes, "{len} bytes");
        }
    }
}
