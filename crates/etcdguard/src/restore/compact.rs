//! Makes one full snapshot of a full one and its deltas, without the history before its revision.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{self, Poll};

use aws_lc_rs::digest::{Context, SHA256};
use jiff::Timestamp;
use tokio::io::{AsyncRead, ReadBuf};

use crate::datadir::Identity;
use crate::store::compress::pack;
use crate::store::{Include, SnapStore, Snapshot};

use super::part::Part;
use super::progress::{Progress, Stage};
use super::{Existing, Restoration, RestoreError, Target, cut, plan, run};

/// Of one read from a file.
const READ: usize = 256 << 10;

/// How to compact.
#[derive(Debug, Clone)]
pub struct Compaction {
    /// Where to work; removed afterwards.
    pub data_dir: PathBuf,
    pub temp_dir: PathBuf,
    pub max_fetchers: usize,
    pub skip_hash_check: bool,
}

/// What was written.
#[derive(Debug, Clone)]
pub struct Compacted {
    pub snapshot: Snapshot,
    /// Size of the database in it.
    pub bytes: u64,
}

/// Folds the newest set of `store` and saves it there as a full snapshot of the same revision.
///
/// The database is written afresh, so there is nothing left to defragment. What was folded stays in
/// the store: the collector knows when it is not needed any more.
pub async fn compact(
    store: &SnapStore,
    how: &Compaction,
    now: Timestamp,
    progress: &Progress,
) -> Result<Compacted, RestoreError> {
    let plan = plan(&store.list(Include::Unmarked).await?, Target::Newest)?;
    let part = Part::of(&how.data_dir).claimed()?;
    let done = compact_in(store, how, &part, (&plan, now), progress).await;
    if done.is_ok() {
        part.end()?;
    }
    done
}

async fn compact_in(
    store: &SnapStore,
    how: &Compaction,
    part: &Part,
    (plan, now): (&super::Plan, Timestamp),
    progress: &Progress,
) -> Result<Compacted, RestoreError> {
    let folded = run::fold(store, &how.restoration(), part, plan, progress).await?;
    progress.enter(Stage::Verifying);
    let (database, slim) = (part.database(), part.root().join("slim"));
    let path = slim.clone();
    let revision = folded.revision;
    let bytes = run::blocking(move || {
        run::verify(&database, revision)?;
        cut::drop_history(&database, &path, revision)?;
        let bytes = run::verify(&path, revision)?;
        seal(&path).map_err(RestoreError::io("read", &path))?;
        Ok(bytes)
    })
    .await?;
    let last = plan.deltas.last().or(plan.base.as_ref());
    let compression = last.and_then(|snapshot| snapshot.compression);
    let is_final = plan.base.as_ref().is_some_and(|base| base.is_final);
    // Named so that it is of the history that was folded, whatever began meanwhile.
    let created = store.histories().await?.time_in(plan.history, now);
    let snapshot = Snapshot::full(revision, created, compression, is_final);
    let file = File::open(&slim).map_err(RestoreError::io("open", &slim))?;
    let snapshot = store.save(&snapshot, pack(compression, Contents(file))).await?;
    if store.histories().await?.number_of(&snapshot) != plan.history {
        store.delete(&snapshot).await?;
        return Err(RestoreError::Overtaken { name: snapshot.snap_name });
    }
    progress.enter(Stage::Done);
    Ok(Compacted { snapshot, bytes })
}

/// Puts the checksum behind the database, as snapshots have it.
fn seal(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).append(true).open(path)?;
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; READ];
    loop {
        match file.read(&mut buffer)? {
            0 => return file.write_all(hash.finish().as_ref()),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// The bytes of a file. It was just written, so reading it waits for no disk to speak of.
struct Contents(File);

impl AsyncRead for Contents {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = buffer.remaining().min(READ);
        let Some(room) = buffer.initialize_unfilled().get_mut(..length) else {
            return Poll::Ready(Ok(()));
        };
        let read = self.0.read(room)?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl Compaction {
    fn restoration(&self) -> Restoration {
        // No member comes of it: nothing is written that would need a name.
        let identity = Identity {
            name: String::new(),
            initial_cluster: String::new(),
            token: String::new(),
            peer_urls: Vec::new(),
        };
        Restoration {
            data_dir: self.data_dir.clone(),
            identity,
            temp_dir: self.temp_dir.clone(),
            max_fetchers: self.max_fetchers,
            skip_hash_check: self.skip_hash_check,
            existing: Existing::SetAside,
        }
    }
}
