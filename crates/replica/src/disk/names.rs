//! Names of files in a replica directory. A [`DiskName`] that exists is one safe path component
//! of a known shape, so nothing read from a file or a peer can leave the directory.

use std::fmt;
use std::sync::Arc;

use crate::disk::error::Error;

const HEAD_PREFIX: &str = "volume-head-";
const SNAPSHOT_PREFIX: &str = "volume-snap-";
const IMAGE_SUFFIX: &str = ".img";
pub(crate) const META_SUFFIX: &str = ".meta";
const CHECKSUM_SUFFIX: &str = ".checksum";
/// Leaves room in a 255-byte file name for `.checksum..tmp`.
const NAME_MAX_BYTES: usize = 240;

pub(crate) const VOLUME_META: &str = "volume.meta";
pub(crate) const REVISION_COUNTER: &str = "revision.counter";

/// The file name of an image: the head or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskName(Arc<str>);

impl DiskName {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadName(text.chars().take(NAME_MAX_BYTES).collect());
        let middle = text
            .strip_prefix(HEAD_PREFIX)
            .or_else(|| text.strip_prefix(SNAPSHOT_PREFIX))
            .and_then(|rest| rest.strip_suffix(IMAGE_SUFFIX))
            .ok_or_else(bad)?;
        let safe = |letter: char| !letter.is_control() && letter != '/' && letter != '\\';
        if middle.is_empty() || text.len() > NAME_MAX_BYTES || !middle.chars().all(safe) {
            return Err(bad());
        }
        Ok(Self(text.into()))
    }

    /// The disk of a snapshot's bare name.
    pub fn of_snapshot(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::EmptySnapshotName);
        }
        Self::parse(&format!("{SNAPSHOT_PREFIX}{name}{IMAGE_SUFFIX}"))
            .map_err(|_| Error::BadName(name.chars().take(NAME_MAX_BYTES).collect()))
    }

    /// A disk name as it is, or the disk of a bare snapshot name: callers send either.
    pub fn of_either(text: &str) -> Result<Self, Error> {
        Self::parse(text).or_else(|_| Self::of_snapshot(text))
    }

    pub(crate) fn first_head() -> Self {
        Self(format!("{HEAD_PREFIX}000{IMAGE_SUFFIX}").into())
    }

    /// The name of the head after this one. The peer counts on from the last digit alone: 000, 001
    /// up to 009, 010, and then 001 again.
    pub(crate) fn next_head(&self) -> Result<Self, Error> {
        let bad = || Error::BadName(self.to_string());
        let digit = self
            .0
            .strip_prefix(HEAD_PREFIX)
            .and_then(|rest| rest.strip_suffix(IMAGE_SUFFIX))
            .and_then(|number| number.chars().next_back())
            .and_then(|last| last.to_digit(10))
            .ok_or_else(bad)?;
        Ok(Self(format!("{HEAD_PREFIX}{:03}{IMAGE_SUFFIX}", digit + 1).into()))
    }

    pub fn is_head(&self) -> bool {
        self.0.starts_with(HEAD_PREFIX)
    }

    /// The bare name of a snapshot; `None` for a head.
    pub fn snapshot(&self) -> Option<&str> {
        self.0.strip_prefix(SNAPSHOT_PREFIX)?.strip_suffix(IMAGE_SUFFIX)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The file with the [`crate::disk::DiskMeta`] of a disk.
pub fn meta_file(disk: &DiskName) -> String {
    format!("{disk}{META_SUFFIX}")
}

/// The file with the [`crate::disk::Checksum`] of a disk.
pub fn checksum_file(disk: &DiskName) -> String {
    format!("{disk}{CHECKSUM_SUFFIX}")
}

/// The disk whose metadata this file holds, if it is such a file.
pub(crate) fn disk_of_meta(file: &str) -> Option<DiskName> {
    DiskName::parse(file.strip_suffix(META_SUFFIX)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_numbered_as_the_peer_numbers_them() {
        let mut head = DiskName::first_head();
        let mut seen = vec![head.to_string()];
        for _ in 0..12 {
            head = head.next_head().unwrap();
            seen.push(head.to_string());
        }
        let numbers: Vec<_> =
            seen.iter().map(|name| name.replace("volume-head-", "").replace(".img", "")).collect();
        let expected =
            "000 001 002 003 004 005 006 007 008 009 010 001 002".split(' ').collect::<Vec<_>>();
        assert_eq!(numbers, expected);
        assert!(DiskName::parse("volume-head-x.img").unwrap().next_head().is_err());
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        let long = format!("volume-snap-{}.img", "a".repeat(300));
        for text in [
            "",
            "x",
            "volume-snap-.img",
            "volume-head-.img",
            "volume-snap-a",
            "volume.meta",
            "../volume-snap-a.img",
            "volume-snap-../../etc/x.img",
            "volume-snap-a/b.img",
            "volume-snap-a\0.img",
            "volume-snap-a\n.img",
            "volume-snap-a.img.meta",
            &long,
        ] {
            assert!(DiskName::parse(text).is_err(), "{text:?}");
        }
        assert!(DiskName::of_snapshot("..").is_ok(), "harmless inside the longer name");
        assert!(DiskName::of_snapshot("a/b").is_err());
        assert!(matches!(DiskName::of_snapshot(""), Err(Error::EmptySnapshotName)));
    }

    #[test]
    fn a_disk_may_be_named_bare_or_in_full() {
        let full = DiskName::of_either("volume-snap-a.img").unwrap();
        assert_eq!(full, DiskName::of_either("a").unwrap());
        assert_eq!(full.snapshot(), Some("a"));
        assert_eq!(meta_file(&full), "volume-snap-a.img.meta");
        assert_eq!(disk_of_meta("volume-snap-a.img.meta"), Some(full));
        assert_eq!(disk_of_meta("volume-snap-a.img.snap_tmp.meta"), None);
    }

    proptest! {
        #[test]
        fn noise_never_names_another_directory(text in ".{0,300}") {
            for name in [DiskName::parse(&text), DiskName::of_snapshot(&text)].into_iter().flatten() {
                prop_assert!(!name.as_str().contains('/'));
                prop_assert!(name.as_str().len() <= NAME_MAX_BYTES);
                let _ = name.next_head();
            }
        }
    }
}
