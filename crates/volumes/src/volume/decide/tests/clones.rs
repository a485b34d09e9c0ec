//! Volumes that are made as copies of others.

use super::*;

pub(super) fn found() -> Found {
    Found {
        volume: "s".into(),
        snapshot: "x".into(),
        is_own: false,
        size_bytes: 32 * MIB,
        node: NODE.into(),
        is_taken: true,
        runs: true,
    }
}

pub(super) fn cloned() -> World {
    let mut world =
        World::new(VolumeSpec { data_source: Some("snap://s/x".into()), ..VolumeSpec::default() });
    world.original = Original::Found(found());
    world
}

pub(super) fn clone_state(world: &World) -> CloneState {
    world.status().clone_status.unwrap_or_default().state.unwrap_or(CloneState::Unset)
}

pub(super) fn clone_condition(world: &World) -> (String, String) {
    let all = world.status().conditions.unwrap_or_default();
    let found = all.into_iter().find(|it| it.kind == "Clone").unwrap();
    (found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

/// Runs until the engine is told of the source.
pub(super) fn begun() -> World {
    let mut world = cloned();
    let told = |world: &World| {
        let engine = world.engine.as_ref();
        engine.is_some_and(|it| it.spec.requested_data_source.is_some())
    };
    for _ in 0..20 {
        world.pass();
        if told(&world) {
            return world;
        }
        world.obey();
    }
    panic!("the copying never began");
}

#[test]
fn a_copy_of_a_volume_is_filled_and_then_like_any_other() {
    let mut world = begun();
    assert_eq!(clone_state(&world), CloneState::Initiated);
    assert_eq!(world.at_original.as_ref().unwrap().held_at.as_deref(), Some(NODE));
    world.obey();
    world.pass();
    assert_eq!(clone_state(&world), CloneState::CopyCompletedAwaitingHealthy);
    assert_eq!(world.at_original.as_ref().unwrap().held_at, None);
    world.obey();
    world.run(16);
    assert_eq!(clone_state(&world), CloneState::Completed);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert_eq!(world.copied.len(), 2);
    assert!(world.at_original.is_none());
    for reason in ["VolumeCloneInitiated", "VolumeCloneCompleted"] {
        assert!(world.told.contains(&reason.to_owned()), "{reason}");
    }
    let engine = world.engine.clone().unwrap();
    assert_eq!(engine.spec.requested_data_source.as_deref(), Some(""));
    // The source may change as it likes.
    world.original = Original::None;
    world.ticket(NODE);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.volume.spec.disable_frontend, Some(false));
}

#[test]
fn a_copy_whose_first_status_was_lost_in_a_crash_is_filled_all_the_same() {
    let mut world = cloned();
    while world.engine.is_none() {
        world.pass();
    }
    // The engine was stored, and then the controllers were killed.
    world.volume.status = None;
    world.run(60);
    assert_eq!(clone_state(&world), CloneState::Completed);
    assert_eq!(world.copied.len(), 2);
}

#[test]
fn nobody_gets_a_copy_before_it_is_complete() {
    let mut world = cloned();
    world.original = Original::Found(Found { is_taken: false, ..found() });
    world.ticket(NODE);
    world.run(20);
    assert_eq!(clone_state(&world), CloneState::Initiated);
    assert_eq!(world.volume.spec.disable_frontend, Some(true));
    assert!(world.copied.is_empty());
    world.original = Original::Found(found());
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.volume.spec.disable_frontend, Some(false));
}

#[test]
fn an_engine_that_ends_while_it_is_copied_to_begins_anew_with_other_copies() {
    let mut world = begun();
    let first: BTreeSet<String> = world.replicas.iter().map(ResourceExt::name_any).collect();
    let status = world.engine.as_mut().unwrap().status.as_mut().unwrap();
    status.instance.current_state = Some(InstanceState::Error);
    world.pass();
    assert_eq!(clone_state(&world), CloneState::Failed);
    assert!(clone_condition(&world).1.contains("the engine ended"));
    world.obey();
    world.run(60);
    assert_eq!(clone_state(&world), CloneState::Completed);
    assert!(world.replicas.iter().all(|it| !first.contains(&it.name_any())));
    world.is(&VolumeState::Detached, &Robustness::Unknown);
}

#[test]
fn one_copy_that_fails_is_replaced_after_the_others_are_complete() {
    let mut world = begun();
    let crashed = world.kill(0);
    world.run(30);
    assert_eq!(clone_state(&world), CloneState::Completed);
    assert_eq!(world.replicas.iter().filter(|it| is_usable(it)).count(), 2);
    assert!(world.replicas.iter().all(|it| it.name_any() != crashed));
}

#[test]
fn copying_that_always_fails_ends_with_the_reason() {
    let mut world = cloned();
    world.copying_fails = true;
    world.ticket(NODE);
    for _ in 0..TRIES {
        world.run(20);
        world.now += SignedDuration::from_mins(6);
    }
    world.run(20);
    assert_eq!(clone_state(&world), CloneState::Failed);
    let status = world.status().clone_status.unwrap();
    assert_eq!((status.attempt_count, status.next_allowed_attempt_at), (Some(TRIES), None));
    let (reason, message) = clone_condition(&world);
    assert_eq!(reason, "CloneFailure");
    assert!(message.contains("no space left"), "{message}");
    // Each try had copies of its own.
    assert_eq!(world.copied.len(), 2 * usize::try_from(TRIES).unwrap());
    assert!(world.replicas.is_empty() && world.at_original.unwrap().held_at.is_none());
    assert!(!world.told.contains(&"Faulted".to_owned()));
}

#[test]
fn a_try_that_a_clock_ahead_has_put_off_is_not_waited_for() {
    let mut world = begun();
    let status = world.engine.as_mut().unwrap().status.as_mut().unwrap();
    status.instance.current_state = Some(InstanceState::Error);
    world.pass();
    assert_eq!(clone_state(&world), CloneState::Failed);
    // The clock was a year ahead, and is not any more.
    world.now -= SignedDuration::from_hours(24 * 365);
    world.obey();
    world.run(60);
    assert_eq!(clone_state(&world), CloneState::Completed);
}

#[test]
fn a_source_that_is_not_there_is_waited_for_and_one_that_never_fits_is_told() {
    let mut world = cloned();
    world.original = Original::Missing("volume s does not exist".into());
    world.run(3);
    assert!(world.engine.is_none() && world.replicas.is_empty());
    assert_eq!(clone_condition(&world), ("ClonePending".into(), "volume s does not exist".into()));
    let mut small = cloned();
    small.original = Original::Found(Found { size_bytes: 64 * MIB, ..found() });
    small.ticket(NODE);
    small.run(6);
    assert_eq!(clone_state(&small), CloneState::Failed);
    assert!(clone_condition(&small).1.contains("is less than"), "{:?}", clone_condition(&small));
    assert!(small.replicas.is_empty());
    let mut bad = cloned();
    bad.original = Original::Impossible("names nothing".into());
    bad.run(6);
    assert_eq!(clone_condition(&bad), ("CloneFailure".into(), "names nothing".into()));
}
