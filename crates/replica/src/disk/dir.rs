//! The one place that changes names in a replica directory. Every change is a step with a name,
//! announced to the hook before it happens, so that a test can fail or die at each of them.
//!
//! Never: policy. What is written, and in which order, is decided in `steps` and `purge`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable::{Details, Disk, Mode, RealDisk};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::disk::error::{During, Error};
use crate::disk::image::{Access, Image};
use crate::disk::meta::{META_MAX_BYTES, to_line};
use crate::disk::names::{DiskName, checksum_file, meta_file};

/// Names listed in one directory before it is refused.
const ENTRIES_MAX: usize = 16 * 1024;

/// Is told about every change of the directory before it happens, and may refuse it.
pub trait StepHook: Send + Sync + fmt::Debug {
    fn before(&self, step: &'static str, file: &str) -> io::Result<()>;
}

/// Lets everything happen.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHook;

impl StepHook for NoHook {
    fn before(&self, _step: &'static str, _file: &str) -> io::Result<()> {
        Ok(())
    }
}

/// The file system of this machine.
pub(crate) fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

#[derive(Debug, Clone)]
pub(crate) struct Directory {
    path: PathBuf,
    hook: Arc<dyn StepHook>,
    files: Arc<dyn Disk>,
}

impl Directory {
    pub(crate) fn new(path: &Path, hook: Arc<dyn StepHook>, files: Arc<dyn Disk>) -> Self {
        Self { path: path.to_owned(), hook, files }
    }

    /// To be looked at, or changed by nobody but us.
    pub(crate) fn plain(path: &Path, files: &Arc<dyn Disk>) -> Self {
        Self::new(path, Arc::new(NoHook), Arc::clone(files))
    }

    /// The file system that it is on.
    pub(crate) fn files(&self) -> &dyn Disk {
        &*self.files
    }

    /// What has this name.
    pub(crate) fn look(&self, file: &str) -> io::Result<Details> {
        self.files.look(&self.join(file))
    }

    pub(crate) fn image(&self, disk: &DiskName, access: Access) -> Result<Image, Error> {
        Image::open(self.files(), &self.path, disk, access)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    pub(crate) fn step(&self, step: &'static str, file: &str) -> Result<(), Error> {
        self.hook.before(step, file).during(step, file)
    }

    pub(crate) fn create(&self) -> Result<(), Error> {
        self.step("create directory", "")?;
        Ok(durable::on::create_dir(self.files(), &self.path, Mode::PRIVATE_DIR)?)
    }

    /// The names that are text, sorted; `None` if there is no directory.
    pub(crate) fn names(&self) -> Result<Option<Vec<String>>, Error> {
        let entries = match self.files.list(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.during("list", self.path.display())?,
        };
        if entries.len() > ENTRIES_MAX {
            return Err(Error::TooManyFiles { max: ENTRIES_MAX });
        }
        let mut names: Vec<String> =
            entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect();
        names.sort_unstable();
        Ok(Some(names))
    }

    /// The contents of a small file; `None` if it is not there. Links are refused, not followed.
    pub(crate) fn read(&self, file: &str, max_bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        let path = self.join(file);
        match self.files.look(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).during("inspect", file),
            Ok(found) if !found.is_file => return Err(Error::NotAFile(file.to_owned())),
            Ok(_) => {}
        }
        match durable::on::read_limited(self.files(), &path, max_bytes) {
            Err(error) if error.is_not_found() => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// A metadata file; `None` if it is missing or empty, which is how a crash of a peer that does
    /// not sync leaves it.
    pub(crate) fn read_meta<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>, Error> {
        let Some(bytes) = self.read(file, META_MAX_BYTES)? else { return Ok(None) };
        if bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            return Ok(None);
        }
        let damaged =
            |why: serde_json::Error| Error::Damaged { file: file.to_owned(), why: why.to_string() };
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    /// Replaces a metadata file whole and durably.
    pub(crate) fn write_meta<T: Serialize>(&self, file: &str, value: &T) -> Result<(), Error> {
        self.step("replace", file)?;
        // What a peer left half written under its own temporary name goes first, and something
        // else there (scripts put a directory in the way) is a rejection.
        self.remove_quietly(&format!("{file}.tmp"))?;
        let line = to_line(value)
            .map_err(|why| Error::Damaged { file: file.to_owned(), why: why.to_string() })?;
        durable::on::replace(self.files(), &self.join(file), &line, Mode::PUBLIC)?;
        Ok(())
    }

    /// A new empty image of this size, synced; its name is durable only after [`Self::sync`].
    pub(crate) fn create_image(&self, disk: &DiskName, size_bytes: u64) -> Result<(), Error> {
        self.step("create", disk.as_str())?;
        match Image::create(self.files(), &self.path, disk, size_bytes) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::HeadExists(disk.clone()))
            }
            other => other.map(drop),
        }
    }

    pub(crate) fn link(&self, source: &DiskName, target: &str) -> Result<(), Error> {
        self.step("link", target)?;
        self.files.link(&self.join(source.as_str()), &self.join(target)).during("link", target)
    }

    pub(crate) fn rename(&self, source: &str, target: &DiskName) -> Result<(), Error> {
        self.step("rename", target.as_str())?;
        self.files.rename(&self.join(source), &self.join(target.as_str())).during("rename", target)
    }

    /// Removes a file; one that is not there is fine.
    pub(crate) fn remove(&self, file: &str) -> Result<(), Error> {
        self.step("remove", file)?;
        self.remove_quietly(file)
    }

    fn remove_quietly(&self, file: &str) -> Result<(), Error> {
        match self.files.remove(&self.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.during("remove", file),
        }
    }

    /// Removes a file, or an empty directory that someone put in its place.
    pub(crate) fn clear(&self, file: &str) -> Result<(), Error> {
        match self.look(file) {
            Ok(found) if found.is_dir => {
                self.step("remove", file)?;
                self.files.remove_dir(&self.join(file)).during("remove", file)
            }
            _ => self.remove(file),
        }
    }

    /// Removes a disk: first the metadata that makes it part of the chain, then its contents.
    pub(crate) fn remove_disk(&self, disk: &DiskName) -> Result<(), Error> {
        self.remove(&meta_file(disk))?;
        self.remove(&checksum_file(disk))?;
        self.remove(disk.as_str())?;
        self.sync()
    }

    /// Makes all changes of names so far durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.step("sync", "")?;
        self.files.sync_dir(&self.path).during("sync", self.path.display())
    }
}
