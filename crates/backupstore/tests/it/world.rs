//! A volume with snapshots in memory, stores around it, and what a test asks of both.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backupstore::create::{CreateRequest, Created};
use backupstore::delete::{DeleteOptions, Deleted};
use backupstore::restore::{FetchOptions, RestoreRequest, Restored, Sink};
use backupstore::{
    BackedUp, BackupStore, BlockSize, Control, Error, Extents, LockSchedule, Name, Shown, Source,
    TargetUrl,
};
use blobs::wrap::{Faults, Faulty};
use blobs::{Key, Prefix, Store, delete_all, list_all};

pub(crate) const BLOCK: u64 = 8192;
pub(crate) const PAGE: usize = 4096;
/// When snapshots were taken: before any backup.
pub(crate) const TAKEN: &str = "2020-01-01T00:00:00Z";

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn volume() -> Name {
    name("vol-1")
}

pub(crate) const SCHEDULE: LockSchedule = LockSchedule {
    settle: Duration::ZERO,
    renew_every: Duration::from_mins(1),
    look_every: Duration::from_millis(1),
    unchanged: Duration::from_secs(150),
    unanswered: Duration::ZERO,
};

/// So long that a test would not end if anybody let a lock settle.
pub(crate) const NEVER_SETTLES: LockSchedule =
    LockSchedule { settle: Duration::from_hours(1), ..SCHEDULE };

pub(crate) fn over(store: Arc<dyn Store>) -> BackupStore {
    BackupStore::new(store, TargetUrl::parse("vfs:///store").unwrap()).with_schedule(SCHEDULE)
}

/// A store in memory, the plan of its faults, and the same store without faults.
pub(crate) fn faulty() -> (BackupStore, Faults, Arc<dyn Store>) {
    let clean = blobs::memory();
    let faults = Faults::default();
    (over(Faulty::around(Arc::clone(&clean), faults.clone())), faults, clean)
}

/// One state of the volume and what was written since the one before.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) taken: String,
    pub(crate) data: Vec<u8>,
    pub(crate) written: Vec<Range<u64>>,
}

/// The volume: its snapshots, the oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) snapshots: Vec<Snapshot>,
}

impl Volume {
    pub(crate) fn new(blocks: u64) -> Self {
        let data = vec![0; (blocks * BLOCK) as usize];
        let first =
            Snapshot { name: "snap-0".to_owned(), taken: TAKEN.to_owned(), data, written: vec![] };
        Self { snapshots: vec![first] }
    }

    pub(crate) fn newest(&mut self) -> &mut Snapshot {
        self.snapshots.last_mut().unwrap()
    }

    /// Writes a page of bytes that follow from `seed`; 0 writes zeros.
    pub(crate) fn write(&mut self, page: usize, seed: u64) {
        let newest = self.newest();
        let at = page * PAGE;
        for (index, byte) in newest.data[at..at + PAGE].iter_mut().enumerate() {
            let mixed = (seed ^ (index as u64 / 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = if seed == 0 { 0 } else { mixed.to_be_bytes()[0] };
        }
        newest.written.push(at as u64..(at + PAGE) as u64);
    }

    pub(crate) fn snapshot(&mut self) {
        let data = self.newest().data.clone();
        let name = format!("snap-{}", self.snapshots.len());
        self.snapshots.push(Snapshot { name, taken: TAKEN.to_owned(), data, written: vec![] });
    }

    pub(crate) fn source(&self, index: usize) -> Arc<dyn Source> {
        Arc::new(MemorySource { snapshots: self.snapshots[..=index].to_vec(), below: false })
    }

    /// With something below the volume, as a backing file.
    pub(crate) fn source_over_something(&self, index: usize) -> Arc<dyn Source> {
        Arc::new(MemorySource { snapshots: self.snapshots[..=index].to_vec(), below: true })
    }

    pub(crate) fn data_of(&self, snapshot: &str) -> &[u8] {
        &self.snapshots.iter().find(|it| it.name == snapshot).unwrap().data
    }
}

struct MemorySource {
    snapshots: Vec<Snapshot>,
    below: bool,
}

impl Source for MemorySource {
    fn size_bytes(&self) -> u64 {
        self.snapshots.last().unwrap().data.len() as u64
    }

    fn taken(&self) -> io::Result<String> {
        Ok(self.snapshots.last().unwrap().taken.clone())
    }

    fn is_snapshot(&self, of: &BackedUp) -> io::Result<bool> {
        Ok(of.is_of(&self.snapshots.last().unwrap().taken))
    }

    fn has_snapshot(&self, of: &BackedUp) -> io::Result<bool> {
        let (_, below) = self.snapshots.split_last().unwrap();
        Ok(below.iter().any(|it| it.name == of.snapshot && of.is_of(&it.taken)))
    }

    fn changed_since(&self, base: Option<&str>) -> io::Result<Extents> {
        let from = base
            .map_or(0, |base| 1 + self.snapshots.iter().position(|it| it.name == base).unwrap());
        let written = self.snapshots[from..].iter().flat_map(|it| it.written.clone());
        let pages: BTreeSet<u64> = written.map(|range| range.start).collect();
        Ok(Box::new(pages.into_iter().map(|page| Ok(page..page + PAGE as u64))))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        buffer.copy_from_slice(&self.snapshots.last().unwrap().data[at..at + buffer.len()]);
        Ok(())
    }

    fn shows_through(&self) -> bool {
        self.below
    }
}

/// A volume to restore to, which knows what was ever written to it.
#[derive(Debug)]
pub(crate) struct MemorySink {
    pub(crate) state: Mutex<SinkState>,
}

#[derive(Debug, Default)]
pub(crate) struct SinkState {
    pub(crate) data: Vec<u8>,
    pub(crate) allocated: BTreeSet<u64>,
    pub(crate) written: BTreeSet<u64>,
    pub(crate) writes: u64,
    pub(crate) synced: bool,
}

impl MemorySink {
    pub(crate) fn holding(data: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(SinkState { data, ..SinkState::default() }) })
    }

    pub(crate) fn empty(len: usize) -> Arc<Self> {
        Self::holding(vec![0; len])
    }

    pub(crate) fn data(&self) -> Vec<u8> {
        self.state.lock().unwrap().data.clone()
    }
}

impl Sink for MemorySink {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let at = offset as usize;
        state.data[at..at + bytes.len()].copy_from_slice(bytes);
        state.writes += 1;
        let pages = (offset..offset + bytes.len() as u64).step_by(PAGE);
        state.allocated.extend(pages);
        Ok(())
    }

    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let at = offset as usize;
        state.data[at..at + len_bytes as usize].fill(0);
        state.allocated.retain(|page| !(offset..offset + len_bytes).contains(page));
        Ok(())
    }

    fn is_written(&self, offset: u64) -> bool {
        self.state.lock().unwrap().written.contains(&offset)
    }

    fn written(&self, offset: u64) -> io::Result<()> {
        self.state.lock().unwrap().written.insert(offset);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.state.lock().unwrap().synced = true;
        Ok(())
    }
}

pub(crate) fn create_request(snapshot: &str, backup: &str) -> CreateRequest {
    CreateRequest {
        backup: Some(name(backup)),
        block_size: BlockSize::from_bytes(BLOCK).unwrap(),
        concurrent_limit: 3,
        storage_class_name: "0".to_owned(),
        lock_timeout: Duration::ZERO,
        ..CreateRequest::new(volume(), snapshot)
    }
}

pub(crate) async fn back_up(
    store: &BackupStore,
    of: &Volume,
    index: usize,
    backup: &str,
) -> Result<Created, Error> {
    let request = create_request(&of.snapshots[index].name, backup);
    run_create(store, request, of.source(index)).await
}

pub(crate) async fn run_create(
    store: &BackupStore,
    request: CreateRequest,
    source: Arc<dyn Source>,
) -> Result<Created, Error> {
    let control = Control::default();
    let begun = store.begin_backup(request, Arc::clone(&source), &control).await?;
    begun.run(source, &control).await
}

pub(crate) fn restore_request(backup: &str) -> RestoreRequest {
    RestoreRequest {
        concurrent_limit: 3,
        fetch: FetchOptions { pauses: vec![], bytes_per_second: None },
        lock_timeout: Duration::ZERO,
        ..RestoreRequest::new(volume(), name(backup))
    }
}

pub(crate) async fn run_restore(
    store: &BackupStore,
    request: RestoreRequest,
    sink: Arc<dyn Sink>,
) -> Result<Restored, Error> {
    let control = Control::default();
    store.begin_restore(request, &control).await?.run(sink, &control).await
}

/// The contents of a backup.
pub(crate) async fn contents(store: &BackupStore, backup: &str) -> Result<Vec<u8>, Error> {
    let size = store.inspect_volume(&volume()).await?.size;
    let sink = MemorySink::empty(size as usize);
    run_restore(store, restore_request(backup), Arc::clone(&sink) as Arc<dyn Sink>).await?;
    assert!(sink.state.lock().unwrap().synced);
    Ok(sink.data())
}

pub(crate) async fn delete(store: &BackupStore, backup: &str) -> Result<Deleted, Error> {
    store
        .delete_backup(&volume(), &name(backup), &DeleteOptions::default(), &Control::default())
        .await
}

/// What lies under a part of the only volume, by the ends of keys.
pub(crate) async fn keys(store: &Arc<dyn Store>, part: &str) -> Vec<Key> {
    let all = list_all(store.as_ref(), &Prefix::ROOT).await.unwrap();
    all.into_iter().map(|meta| meta.key).filter(|key| key.as_str().contains(part)).collect()
}

/// As if all lock holders had died long ago.
pub(crate) async fn drop_locks(store: &Arc<dyn Store>) {
    for key in keys(store, "/locks/").await {
        store.delete(&key).await.unwrap();
    }
}

pub(crate) async fn copy_of(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    let copy = blobs::memory();
    for meta in list_all(store.as_ref(), &Prefix::ROOT).await.unwrap() {
        let blob = blobs::get_limited(store.as_ref(), &meta.key, 1 << 30).await.unwrap();
        copy.put_new(&meta.key, blob.bytes).await.unwrap();
    }
    copy
}

pub(crate) async fn empty(store: &Arc<dyn Store>) {
    delete_all(store.as_ref(), &Prefix::ROOT).await.unwrap();
}

/// Every complete backup restores to what its snapshot was. Says how many there are.
pub(crate) async fn check_all(store: &BackupStore, of: &Volume) -> usize {
    let listed = store.list(Shown::Backups).await.unwrap();
    let mut complete = 0;
    for backup in listed.get("vol-1").into_iter().flat_map(|volume| volume.backups.keys()) {
        match store.inspect_backup(&volume(), &name(backup)).await {
            Ok(info) => {
                let found = contents(store, backup).await.unwrap();
                let expected = of.data_of(&info.snapshot_name);
                // A volume that grew: the backup has what was there.
                assert!(found[..expected.len()] == *expected, "{backup} differs");
                complete += 1;
            }
            Err(Error::InProgress { .. }) => {}
            Err(error) => panic!("{backup}: {error:?}"),
        }
    }
    complete
}
