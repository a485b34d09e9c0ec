//! Stores with more than one history: found where nobody told them apart, and kept apart where
//! somebody did.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcdguard::bolt::Bolt;
use etcdguard::datadir::{self, Origin};
use etcdguard::restore::{self, RestoreError, Target};
use etcdguard::server::config::RestorationConfig;
use etcdguard::server::initialize::{Initializer, Mode};
use etcdguard::server::metrics::Metrics;
use etcdguard::store::gc::{Inspect, Look, Plan, Policy, collect};
use etcdguard::store::{Event, History, Include, SnapStore, Snapshot};
use jiff::Timestamp;

use crate::support::{World, at, database, event, events, hash_of};

/// What another etcd wrote at the same revision.
fn other(revision: i64) -> Event {
    let key = Bytes::from(format!("other-{}", revision % 7));
    let create_revision = if revision < 9 { revision } else { (revision - 2) % 7 + 2 };
    let version = (revision - create_revision) / 7 + 1;
    let value = Bytes::from(format!("of another life {revision}"));
    let at = event(revision / 5 * 5 + 1);
    Event { key, create_revision, version, value, mod_revision: revision, ..at }
}

fn others(revisions: std::ops::RangeInclusive<i64>) -> Vec<Event> {
    revisions.map(other).collect()
}

/// One etcd up to 31, then another whose revisions follow: nothing in the names tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_mixture_is_refused_and_what_is_before_it_can_be_had() {
    let world = World::new();
    world.full(2, &events(2..=2), 0).await;
    world.delta(&events(3..=31), 40).await;
    let bad = world.delta(&others(32..=61), 70).await;
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(matches!(error, RestoreError::Mixed { before: 31, .. }), "{error}");
    let text = error.to_string();
    for part in [bad.snap_name.as_str(), "mismatched event revision", "--to-revision 31"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!world.data_dir().exists());
    assert!(!world.prepared().exists(), "nor is what was prepared left beside it");
    assert_eq!(world.hash_at(Target::Revision(31)).await, hash_of(&events(2..=31)));
}

/// Found also where it was restored before anybody looked.
#[test]
fn a_mixture_shows_in_the_rows_of_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let found = |all: &[Event], compacted: Option<i64>| {
        database(&path, all, compacted);
        restore::mixture(&Bolt::open(&path).unwrap()).unwrap()
    };
    let one = others(2..=61);
    let mixed: Vec<Event> = events(2..=31).into_iter().chain(others(32..=61)).collect();
    assert_eq!(found(&one, None), None);
    // Compacted at 50, each key has its last row up to there, and all after it.
    assert_eq!(found(&one[42..], Some(50)), None);
    let text = found(&mixed, None).unwrap();
    assert!(text.starts_with("revision 32 is of another history"), "{text}");
}

/// Two guards of two etcds at the same time: their deltas tell of the same revisions.
#[tokio::test(flavor = "multi_thread")]
async fn what_two_deltas_tell_of_one_revision_must_be_the_same() {
    let world = World::new();
    world.full(2, &events(2..=2), 0).await;
    world.delta(&events(3..=12), 40).await;
    let mut changed = events(10..=15);
    changed[1].value = Bytes::from_static(b"another");
    let bad = world.delta(&changed, 41).await;
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(matches!(error, RestoreError::Mixed { revision: 11, .. }), "{error}");
    // Also where the base tells of them.
    std::fs::remove_file(world.object(&bad)).unwrap();
    world.full(12, &events(2..=12), 50).await;
    world.delta(&changed, 60).await;
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(matches!(error, RestoreError::Mixed { revision: 11, .. }), "{error}");
}

async fn begin(world: &World, id: &str, second: i64) {
    let there = world.store.list(Include::All).await.unwrap();
    let history = History::begin(id.to_owned(), "as a test".to_owned(), at(second), &there);
    world.store.begin_history(&history).await.unwrap();
}

/// The past up to 20, then other changes.
fn branch(last: i64) -> Vec<Event> {
    let mut all = events(2..=20);
    all.extend((21..=last).map(|revision| Event {
        key: Bytes::from(format!("branch-{revision}")),
        op: etcdguard::store::delta::Op::Put,
        create_revision: revision,
        version: 1,
        value: Bytes::from_static(b"after the restore"),
        ..event(revision)
    }));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_history_counts_and_earlier_ones_can_still_be_restored() {
    let world = World::new();
    world.full(10, &events(2..=10), 10).await;
    world.delta(&events(11..=60), 60).await;
    begin(&world, "0a", 100).await;
    world.full(20, &branch(20), 100).await;
    world.delta(&branch(30)[19..], 130).await;
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&branch(30)));
    assert_eq!(world.hash_at(Target::Revision(25)).await, hash_of(&branch(25)));
    assert_eq!(world.hash_at(Target::Revision(55)).await, hash_of(&events(2..=55)));
    assert_eq!(world.hash_at(Target::Revision(15)).await, hash_of(&events(2..=15)));
    let histories = world.store.histories().await.unwrap();
    let before = histories.newest().unwrap().before();
    assert_eq!(world.hash_at(Target::Time(before)).await, hash_of(&events(2..=60)));
    let run = restore::dry_run(&world.store, Target::Newest).await.unwrap();
    assert_eq!((run.revision, run.gap), (30, None));
}

/// The guard says by which time the history before can be had, also where an etcd began with nothing:
/// what it has from the very beginning is not what was there before it began.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_before_a_fresh_etcd_is_of_the_history_before() {
    let world = World::new();
    world.full(10, &events(2..=10), 10).await;
    world.delta(&events(11..=60), 60).await;
    begin(&world, "0a", 100).await;
    let first = world.full(1, &[], 100).await;
    world.delta(&others(2..=30), 130).await;
    let before = world.store.histories().await.unwrap().newest().unwrap().before();
    assert_eq!(world.hash_at(Target::Time(before)).await, hash_of(&events(2..=60)));
    // Its deltas may outlive its first full snapshot.
    std::fs::remove_file(world.object(&first)).unwrap();
    assert_eq!(world.hash_at(Target::Time(before)).await, hash_of(&events(2..=60)));
    assert_eq!(world.hash_at(Target::Time(at(131))).await, hash_of(&others(2..=30)));
    // Of nothing else it cannot be told.
    for object in world.store.list(Include::All).await.unwrap() {
        if object.history == 0 {
            std::fs::remove_file(world.object(&object)).unwrap();
        }
    }
    let error = world.restore(Target::Time(before)).await.unwrap_err();
    assert!(error.to_string().contains("there is none of"), "{error}");
}

/// Its name says what matters: cut off or overwritten, it still tells two etcds apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_beginning_still_keeps_histories_apart() {
    let world = World::new();
    world.full(60, &events(2..=60), 10).await;
    begin(&world, "0a", 100).await;
    world.full(20, &branch(20), 100).await;
    let folder = world.home.path().join("bkt/etcd-main/histories");
    let name = format!("{:012}-0a.json", at(100).as_second());
    for damaged in [&b""[..], b"{\"version\":1", b"{\"version\":9}", &vec![b' '; 2 << 20]] {
        durable::replace(folder.join(&name), damaged).unwrap();
        // What no guard wrote is nothing, however long.
        for junk in ["notes.txt", "0-.json", "99999999999999999999-0b.json", "-5-0b.json"] {
            durable::replace(folder.join(junk), damaged).unwrap();
        }
        // Another process, which has read nothing yet.
        let fresh = crate::support::store_in(world.home.path());
        assert_eq!(fresh.histories().await.unwrap().current(), 1);
        let latest = fresh.latest().await.unwrap();
        assert_eq!(latest.last_revision(), Some(20));
    }
}

/// The newest history began by a clock that was ahead of the one that restores.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_to_the_past_is_not_undone_whatever_the_clocks_say() {
    let world = World::new();
    let ahead = Timestamp::now().as_second() - at(0).as_second() + HOUR;
    begin(&world, "0a", ahead).await;
    world.full(10, &events(2..=10), ahead).await;
    world.delta(&events(11..=60), ahead).await;
    world.restore(Target::Revision(20)).await.unwrap();
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 20);
}

/// A copy writes beginnings before snapshots: what is there and holds nothing yet is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_collection_forgets_only_the_history_that_it_emptied() {
    let world = World::new();
    let plan =
        Plan { policy: Policy::LimitBased { max_backups: 1 }, delta_retention: Duration::ZERO };
    for (id, second) in [("0a", 100), ("0b", 200)] {
        begin(&world, id, second).await;
        world.full(second, &branch(30), second).await;
    }
    begin(&world, "0c", 250).await;
    begin(&world, "0d", 300).await;
    world.full(21, &branch(21), 300).await;
    collect(&world.store, &plan, at(10 * HOUR), &Believe).await.unwrap();
    let histories = world.store.histories().await.unwrap();
    let ids: Vec<&str> = histories.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["0c", "0d"]);
}

fn initializer(world: &World) -> Initializer {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    Initializer {
        restoration: RestorationConfig {
            data_dir: text(&world.data_dir()),
            temp_dir: text(&world.home.path().join("restoration.tmp")),
            ..RestorationConfig::default()
        },
        store: Some(world.store.clone()),
        store_temp_dir: "/tmp".into(),
        namespace: None,
        neighbours: None,
        metrics: Arc::new(Metrics::default()),
        tasks: tasks::Tasks::new(),
    }
}

fn revision_of(dir: &Path) -> i64 {
    datadir::check(dir, datadir::Mode::Full).unwrap().revision
}

/// With a damaged delta the newest state cannot be had; what is restored instead must be let live.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_to_the_past_is_not_undone() {
    let world = World::new();
    world.full(10, &events(2..=10), 10).await;
    world.delta(&events(11..=20), 20).await;
    let bad = world.delta(&events(21..=60), 60).await;
    durable::replace(world.object(&bad), b"damaged").unwrap();
    let failed = initializer(&world).initialize(Mode::Full).await.unwrap_err();
    let text = telemetry::Chain(&failed).to_string();
    assert!(text.contains("--to-revision 20"), "the remedy is said: {text}");
    let restored = world.restore(Target::Revision(20)).await.unwrap();
    let origin = restored.origin.unwrap();
    assert_eq!(Origin::read(&world.data_dir()).unwrap(), Some(origin.clone()));
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 20);
    // Written down in the store, it is a directory like any other: one that lost its end is not
    // what etcd is to start from.
    let now = Timestamp::now().as_second() - at(0).as_second();
    begin(&world, &origin.id, now).await;
    // Killed here: its first snapshot is not there yet, and the one before has a higher revision.
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 20);
    world.full(20, &branch(20), now).await;
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 20);
    world.delta(&branch(30)[19..], now).await;
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 30, "it is behind, in its own history");
    assert_eq!(world.hash(), hash_of(&branch(30)));
}

/// An etcd that began anew has less than the store. Its guard wrote that down and was killed, or its
/// store took no more than that, before the first snapshot of it was there.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_began_anew_is_not_undone_before_its_first_snapshot() {
    let world = World::new();
    world.full(5, &others(2..=5), 1).await;
    world.restore(Target::Newest).await.unwrap();
    std::fs::remove_file(world.object(&world.store.latest().await.unwrap().full.unwrap())).unwrap();
    world.full(60, &events(2..=60), 10).await;
    begin(&world, "0a", 100).await;
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 5);
    // With a snapshot in it, the history says again what is behind.
    world.full(8, &others(2..=8), 200).await;
    initializer(&world).initialize(Mode::Full).await.unwrap();
    assert_eq!(revision_of(&world.data_dir()), 8);
}

/// The store is ahead, by what another etcd wrote: of a prefix that is somebody else's, or of a life
/// before the one that is in the directory. Whoever wants the backups instead has to say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_etcd_is_not_taken_for_an_older_one() {
    for compacted in [None, Some(50)] {
        let world = World::new();
        world.full(40, &others(2..=40), 1).await;
        world.restore(Target::Newest).await.unwrap();
        let ours = world.store.latest().await.unwrap().full.unwrap();
        std::fs::remove_file(world.object(&ours)).unwrap();
        // Compacted, there is nothing of what was deleted before.
        let is_there = |it: &Event| it.mod_revision > 20 || (1..4).contains(&(it.mod_revision % 5));
        let mut all = branch(60);
        all.retain(|it| compacted.is_none() || is_there(it));
        world.full_compacted(60, &all, 10, compacted).await;
        world.delta(&branch(80)[59..], 80).await;
        let failed = initializer(&world).initialize(Mode::Full).await.unwrap_err();
        let text = telemetry::Chain(&failed).to_string();
        for part in ["another etcd", "--store-prefix", "revision 40"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(world.hash(), hash_of(&others(2..=40)), "nothing is touched");
        // What is damaged is nobody's.
        durable::replace(world.data_dir().join(datadir::DATABASE), b"damaged").unwrap();
        initializer(&world).initialize(Mode::Full).await.unwrap();
        assert_eq!(revision_of(&world.data_dir()), 80);
    }
}

/// The same etcd, some time ago: whatever was compacted since, it goes on from the backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_lost_its_end_is_brought_forward_whatever_was_compacted() {
    for (first, compacted) in [(0, None), (22, Some(30)), (42, Some(50))] {
        let world = World::new();
        world.full(40, &others(2..=40), 1).await;
        world.restore(Target::Newest).await.unwrap();
        // Compacted at 30, or at 50, each of the seven keys has its last row up to there.
        world.full_compacted(60, &others(2..=60)[first..], 10, compacted).await;
        world.delta(&others(61..=80), 80).await;
        initializer(&world).initialize(Mode::Full).await.unwrap();
        assert_eq!(revision_of(&world.data_dir()), 80, "{compacted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_state_is_no_new_history() {
    let world = World::new();
    world.full(10, &events(2..=10), 10).await;
    world.delta(&events(11..=20), 20).await;
    for target in [Target::Newest, Target::Revision(20), Target::Time(at(90))] {
        assert_eq!(world.restore(target).await.unwrap().origin, None);
        assert_eq!(Origin::read(&world.data_dir()).unwrap(), None);
        std::fs::remove_dir_all(world.data_dir()).unwrap();
    }
}

struct Believe;

#[async_trait::async_trait]
impl Inspect for Believe {
    async fn inspect(&self, store: &SnapStore, full: &Snapshot) -> Look {
        match store.verify(full).await {
            Ok(()) => Look::Good,
            Err(error) => Look::Junk(error.chain()),
        }
    }
}

const HOUR: i64 = 60 * 60;

/// Weeks of guarding after a restore to the past, with a collection after every full snapshot.
async fn weeks(policy: Policy) {
    let world = World::new();
    let plan = Plan { policy, delta_retention: Duration::ZERO };
    world.full(10, &events(2..=10), 10).await;
    world.delta(&events(11..=60), 60).await;
    begin(&world, "0a", HOUR).await;
    let mut revision = 20;
    let mut kept_old = 0;
    for step in 0..(28 * 24 / 4) {
        let second = HOUR + step * 4 * HOUR;
        world.full(revision, &branch(revision), second).await;
        let next = branch(revision + 2);
        world.delta(&next[next.len() - 2..], second + HOUR).await;
        revision += 2;
        collect(&world.store, &plan, at(second + 2 * HOUR), &Believe).await.unwrap();
        let list = world.store.list(Include::All).await.unwrap();
        kept_old += usize::from(list.iter().any(|it| it.history == 0));
        // What a restore needs is there, and is of the new history.
        let latest = world.store.latest().await.unwrap();
        let newest = (latest.full.unwrap().last_revision, latest.deltas.len());
        assert_eq!(newest, (revision - 2, 1), "step {step}");
        if step % 40 == 0 {
            assert_eq!(world.hash_at(Target::Newest).await, hash_of(&branch(revision)));
            world.restore(Target::Newest).await.unwrap();
            initializer(&world).initialize(Mode::Sanity).await.unwrap();
            assert_eq!(revision_of(&world.data_dir()), revision, "nothing is undone");
            std::fs::remove_dir_all(world.data_dir()).unwrap();
        }
        if step == 2 {
            let end = hash_of(&events(2..=60));
            assert_eq!(world.hash_at(Target::Revision(60)).await, end, "the old one is whole");
        }
    }
    assert!(kept_old > 3, "it was kept for {kept_old} rounds");
    let list = world.store.list(Include::All).await.unwrap();
    if matches!(policy, Policy::LimitBased { .. }) {
        assert!(list.iter().all(|it| it.history > 0), "the old history went by policy");
    }
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&branch(revision)));
}

#[tokio::test(flavor = "multi_thread")]
async fn weeks_after_a_restore_to_the_past_nothing_is_undone_by_number() {
    weeks(Policy::LimitBased { max_backups: 7 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn weeks_after_a_restore_to_the_past_nothing_is_undone_by_age() {
    weeks(Policy::Exponential).await;
}
