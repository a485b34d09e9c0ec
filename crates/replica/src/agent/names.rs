//! File names that came over the network. A [`FileName`] that exists is one plain component, so
//! joining it to a directory stays inside.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::JobError;
use crate::disk::{DiskName, META_SUFFIX};

const NAME_MAX_BYTES: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileName(Arc<str>);

impl FileName {
    pub(crate) fn parse(text: &str) -> Result<Self, JobError> {
        let is_plain = |letter: char| !letter.is_control() && letter != '/' && letter != '\\';
        let is_good = !matches!(text, "" | "." | "..")
            && text.len() <= NAME_MAX_BYTES
            && text.chars().all(is_plain);
        if is_good {
            Ok(Self(text.into()))
        } else {
            Err(JobError::BadFileName(text.chars().take(NAME_MAX_BYTES).collect()))
        }
    }

    pub(crate) fn of_disk(disk: &DiskName) -> Self {
        Self(disk.as_str().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn path_in(&self, dir: &Path) -> PathBuf {
        dir.join(&*self.0)
    }

    /// Small metadata, replaced whole; everything else is an image.
    pub(crate) fn is_meta(&self) -> bool {
        self.0.ends_with(META_SUFFIX)
    }

    /// The disk whose image this is.
    pub(crate) fn disk(&self) -> Option<DiskName> {
        DiskName::parse(&self.0).ok()
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_plain_names_are_names() {
        let long = "a".repeat(256);
        for bad in ["", ".", "..", "../a", "a/b", "/a", "a\0", "a\nb", "a\\b", &long] {
            assert!(FileName::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "volume.meta", "..a", "volume-snap-a.img.snap_tmp", &long[..255]] {
            assert_eq!(FileName::parse(good).unwrap().as_str(), good);
        }
    }

    proptest! {
        #[test]
        fn no_name_leaves_its_directory(text in ".{0,300}") {
            if let Ok(name) = FileName::parse(&text) {
                let path = name.path_in(Path::new("/d"));
                prop_assert_eq!(path.parent(), Some(Path::new("/d")));
            }
        }
    }
}
