//! Sets of snapshots that are not neat.

use bytes::Bytes;
use etcdguard::restore::{self, PlanError, RestoreError, Target};
use etcdguard::store::Event;

use crate::support::{World, at, event, events, hash_of};

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_deltas_are_folded_once() {
    let world = World::new();
    world.full(2, &events(2..=2), 0).await;
    world.delta(&events(3..=8), 10).await;
    world.delta(&events(3..=11), 11).await;
    world.delta(&events(7..=9), 12).await;
    world.delta(&events(12..=12), 13).await;
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=12)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_newer_than_its_name_and_the_first_deltas_is_trusted() {
    let world = World::new();
    world.full(3, &events(2..=8), 0).await;
    world.delta(&events(4..=6), 10).await;
    world.delta(&events(7..=11), 11).await;
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=11)));
    // It is cut back where less was asked for.
    assert_eq!(world.hash_at(Target::Revision(5)).await, hash_of(&events(2..=5)));
    assert_eq!(world.hash_at(Target::Time(at(6))).await, hash_of(&events(2..=6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_bridged_only_by_a_base_that_has_it() {
    let world = World::new();
    world.full(3, &events(2..=8), 0).await;
    world.delta(&events(7..=9), 10).await;
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=9)));
    world.delta(&events(11..=12), 11).await;
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert_eq!(error.to_string(), "the backups have nothing between revision 9 and revision 11");
    assert!(!world.data_dir().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_transactions_and_leases_come_through() {
    let world = World::new();
    world.full(2, &events(2..=2), 0).await;
    // Several rows of one revision, together larger than etcd's own client may send.
    let large = |n: i64| Event {
        key: Bytes::from(format!("large-{n}")),
        value: Bytes::from(vec![b'x'; 1 << 20]),
        lease: 0x7222_a1de_4677_1e48,
        ..event(3)
    };
    let all: Vec<Event> = (0..5).map(large).chain([event(4)]).collect();
    world.delta(&all, 10).await;
    let expected: Vec<Event> = events(2..=2).into_iter().chain(all).collect();
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn deltas_alone_restore_from_the_very_beginning() {
    let world = World::new();
    world.delta(&events(2..=4), 10).await;
    world.delta(&events(5..=6), 11).await;
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_between_snapshots_gives_what_was_there_then() {
    let world = World::new();
    world.full(3, &events(2..=3), 3).await;
    world.delta(&events(4..=9), 9).await;
    world.delta(&events(10..=14), 14).await;
    world.full(14, &events(2..=14), 20).await;
    world.delta(&events(15..=19), 30).await;
    for (second, revision) in [(3, 3), (4, 4), (9, 9), (12, 12), (17, 17), (20, 19), (99, 19)] {
        let target = Target::Time(at(second));
        let told = restore::dry_run(&world.store, target).await.unwrap();
        assert_eq!(told.revision, revision, "{second}");
        assert_eq!(world.hash_at(target).await, hash_of(&events(2..=revision)), "{second}");
    }
    let error = world.restore(Target::Time(at(2))).await.unwrap_err();
    assert!(matches!(error, RestoreError::Plan(PlanError::TooEarly { .. })), "{error}");
}

/// Deltas from the very beginning know when it began; before that there is nothing to restore.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_before_the_first_change_is_not_an_empty_etcd() {
    let world = World::new();
    world.full(1, &[], 1).await;
    world.delta(&events(2..=6), 10).await;
    let target = Target::Time(at(0));
    for error in [
        world.restore(target).await.unwrap_err(),
        restore::dry_run(&world.store, target).await.unwrap_err(),
    ] {
        assert!(matches!(error, RestoreError::Plan(PlanError::TooEarly { .. })), "{error}");
    }
    assert!(!world.data_dir().exists());
    assert_eq!(world.restore(Target::Time(at(2))).await.unwrap().revision, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_only_a_later_full_snapshot_has_are_cut_out_of_it() {
    let world = World::new();
    world.full(5, &events(2..=5), 5).await;
    world.delta(&events(6..=7), 7).await;
    // The changes 8 to 12 were never saved as a delta.
    world.full_compacted(12, &events(2..=12), 12, Some(10)).await;
    assert_eq!(world.hash_at(Target::Revision(7)).await, hash_of(&events(2..=7)));
    assert_eq!(world.hash_at(Target::Revision(11)).await.revision, 11);
    let error = world.restore(Target::Revision(9)).await.unwrap_err();
    assert!(matches!(error, RestoreError::Compacted { asked: 9, oldest: 10 }), "{error}");
    let error = world.restore(Target::Revision(13)).await.unwrap_err();
    assert!(matches!(error, RestoreError::Plan(PlanError::Beyond { asked: 13, newest: 12 })));
}
