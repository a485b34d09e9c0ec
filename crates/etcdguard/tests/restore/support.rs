//! Stores with made-up snapshots, and what restoring them must give.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use etcdguard::bolt::{Bolt, DEFAULT_PAGE_SIZE, Writer};
use etcdguard::datadir::{self, HashKv, Identity, KeyValue, Revision, RowKey};
use etcdguard::restore::{self, Existing, Progress, Restoration, RestoreError, Restored, Target};
use etcdguard::store::delta::{Encoder, Op};
use etcdguard::store::{Environment, Event, SnapStore, Snapshot, StoreConfig};
use jiff::Timestamp;
use prost::Message;
use sha2::{Digest, Sha256};

/// A store and a place to restore to.
pub(crate) struct World {
    pub(crate) home: tempfile::TempDir,
    pub(crate) store: SnapStore,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// The change of each revision: every fifth deletes the key that the one before put.
pub(crate) fn event(revision: i64) -> Event {
    let key = |revision: i64| Bytes::from(format!("key-{revision}"));
    let put = Event {
        op: Op::Put,
        key: key(revision),
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        value: Bytes::from(format!("value {revision}").repeat(20)),
        lease: revision % 3,
        time: at(revision),
    };
    if revision % 5 != 0 {
        return put;
    }
    let nothing = (0, 0, Bytes::new(), 0);
    let (create_revision, version, value, lease) = nothing;
    let key = key(revision - 1);
    Event { op: Op::Delete, key, create_revision, version, value, lease, ..put }
}

pub(crate) fn events(revisions: std::ops::RangeInclusive<i64>) -> Vec<Event> {
    revisions.map(event).collect()
}

/// A database with these changes and nothing else.
pub(crate) fn database(path: &Path, events: &[Event], compacted: Option<i64>) {
    let mut writer = Writer::new(File::create(path).unwrap(), DEFAULT_PAGE_SIZE);
    writer.bucket(b"key", 0).unwrap();
    let mut before = Revision { main: 0, sub: 0 };
    for event in events {
        let main = event.mod_revision;
        let sub = if main == before.main { before.sub + 1 } else { 0 };
        before = Revision { main, sub };
        let is_tombstone = event.op == Op::Delete;
        let row = KeyValue {
            key: event.key.clone(),
            create_revision: event.create_revision,
            mod_revision: if is_tombstone { 0 } else { main },
            version: event.version,
            value: event.value.clone(),
            lease: event.lease,
        };
        let key = RowKey { revision: before, is_tombstone };
        writer.put(&key.encode(), &row.encode_to_vec()).unwrap();
    }
    writer.bucket(b"lease", 0).unwrap();
    writer.bucket(b"meta", 0).unwrap();
    if let Some(main) = compacted {
        writer.put(b"finishedCompactRev", &Revision { main, sub: 0 }.encode()).unwrap();
    }
    writer.finish().unwrap();
}

/// The hash an etcd with exactly these changes has.
pub(crate) fn hash_of(events: &[Event]) -> HashKv {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    database(&path, events, None);
    datadir::hash_kv(&Bolt::open(&path).unwrap(), None).unwrap()
}

/// The store below a home, as a process opens it that knows nothing of it.
pub(crate) fn store_in(home: &Path) -> SnapStore {
    let config = StoreConfig {
        provider: "Local".to_owned(),
        container: "bkt".to_owned(),
        prefix: "etcd-main".to_owned(),
        ..StoreConfig::default()
    };
    let environment: Environment = [("HOME", home.to_str().unwrap())].into_iter().collect();
    SnapStore::open(&config, &environment).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = store_in(home.path());
        Self { home, store }
    }

    /// The store that the existing sidecar wrote.
    pub(crate) fn golden() -> Self {
        let world = Self::new();
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(archive).arg("-C").arg(world.home.path());
        assert!(tar.status().unwrap().success());
        world
    }

    pub(crate) async fn full(&self, named: i64, events: &[Event], second: i64) -> Snapshot {
        self.full_compacted(named, events, second, None).await
    }

    pub(crate) async fn full_compacted(
        &self,
        named: i64,
        events: &[Event],
        second: i64,
        compacted: Option<i64>,
    ) -> Snapshot {
        let path = self.home.path().join("made.db");
        database(&path, events, compacted);
        let mut bytes = std::fs::read(&path).unwrap();
        let sum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&sum);
        self.save(&Snapshot::full(named, at(second), None, false), bytes).await
    }

    pub(crate) async fn delta(&self, events: &[Event], second: i64) -> Snapshot {
        let mut encoder = Encoder::new(Vec::new());
        for event in events {
            encoder.push(event).unwrap();
        }
        let (first, last) = (events[0].mod_revision, events[events.len() - 1].mod_revision);
        let snapshot = Snapshot::delta(first, last, at(second), None);
        self.save(&snapshot, encoder.finish().unwrap()).await
    }

    async fn save(&self, snapshot: &Snapshot, bytes: Vec<u8>) -> Snapshot {
        self.store.save(snapshot, std::io::Cursor::new(bytes)).await.unwrap()
    }

    /// Where an object lies.
    pub(crate) fn object(&self, snapshot: &Snapshot) -> PathBuf {
        self.home.path().join("bkt/etcd-main/v2").join(&snapshot.snap_name)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.home.path().join("data.etcd")
    }

    /// Where a restore into it is prepared.
    pub(crate) fn prepared(&self) -> PathBuf {
        self.home.path().join("data.etcd.part")
    }

    pub(crate) fn how(&self) -> Restoration {
        Restoration {
            data_dir: self.data_dir(),
            identity: Identity {
                name: "default".into(),
                initial_cluster: "default=http://localhost:2380".into(),
                token: "etcd-cluster".into(),
                peer_urls: vec!["http://localhost:2380".into()],
            },
            temp_dir: self.home.path().join("restoration.tmp"),
            max_fetchers: 3,
            skip_hash_check: false,
            existing: Existing::Refuse,
        }
    }

    pub(crate) async fn restore(&self, target: Target) -> Result<Restored, RestoreError> {
        restore::restore(&self.store, &self.how(), target, &Progress::default()).await
    }

    /// Restores, checks the directory from outside, gives its hash, and removes it.
    pub(crate) async fn hash_at(&self, target: Target) -> HashKv {
        let restored = self.restore(target).await.unwrap();
        let hash = self.hash();
        assert_eq!(hash.revision, restored.revision);
        std::fs::remove_dir_all(self.data_dir()).unwrap();
        assert_eq!(self.leftovers(), Vec::<String>::new());
        hash
    }

    pub(crate) fn hash(&self) -> HashKv {
        let checked = datadir::check(&self.data_dir(), datadir::Mode::Full).unwrap();
        assert_eq!(checked.warnings, Vec::<String>::new());
        let bolt = Bolt::open(&self.data_dir().join(datadir::DATABASE)).unwrap();
        datadir::hash_kv(&bolt, None).unwrap()
    }

    /// Names beside the store that a restore left.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.home.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter(|name| !["bkt", "made.db"].contains(&name.as_str())).collect();
        names.sort();
        names
    }
}
