//! Where restored blocks go: a file beside the snapshots that knows which blocks it has for good, and
//! the folding of such a file into a snapshot. All of it blocks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use backupstore::restore::{FileSink, Plan, Sink};
use sha2::{Digest, Sha512};

/// What may have to be fetched again after a crash: so many blocks, or what came in so much time.
const CHECKPOINT_BLOCKS: usize = 128;
const CHECKPOINT_PERIOD: Duration = Duration::from_secs(5);
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
    /// All blocks that are in the file.
    here: Mutex<Map>,
    /// Written, but not yet known to be on the disk.
    pending: Mutex<BTreeSet<u64>>,
    kept: Mutex<Kept>,
}

/// What is written down.
struct Kept {
    map: Map,
    save: Save,
    saved: Instant,
    /// A disk that did not take something says so once: from then on nothing more is known.
    is_dropped: bool,
}

impl ResumedSink {
    /// `save` writes the map down; it is called when what the map says is on the disk.
    pub(super) fn new(file: FileSink, block_bytes: u64, kept: Map, save: Save) -> Self {
        let (here, pending) = (Mutex::new(kept.clone()), Mutex::default());
        let kept = Mutex::new(Kept { map: kept, save, saved: Instant::now(), is_dropped: false });
        Self { file, block_bytes: block_bytes.max(1), here, pending, kept }
    }

    pub(super) fn has_any(&self) -> bool {
        self.here.lock().is_ok_and(|here| here.0.iter().any(|byte| *byte != 0))
    }

    /// A block that is in the file.
    pub(super) fn read_block(&self, offset: u64, len_bytes: u64) -> io::Result<Vec<u8>> {
        let len = usize::try_from(len_bytes).map_err(io::Error::other)?;
        let mut block = vec![0; len];
        self.file.read_at(offset, &mut block)?;
        Ok(block)
    }

    /// Has all that is in the file on the disk, and writes down that it is.
    pub(super) fn checkpoint(&self) -> io::Result<()> {
        self.keep(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, kept: &mut Kept) -> io::Result<()> {
        if kept.is_dropped {
            return Err(io::Error::other("the disk did not take what was restored before"));
        }
        let blocks =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.file.sync().inspect_err(|_| kept.is_dropped = true)?;
        for index in blocks {
            kept.map.set(index);
        }
        kept.saved = Instant::now();
        (kept.save)(&kept.map)
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
        self.here.lock().is_ok_and(|here| here.has(self.index(offset)))
    }

    fn written(&self, offset: u64) -> io::Result<()> {
        let index = self.index(offset);
        self.here.lock().unwrap_or_else(PoisonError::into_inner).set(index);
        let count = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.insert(index);
            pending.len()
        };
        // One at a time; the others go on.
        let Ok(mut kept) = self.kept.try_lock() else { return Ok(()) };
        if count < CHECKPOINT_BLOCKS && kept.saved.elapsed() < CHECKPOINT_PERIOD {
            return Ok(());
        }
        self.keep(&mut kept)
    }

    fn sync(&self) -> io::Result<()> {
        self.checkpoint()
    }
}

/// Whether something shows through the holes of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    Nothing,
    /// Zeros of a block must be there as data.
    Backing,
}

/// Carries the changes of `plan` over to the snapshot, as far as `delta` has them. It may be done
/// again.
pub(super) fn fold(
    delta: &ResumedSink,
    snapshot: &Path,
    plan: &Plan,
    below: Below,
) -> io::Result<()> {
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
    for offset in offsets(plan, delta) {
        delta.file.read_at(offset, &mut block)?;
        match below {
            Below::Backing => to.write_at(offset, &block)?,
            Below::Nothing => write_sparse(&to, offset, &block)?,
        }
    }
    to.sync()
}

/// The places of a plan whose blocks came.
fn offsets<'a>(plan: &'a Plan, sink: &'a ResumedSink) -> impl Iterator<Item = u64> + 'a {
    let all = plan.jobs.iter().flat_map(|job| job.offsets.iter().copied());
    all.filter(|offset| sink.is_written(*offset))
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
pub(super) fn fill_holes(sink: &ResumedSink, plan: &Plan) -> io::Result<()> {
    let mut unit = vec![0; UNIT_BYTES];
    let units = plan.block_size.bytes() / UNIT_BYTES as u64;
    for offset in offsets(plan, sink) {
        for index in 0..units {
            let at = offset.saturating_add(index * UNIT_BYTES as u64);
            sink.file.read_at(at, &mut unit)?;
            if unit.iter().all(|byte| *byte == 0) {
                sink.file.write_at(at, &unit)?;
            }
        }
    }
    sink.file.sync()
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
