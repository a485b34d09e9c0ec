//! A directory of one's own that goes when it is no longer needed.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Below the directory for temporary files.
    pub(crate) fn new(what: &str) -> io::Result<Self> {
        let name = format!("holdfast-{what}-{}-{:08x}", std::process::id(), rand::random::<u32>());
        Self::at(std::env::temp_dir().join(name))
    }

    /// A directory that must not be there yet.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            let why = telemetry::Chain(&error);
            tracing::warn!("{} was not removed: {why}", self.0.display());
        }
    }
}
