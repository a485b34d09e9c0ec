//! A store in a directory: an object is a file, its key is its path below the root.
//!
//! Owns: creating once (a link that refuses a taken name), compare-and-swap (under the lock of the
//! root, by inode, time and length, see `durable::File::stamp`), and syncing all of it. It works on
//! network file systems that have links and locks. Links inside the directory are followed: the
//! directory, and all below it, must be writable by nobody but us. A key cannot lie under another
//! key here, since a file is no folder.

mod batch;

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use durable::{Barrier, Disk, File, Mode, Open, Operation, Reach, RealDisk, Stat, on};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;

use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::store::{
    Batch, Blob, Capabilities, LIST_PAGE_MAX, Level, Listing, Meta, Page, Permit, Store, Times,
    Version,
};
use crate::stream::{Body, Parts, ranges};

/// Taken while a version is compared and swapped.
const LOCK: &str = ".durable-lock";
/// Names that begin so are ours.
const RESERVED: &str = ".durable-";
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(2);
/// Read at once, at most, whatever range is asked for.
const READ_MAX_BYTES: u64 = 1 << 30;
/// Reads of an object that is replaced while it is read.
const READ_TRIES: usize = 16;
/// Writes into a folder that is removed while it is written to.
const FOLDER_TRIES: usize = 16;
/// Swaps of one object that others keep from being done.
const SWAP_TRIES: usize = 16;
/// No write takes this long.
const ABANDONED_AFTER: Duration = Duration::from_hours(24);

/// How a folder is made, and those above it.
type MakeDir = fn(&dyn Disk, &Path, Mode) -> Result<(), durable::Error>;

#[derive(Debug, Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Box<dyn Disk>,
    root: PathBuf,
    /// Asked for once.
    reach: OnceLock<Reach>,
}

impl LocalStore {
    /// Makes the directory where it is missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::open_on(Box::new(RealDisk), root)
    }

    /// Leaves a directory that is missing to the first put; until then it is an empty store.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self::on_disk(Box::new(RealDisk), root.into())
    }

    pub fn open_on(disk: Box<dyn Disk>, root: impl Into<PathBuf>) -> Result<Self, Error> {
        let store = Self::on_disk(disk, root.into());
        let Inner { disk, root, .. } = &*store.inner;
        on::create_dir(disk.as_ref(), root, Mode::PRIVATE_DIR)
            .map_err(|error| store.inner.told(error.into()))?;
        Ok(store)
    }

    fn on_disk(disk: Box<dyn Disk>, root: PathBuf) -> Self {
        Self { inner: Arc::new(Inner { disk, root, reach: OnceLock::new() }) }
    }

    /// On a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let done = move || work(&inner).map_err(|error| inner.told(error));
        tokio::task::spawn_blocking(done).await.unwrap_or_else(|error| {
            Err(Error::Unavailable { what: "a file".to_owned(), source: error.into() })
        })
    }
}

#[async_trait]
impl Store for LocalStore {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        let key = key.clone();
        self.run(move |inner| inner.put_new(&key, &bytes)).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        let (key, version) = (key.clone(), version.clone());
        self.run(move |inner| inner.put_if_match(&key, &bytes, &version)).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        let key = key.clone();
        self.run(move |inner| inner.put(&key, &bytes)).await
    }

    async fn put_stream(&self, key: &Key, mut body: Body, _: &Parts) -> Result<Version, Error> {
        let name = key.clone();
        let mut writing =
            self.run(move |inner| inner.begin(&name)).await.map(|file| Writing::new(self, file))?;
        while let Some(bytes) = body.next().await {
            let bytes = bytes.map_err(|source| Error::Body { key: key.clone(), source })?;
            writing.run(move |file, _| Ok(file.append(&bytes)?)).await?;
        }
        let stat = match writing.run(|file, disk| Ok(file.commit(disk)?)).await {
            // As by a swap, for that of one who sleeps.
            Err(Error::Disk(error)) if error.is_not_found() => {
                return Err(Error::Unavailable { what: key.to_string(), source: error.into() });
            }
            done => done?,
        };
        Ok(meta(key.clone(), &stat)?.version)
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        let key = key.clone();
        self.run(move |inner| inner.get_range(&key, &range)).await
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        let meta = self.head(key).await?;
        let pieces = ranges(Arc::new(self.clone()), meta.clone(), 0);
        Ok((meta, Box::pin(pieces.map_err(io::Error::other))))
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        let key = key.clone();
        self.run(move |inner| inner.head(&key)).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let (prefix, after) = (prefix.clone(), after.cloned());
        self.run(move |inner| inner.list(&prefix, after.as_ref())).await
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let prefix = prefix.clone();
        self.run(move |inner| inner.list_level(&prefix)).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        let key = key.clone();
        self.run(move |inner| inner.delete(&key, None)).await
    }

    async fn delete_within(&self, key: &Key, permit: &Permit) -> Result<(), Error> {
        let (key, permit) = (key.clone(), permit.clone());
        self.run(move |inner| inner.delete(&key, Some(&permit))).await
    }

    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        let (keys, permit) = (keys.to_vec(), permit.clone());
        self.run(move |inner| inner.delete_many(&keys, &permit)).await
    }

    async fn batch(&self, prefix: &Prefix) -> Result<Option<Arc<dyn Batch>>, Error> {
        let prefix = prefix.clone();
        let barrier = self.run(move |inner| inner.barrier(&prefix)).await?;
        Ok(barrier.map(|barrier| batch::open(self.clone(), barrier)))
    }

    async fn settle(&self, prefixes: &[Prefix]) -> Result<(), Error> {
        let prefixes = prefixes.to_vec();
        self.run(move |inner| inner.settle(&prefixes)).await
    }

    fn capabilities(&self) -> Capabilities {
        let (listing, times) = match self.inner.known_reach() {
            Reach::ThisMachine => (Listing::AtOnce, Times::OfStore),
            Reach::Server => (Listing::Later, Times::OfStore),
            Reach::Unknown => (Listing::Later, Times::OfWriter),
        };
        Capabilities { conditional_put: true, durable: true, listing, times }
    }
}

/// A file that grows beside its target, and goes when the write is given up.
struct Writing {
    store: LocalStore,
    file: Option<on::Replacing>,
}

impl Writing {
    fn new(store: &LocalStore, file: on::Replacing) -> Self {
        Self { store: store.clone(), file: Some(file) }
    }

    async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut on::Replacing, &dyn Disk) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // Taken along, so that a write which nobody awaits any more still removes what it wrote.
        let mut moved = Self { store: self.store.clone(), file: self.file.take() };
        let (moved, done) = self
            .store
            .run(move |inner| {
                let done = match moved.file.as_mut() {
                    Some(file) => {
                        work(file, inner.disk.as_ref()).map_err(|error| inner.told(error))
                    }
                    None => Err(Error::Unavailable {
                        what: "a file".to_owned(),
                        source: "an earlier write of it did not end".into(),
                    }),
                };
                Ok((moved, done))
            })
            .await?;
        *self = moved;
        done
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            file.discard(self.store.inner.disk.as_ref());
        }
    }
}

impl Inner {
    /// Nothing where the file system does not say: a server that is away must not be taken for the disk
    /// that its mount lies on.
    fn reach(&self) -> Option<Reach> {
        for path in self.root.ancestors() {
            match self.disk.reach(path) {
                // The root may be made later.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found.ok(),
            }
        }
        None
    }

    fn known_reach(&self) -> Reach {
        if let Some(known) = self.reach.get() {
            return *known;
        }
        self.reach().map_or(Reach::Unknown, |found| *self.reach.get_or_init(|| found))
    }

    /// What a mount says for a server that did not answer reads as if a disk were broken: it may have been
    /// done, and goes better later.
    fn told(&self, error: Error) -> Error {
        match error {
            Error::Disk(error) if is_of_network(&error) && self.is_shared() => Error::Unavailable {
                what: error.path().display().to_string(),
                source: error.into(),
            },
            other => other,
        }
    }

    /// Whether locks can be lost, and calls be done late, by this machine.
    fn is_shared(&self) -> bool {
        match self.known_reach() {
            Reach::ThisMachine => false,
            Reach::Server | Reach::Unknown => true,
        }
    }

    /// None also where there is no directory yet.
    fn barrier(&self, prefix: &Prefix) -> Result<Option<Box<dyn Barrier>>, Error> {
        let Some(path) = self.nearest(prefix)? else { return Ok(None) };
        match self.disk.barrier(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map_err(|source| {
                durable::Error::Io { operation: Operation::Open, path, source }.into()
            }),
        }
    }

    fn settle(&self, prefixes: &[Prefix]) -> Result<(), Error> {
        let mut found = Vec::new();
        for prefix in prefixes {
            found.extend(self.nearest(prefix)?);
        }
        let paths: Vec<&Path> = found.iter().map(PathBuf::as_path).collect();
        match self.disk.sync_file_systems(&paths) {
            // Somebody removed one that had become empty: all the more may what is above it be unsynced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.disk.sync_file_systems(&[&self.root])
            }
            done => done,
        }
        .map_err(|source| {
            let (operation, path) = (Operation::Sync, self.root.clone());
            durable::Error::Io { operation, path, source }.into()
        })
    }

    /// The folder of a prefix, or the one above it that is there; nothing where there is no store yet.
    fn nearest(&self, prefix: &Prefix) -> Result<Option<PathBuf>, Error> {
        let folder = prefix.folder().map_or_else(|| Ok(self.root.clone()), |it| self.path(it))?;
        let inside = folder.ancestors().take_while(|path| path.starts_with(&self.root));
        for path in inside {
            match self.disk.stat(path) {
                Ok(found) if found.is_dir => return Ok(Some(path.to_owned())),
                Err(error)
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    let (operation, path) = (Operation::Inspect, path.to_owned());
                    return Err(durable::Error::Io { operation, path, source: error }.into());
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Without the lock of the root, which is for those who compare and swap: one that is stopped in the
    /// middle of many removals keeps nobody from anything.
    fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        let mut failed = None;
        for key in keys {
            permit.check()?;
            match self.remove(key, Some(permit)) {
                Ok(()) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn remove(&self, key: &Key, permit: Option<&Permit>) -> Result<(), Error> {
        let path = self.path(key)?;
        let removed = match permit.filter(|_| self.is_shared()) {
            Some(permit) => self.remove_in_time(&path, permit),
            None => on::remove(self.disk.as_ref(), &path).map_err(Error::from),
        };
        match removed {
            Err(Error::Disk(error)) if error.is_not_found() => return Ok(()),
            done => done?,
        }
        self.remove_empty_folders(&path);
        Ok(())
    }

    /// A network file system may do later what it was asked to do, when its server is back, or the machine
    /// that asked: to an object that another relies upon by then. So it is only set aside, and goes if that
    /// was in time.
    fn remove_in_time(&self, path: &Path, permit: &Permit) -> Result<(), Error> {
        let disk = self.disk.as_ref();
        let aside = on::set_aside(disk, path)?;
        match permit.check() {
            Ok(()) => Ok(on::remove(disk, &aside)?),
            Err(ended) => {
                on::put_back(disk, &aside, path)?;
                Err(ended)
            }
        }
    }

    fn begin(&self, key: &Key) -> Result<on::Replacing, Error> {
        let path = self.path(key)?;
        self.in_folder(key, &path, || {
            on::Replacing::begin(self.disk.as_ref(), &path, Mode::PRIVATE)
        })
    }

    fn put_new(&self, key: &Key, bytes: &[u8]) -> Result<Version, Error> {
        let path = self.path(key)?;
        match self.in_folder(key, &path, || {
            on::create_new(self.disk.as_ref(), &path, bytes, Mode::PRIVATE)
        }) {
            Ok(made) => Ok(meta(key.clone(), &made)?.version),
            Err(Error::Disk(durable::Error::Exists { .. })) => {
                Err(Error::Exists { key: key.clone() })
            }
            Err(Error::Disk(error)) if has_no_links(&error) => {
                Err(Error::Unsupported { what: "create a file only once", source: error.into() })
            }
            Err(error) => Err(error),
        }
    }

    fn put(&self, key: &Key, bytes: &[u8]) -> Result<Version, Error> {
        let path = self.path(key)?;
        let replace = || on::replace(self.disk.as_ref(), &path, bytes, Mode::PRIVATE);
        Ok(meta(key.clone(), &self.in_folder(key, &path, replace)?)?.version)
    }

    /// Writes in a folder, which is made where it is missing, and again where somebody removed it
    /// because it was empty.
    fn in_folder<T>(
        &self,
        key: &Key,
        path: &Path,
        write: impl Fn() -> Result<T, durable::Error>,
    ) -> Result<T, Error> {
        self.in_folder_made(key, path, on::create_dir, write)
    }

    fn in_folder_made<T>(
        &self,
        key: &Key,
        path: &Path,
        make: MakeDir,
        write: impl Fn() -> Result<T, durable::Error>,
    ) -> Result<T, Error> {
        for _ in 0..FOLDER_TRIES {
            match self.make_folder(key, path, make).and_then(|()| Ok(write()?)) {
                Ok(written) => return Ok(written),
                Err(Error::Disk(error)) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let source = "its folder was removed again and again while it was written".into();
        Err(Error::Unavailable { what: key.to_string(), source })
    }

    /// What takes long comes before the lock. One that is stopped with it keeps all others from their
    /// swaps; and one whose machine is suspended loses it on a network file system, and does not notice.
    fn put_if_match(&self, key: &Key, bytes: &[u8], version: &Version) -> Result<Version, Error> {
        for _ in 0..SWAP_TRIES {
            match self.swap(key, bytes, version) {
                // Another took what we had written for that of one who sleeps.
                Err(Error::Disk(error)) if error.is_not_found() => {}
                done => return done,
            }
        }
        let source = "what was written for it was taken away again and again".into();
        Err(Error::Unavailable { what: key.to_string(), source })
    }

    fn swap(&self, key: &Key, bytes: &[u8], version: &Version) -> Result<Version, Error> {
        let (disk, path) = (self.disk.as_ref(), self.path(key)?);
        self.require_version(key, version)?;
        let mut file = match on::Replacing::begin(disk, &path, Mode::PRIVATE) {
            // Removed since, with its folder.
            Err(error) if error.is_not_found() => return Err(Error::Changed { key: key.clone() }),
            begun => begun?,
        };
        let swapped = file.append(bytes).and_then(|()| file.prepare(disk)).map_err(Error::from);
        let swapped = swapped.and_then(|made| {
            let _lock = self.lock()?;
            // One that has compared and lost the lock since gives its name to nothing. It may be a client of
            // this machine, which has the directory on a disk of its own.
            file.withdraw_others(disk)?;
            self.require_version(key, version)?;
            file.finish(disk)?;
            Ok(meta(key.clone(), &made)?.version)
        });
        if swapped.is_err() {
            file.discard(disk);
        }
        swapped
    }

    fn require_version(&self, key: &Key, version: &Version) -> Result<(), Error> {
        match self.head_now(key) {
            Ok(meta) if meta.version == *version => Ok(()),
            Ok(_) | Err(Error::NotFound { .. }) => Err(Error::Changed { key: key.clone() }),
            Err(error) => Err(error),
        }
    }

    fn get_range(&self, key: &Key, range: &Range<u64>) -> Result<Blob, Error> {
        let path = self.path(key)?;
        for _ in 0..READ_TRIES {
            let meta = self.head(key)?;
            let bytes = self.read(key, &path, range, meta.len_bytes)?;
            // An object is replaced by another file: what was read belongs to the version seen
            // before only if it is also the one seen after.
            if self.head(key)?.version == meta.version {
                return Ok(Blob { meta, bytes });
            }
        }
        let source = "it was replaced again and again while it was read".into();
        Err(Error::Unavailable { what: key.to_string(), source })
    }

    fn read(
        &self,
        key: &Key,
        path: &Path,
        range: &Range<u64>,
        len_bytes: u64,
    ) -> Result<Bytes, Error> {
        let failed = |operation, source: io::Error| Self::failed(key, operation, path, source);
        let file = self.disk.open(path, Open::Read).map_err(|e| failed(Operation::Open, e))?;
        let start = range.start.min(len_bytes);
        let wanted = range.end.min(len_bytes).saturating_sub(start).min(READ_MAX_BYTES);
        let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(usize::MAX)];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, start.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(Operation::Read, error)),
            }
        }
        bytes.truncate(done);
        Ok(bytes.into())
    }

    fn head(&self, key: &Key) -> Result<Meta, Error> {
        let path = self.path(key)?;
        match self.disk.stat(&path) {
            Ok(found) if !found.is_dir => meta(key.clone(), &found),
            Ok(_) => Err(Error::NotFound { key: key.clone() }),
            Err(error) => Err(Self::failed(key, Operation::Inspect, &path, error)),
        }
    }

    fn delete(&self, key: &Key, permit: Option<&Permit>) -> Result<(), Error> {
        let check = || permit.map_or(Ok(()), Permit::check);
        check()?;
        // Without the lock first: what is not there is removed already, and neither may the lock be.
        if self.is_missing(key)? {
            return Ok(());
        }
        let _lock = self.lock()?;
        if self.is_missing(key)? {
            return Ok(());
        }
        match on::withdraw(self.disk.as_ref(), &self.path(key)?, None) {
            Err(error) if error.is_not_found() => {}
            done => done?,
        }
        // Others may have had the lock for long.
        check()?;
        self.remove(key, permit)
    }

    /// As it is on the server: a network file system remembers for a while what a host has seen of a name,
    /// and asks again when it is opened.
    fn head_now(&self, key: &Key) -> Result<Meta, Error> {
        let path = self.path(key)?;
        match self.disk.open(&path, Open::Read) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Err(Error::NotFound { key: key.clone() })
            }
            _opened => self.head(key),
        }
    }

    fn is_missing(&self, key: &Key) -> Result<bool, Error> {
        match self.head_now(key) {
            Ok(_) => Ok(false),
            Err(Error::NotFound { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// A store has no empty folders, so that a walk over what was removed costs nothing. One that
    /// is not empty, or cannot be removed, stays, and nothing is lost by it.
    fn remove_empty_folders(&self, path: &Path) {
        let above = path.ancestors().skip(1).take_while(|folder| *folder != self.root);
        for folder in above {
            let is_removed = self.disk.remove_dir(folder).is_ok()
                || (self.remove_abandoned(folder) && self.disk.remove_dir(folder).is_ok());
            if !is_removed {
                return;
            }
        }
    }

    /// Removes what writers that died long ago left half written; true if that is all there was.
    fn remove_abandoned(&self, folder: &Path) -> bool {
        let Ok(entries) = self.disk.list(folder) else { return false };
        entries.iter().all(|entry| self.is_swept(folder, &entry.name))
    }

    /// Removes a file that a writer which died long ago left half written; false for any other.
    fn is_swept(&self, folder: &Path, name: &OsStr) -> bool {
        let path = folder.join(name);
        // One that was set aside is as old as the object that it was.
        let since = || match on::set_aside_at(name) {
            Some(at) => Some(at),
            None => self.disk.stat(&path).ok().map(|found| found.modified),
        };
        let age = || since().and_then(|since| since.elapsed().ok());
        on::is_beside(name)
            && age().is_some_and(|age| age > ABANDONED_AFTER)
            && self.disk.remove(&path).is_ok()
    }

    fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let mut level = Level::default();
        for found in self.below(prefix.folder(), None)? {
            match found {
                Found::Folder(key) => level.folders.push(key),
                Found::Object(key) => match self.head(&key) {
                    Ok(meta) => level.objects.push(meta),
                    // Removed since the folder was read.
                    Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        level.folders.sort_unstable();
        level.objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(level)
    }

    /// Walks the folders in the order of keys, and leaves out those that end before `after`.
    fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let mut objects = Vec::new();
        let mut folders = vec![prefix.folder().cloned()];
        let mut waiting: Vec<Found> = Vec::new();
        loop {
            if let Some(folder) = folders.pop() {
                let mut below = self.below(folder.as_ref(), after)?;
                below.sort_by_cached_key(|found| Reverse(found.order()));
                waiting.extend(below);
            }
            match waiting.pop() {
                None => return Ok(Page { objects, is_last: true }),
                Some(Found::Folder(key)) => folders.push(Some(key)),
                Some(Found::Object(_)) if objects.len() == LIST_PAGE_MAX => {
                    return Ok(Page { objects, is_last: false });
                }
                Some(Found::Object(key)) => match self.head(&key) {
                    Ok(meta) => objects.push(meta),
                    // Removed since the folder was read.
                    Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// What lies in one folder and does not come before `after`. What the dead left half written
    /// there goes: nobody else comes by all folders.
    fn below(&self, folder: Option<&Key>, after: Option<&Key>) -> Result<Vec<Found>, Error> {
        let path = folder.map_or_else(|| Ok(self.root.clone()), |folder| self.path(folder))?;
        let entries = match self.disk.list(&path) {
            Ok(entries) => entries,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(vec![]);
            }
            Err(source) => {
                return Err(durable::Error::Io { operation: Operation::List, path, source }.into());
            }
        };
        if entries.iter().filter(|entry| self.is_swept(&path, &entry.name)).count() > 0 {
            self.remove_empty_folders(&path.join(RESERVED));
        }
        let names = entries.iter().filter_map(|entry| Some((entry.name.to_str()?, entry.is_dir)));
        let found =
            names.filter(|(name, _)| !name.starts_with(RESERVED)).filter_map(|(name, is_dir)| {
                let key =
                    folder.map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}"));
                // A file with a name that is no key was not put here by us.
                let key = Key::parse(&key).ok()?;
                Some(if is_dir { Found::Folder(key) } else { Found::Object(key) })
            });
        Ok(found.filter(|found| found.is_after(after)).collect())
    }

    fn path(&self, key: &Key) -> Result<PathBuf, Error> {
        if key.parts().any(|part| part.starts_with(RESERVED)) {
            return Err(Error::Unusable { key: key.clone(), why: "a part of it is reserved" });
        }
        Ok(self.root.join(key.as_str()))
    }

    fn make_folder(&self, key: &Key, path: &Path, make: MakeDir) -> Result<(), Error> {
        let Some(folder) = path.parent() else { return Ok(()) };
        match make(self.disk.as_ref(), folder, Mode::PRIVATE_DIR) {
            Err(error) if error.kind() == Some(io::ErrorKind::NotADirectory) => {
                Err(Error::Unusable { key: key.clone(), why: "a part of it is an object" })
            }
            other => Ok(other?),
        }
    }

    fn lock(&self) -> Result<Box<dyn File>, Error> {
        let path = self.root.join(LOCK);
        let failed =
            |source| durable::Error::Io { operation: Operation::Open, path: path.clone(), source };
        let file = self.disk.open(&path, Open::Create(Mode::PRIVATE)).map_err(failed)?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while !file.try_lock().map_err(failed)? {
            if Instant::now() >= deadline {
                return Err(failed(io::ErrorKind::TimedOut.into()).into());
            }
            std::thread::park_timeout(LOCK_LOOK_EVERY);
        }
        Ok(file)
    }

    fn failed(key: &Key, operation: Operation, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Error::NotFound { key: key.clone() }
            }
            _ => durable::Error::Io { operation, path: path.to_owned(), source }.into(),
        }
    }
}

/// How a mount ends calls whose server it cannot reach; the library has no kinds for these.
const OF_NETWORK: [i32; 6] = [
    5,   // EIO
    67,  // ENOLINK
    70,  // ECOMM
    71,  // EPROTO
    112, // EHOSTDOWN
    121, // EREMOTEIO
];

fn is_of_network(error: &durable::Error) -> bool {
    use io::ErrorKind as Kind;
    let durable::Error::Io { source, .. } = error else { return false };
    let has_kind = matches!(
        source.kind(),
        Kind::ConnectionReset
            | Kind::ConnectionRefused
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::TimedOut
    );
    has_kind || source.raw_os_error().is_some_and(|code| OF_NETWORK.contains(&code))
}

/// Whether the file system has no second names for a file, as those of Windows shares.
fn has_no_links(error: &durable::Error) -> bool {
    match error {
        durable::Error::Io { operation: Operation::Link, source, .. } => {
            matches!(source.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
        }
        _ => false,
    }
}

enum Found {
    Folder(Key),
    Object(Key),
}

impl Found {
    /// A folder sorts as all that is in it, whose keys go on with a slash.
    fn order(&self) -> String {
        match self {
            Self::Folder(key) => format!("{key}/"),
            Self::Object(key) => key.to_string(),
        }
    }

    fn is_after(&self, after: Option<&Key>) -> bool {
        let Some(after) = after else { return true };
        match self {
            Self::Object(key) => key > after,
            Self::Folder(_) => {
                let own = self.order();
                own.as_str() > after.as_str() || after.as_str().starts_with(&own)
            }
        }
    }
}

fn meta(key: Key, found: &Stat) -> Result<Meta, Error> {
    let modified = Timestamp::try_from(found.modified)
        .map_err(|error| Error::Unavailable { what: key.to_string(), source: error.into() })?;
    let (inode, nanos) = (found.inode, modified.as_nanosecond());
    let e_tag = Some(format!("{inode:x}-{nanos:x}-{:x}", found.len_bytes));
    Ok(Meta { key, len_bytes: found.len_bytes, version: Version { e_tag, number: None }, modified })
}

#[cfg(test)]
mod tests;
