//! The checksum of a snapshot's image, and the record of it that tells later whether the file was
//! changed, or rotted without being changed. Runs in steps, on any thread.

use std::ops::Range;
use std::path::Path;

use crate::disk::crc64::Crc64;
use crate::disk::dir::{Directory, real};
use crate::disk::error::Error;
use crate::disk::image::{Access, Image};
use crate::disk::merge::Progress;
use crate::disk::meta::Checksum;
use crate::disk::names::{DiskName, checksum_file};

const METHOD: &str = "crc64";
const READ_BYTES: usize = 256 * 1024;
const WINDOW_BYTES: u64 = 256 * 1024 * 1024;
const SECONDS_PER_DAY: i64 = 86_400;

/// What came of a request to hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashOutcome {
    /// The record is of this very file; it was not read again.
    Kept(Checksum),
    Made(Checksum),
}

#[derive(Debug)]
pub struct Hash {
    dir: Directory,
    disk: DiskName,
    image: Image,
    change_time: String,
    recorded: Option<Checksum>,
    is_needed: bool,
    crc: Crc64,
    at: u64,
    /// Data of the present window that is not hashed yet, last first.
    data: Vec<Range<u64>>,
    buffer: Vec<u8>,
}

impl Hash {
    /// `rehash` reads the file even if the record is of its present state: to find rot.
    pub fn new(dir: &Path, disk: &DiskName, rehash: bool) -> Result<Self, Error> {
        let dir = Directory::plain(dir, &real());
        let image = dir.image(disk, Access::Read)?;
        let change_time = change_time(&image)?;
        // A record that cannot be read is as good as none.
        let recorded = dir.read_meta::<Checksum>(&checksum_file(disk)).ok().flatten();
        let is_current = recorded.as_ref().is_some_and(|record| record.change_time == change_time);
        Ok(Self {
            dir,
            disk: disk.clone(),
            image,
            change_time,
            recorded,
            is_needed: rehash || !is_current,
            crc: Crc64::default(),
            at: 0,
            data: Vec::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Reads about `budget_bytes`.
    pub fn step(&mut self, budget_bytes: u64) -> Result<Progress, Error> {
        let mut read = 0;
        while self.is_needed && read < budget_bytes && self.at < self.image.len_bytes() {
            read += match self.data.pop() {
                Some(run) => self.hash_run(run)?,
                None => self.next_window()?,
            };
        }
        let len = self.image.len_bytes();
        if !self.is_needed || self.at >= len {
            return Ok(Progress::Done);
        }
        let percent = self.at.saturating_mul(99).checked_div(len).unwrap_or(99);
        Ok(Progress::Working(u8::try_from(percent).unwrap_or(99)))
    }

    /// Records the checksum; to be called after the last step.
    pub fn finish(self, now: &str) -> Result<HashOutcome, Error> {
        let file = checksum_file(&self.disk);
        if let Some(recorded) = self.recorded.as_ref().filter(|_| !self.is_needed) {
            return Ok(HashOutcome::Kept(recorded.clone()));
        }
        if change_time(&self.image)? != self.change_time {
            self.dir.remove(&file)?;
            return Err(Error::ChangedWhileHashed(self.disk));
        }
        let checksum = format!("{:016x}", self.crc.finish());
        // The file was not touched since it had another checksum: the disk lost bits.
        let is_corrupted = self.recorded.as_ref().is_some_and(|recorded| {
            recorded.change_time == self.change_time && recorded.checksum != checksum
        });
        let made = Checksum {
            method: METHOD.to_owned(),
            checksum,
            change_time: self.change_time,
            last_hashed_at: now.to_owned(),
            silently_corrupted: is_corrupted,
        };
        self.dir.write_meta(&file, &made)?;
        Ok(HashOutcome::Made(made))
    }

    /// Hashes up to the end of a piece of data, and the hole before it.
    fn hash_run(&mut self, run: Range<u64>) -> Result<u64, Error> {
        self.crc.update_zeros(run.start.saturating_sub(self.at));
        let want = usize::try_from(run.end - run.start).unwrap_or(READ_BYTES).min(READ_BYTES);
        let piece = self.buffer.get_mut(..want).unwrap_or_default();
        self.image.read(piece, run.start)?;
        self.crc.update(piece);
        self.at = run.start + want as u64;
        if self.at < run.end {
            self.data.push(self.at..run.end);
        }
        Ok(want as u64)
    }

    fn next_window(&mut self) -> Result<u64, Error> {
        let len = self.image.len_bytes();
        let window = self.at..len.min((self.at / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES));
        let data = &mut self.data;
        let from = window.start;
        self.image.extents(window.clone(), true, |extent| {
            // Preallocated ranges read as zeros: skipping them gives the same sum.
            let start = extent.start.max(from);
            if !extent.is_unwritten && start < extent.end {
                data.push(start..extent.end);
            }
        })?;
        data.reverse();
        if data.is_empty() {
            self.crc.update_zeros(window.end - self.at);
            self.at = window.end;
        }
        Ok(1)
    }
}

fn change_time(image: &Image) -> Result<String, Error> {
    let (seconds, nanoseconds) = image.look()?.changed;
    Ok(render_time(seconds, nanoseconds))
}

/// As the peer prints times into its records: a fraction without trailing zeros, then the zone.
fn render_time(seconds: i64, nanoseconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let fraction = format!("{nanoseconds:09}");
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{point}{fraction} +0000 UTC"
    )
}

/// Year, month and day of a day counted from 1970-01-01, in eras of 400 years that begin in March.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_times_are_printed_as_the_peer_prints_them() {
        let cases = [
            (1_794_724_628, 556_325_018, "2026-11-15 06:37:08.556325018 +0000 UTC"),
            (0, 0, "1970-01-01 00:00:00 +0000 UTC"),
            (951_782_400, 500_000_000, "2000-02-29 00:00:00.5 +0000 UTC"),
            (-1, 1, "1969-12-31 23:59:59.000000001 +0000 UTC"),
        ];
        for (seconds, nanoseconds, text) in cases {
            assert_eq!(render_time(seconds, nanoseconds), text);
        }
    }

    fn run(dir: &Path, disk: &DiskName, rehash: bool) -> Result<HashOutcome, Error> {
        let mut hash = Hash::new(dir, disk, rehash)?;
        while hash.step(100_000)? != Progress::Done {}
        hash.finish("2026-11-15T06:37:08Z")
    }

    #[test]
    fn the_whole_image_counts_holes_included() {
        let place = tempfile::tempdir().unwrap();
        let disk = DiskName::of_snapshot("a").unwrap();
        let image = Image::create(&durable::RealDisk, place.path(), &disk, 3 << 20).unwrap();
        image.write(&[7; 5000], 1 << 20).unwrap();
        image.write(&vec![9; 700_000], 2 << 20).unwrap();
        let mut crc = Crc64::default();
        crc.update(&std::fs::read(place.path().join(disk.as_str())).unwrap());
        let HashOutcome::Made(made) = run(place.path(), &disk, false).unwrap() else { panic!() };
        assert_eq!(made.checksum, format!("{:016x}", crc.finish()));
        assert!(!made.silently_corrupted);
        let kept = run(place.path(), &disk, false).unwrap();
        assert_eq!(kept, HashOutcome::Kept(made.clone()), "an unchanged file is not read again");
        let again = run(place.path(), &disk, true).unwrap();
        assert_eq!(again, HashOutcome::Made(made));
    }

    #[test]
    fn rot_and_changes_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let disk = DiskName::of_snapshot("a").unwrap();
        let image = Image::create(&durable::RealDisk, place.path(), &disk, 1 << 20).unwrap();
        image.write(&[7; 5000], 0).unwrap();
        let HashOutcome::Made(mut made) = run(place.path(), &disk, false).unwrap() else {
            panic!()
        };
        made.checksum = "0000000000000000".into();
        let dir = Directory::plain(place.path(), &real());
        dir.write_meta(&checksum_file(&disk), &made).unwrap();
        let HashOutcome::Made(rotten) = run(place.path(), &disk, true).unwrap() else { panic!() };
        assert!(rotten.silently_corrupted);
        let mut hash = Hash::new(place.path(), &disk, true).unwrap();
        while hash.step(u64::MAX).unwrap() != Progress::Done {}
        image.write(&[1], 0).unwrap();
        // File systems stamp coarsely: make sure that the time moved.
        while change_time(&image).unwrap() == hash.change_time {
            image.write(&[2], 0).unwrap();
        }
        let error = hash.finish("now").unwrap_err();
        assert!(matches!(error, Error::ChangedWhileHashed(_)), "{error}");
        assert!(!place.path().join(checksum_file(&disk)).exists());
    }
}
