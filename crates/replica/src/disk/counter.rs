//! The revision counter: how many writes this copy has seen, which tells a stale copy from a good
//! one. Owns `revision.counter`: 4096 bytes, a decimal number, then NULs.
//!
//! A number is in the file's page before the write it counts is acknowledged, so the death of the
//! process loses none; it is on disk when a flush returned, as is the data it speaks of. That
//! costs a small buffered write where the peer pays a synchronous one, and no number is ever
//! larger than the number of writes done.

use std::io::{self, Write as _};
use std::sync::Arc;

use durable::{Mode, Open, Sparse};

use crate::disk::dir::Directory;
use crate::disk::error::{During, Error};
use crate::disk::flush::Syncing;
use crate::disk::names::REVISION_COUNTER;

const FILE_BYTES: usize = 4096;
/// The longest number, and a NUL to end a longer one that stood there before.
const NUMBER_BYTES: usize = 24;

/// When the number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CounterPolicy {
    /// With every write.
    #[default]
    EachWrite,
    /// By [`crate::disk::Replica::settle`], which the caller promises to call before it acknowledges.
    OnSettle,
}

#[derive(Debug)]
pub(crate) struct Counter {
    file: Arc<dyn Sparse>,
    value: i64,
    written: i64,
    /// What is known to be on disk.
    synced: Option<i64>,
}

impl Counter {
    /// Opens the counter, or makes it with the value 0.
    pub(crate) fn open(dir: &Directory) -> Result<Self, Error> {
        let value = match dir.read(REVISION_COUNTER, FILE_BYTES)? {
            // Empty is what a crash of a peer leaves between making and writing it.
            Some(bytes) if !bytes.is_empty() => parse(&bytes)?,
            _ => {
                dir.step("create", REVISION_COUNTER)?;
                let path = dir.join(REVISION_COUNTER);
                durable::on::replace(dir.files(), &path, &render(0), Mode::PRIVATE)?;
                0
            }
        };
        let file = dir
            .files()
            .open_sparse(&dir.join(REVISION_COUNTER), Open::Write)
            .during("open", REVISION_COUNTER)?;
        Ok(Self { file: Arc::from(file), value, written: value, synced: None })
    }

    pub(crate) fn value(&self) -> i64 {
        self.value
    }

    pub(crate) fn increment(&mut self) {
        self.value = self.value.saturating_add(1);
    }

    /// Puts the value into the file's page.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        if self.value == self.written {
            return Ok(());
        }
        durable::write_all_at(&*self.file, &number(self.value), 0)
            .during("write", REVISION_COUNTER)?;
        self.written = self.value;
        Ok(())
    }

    /// Puts the value on disk.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let Some((syncing, value)) = self.syncing()? else { return Ok(()) };
        syncing.run()?;
        self.synced(value);
        Ok(())
    }

    /// The sync of the present value, for whoever is to wait for it; none if it is on disk.
    pub(crate) fn syncing(&mut self) -> Result<Option<(Syncing, i64)>, Error> {
        self.settle()?;
        if self.synced == Some(self.written) {
            return Ok(None);
        }
        let file = Arc::clone(&self.file);
        Ok(Some((Syncing { file, name: REVISION_COUNTER.to_owned() }, self.written)))
    }

    pub(crate) fn synced(&mut self, value: i64) {
        self.synced = Some(value);
    }

    pub(crate) fn set(&mut self, value: i64) -> Result<(), Error> {
        self.value = value;
        self.sync()
    }
}

/// The decimal number and NULs, without an allocation: this is done for every batch of writes.
fn number(value: i64) -> [u8; NUMBER_BYTES] {
    let mut text = [0; NUMBER_BYTES];
    // Fits: the longest number has 20 bytes.
    let _ = write!(text.as_mut_slice(), "{value}");
    text
}

fn render(value: i64) -> Vec<u8> {
    let mut contents = number(value).to_vec();
    contents.resize(FILE_BYTES, 0);
    contents
}

fn parse(bytes: &[u8]) -> Result<i64, Error> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = bytes.get(..end).and_then(|number| std::str::from_utf8(number).ok());
    text.and_then(|text| text.trim().parse().ok()).filter(|value| *value >= 0).ok_or_else(|| {
        Error::Damaged { file: REVISION_COUNTER.to_owned(), why: "not a number".to_owned() }
    })
}

/// Reads the counter of a replica that is not open.
pub(crate) fn read(dir: &Directory) -> io::Result<i64> {
    let bytes = dir.read(REVISION_COUNTER, FILE_BYTES).map_err(io::Error::other)?;
    bytes.map_or(Ok(0), |bytes| parse(&bytes).map_err(io::Error::other))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::dir::real;

    #[test]
    fn a_number_is_seen_by_others_as_soon_as_it_is_settled() {
        let place = tempfile::tempdir().unwrap();
        let dir = Directory::plain(place.path(), &real());
        let mut counter = Counter::open(&dir).unwrap();
        for _ in 0..12 {
            counter.increment();
            counter.settle().unwrap();
            assert_eq!(read(&dir).unwrap(), counter.value());
        }
        counter.set(7).unwrap();
        assert_eq!(read(&dir).unwrap(), 7, "no digit of the longer number is left");
        let bytes = std::fs::read(dir.join(REVISION_COUNTER)).unwrap();
        assert_eq!((bytes.len(), &bytes[..3]), (FILE_BYTES, &b"7\0\0"[..]));
    }

    #[test]
    fn damage_is_named() {
        for bytes in [&b"-1\0"[..], b"x", b"\0", b"99999999999999999999", b"\xff1"] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn every_value_reads_back(value in 0..=i64::MAX) {
            prop_assert_eq!(parse(&render(value)).unwrap(), value);
        }
    }
}
