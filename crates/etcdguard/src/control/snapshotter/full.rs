//! Taking a full snapshot: the database of the etcd, checked, under the name of the revision that
//! is inside it.
//!
//! The stream is put into a file first. That frees the etcd soon, which keeps old pages for as
//! long as it streams, however slow the store is; and only the whole file tells its revision,
//! which its name must say.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use futures::stream;
use jiff::Timestamp;
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tokio_util::io::StreamReader;

use super::{SnapshotError, Tools};
use crate::bolt::Bolt;
use crate::datadir;
use crate::etcd::{Etcd, SnapshotStream};
use crate::store::Snapshot;
use crate::store::compress::pack;
use crate::store::full::Checked;

const WRITE_BYTES: usize = 1 << 20;

pub(super) async fn take(tools: &Tools, is_final: bool) -> Result<Snapshot, SnapshotError> {
    let mut database = spool(&tools.etcd, &tools.config.temp_dir).await?;
    let look = database.try_clone().map_err(SnapshotError::Spool)?;
    let revision = tools
        .tasks
        .blocking("read revision", move || revision_of(look))
        .await
        .map_err(|error| SnapshotError::Spool(io::Error::other(error)))??;
    database.rewind().map_err(SnapshotError::Spool)?;
    let compression = tools.config.compression;
    let snapshot = Snapshot::full(revision, Timestamp::now(), compression, is_final);
    let body = pack(compression, tokio::fs::File::from_std(database));
    Ok(tools.store.save(&snapshot, body).await?)
}

/// The revision inside: a request before the stream began could tell an older one.
fn revision_of(database: File) -> Result<i64, SnapshotError> {
    let current = datadir::current(&Bolt::from_file(database)?)?;
    current.map(|current| current.revision).ok_or(SnapshotError::Foreign)
}

/// The whole stream in a file that nobody else sees and that goes with its last handle.
async fn spool(etcd: &Etcd, dir: &Path) -> Result<File, SnapshotError> {
    let file = nameless(dir).map_err(SnapshotError::Spool)?;
    let stream = etcd.snapshot().await?;
    let mut source = Box::pin(Checked::new(Box::pin(StreamReader::new(bytes_of(stream)))));
    let mut target = BufWriter::with_capacity(WRITE_BYTES, tokio::fs::File::from_std(file));
    tokio::io::copy(&mut source, &mut target).await.map_err(SnapshotError::Spool)?;
    target.flush().await.map_err(SnapshotError::Spool)?;
    Ok(target.into_inner().into_std().await)
}

fn bytes_of(
    stream: SnapshotStream,
) -> impl futures::Stream<Item = io::Result<bytes::Bytes>> + Send + 'static {
    stream::try_unfold(stream, |mut stream| async move {
        let next = stream.next().await.map_err(io::Error::other)?;
        Ok(next.map(|bytes| (bytes, stream)))
    })
}

fn nameless(dir: &Path) -> io::Result<File> {
    durable::create_dir_private(dir).map_err(io::Error::other)?;
    let path = dir.join(format!("full-{:016x}.tmp", rand::random::<u64>()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
