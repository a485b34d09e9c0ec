//! A file while it is received. Owns: what each call of the file protocol does to the file, and
//! when it counts as safe. Never: HTTP. All of it blocks.
//!
//! An image is changed in place, and only where it differs; metadata is collected and replaces the
//! old file whole, so that a crash leaves the one or the other.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use durable::{Disk, Mode, Open, RealDisk};
use sha2::{Digest, Sha512};

use crate::agent::names::FileName;
use crate::disk::{
    Access, Checksum, DiskName, During, Error, Image, META_MAX_BYTES, checksum_file,
};

/// Beyond this no file system goes.
const IMAGE_MAX_BYTES: u64 = 1 << 62;
/// Written before it is put on disk: the close at the end must not take minutes.
const WRITE_BACK_BYTES: u64 = 64 * 1024 * 1024;
const BLOCK_BYTES: u64 = 4096;
const HASH_BYTES: usize = 512 * 1024;
/// As much as senders compare at a time; what is longer is hashed as it is read.
const PIECE_MAX_BYTES: u64 = 2 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("{begin}..{end} is no range of a file of {size_bytes} bytes")]
    Range { begin: u64, end: u64, size_bytes: u64 },
    #[error("a file of {0} bytes is too large")]
    TooLarge(u64),
    #[error("the file was closed before all of it had come")]
    Incomplete,
    #[error("the file system cannot punch holes")]
    NoHoles,
    /// The system tells of it once, and then takes what it dropped for written.
    #[error("the disk did not take what was written before: the file has to be sent anew")]
    Dropped,
    #[error(transparent)]
    Disk(#[from] Error),
    #[error(transparent)]
    Durable(#[from] durable::Error),
}

/// Whether there was something to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Existed,
    New,
}

/// A range that is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hashable {
    /// To be hashed together with others.
    Piece(Bytes),
    Sum(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Target {
    /// The file system of the directory.
    files: Arc<dyn Disk>,
    dir: PathBuf,
    name: FileName,
    size_bytes: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Image {
        image: Image,
        /// Set by the first change: from then on an old checksum is wrong.
        is_changed: AtomicBool,
        unsynced_bytes: AtomicU64,
        is_dropped: AtomicBool,
    },
    Meta(Mutex<Meta>),
}

#[derive(Debug)]
struct Meta {
    bytes: Vec<u8>,
    is_filled: Vec<bool>,
}

impl Target {
    /// Opens or makes the file and gives it its size.
    pub(crate) fn open(
        dir: &Path,
        name: &FileName,
        size_bytes: u64,
    ) -> Result<(Self, Before), TargetError> {
        let files: Arc<dyn Disk> = Arc::new(RealDisk);
        Self::open_on(&files, dir, name, size_bytes)
    }

    fn open_on(
        files: &Arc<dyn Disk>,
        dir: &Path,
        name: &FileName,
        size_bytes: u64,
    ) -> Result<(Self, Before), TargetError> {
        let on = Arc::clone(files);
        let target =
            |kind| Self { files: on, dir: dir.to_owned(), name: name.clone(), size_bytes, kind };
        if name.is_meta() {
            // Metadata is small; a longer one is no metadata.
            if size_bytes > META_MAX_BYTES as u64 {
                return Err(TargetError::TooLarge(size_bytes));
            }
            let len = usize::try_from(size_bytes).unwrap_or(0);
            let meta = Meta { bytes: vec![0; len], is_filled: vec![false; len] };
            // As if it were new: all of it is asked for, and the old one stays until then.
            return Ok((target(Kind::Meta(Mutex::new(meta))), Before::New));
        }
        if size_bytes > IMAGE_MAX_BYTES {
            return Err(TargetError::TooLarge(size_bytes));
        }
        let (mut image, before) = open_image(files.as_ref(), dir, name)?;
        let is_changed = before == Before::New || image.len_bytes() != size_bytes;
        if is_changed {
            forget_checksum(files.as_ref(), dir, name)?;
            image.resize(size_bytes)?;
        }
        let kind = Kind::Image {
            image,
            is_changed: AtomicBool::new(is_changed),
            unsynced_bytes: AtomicU64::new(0),
            is_dropped: AtomicBool::new(false),
        };
        Ok((target(kind), before))
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether this is a range of the file.
    pub(crate) fn check(&self, begin: u64, end: u64) -> Result<(), TargetError> {
        self.checked(begin, end).map(drop)
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<(), TargetError> {
        let range = self.checked(at, at.saturating_add(bytes.len() as u64))?;
        match &self.kind {
            Kind::Image { image, unsynced_bytes, .. } => {
                self.forget_checksum()?;
                image.write(bytes, at)?;
                let len = bytes.len() as u64;
                if unsynced_bytes.fetch_add(len, Ordering::Relaxed) >= WRITE_BACK_BYTES {
                    unsynced_bytes.store(0, Ordering::Relaxed);
                    self.sync(image)?;
                }
            }
            Kind::Meta(meta) => {
                meta.lock().unwrap_or_else(PoisonError::into_inner).fill(&range, bytes);
            }
        }
        Ok(())
    }

    /// Makes the range a hole; one that is a hole already is left alone.
    pub(crate) fn punch(&self, begin: u64, end: u64) -> Result<(), TargetError> {
        let range = self.checked(begin, end)?;
        match &self.kind {
            Kind::Image { image, .. } => {
                let mut has_data = false;
                image.extents(range.clone(), false, |_| has_data = true)?;
                if has_data {
                    self.forget_checksum()?;
                    if !image.punch(range)? {
                        return Err(TargetError::NoHoles);
                    }
                }
            }
            Kind::Meta(meta) => {
                let zeros = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
                meta.lock().unwrap_or_else(PoisonError::into_inner).fill(&range, &zeros);
            }
        }
        Ok(())
    }

    /// What the SHA-512 of a range that is data all over is made of. `None` where part of it is a hole:
    /// zeros that are data and a hole read alike, but only the first hides what lies below.
    pub(crate) fn hashable(&self, begin: u64, end: u64) -> Result<Option<Hashable>, TargetError> {
        let range = self.checked(begin, end)?;
        let Kind::Image { image, .. } = &self.kind else { return Ok(None) };
        if !is_data(image, &range)? {
            return Ok(None);
        }
        if range.end - range.start <= PIECE_MAX_BYTES {
            let mut piece = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
            image.read(&mut piece, range.start)?;
            return Ok(Some(Hashable::Piece(piece.into())));
        }
        let mut hash = Sha512::new();
        let mut buffer = vec![0; HASH_BYTES];
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(HASH_BYTES).min(HASH_BYTES);
            let piece = buffer.get_mut(..want).unwrap_or_default();
            image.read(piece, at)?;
            hash.update(&*piece);
            at += want as u64;
        }
        Ok(Some(Hashable::Sum(hash.finalize().to_vec())))
    }

    /// Reads a range that is data all over; `false` where it is not.
    pub(crate) fn read_data(&self, buffer: &mut [u8], at: u64) -> Result<bool, TargetError> {
        let range = self.checked(at, at.saturating_add(buffer.len() as u64))?;
        let Kind::Image { image, .. } = &self.kind else { return Ok(false) };
        if !is_data(image, &range)? {
            return Ok(false);
        }
        image.read(buffer, at)?;
        Ok(true)
    }

    /// Everything is on disk when this returns; then the checksum the sender knows is recorded.
    pub(crate) fn close(&self, record: Option<(&str, &str)>, now: &str) -> Result<(), TargetError> {
        self.check(0, 0)?;
        match &self.kind {
            Kind::Image { image, .. } => {
                self.sync(image)?;
                self.files.sync_dir(&self.dir).during("sync", self.dir.display())?;
                if let (Some((method, checksum)), Some(disk)) = (record, self.name.disk()) {
                    self.record(image, &disk, method, checksum, now)?;
                }
            }
            Kind::Meta(meta) => {
                let meta = meta.lock().unwrap_or_else(PoisonError::into_inner);
                if !meta.is_filled.iter().all(|is_filled| *is_filled) {
                    return Err(TargetError::Incomplete);
                }
                let path = self.name.path_in(&self.dir);
                durable::on::replace(&*self.files, &path, &meta.bytes, Mode::PUBLIC)?;
            }
        }
        Ok(())
    }

    fn record(
        &self,
        image: &Image,
        disk: &DiskName,
        method: &str,
        checksum: &str,
        now: &str,
    ) -> Result<(), TargetError> {
        let record = Checksum {
            method: method.to_owned(),
            checksum: checksum.to_owned(),
            change_time: change_time(image)?,
            last_hashed_at: now.to_owned(),
            silently_corrupted: false,
        };
        let mut line =
            serde_json::to_vec(&record).map_err(io::Error::from).during("write", disk)?;
        line.push(b'\n');
        let path = self.dir.join(checksum_file(disk));
        durable::on::replace(&*self.files, &path, &line, Mode::PUBLIC)?;
        Ok(())
    }

    /// What a disk did not take is lost for good, though nothing says so a second time: the file goes, so that
    /// no later try finds in memory what is not on the disk.
    fn sync(&self, image: &Image) -> Result<(), TargetError> {
        Ok(image.sync().inspect_err(|_| self.drop_file())?)
    }

    fn drop_file(&self) {
        let Kind::Image { is_dropped, .. } = &self.kind else { return };
        is_dropped.store(true, Ordering::SeqCst);
        let path = self.name.path_in(&self.dir);
        if let Err(error) = self.files.remove(&path) {
            tracing::warn!(path = %path.display(), %error, "a file that the disk did not take stays");
        }
    }

    fn forget_checksum(&self) -> Result<(), TargetError> {
        let Kind::Image { is_changed, .. } = &self.kind else { return Ok(()) };
        if is_changed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        Ok(forget_checksum(&*self.files, &self.dir, &self.name)?)
    }

    fn checked(&self, begin: u64, end: u64) -> Result<Range<u64>, TargetError> {
        let limit = match &self.kind {
            Kind::Image { .. } => self.size_bytes,
            // Some senders round the last range up to a block.
            Kind::Meta(_) => self.size_bytes.next_multiple_of(BLOCK_BYTES),
        };
        if let Kind::Image { is_dropped, .. } = &self.kind
            && is_dropped.load(Ordering::SeqCst)
        {
            return Err(TargetError::Dropped);
        }
        if begin > end || end > limit {
            return Err(TargetError::Range { begin, end, size_bytes: self.size_bytes });
        }
        Ok(begin..end)
    }
}

impl Meta {
    /// What lies behind the end of the file is dropped.
    fn fill(&mut self, range: &Range<u64>, from: &[u8]) {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let range = place(range.start)..place(range.end);
        let from = from.get(..range.len()).unwrap_or_default();
        if let Some(bytes) = self.bytes.get_mut(range.clone()).filter(|to| to.len() == from.len()) {
            bytes.copy_from_slice(from);
            self.is_filled.get_mut(range).unwrap_or_default().fill(true);
        }
    }
}

/// Whether no part of the range is a hole.
fn is_data(image: &Image, range: &Range<u64>) -> Result<bool, Error> {
    let mut covered = range.start;
    image.extents(range.clone(), false, |extent| {
        if extent.start <= covered {
            covered = covered.max(extent.end);
        }
    })?;
    Ok(covered >= range.end)
}

/// The record of an image goes for good before the first byte of it changes: after a loss of power it would
/// be believed.
fn forget_checksum(files: &dyn Disk, dir: &Path, name: &FileName) -> Result<(), Error> {
    let Some(disk) = name.disk() else { return Ok(()) };
    let file = checksum_file(&disk);
    match files.remove(&dir.join(&file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| files.sync_dir(dir)).during("remove", file),
    }
}

/// The image, and whether it was there.
fn open_image(files: &dyn Disk, dir: &Path, name: &FileName) -> Result<(Image, Before), Error> {
    let path = name.path_in(dir);
    let mut before = Before::Existed;
    match files.look(&path) {
        // Another snapshot has this very file too, which a replacement that was cut short leaves:
        // what is written for the one must not show in the other.
        Ok(found) if found.is_file && found.links > 1 => {
            files.remove(&path).during("remove", name)?;
            before = Before::New;
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => before = Before::New,
        Err(error) => return Err(error).during("inspect", name),
    }
    if before == Before::New {
        files.open(&path, Open::CreateNew(Mode::PUBLIC)).during("create", name)?;
    }
    Ok((Image::open_path(files, &path, name.as_str(), Access::Write)?, before))
}

/// As the peer prints times into its records.
fn change_time(image: &Image) -> Result<String, Error> {
    let (seconds, nanoseconds) = image.look()?.changed;
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    let time = jiff::Timestamp::new(seconds, nanoseconds).unwrap_or_default();
    Ok(time.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC").to_string())
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    RealDisk.sync_dir(dir).during("sync", dir.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use durable::sim::SimDisk;

    use super::*;
    use crate::disk::{Hash, HashOutcome, Progress};

    fn name(text: &str) -> FileName {
        FileName::parse(text).unwrap()
    }

    #[test]
    fn metadata_is_replaced_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.img.meta");
        durable::replace(&path, b"old").unwrap();
        let (target, before) = Target::open(place.path(), &name("a.img.meta"), 10).unwrap();
        assert_eq!(before, Before::New);
        target.write(b"01234", 0).unwrap();
        let error = target.close(None, "now").unwrap_err();
        assert!(matches!(error, TargetError::Incomplete), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        target.write(b"56789", 5).unwrap();
        target.close(None, "now").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0123456789");
        // A sender that rounds its last range up.
        let (target, _) = Target::open(place.path(), &name("a.img.meta"), 3).unwrap();
        let mut block = vec![0; 4096];
        block[..3].copy_from_slice(b"abc");
        target.write(&block, 0).unwrap();
        assert!(target.write(&[1], 4096).is_err());
        target.close(None, "now").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        let huge = Target::open(place.path(), &name("a.img.meta"), 1 << 40);
        assert!(matches!(huge, Err(TargetError::TooLarge(_))));
    }

    #[test]
    fn a_file_two_snapshots_share_is_parted_first() {
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (place.path().join("a.img"), place.path().join("b.img"));
        durable::replace(&one, &[7; 8192]).unwrap();
        fs::hard_link(&one, &two).unwrap();
        let (target, before) = Target::open(place.path(), &name("b.img"), 8192).unwrap();
        assert_eq!(before, Before::New);
        target.write(&[9; 8192], 0).unwrap();
        target.close(None, "now").unwrap();
        assert_eq!(fs::read(&one).unwrap(), [7; 8192]);
        assert_eq!(fs::read(&two).unwrap(), [9; 8192]);
    }

    #[test]
    fn only_ranges_that_are_data_all_over_have_a_checksum() {
        let place = tempfile::tempdir().unwrap();
        let (target, _) = Target::open(place.path(), &name("a.img"), 1 << 20).unwrap();
        target.write(&[0; 8192], 65536).unwrap();
        let piece = target.hashable(65536, 65536 + 8192).unwrap().unwrap();
        assert_eq!(piece, Hashable::Piece(vec![0; 8192].into()));
        assert_eq!(target.hashable(65536, 65536 + 12288).unwrap(), None);
        assert_eq!(target.hashable(0, 4096).unwrap(), None);
        for (begin, end) in [(1, 0), (0, (1 << 20) + 1), (u64::MAX - 1, u64::MAX)] {
            let refused = target.hashable(begin, end);
            assert!(matches!(refused, Err(TargetError::Range { .. })), "{begin} {end}");
            assert!(target.punch(begin, end).is_err());
        }
        assert!(target.write(&[1; 2], (1 << 20) - 1).is_err());
        assert!(target.write(&[1; 2], u64::MAX).is_err());
    }

    #[test]
    fn a_recorded_checksum_is_of_the_file_as_it_was_received() {
        let place = tempfile::tempdir().unwrap();
        let disk = DiskName::of_snapshot("a").unwrap();
        let file = FileName::of_disk(&disk);
        let (target, _) = Target::open(place.path(), &file, 1 << 20).unwrap();
        target.write(&[5; 4096], 0).unwrap();
        target.close(Some(("crc64", "0123456789abcdef")), "2026-11-15T06:37:08Z").unwrap();
        let mut hash = Hash::new(place.path(), &disk, false).unwrap();
        assert_eq!(hash.step(0).unwrap(), Progress::Done, "the record is of this file");
        let HashOutcome::Kept(kept) = hash.finish("now").unwrap() else { panic!() };
        assert_eq!(kept.checksum, "0123456789abcdef");
        // Opening at the same size changes nothing; the first write makes the record wrong.
        let (target, before) = Target::open(place.path(), &file, 1 << 20).unwrap();
        assert_eq!(before, Before::Existed);
        target.punch(8192, 16384).unwrap();
        assert!(place.path().join(checksum_file(&disk)).exists());
        target.write(&[6; 4096], 0).unwrap();
        assert!(!place.path().join(checksum_file(&disk)).exists());
    }

    /// Over an older file that differs, or with none: data, a hole where there was data, and metadata.
    fn receive(disk: &SimDisk) -> Result<(), TargetError> {
        let open = |file: &str, size| {
            let files: Arc<dyn Disk> = Arc::new(disk.clone());
            Target::open_on(&files, Path::new("/r"), &name(file), size)
        };
        let (image, _) = open("volume-snap-a.img", 8 * BLOCK_BYTES)?;
        image.write(&[7; 8192], 4096)?;
        image.punch(3 * BLOCK_BYTES, 6 * BLOCK_BYTES)?;
        image.write(&[8; 4096], 7 * BLOCK_BYTES)?;
        image.close(Some(("crc64", "0123456789abcdef")), "now")?;
        let (meta, _) = open("volume-snap-a.img.meta", 6)?;
        meta.write(b"abcdef", 0)?;
        meta.close(None, "now")
    }

    fn received(disk: &SimDisk) -> (Vec<u8>, Vec<u8>) {
        let read = |file: &str| {
            let path = Path::new("/r").join(file);
            durable::on::read_limited(disk, &path, 1 << 20).unwrap_or_default()
        };
        (read("volume-snap-a.img"), read("volume-snap-a.img.meta"))
    }

    /// What a sender was told is here is on the disk, with its name, whenever the power fails; and no
    /// checksum is on record for something else.
    #[test]
    fn a_file_that_was_received_is_there_after_the_power_failed() {
        for is_new in [true, false] {
            let prepared = SimDisk::new(1);
            durable::on::create_dir(&prepared, Path::new("/r"), Mode::PRIVATE_DIR).unwrap();
            if !is_new {
                let files: Arc<dyn Disk> = Arc::new(prepared.clone());
                let (old, _) = Target::open_on(
                    &files,
                    Path::new("/r"),
                    &name("volume-snap-a.img"),
                    6 * BLOCK_BYTES,
                )
                .unwrap();
                old.write(&vec![1; 6 * 4096], 0).unwrap();
                old.close(Some(("crc64", "fedcba9876543210")), "now").unwrap();
            }
            let whole = prepared.copy(0);
            receive(&whole).unwrap();
            let whole = received(&whole);
            for nth in 1.. {
                let mut is_over = true;
                for chance in 0..4 {
                    let disk = prepared.copy(nth * 10 + chance);
                    disk.die_at_call(nth);
                    let done = receive(&disk);
                    is_over &= !disk.fault_fired();
                    disk.crash();
                    let found = received(&disk);
                    if done.is_ok() {
                        assert!(found == whole, "call {nth}, chance {chance}");
                    }
                    assert!([whole.1.as_slice(), b""].contains(&found.1.as_slice()));
                    let record = Path::new("/r/volume-snap-a.img.checksum");
                    let record = durable::on::read_limited(&disk, record, 4096).unwrap_or_default();
                    let record = String::from_utf8_lossy(&record);
                    if record.contains("0123456789abcdef") {
                        assert!(found.0 == whole.0, "call {nth}, chance {chance}");
                    }
                    if record.contains("fedcba9876543210") {
                        assert!(found.0 == vec![1; 6 * 4096], "call {nth}, chance {chance}");
                    }
                }
                if is_over {
                    break;
                }
            }
        }
    }

    /// A disk that drops what was written says so once; a second sync of the same file succeeds.
    #[test]
    fn after_the_disk_dropped_something_the_file_has_to_be_sent_anew() {
        let place = tempfile::tempdir().unwrap();
        let (target, _) = Target::open(place.path(), &name("a.img"), 1 << 20).unwrap();
        target.write(&[1; 4096], 0).unwrap();
        target.drop_file();
        assert!(matches!(target.write(&[1; 4096], 4096), Err(TargetError::Dropped)));
        assert!(matches!(target.punch(0, 4096), Err(TargetError::Dropped)));
        assert!(matches!(target.hashable(0, 4096), Err(TargetError::Dropped)));
        assert!(matches!(target.close(None, "now"), Err(TargetError::Dropped)));
        let (_, before) = Target::open(place.path(), &name("a.img"), 1 << 20).unwrap();
        assert_eq!(before, Before::New, "nothing of it is compared with");
    }

    #[test]
    fn holes_are_punched_and_links_refused() {
        let place = tempfile::tempdir().unwrap();
        let (target, _) = Target::open(place.path(), &name("a.img"), 1 << 20).unwrap();
        target.write(&vec![1; 1 << 20], 0).unwrap();
        target.punch(0, 1 << 19).unwrap();
        target.close(None, "now").unwrap();
        let file = fs::File::open(place.path().join("a.img")).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 <= (1 << 19) + 65536);
        let mut byte = [9];
        file.read_exact_at(&mut byte, (1 << 19) - 1).unwrap();
        assert_eq!(byte, [0]);
        std::os::unix::fs::symlink("/etc/hostname", place.path().join("l.img")).unwrap();
        assert!(Target::open(place.path(), &name("l.img"), 4096).is_err());
    }
}
