//! Where restored blocks go: a file beside the snapshots that knows which blocks it has for good, and
//! the folding of such a file into a snapshot. All of it blocks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use backupstore::restore::{FileSink, Plan, Sink};
use sha2::{Digest, Sha512};

/// Blocks that may be fetched again after a crash.
const CHECKPOINT_BLOCKS: usize = 128;
/// The unit in which zeros become holes: that of a volume.
const UNIT_BYTES: usize = 4096;

/// Names all that a plan does.
pub(super) fn fingerprint(plan: &Plan) -> String {
    let mut hash = Sha512::new();
    let mut number = |number: u64| hash.update(number.to_le_bytes());
    number(plan.volume_bytes);
    number(plan.block_size.bytes());
    number(u64::from(plan.is_incremental));
    for range in &plan.zeros {
        number(range.start);
        number(range.end);
    }
    for job in &plan.jobs {
        hash.update(job.checksum.to_string());
        for offset in &job.offsets {
            hash.update(offset.to_le_bytes());
        }
    }
    let sum = hash.finalize();
    sum.iter().take(32).fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Which blocks of a volume are there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Map(pub(super) Vec<u8>);

impl Map {
    pub(super) fn has(&self, index: u64) -> bool {
        let byte = usize::try_from(index / 8).ok().and_then(|at| self.0.get(at));
        byte.is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    fn set(&mut self, index: u64) {
        let Ok(at) = usize::try_from(index / 8) else { return };
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        if let Some(byte) = self.0.get_mut(at) {
            *byte |= 1 << (index % 8);
        }
    }
}

type Save = Box<dyn Fn(&Map) -> io::Result<()> + Send + Sync>;

/// A file that goes on where an earlier try ended.
pub(super) struct ResumedSink {
    file: FileSink,
    block_bytes: u64,
    /// Blocks of earlier tries and checkpoints.
    kept: Mutex<Map>,
    /// Written, but not yet known to be on the disk.
    pending: Mutex<BTreeSet<u64>>,
    checkpoint: Mutex<Save>,
}

impl ResumedSink {
    /// `save` writes the map down; it is called when what the map says is on the disk.
    pub(super) fn new(file: FileSink, block_bytes: u64, kept: Map, save: Save) -> Self {
        let (kept, pending) = (Mutex::new(kept), Mutex::default());
        Self { file, block_bytes: block_bytes.max(1), kept, pending, checkpoint: Mutex::new(save) }
    }

    fn index(&self, offset: u64) -> u64 {
        offset / self.block_bytes
    }
}

impl Sink for ResumedSink {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.file.zero(offset, len_bytes)
    }

    fn is_written(&self, offset: u64) -> bool {
        self.kept.lock().is_ok_and(|kept| kept.has(self.index(offset)))
    }

    fn written(&self, offset: u64) -> io::Result<()> {
        let count = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.insert(self.index(offset));
            pending.len()
        };
        // One at a time; the others go on.
        let Some(save) = self.checkpoint.try_lock().ok().filter(|_| count >= CHECKPOINT_BLOCKS)
        else {
            return Ok(());
        };
        let blocks =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.file.sync()?;
        let map = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            for index in blocks {
                kept.set(index);
            }
            kept.clone()
        };
        save(&map)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Whether something shows through the holes of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    Nothing,
    /// Zeros of a block must be there as data.
    Backing,
}

/// Carries the changes of `plan`, which `delta` holds, over to the snapshot. It may be done again.
pub(super) fn fold(delta: &Path, snapshot: &Path, plan: &Plan, below: Below) -> io::Result<()> {
    let from = File::open(delta)?;
    let file = File::options().write(true).open(snapshot)?;
    if file.metadata()?.len() < plan.volume_bytes {
        file.set_len(plan.volume_bytes)?;
    }
    drop(file);
    let to = FileSink::open(snapshot)?;
    for range in &plan.zeros {
        to.zero(range.start, range.end.saturating_sub(range.start))?;
    }
    let mut block = vec![0; usize::try_from(plan.block_size.bytes()).unwrap_or(0)];
    for offset in plan.jobs.iter().flat_map(|job| job.offsets.iter().copied()) {
        from.read_exact_at(&mut block, offset)?;
        match below {
            Below::Backing => to.write_at(offset, &block)?,
            Below::Nothing => write_sparse(&to, offset, &block)?,
        }
    }
    to.sync()
}

fn write_sparse(to: &FileSink, offset: u64, block: &[u8]) -> io::Result<()> {
    let is_zero = |unit: &[u8]| unit.iter().all(|byte| *byte == 0);
    let mut at = offset;
    for run in runs(block, UNIT_BYTES, is_zero) {
        let len_bytes = run.len() as u64;
        if is_zero(run) {
            to.zero(at, len_bytes)?;
        } else {
            to.write_at(at, run)?;
        }
        at = at.saturating_add(len_bytes);
    }
    Ok(())
}

/// Runs of units that are all zeros, or none of them.
fn runs(block: &[u8], unit: usize, is_zero: impl Fn(&[u8]) -> bool) -> Vec<&[u8]> {
    let mut runs = Vec::new();
    let (mut start, mut end, mut last) = (0, 0, None);
    for piece in block.chunks(unit.max(1)) {
        let now = is_zero(piece);
        if last.is_some_and(|last| last != now) {
            runs.extend(block.get(start..end));
            start = end;
        }
        last = Some(now);
        end += piece.len();
    }
    runs.extend(block.get(start..end).filter(|run| !run.is_empty()));
    runs
}

/// Makes data of the holes inside restored blocks, so that nothing below them shows.
pub(super) fn fill_holes(path: &Path, plan: &Plan) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut unit = vec![0; UNIT_BYTES];
    let units = plan.block_size.bytes() / UNIT_BYTES as u64;
    for offset in plan.jobs.iter().flat_map(|job| job.offsets.iter().copied()) {
        for index in 0..units {
            let at = offset.saturating_add(index * UNIT_BYTES as u64);
            file.read_exact_at(&mut unit, at)?;
            if unit.iter().all(|byte| *byte == 0) {
                file.write_all_at(&unit, at)?;
            }
        }
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_what_is_on_the_disk_is_written_down() {
        let place = tempfile::tempdir().unwrap();
        let saved: Arc<Mutex<Vec<Map>>> = Arc::default();
        let shared = Arc::clone(&saved);
        let save: Save = Box::new(move |map| {
            shared.lock().unwrap().push(map.clone());
            Ok(())
        });
        let file = FileSink::create(&place.path().join("f"), 1 << 30).unwrap();
        let sink = ResumedSink::new(file, 4096, Map(vec![0b10]), save);
        assert!(sink.is_written(4096) && !sink.is_written(0) && !sink.is_written(1 << 29));
        for index in 10..10 + CHECKPOINT_BLOCKS as u64 - 1 {
            sink.written(index * 4096).unwrap();
        }
        assert!(saved.lock().unwrap().is_empty());
        sink.written(0).unwrap();
        let maps = saved.lock().unwrap();
        assert_eq!(maps.len(), 1);
        assert!([0, 1, 10, 9 + CHECKPOINT_BLOCKS as u64 - 1].iter().all(|at| maps[0].has(*at)));
        assert!(!maps[0].has(9) && !maps[0].has(1 << 40));
    }

    #[test]
    fn runs_of_zeros_are_parted_from_data() {
        let block = [0, 0, 1, 1, 0, 0, 0, 0, 2, 0];
        let runs = runs(&block, 2, |unit| unit.iter().all(|byte| *byte == 0));
        assert_eq!(runs, [&[0, 0][..], &[1, 1], &[0, 0, 0, 0], &[2, 0]]);
    }
}
