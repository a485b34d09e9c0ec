//! One full snapshot made of a full one and its deltas.

use etcdguard::bolt::Bolt;
use etcdguard::datadir;
use etcdguard::restore::{self, Compaction, Progress, Target};
use etcdguard::store::{Compression, History, Include};
use jiff::Timestamp;

use crate::support::{World, at, events};

fn how(world: &World) -> Compaction {
    Compaction {
        data_dir: world.home.path().join("compaction"),
        temp_dir: world.home.path().join("compaction.tmp"),
        max_fetchers: 2,
        skip_hash_check: false,
    }
}

async fn compact(world: &World, now: Timestamp) -> restore::Compacted {
    restore::compact(&world.store, &how(world), now, &Progress::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_what_exists_and_drops_the_rest() {
    let world = World::new();
    world.full(3, &events(2..=3), 0).await;
    world.delta(&events(4..=40), 10).await;
    let made = compact(&world, at(50)).await;
    assert_eq!(made.snapshot.snap_name, "Full-00000000-00000040-1700000050");
    assert_eq!(world.leftovers(), Vec::<String>::new());

    let restored = world.restore(Target::Newest).await.unwrap();
    assert_eq!((restored.revision, restored.deltas), (40, 0));
    assert_eq!(restored.base.unwrap().snap_name, made.snapshot.snap_name);
    let bolt = Bolt::open(&world.data_dir().join(datadir::DATABASE)).unwrap();
    let checked = datadir::check_database(&bolt).unwrap();
    // Of 39 changes 8 delete a key: they go, and so do the 8 they deleted.
    assert_eq!(checked.rows, 39 - 2 * 8);
    assert_eq!(checked.current.compacted, Some(40));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_packed_as_the_newest_delta_was() {
    let world = World::golden();
    let made = compact(&world, "2027-01-01T00:00:00Z".parse().unwrap()).await;
    assert_eq!(made.snapshot.compression, Some(Compression::Gzip));
    assert_eq!(made.snapshot.last_revision, 64);
    let hash = world.hash_at(Target::Newest).await;
    assert_eq!((hash.revision, hash.compact_revision), (64, 64));
}

async fn begin(world: &World, second: i64) {
    let there = world.store.list(Include::All).await.unwrap();
    let history = History::begin("0a".to_owned(), "as a test".to_owned(), at(second), &there);
    world.store.begin_history(&history).await.unwrap();
}

/// A history was begun and has nothing yet, or began by a clock that is ahead: what is folded is of
/// the history it was folded from.
#[tokio::test(flavor = "multi_thread")]
async fn it_stays_in_the_history_that_it_is_of() {
    for (second, expected) in [(40, 0), (90, 1)] {
        let world = World::new();
        if expected == 1 {
            begin(&world, second).await;
        }
        world.full(3, &events(2..=3), 90).await;
        world.delta(&events(4..=40), 91).await;
        if expected == 0 {
            begin(&world, second).await;
        }
        let made = compact(&world, at(50)).await.snapshot;
        let list = world.store.list(Include::All).await.unwrap();
        let found = list.iter().find(|it| it.snap_name == made.snap_name).unwrap();
        assert_eq!(found.history, expected, "{list:?}");
        let restored = world.restore(Target::Newest).await.unwrap();
        assert_eq!((restored.revision, restored.deltas), (40, 0));
    }
}
