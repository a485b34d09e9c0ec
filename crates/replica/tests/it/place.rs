//! A directory for a replica, and shorthand for looking at it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use replica::{OpenRequest, Options, Replica, View};
use tempfile::TempDir;

pub(crate) const NOW: &str = "2026-11-15T06:25:24Z";
pub(crate) const SECTOR: u64 = 4096;
pub(crate) const BUDGET: usize = 1 << 20;

pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// In memory where there is such a place: syncs cost nothing there. It has no extent map, so
    /// this is also the other way to find out where data is.
    pub(crate) fn in_memory() -> Self {
        let shared = Path::new("/dev/shm");
        let dir = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        Self { dir: dir.unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("replica")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A new volume, open.
    pub(crate) fn created(&self, sectors: u64) -> Replica {
        let mut replica = Replica::new(self.path(), Options::default());
        replica.create(i64::try_from(sectors * SECTOR).unwrap(), NOW).unwrap();
        replica.open(&OpenRequest::default()).unwrap();
        replica
    }

    pub(crate) fn opened(&self) -> Replica {
        let mut replica = Replica::new(self.path(), Options::default());
        replica.open(&OpenRequest::default()).unwrap();
        replica
    }

    pub(crate) fn put(&self, name: &str, contents: &str) {
        durable::replace(self.file(name), contents.as_bytes()).unwrap();
    }
}

pub(crate) fn read_head(replica: &mut Replica) -> Vec<u8> {
    let size = replica.size_bytes().unwrap();
    let mut contents = vec![0xee; usize::try_from(size).unwrap()];
    replica.read_at(&mut contents, 0).unwrap();
    contents
}

pub(crate) fn read_snapshot(dir: &Path, name: &str) -> Vec<u8> {
    let mut view = View::open(dir, name, BUDGET).unwrap();
    let mut contents = vec![0xee; usize::try_from(view.size_bytes()).unwrap()];
    view.read_at(&mut contents, 0).unwrap();
    contents
}

/// Everything a user can see: the head, and every snapshot that is not removed.
pub(crate) type Seen = (Vec<u8>, BTreeMap<String, Vec<u8>>);

pub(crate) fn see(replica: &mut Replica) -> Seen {
    let kept: Vec<String> = replica
        .chain()
        .unwrap()
        .disks()
        .filter(|(name, disk)| !name.is_head() && !disk.removed)
        .map(|(name, _)| name.snapshot().unwrap().to_owned())
        .collect();
    let dir = replica.dir().to_owned();
    let snapshots = kept.into_iter().map(|name| {
        let contents = read_snapshot(&dir, &name);
        (name, contents)
    });
    let snapshots = snapshots.collect();
    (read_head(replica), snapshots)
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}
