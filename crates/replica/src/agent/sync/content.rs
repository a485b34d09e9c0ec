//! What a sender sends: bytes with holes. A file as it is, or a snapshot with all it sits on as one
//! flat image. All of it blocks.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::agent::INDEX_BYTES;
use crate::agent::names::FileName;
use crate::disk::{
    Access, Checksum, DiskName, Error, Hash, HashOutcome, Image, Progress, Stretch, View,
};

const PROBE_BYTES: u64 = 256 * 1024;

pub(crate) trait Content: Send + Sync + fmt::Debug {
    fn size_bytes(&self) -> u64;

    /// Runs with and without data that cover the range, in order.
    fn runs(&self, range: Range<u64>) -> Result<Vec<Stretch>, Error>;

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error>;
}

/// A file of the replica's directory.
#[derive(Debug)]
pub(crate) struct FileContent {
    image: Image,
    /// Metadata has no holes worth the name.
    is_meta: bool,
}

impl FileContent {
    pub(crate) fn open(dir: &Path, name: &FileName) -> Result<Self, Error> {
        let image =
            Image::open_path(&durable::RealDisk, &name.path_in(dir), name.as_str(), Access::Read)?;
        Ok(Self { image, is_meta: name.is_meta() })
    }
}

impl Content for FileContent {
    fn size_bytes(&self) -> u64 {
        self.image.len_bytes()
    }

    fn runs(&self, range: Range<u64>) -> Result<Vec<Stretch>, Error> {
        let mut runs = Vec::new();
        let mut at = range.start;
        if self.is_meta {
            push(&mut runs, range, true);
            return Ok(runs);
        }
        self.image.extents(range.clone(), true, |extent| {
            push(&mut runs, at..extent.start, false);
            push(&mut runs, extent.start.max(at)..extent.end, true);
            at = at.max(extent.end);
        })?;
        push(&mut runs, at..range.end, false);
        Ok(runs)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.image.read(buffer, offset)
    }
}

/// Whether an export holds what the volume's backing image holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    Included,
    LeftOut,
}

/// The volume as it was at a snapshot.
#[derive(Debug)]
pub(crate) struct FlatContent {
    view: Mutex<View>,
    size_bytes: u64,
    backing: Backing,
}

impl FlatContent {
    pub(crate) fn open(dir: &Path, snapshot: &str, backing: Backing) -> Result<Self, Error> {
        let view = View::open(dir, snapshot, INDEX_BYTES)?;
        let size_bytes = view.size_bytes();
        Ok(Self { view: Mutex::new(view), size_bytes, backing })
    }
}

impl Content for FlatContent {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn runs(&self, range: Range<u64>) -> Result<Vec<Stretch>, Error> {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = Vec::new();
        let len_bytes = range.end.saturating_sub(range.start);
        view.changed_since(None, range.start, len_bytes, |run| own.push(run))?;
        let mut runs = Vec::new();
        for run in own {
            let (at, end) = (run.offset, run.offset.saturating_add(run.len_bytes));
            match (self.backing, run.is_data) {
                (_, true) => push(&mut runs, at..end, true),
                (Backing::LeftOut, false) => push(&mut runs, at..end, false),
                (Backing::Included, false) => probe(&mut view, &mut runs, at..end)?,
            }
        }
        Ok(runs)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).read_at(buffer, offset)
    }
}

/// Where only the backing image can have data, whatever is not zeros is taken for it: nothing lies
/// below the copy that zeros would have to hide.
fn probe(view: &mut View, runs: &mut Vec<Stretch>, range: Range<u64>) -> Result<(), Error> {
    let mut buffer = vec![0; usize::try_from(PROBE_BYTES).unwrap_or(usize::MAX)];
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at.saturating_add(PROBE_BYTES));
        let want = usize::try_from(end - at).unwrap_or(usize::MAX);
        let piece = buffer.get_mut(..want).unwrap_or_default();
        view.read_at(piece, at)?;
        push(runs, at..end, piece.iter().any(|byte| *byte != 0));
        at = end;
    }
    Ok(())
}

/// Adds a range, as part of the last run where they are of a kind.
fn push(runs: &mut Vec<Stretch>, range: Range<u64>, is_data: bool) {
    if range.start >= range.end {
        return;
    }
    let len_bytes = range.end - range.start;
    match runs.last_mut() {
        Some(last) if last.is_data == is_data && last.offset + last.len_bytes == range.start => {
            last.len_bytes += len_bytes;
        }
        Some(_) | None => runs.push(Stretch { offset: range.start, len_bytes, is_data }),
    }
}

/// The checksum of a disk, if its record is of the file as it is now and nothing speaks against it.
pub(crate) fn recorded(dir: &Path, disk: &DiskName) -> Option<Checksum> {
    let is_empty = fs::metadata(dir.join(disk.as_str())).map_or(true, |found| found.len() == 0);
    if is_empty {
        return None;
    }
    let mut hash = Hash::new(dir, disk, false).ok()?;
    // A hash that need not read anything is done before it begins.
    match (hash.step(0).ok()?, hash) {
        (Progress::Done, hash) => match hash.finish("").ok()? {
            HashOutcome::Kept(kept) => Some(kept).filter(|kept| !kept.silently_corrupted),
            HashOutcome::Made(_) => None,
        },
        (Progress::Working(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{OpenRequest, Options, Replica};

    const MIB: u64 = 1 << 20;

    fn data(content: &dyn Content) -> Vec<(u64, u64)> {
        let runs = content.runs(0..content.size_bytes()).unwrap();
        let covered: u64 = runs.iter().map(|run| run.len_bytes).sum();
        assert_eq!(covered, content.size_bytes());
        let data = runs.iter().filter(|run| run.is_data);
        data.map(|run| (run.offset, run.offset + run.len_bytes)).collect()
    }

    #[test]
    fn an_export_holds_the_backing_image_only_where_that_is_wanted() {
        let place = tempfile::tempdir().unwrap();
        let backing = place.path().join("backing");
        let mut image = vec![0; 4 << 20];
        image[..1 << 20].fill(7);
        durable::replace(&backing, &image).unwrap();
        let options = Options { backing_file: Some(backing), ..Options::default() };
        let mut replica = Replica::new(place.path().join("replica"), options);
        replica.create(4 << 20, "2026-11-15T06:25:24Z").unwrap();
        replica.open(&OpenRequest::default()).unwrap();
        replica.write_at(&[9; 4096], 2 * MIB).unwrap();
        replica.snapshot("a", true, "2026-11-15T06:25:24Z", None).unwrap();
        let open = |backing| FlatContent::open(replica.dir(), "a", backing).unwrap();
        let own = (2 * MIB, 2 * MIB + 4096);
        assert_eq!(data(&open(Backing::LeftOut)), [own]);
        let whole = open(Backing::Included);
        assert_eq!(data(&whole), [(0, MIB), own]);
        let mut piece = [0; 4096];
        whole.read(&mut piece, MIB - 4096).unwrap();
        assert_eq!(piece, [7; 4096]);
    }

    #[test]
    fn a_file_is_cut_where_its_holes_are_and_metadata_has_none() {
        let place = tempfile::tempdir().unwrap();
        let disk = DiskName::of_snapshot("a").unwrap();
        let image = Image::create(&durable::RealDisk, place.path(), &disk, 4 * MIB).unwrap();
        image.write(&[0; 8192], MIB).unwrap();
        image.write(&[1; 4096], 4 * MIB - 4096).unwrap();
        let content = FileContent::open(place.path(), &FileName::of_disk(&disk)).unwrap();
        assert_eq!(data(&content), [(MIB, MIB + 8192), (4 * MIB - 4096, 4 * MIB)]);
        let meta = FileName::parse("volume-snap-a.img.meta").unwrap();
        durable::replace(meta.path_in(place.path()), &[0; 100]).unwrap();
        let content = FileContent::open(place.path(), &meta).unwrap();
        assert_eq!(data(&content), [(0, 100)]);
    }

    #[test]
    fn only_a_record_of_the_file_as_it_is_counts() {
        let place = tempfile::tempdir().unwrap();
        let disk = DiskName::of_snapshot("a").unwrap();
        assert_eq!(recorded(place.path(), &disk), None, "nothing is there");
        let image = Image::create(&durable::RealDisk, place.path(), &disk, MIB).unwrap();
        assert_eq!(recorded(place.path(), &disk), None, "no record");
        let mut hash = Hash::new(place.path(), &disk, false).unwrap();
        while hash.step(MIB).unwrap() != Progress::Done {}
        let HashOutcome::Made(made) = hash.finish("now").unwrap() else { panic!() };
        assert_eq!(recorded(place.path(), &disk), Some(made.clone()));
        // File systems stamp coarsely: write until the time has moved.
        while recorded(place.path(), &disk).is_some() {
            image.write(&[1], 0).unwrap();
        }
    }
}
