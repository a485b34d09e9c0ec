//! An etcd that is not the one the store is of: told by what it says, and kept apart.

use etcdguard::datadir;
use etcdguard::etcd::Etcd;
use etcdguard::restore::{self, Existing, Progress, Restoration, Target};
use etcdguard::store::{History, Include, Kind, SnapStore};
use jiff::{SignedDuration, Timestamp};
use testkit::etcd::{Member, data_dir};

use crate::guard::{Running, Settings};
use crate::member::{Alone, TIMEOUT};

/// Writes until the etcd is at `last`; of another life, other words.
async fn write(etcd: &Etcd, life: &str, last: i64) {
    let mut round = 0;
    while etcd.put(format!("{life}/{}", round % 9), round.to_string()).await.unwrap() < last {
        round += 1;
    }
}

impl Alone {
    /// Ends the etcd, does something with its data, and starts it again where it was.
    fn again(&mut self, between: impl FnOnce(&std::path::Path)) {
        let (seat, dir) = (self.member.seat.clone(), self.scratch.path().to_owned());
        self.member.process.kill().unwrap();
        between(&data_dir(&dir, &seat.name));
        self.member = Member::start(&seat, &dir, &seat.listed(), "new", &[]).unwrap();
        self.member.wait_until_ready().unwrap();
    }

    fn wiped(&mut self) {
        self.again(|data| std::fs::remove_dir_all(data).unwrap());
    }

    fn restoration(&self) -> Restoration {
        let seat = &self.member.seat;
        Restoration {
            data_dir: self.scratch.path().join("restored.etcd"),
            identity: datadir::Identity {
                name: seat.name.clone(),
                initial_cluster: seat.listed(),
                token: "etcd-cluster".to_owned(),
                peer_urls: vec![seat.peer.clone()],
            },
            temp_dir: self.scratch.path().join("fetched"),
            max_fetchers: 2,
            skip_hash_check: false,
            existing: Existing::Refuse,
        }
    }

    /// That what would be restored is what the etcd has.
    async fn assert_restored(&self, guard: &Running) {
        let how = self.restoration();
        let newest = Target::Newest;
        let done = restore::restore(&guard.store, &how, newest, &Progress::default()).await;
        let done = done.unwrap();
        let database = how.data_dir.join(datadir::DATABASE);
        let bolt = etcdguard::bolt::Bolt::open(&database).unwrap();
        let hash = datadir::hash_kv(&bolt, None).unwrap();
        let told = self.connect().hash_kv(0).await.unwrap();
        assert_eq!((hash.hash, done.revision), (told.hash, told.header.unwrap().revision));
        std::fs::remove_dir_all(&how.data_dir).unwrap();
    }
}

/// The guard is there all the time, and has its answer from the etcd that is there now.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_etcd_under_the_same_prefix_begins_a_new_history() {
    for last in [61, 12] {
        let Some(mut alone) = Alone::start() else { return };
        let settings = Settings::new(alone.config(), alone.scratch.path());
        let mut guard = Running::start(&settings);
        guard.active().await;
        write(&alone.connect(), "one", 31).await;
        guard.snapshotter().delta().await.unwrap().unwrap();
        alone.wiped();
        write(&alone.connect(), "other", last).await;
        delta(&guard).await;
        let list = guard.store.list(Include::All).await.unwrap();
        let newest: Vec<_> = list.iter().filter(|it| it.history == 1).collect();
        assert_eq!(newest[0].kind, Kind::Full, "{list:?}");
        assert_eq!(list.iter().filter(|it| it.history == 0).count(), 2, "{list:?}");
        alone.assert_restored(&guard).await;
        guard.stop().await;
    }
}

/// Until a delta is taken: the guard may still be on its way to the etcd.
async fn delta(guard: &Running) {
    let ask = guard.snapshotter();
    let covered = async {
        while ask.delta().await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, covered).await.unwrap();
}

/// Only a full snapshot is there to compare with, and another process wrote it.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_etcd_is_told_from_a_full_snapshot_alone() {
    let Some(mut alone) = Alone::start() else { return };
    write(&alone.connect(), "one", 31).await;
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    guard.stop().await;
    alone.wiped();
    write(&alone.connect(), "other", 61).await;
    let mut guard = Running::start(&settings);
    guard.active().await;
    assert_eq!(guard.store.histories().await.unwrap().current(), 1);
    alone.assert_restored(&guard).await;
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_etcd_goes_on_with_its_history_whatever_was_compacted() {
    let Some(mut alone) = Alone::start() else { return };
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    for (round, last) in [20, 30, 40].into_iter().enumerate() {
        write(&alone.connect(), "one", last).await;
        guard.snapshotter().delta().await.unwrap().unwrap();
        guard.stop().await;
        match round {
            0 => alone.again(|_| ()),
            1 => alone.connect().compact(last, TIMEOUT).await.unwrap(),
            _ => write(&alone.connect(), "one", last + 5).await,
        }
        guard = Running::start(&settings);
        guard.active().await;
        let fulls = guard.ranges().await.into_iter().filter(|it| it.0 == Kind::Full).count();
        assert_eq!((guard.store.histories().await.unwrap().current(), fulls), (0, 1));
    }
    guard.stop().await;
}

/// Restored to the past, the etcd goes on from there, and the store with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_restored_to_the_past_begins_a_new_history() {
    let Some(mut alone) = Alone::start() else { return };
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    write(&alone.connect(), "one", 31).await;
    guard.snapshotter().delta().await.unwrap().unwrap();
    let how = alone.restoration();
    let past = Target::Revision(20);
    let restored = restore::restore(&guard.store, &how, past, &Progress::default()).await.unwrap();
    let origin = restored.origin.unwrap();
    guard.stop().await;
    alone.again(|data| {
        std::fs::remove_dir_all(data).unwrap();
        std::fs::rename(&how.data_dir, data).unwrap();
    });
    // It overtakes what the store has before any guard is there: revisions tell nothing.
    write(&alone.connect(), "one", 50).await;
    let data = data_dir(alone.scratch.path(), &alone.member.seat.name);
    let settings = Settings { data_dir: Some(data), ..settings };
    for _ in 0..2 {
        let mut guard = Running::start(&settings);
        guard.active().await;
        let histories = guard.store.histories().await.unwrap();
        let ids: Vec<&str> = histories.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, [origin.id.as_str()]);
        alone.assert_restored(&guard).await;
        guard.stop().await;
    }
}

/// As a guard would whose clock is ahead by `ahead`.
async fn begin(store: &SnapStore, id: &str, ahead: SignedDuration) {
    let there = store.list(Include::All).await.unwrap();
    let since = Timestamp::now() + ahead;
    let history = History::begin(id.to_owned(), "as a test".to_owned(), since, &there);
    store.begin_history(&history).await.unwrap();
}

/// One member's clock is an hour ahead. What begins after that is after it, whatever the clock of
/// the next member says.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_history_follows_one_that_began_by_a_clock_that_is_ahead() {
    let Some(mut alone) = Alone::start() else { return };
    let settings = Settings::new(alone.config(), alone.scratch.path());
    begin(&settings.store(), "0a", SignedDuration::from_hours(1)).await;
    let mut guard = Running::start(&settings);
    guard.active().await;
    write(&alone.connect(), "one", 31).await;
    guard.snapshotter().delta().await.unwrap().unwrap();
    alone.wiped();
    write(&alone.connect(), "other", 12).await;
    delta(&guard).await;
    assert_eq!(guard.store.histories().await.unwrap().current(), 2);
    alone.assert_restored(&guard).await;
    guard.stop().await;
}

/// Another guard believed to lead, and began a history after this one had looked. What this one goes
/// on to write would follow a full snapshot that it knows nothing of.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_overtaken_looks_again() {
    let Some(alone) = Alone::start() else { return };
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    write(&alone.connect(), "one", 11).await;
    guard.snapshotter().delta().await.unwrap().unwrap();
    begin(&settings.store(), "0a", SignedDuration::ZERO).await;
    write(&alone.connect(), "one", 31).await;
    delta(&guard).await;
    alone.assert_restored(&guard).await;
    guard.stop().await;
}

/// No restore would come past it: what follows it now would be as lost as it is.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_put_behind_a_snapshot_that_cannot_be_read() {
    let Some(alone) = Alone::start() else { return };
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    write(&alone.connect(), "one", 31).await;
    let newest = guard.snapshotter().delta().await.unwrap().unwrap();
    guard.stop().await;
    durable::replace(settings.objects().join(&newest.snap_name), b"damaged").unwrap();
    let mut guard = Running::start(&settings);
    guard.active().await;
    write(&alone.connect(), "one", 41).await;
    delta(&guard).await;
    alone.assert_restored(&guard).await;
    guard.stop().await;
}

/// The other etcd has forgotten what it would be compared by, and just not what a delta needs.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_apart_is_not_put_together() {
    let Some(mut alone) = Alone::start() else { return };
    write(&alone.connect(), "one", 31).await;
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    guard.stop().await;
    alone.wiped();
    write(&alone.connect(), "other", 61).await;
    alone.connect().compact(32, TIMEOUT).await.unwrap();
    let mut guard = Running::start(&settings);
    guard.active().await;
    alone.assert_restored(&guard).await;
    guard.stop().await;
}
