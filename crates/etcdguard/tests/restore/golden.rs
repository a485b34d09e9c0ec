//! The store that the existing sidecar wrote comes out with its hashes, at each of its revisions.

use etcdguard::restore::{self, Target};

use crate::support::World;

#[tokio::test(flavor = "multi_thread")]
async fn every_state_has_its_hash() {
    let world = World::golden();
    let expected = include_str!("../golden/expected.json");
    let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
    let states = expected["states"].as_object().unwrap();
    assert_eq!(states.len(), 3);
    for (name, state) in states {
        let revision = state["revision"].as_i64().unwrap();
        let hash = world.hash_at(Target::Revision(revision)).await;
        assert_eq!(u64::from(hash.hash), state["hashkv"].as_u64().unwrap(), "{name}");
        assert_eq!(hash.compact_revision, state["compact_revision"].as_i64().unwrap(), "{name}");
    }
    let newest = world.hash_at(Target::Newest).await;
    assert_eq!((newest.revision, newest.hash), (64, 2_180_749_594));
    // Between the snapshots too: only whether it can be is known here.
    for revision in 42..64 {
        assert_eq!(world.hash_at(Target::Revision(revision)).await.revision, revision);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_a_restore_gives_and_writes_nothing() {
    let world = World::golden();
    for (target, revision, deltas) in
        [(Target::Newest, 64, 2), (Target::Revision(50), 50, 1), (Target::Revision(41), 41, 0)]
    {
        let told = restore::dry_run(&world.store, target).await.unwrap();
        assert_eq!((told.revision, told.deltas.len(), told.gap), (revision, deltas, None));
        assert!(told.bytes > 1000);
    }
    assert_eq!(world.leftovers(), Vec::<String>::new());
}
