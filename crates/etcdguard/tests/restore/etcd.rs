//! What we write, a real etcd starts from; what it wrote, we read as it does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use etcdguard::bolt::Bolt;
use etcdguard::datadir::{self, Identity, Mode};
use etcdguard::etcd::{ConnectionConfig, Etcd};
use etcdguard::restore::{self, Compaction, Progress, Restoration, Target};
use etcdguard::store::Snapshot;
use testkit::etcd::{Member, Seat, data_dir, program};

use crate::support::World;

const TIMEOUT: Duration = Duration::from_mins(1);

/// Whether there is an etcd to test with; says so if not.
fn has_etcd() -> bool {
    match program("etcd").and(program("etcdutl")).and(program("etcdctl")) {
        Ok(_) => true,
        Err(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

fn connect(seat: &Seat) -> Etcd {
    let endpoints = vec![seat.client.clone()];
    Etcd::connect(&ConnectionConfig { endpoints, ..ConnectionConfig::default() }).unwrap()
}

/// Restores into where `Member::start` looks for its data.
fn how(world: &World, seat: &Seat) -> Restoration {
    let identity = Identity {
        name: seat.name.clone(),
        initial_cluster: seat.listed(),
        token: "etcd-cluster".into(),
        peer_urls: vec![seat.peer.clone()],
    };
    let data_dir = data_dir(world.home.path(), &seat.name);
    Restoration { data_dir, identity, ..world.how() }
}

fn boot(world: &World, seat: &Seat) -> Member {
    let dir = world.home.path();
    let mut member = Member::start(seat, dir, &seat.listed(), "existing", &[]).unwrap();
    member.wait_until_ready().unwrap();
    member
}

/// In good order, so that everything is in its files.
fn stop(mut member: Member) {
    member.process.terminate().unwrap();
    member.process.wait_for_exit(TIMEOUT).unwrap();
}

fn ctl(name: &str, arguments: &[&str]) -> String {
    let done = Command::new(program(name).unwrap()).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_golden_store_boots_at_every_revision_with_its_hash() {
    if !has_etcd() {
        return;
    }
    let world = World::golden();
    for (revision, hash) in [(41, 287_048_210), (62, 2_632_793_580), (64, 2_180_749_594)] {
        let seat = Seat::new(&format!("at-{revision}")).unwrap();
        let how = how(&world, &seat);
        let target = Target::Revision(revision);
        restore::restore(&world.store, &how, target, &Progress::default()).await.unwrap();
        let database = how.data_dir.join(datadir::DATABASE);
        let told =
            ctl("etcdutl", &["snapshot", "status", database.to_str().unwrap(), "-w", "json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["revision"].as_i64(), Some(revision));
        let member = boot(&world, &seat);
        let etcd = connect(&member.seat);
        assert_eq!(etcd.revision(TIMEOUT).await.unwrap(), revision);
        assert_eq!(etcd.hash_kv(0).await.unwrap().hash, hash);
        // It goes on from there.
        etcd.put("after", "restore").await.unwrap();
        assert_eq!(etcd.revision(TIMEOUT).await.unwrap(), revision + 1);
        stop(member);
        datadir::check(&how.data_dir, Mode::Full).unwrap();
    }
}

/// Saves what the etcd holds as a full snapshot of `revision`.
async fn save_full(world: &World, seat: &Seat, revision: i64) {
    let path = world.home.path().join("made.db");
    let _ = std::fs::remove_file(&path);
    ctl("etcdctl", &["--endpoints", &seat.client, "snapshot", "save", path.to_str().unwrap()]);
    let bytes = std::fs::read(&path).unwrap();
    let snapshot = Snapshot::full(revision, "2026-01-01T00:00:00Z".parse().unwrap(), None, false);
    world.store.save(&snapshot, std::io::Cursor::new(bytes)).await.unwrap();
}

/// A life with many keys, large values, deletes, compactions and free pages.
async fn live(etcd: &Etcd) {
    for n in 0..600u32 {
        let key = format!("key-{}", n % 200);
        let length = if n % 97 == 0 { 300_000 } else { 700 };
        let value = vec![b'a' + u8::try_from(n % 26).unwrap(); length];
        etcd.put(key, value).await.unwrap();
        if n == 300 {
            etcd.compact(250, TIMEOUT).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_a_real_etcd_is_read_and_hashed_as_it_does() {
    if !has_etcd() {
        return;
    }
    let world = World::new();
    let member = Member::alone(world.home.path()).unwrap();
    let etcd = connect(&member.seat);
    live(&etcd).await;
    let revision = etcd.revision(TIMEOUT).await.unwrap();
    let hashes = [etcd.hash_kv(0).await.unwrap(), etcd.hash_kv(400).await.unwrap()];
    save_full(&world, &member.seat, revision).await;
    let dir = data_dir(world.home.path(), "default");
    assert!(datadir::is_locked(&dir).unwrap());
    stop(member);
    // What it left is in order, and the log was not needed to know the revision.
    let checked = datadir::check(&dir, Mode::Full).unwrap();
    assert_eq!(checked.revision, revision);
    compare(&dir.join(datadir::DATABASE), revision, &hashes);

    // Restored, and restored compacted, another etcd says the same.
    let seat = Seat::new("again").unwrap();
    let way = how(&world, &seat);
    restore::restore(&world.store, &way, Target::Newest, &Progress::default()).await.unwrap();
    compare(&way.data_dir.join(datadir::DATABASE), revision, &hashes);
    let again = boot(&world, &seat);
    let etcd = connect(&again.seat);
    assert_eq!(etcd.hash_kv(0).await.unwrap().hash, hashes[0].hash);
    assert_eq!(etcd.hash_kv(400).await.unwrap().hash, hashes[1].hash);

    etcd.compact(revision, TIMEOUT).await.unwrap();
    let compaction = Compaction {
        data_dir: world.home.path().join("compaction"),
        temp_dir: world.home.path().join("compaction.tmp"),
        max_fetchers: 2,
        skip_hash_check: false,
    };
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    restore::compact(&world.store, &compaction, now, &Progress::default()).await.unwrap();
    let seat = Seat::new("slim").unwrap();
    let slim = how(&world, &seat);
    restore::restore(&world.store, &slim, Target::Newest, &Progress::default()).await.unwrap();
    let member = boot(&world, &seat);
    let ours = connect(&member.seat).hash_kv(0).await.unwrap();
    let theirs = etcd.hash_kv(0).await.unwrap();
    assert_eq!((ours.hash, ours.compact_revision), (theirs.hash, theirs.compact_revision));
}

fn compare(database: &Path, revision: i64, hashes: &[etcdguard::etcd::wire::HashKvResponse; 2]) {
    let bolt = Bolt::open(database).unwrap();
    assert_eq!(datadir::check_database(&bolt).unwrap().current.revision, revision);
    for (at, hash) in [(None, &hashes[0]), (Some(400), &hashes[1])] {
        let ours = datadir::hash_kv(&bolt, at).unwrap();
        assert_eq!(
            (ours.hash, ours.compact_revision),
            (hash.hash, hash.compact_revision),
            "{at:?}"
        );
    }
}
