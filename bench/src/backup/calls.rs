//! How often a backup asks its store, or waits for its disk, for each block.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use backupstore::create::CreateRequest;
use backupstore::{BackupStore, Control, FileSource, Name, TargetUrl};
use blobs::LocalStore;
use durable::{Barrier, Disk, Entry, File, Mode, Open, Reach, RealDisk, Stat};

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(crate) fn print(what: &str, calls: u64, blocks: u64) {
    let each = calls as f64 / blocks.max(1) as f64;
    println!("{what}: {calls} for {blocks} blocks, {each:.2} a block");
}

/// Backs the image up in this process, to a directory whose disk counts. Says how often it was waited
/// for, and how many blocks were new.
pub(crate) fn syncs_of_a_backup(image: &Path, scratch: &Path) -> Result<(u64, u64)> {
    let syncs = Arc::new(AtomicU64::new(0));
    let disk = Counted { syncs: Arc::clone(&syncs) };
    let root = scratch.join("counted");
    let store = Arc::new(LocalStore::open_on(Box::new(disk), &root)?);
    let store = BackupStore::new(store, TargetUrl::parse("vfs:///counted")?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let blocks = runtime.block_on(async {
        let source = Arc::new(FileSource::open(image)?);
        let request = CreateRequest {
            concurrent_limit: 8,
            ..CreateRequest::new(Name::parse("volume")?, "snapshot")
        };
        let control = Control::default();
        let begun = store.begin_backup(request, Arc::clone(&source) as _, &control).await?;
        anyhow::Ok(begun.run(source, &control).await?.new_blocks)
    })?;
    std::fs::remove_dir_all(root)?;
    Ok((syncs.load(Ordering::Relaxed), blocks))
}

/// The real disk, counting who waits for it.
#[derive(Debug)]
struct Counted {
    syncs: Arc<AtomicU64>,
}

impl Counted {
    fn count(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }
}

impl Disk for Counted {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        let file = RealDisk.open(path, how)?;
        Ok(Box::new(CountedFile { file, syncs: Arc::clone(&self.syncs) }))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        RealDisk.rename(source, target)
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        RealDisk.link(source, target)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn create_dir(&self, path: &Path, mode: Mode) -> io::Result<()> {
        RealDisk.create_dir(path, mode)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.count();
        RealDisk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        RealDisk.stat(path)
    }

    fn unique(&self) -> u64 {
        RealDisk.unique()
    }

    fn reach(&self, path: &Path) -> io::Result<Reach> {
        RealDisk.reach(path)
    }

    fn barrier(&self, path: &Path) -> io::Result<Option<Box<dyn Barrier>>> {
        let counted = |barrier| {
            let syncs = Arc::clone(&self.syncs);
            Box::new(CountedBarrier { barrier, syncs }) as Box<dyn Barrier>
        };
        Ok(RealDisk.barrier(path)?.map(counted))
    }

    fn sync_file_systems(&self, paths: &[&Path]) -> io::Result<()> {
        self.count();
        RealDisk.sync_file_systems(paths)
    }
}

#[derive(Debug)]
struct CountedBarrier {
    barrier: Box<dyn Barrier>,
    syncs: Arc<AtomicU64>,
}

impl Barrier for CountedBarrier {
    fn wait(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.barrier.wait()
    }

    fn covers(&self, path: &Path) -> io::Result<bool> {
        self.barrier.covers(path)
    }
}

#[derive(Debug)]
struct CountedFile {
    file: Box<dyn File>,
    syncs: Arc<AtomicU64>,
}

impl File for CountedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn write_around_cache(&self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_around_cache(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_all()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }

    fn truncate(&self, len_bytes: u64) -> io::Result<()> {
        self.file.truncate(len_bytes)
    }

    fn stamp(&self) -> io::Result<()> {
        self.file.stamp()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
