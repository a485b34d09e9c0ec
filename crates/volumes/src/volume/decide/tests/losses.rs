//! Copies, nodes, stores and clocks that are lost: what counts then, and what is waited for.

use super::*;

/// On two nodes, a copy on each, attached to the node of the first.
fn on_two_nodes() -> World {
    let mut world = World::new(VolumeSpec::default());
    world.settings.node_soft = false;
    world.up.insert("n2".to_owned());
    world.run(6);
    let here = world.replicas[0].spec.instance.node_id.clone().unwrap();
    world.ticket(&here);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world
}

#[test]
fn a_copy_whose_node_was_away_when_the_volume_was_attached_is_behind() {
    let mut world = on_two_nodes();
    world.drop_ticket();
    world.run(6);
    let away = world.lose_node(1);
    let (stale, good) = (world.replicas[1].name_any(), world.replicas[0].name_any());
    let here = world.replicas[0].spec.instance.node_id.clone().unwrap();
    world.ticket(&here);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Degraded);
    assert_eq!(world.planned(), std::slice::from_ref(&good));
    assert!(has_failed(&world.replicas[1]), "what was written since it does not have");
    // Now the other one is away, and that one is back.
    world.drop_ticket();
    world.run(6);
    world.lose_node(0);
    world.up.insert(away.clone());
    world.ticket(&away);
    for _ in 0..20 {
        world.run(1);
        assert!(!world.planned().contains(&stale), "a stale copy is served");
    }
    world.up.insert(here);
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    let of = |name: &str| world.replicas.iter().find(|it| it.name_any() == name).unwrap();
    let filled_after = |it: &Replica| it.spec.last_healthy_at.as_ref().and_then(Stamp::get);
    assert!(filled_after(of(&stale)) > filled_after(of(&good)), "the good one was filled");
}

#[test]
fn a_copy_whose_node_stays_away_is_replaced() {
    let mut world = on_two_nodes();
    world.up.insert("n3".to_owned());
    world.drop_ticket();
    world.run(6);
    world.lose_node(1);
    let here = world.replicas[0].spec.instance.node_id.clone().unwrap();
    world.ticket(&here);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Degraded);
    world.now += SignedDuration::try_from(world.settings.replenish_wait).unwrap();
    world.run(20);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn copies_that_serve_stay_though_their_nodes_are_not_heard_of() {
    let mut world = on_two_nodes();
    let before = world.planned();
    world.lose_node(1);
    let status = world.replicas[1].status.as_mut().unwrap();
    status.instance.current_state = Some(InstanceState::Unknown);
    for _ in 0..5 {
        world.pass();
        world.engine_obeys();
    }
    assert_eq!(world.planned(), before);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world.set_mode(1, ReplicaMode::Error);
    world.pass();
    assert!(has_failed(&world.replicas[1]));
    world.is(&VolumeState::Attached, &Robustness::Degraded);
}

#[test]
fn a_copy_that_was_being_filled_is_not_salvaged() {
    let mut world = on_two_nodes();
    let here = world.replicas[0].spec.instance.node_id.clone().unwrap();
    let other = world.replicas[1].spec.instance.node_id.clone().unwrap();
    world.drop_ticket();
    world.ticket(&other);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    // The second one breaks, and is being filled from the first.
    world.kill(1);
    while world
        .engine
        .as_ref()
        .unwrap()
        .status
        .as_ref()
        .unwrap()
        .replica_mode_map
        .as_ref()
        .unwrap()
        .values()
        .all(|mode| *mode != ReplicaMode::WriteOnly)
    {
        world.run(1);
    }
    // Then the node of the first is gone.
    world.lose_node(0);
    world.set_mode(0, ReplicaMode::Error);
    let half = world.replicas[1].name_any();
    // What has no source any more is not filled meanwhile: the detach is written down, then done.
    world.pass();
    for _ in 0..30 {
        world.pass();
        assert!(!world.engine.as_ref().unwrap().spec.instance.salvage_requested.unwrap_or(false));
        world.obey();
        world.now += SignedDuration::from_secs(5);
    }
    world.is(&VolumeState::Detached, &Robustness::Faulted);
    let waits = world.condition("Salvage").unwrap();
    assert!(waits.message.unwrap().contains(&here));
    assert!(!world.planned().contains(&half));
    world.up.insert(here);
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(world.told.contains(&"AutoSalvaged".to_owned()));
    assert!(world.condition("Salvage").is_none());
}

#[test]
fn of_copies_that_failed_one_after_the_other_the_last_is_waited_for() {
    let mut world = on_two_nodes();
    world.settings.rebuilds_per_node = 0;
    world.kill(1);
    world.run(3);
    world.now += SignedDuration::from_mins(30);
    // The engine wrote to the first alone for half an hour. Then that is gone, too.
    world.lose_node(0);
    world.set_mode(0, ReplicaMode::Error);
    world.run(20);
    world.is(&VolumeState::Detached, &Robustness::Faulted);
    assert!(has_failed(&world.replicas[1]));
}

#[test]
fn a_copy_that_somebody_calls_good_is_attached_again() {
    let mut world = on_two_nodes();
    world.settings.auto_salvage = false;
    world.kill(0);
    world.kill(1);
    world.run(12);
    world.is(&VolumeState::Detached, &Robustness::Faulted);
    world.replicas[1].spec.failed_at = Some(Stamp::never());
    world.run(12);
    assert_eq!(world.status().state, Some(VolumeState::Attached));
}

#[test]
fn a_purge_that_fails_everywhere_takes_no_volume_down() {
    let mut world = attached();
    let fails = |world: &mut World, count: usize| {
        let status = world.engine.as_mut().unwrap().status.as_mut().unwrap();
        let map = status.current_replica_address_map.clone().unwrap();
        let error = || api::longhorn::EnginePurgeStatus {
            error: Some("no space left on device".into()),
            ..Default::default()
        };
        let all = map.values().take(count).map(|at| (format!("tcp://{at}"), error()));
        status.purge_status = Some(all.collect());
    };
    fails(&mut world, 2);
    world.pass();
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    fails(&mut world, 1);
    world.pass();
    world.is(&VolumeState::Attached, &Robustness::Degraded);
}

#[test]
fn nothing_is_restored_over_a_volume_that_is_there() {
    for source in [
        World::from_backup(false).source,
        Source::Missing("cannot get backup b1: it does not exist".into()),
    ] {
        let mut world = attached();
        world.volume.spec.from_backup = Some("vfs:///d?backup=b1&volume=src".into());
        world.source = source;
        world.run(6);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        let status = world.status();
        assert_eq!((status.restore_initiated, status.restore_required), (None, None));
        assert_eq!(world.condition("Restore").unwrap().reason.as_deref(), Some("RestoreRefused"));
    }
}

#[test]
fn a_volume_is_activated_with_what_the_store_has_then() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.store_is_silent = true;
    world.volume.spec.standby = Some(false);
    world.run(12);
    assert_eq!(world.status().is_standby, Some(true), "the store was not read");
    let asked = world.backup_volume.as_ref().unwrap().spec.sync_requested_at.unwrap();
    assert!(world.condition("Activated").unwrap().message.unwrap().contains("activate-with=b1"));
    // It is read, and there is a newer one.
    world.store("b2", 32 * MIB);
    let store = world.backup_volume.as_mut().unwrap();
    store.status.as_mut().unwrap().last_synced_at = Some(asked);
    world.pass();
    assert_eq!(world.status().is_standby, Some(true), "b2 is not restored");
    world.run(12);
    assert_eq!(world.status().is_standby, Some(false));
    assert!(world.held.values().all(|held| held == "b2"), "{:?}", world.held);
    assert!(world.condition("Activated").is_none());
    assert!(!world.volume.annotations().contains_key(crate::volume::ACTIVATION));
}

#[test]
fn a_volume_whose_store_is_lost_is_activated_by_hand() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.backup_volume = None;
    world.volume.spec.standby = Some(false);
    world.run(12);
    assert_eq!(world.status().is_standby, Some(true));
    let with = (crate::volume::ACTIVATE_WITH.to_owned(), "b1".to_owned());
    world.volume.annotations_mut().extend([with]);
    world.run(12);
    assert_eq!(world.status().is_standby, Some(false));
}

#[test]
fn no_definition_lets_a_volume_have_more_copies_than_there_can_be() {
    let mut world = World::new(VolumeSpec::default());
    world.volume.spec.number_of_replicas = Some(1000);
    world.run(6);
    assert_eq!(world.replicas.len(), 20);
}

#[test]
fn times_of_a_clock_that_was_ahead_keep_no_copy_from_being_made() {
    let mut world = attached();
    let ahead = Stamp::from(api::scalar::Time::new(world.now + SignedDuration::from_hours(9999)));
    world.kill(0);
    world.pass();
    let replica = &mut world.replicas[0];
    (replica.spec.failed_at, replica.spec.rebuild_retry_count) = (Some(ahead.clone()), Some(2));
    world.volume.status.as_mut().unwrap().last_degraded_at = Some(ahead);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

/// Of a volume at rest nobody finds out that a copy is gone, so a copy on a node that is not heard of is
/// no reason to remove one that failed, however long ago.
#[test]
fn a_failed_copy_of_a_volume_at_rest_stays_when_the_node_of_the_other_is_lost() {
    let mut world = on_two_nodes();
    world.volume.spec.stale_replica_timeout = Some(30);
    world.settings.replenish_wait = std::time::Duration::from_hours(2);
    let failed = world.kill(0);
    world.pass();
    assert!(has_failed(&world.replicas[0]));
    world.drop_ticket();
    world.run(6);
    world.lose_node(1);
    world.now += SignedDuration::from_mins(45);
    world.run(6);
    assert!(world.replicas.iter().any(|it| it.name_any() == failed));
}

#[test]
fn a_deleted_copy_of_a_volume_at_rest_stays_when_the_node_of_the_other_is_lost() {
    let mut world = on_two_nodes();
    world.drop_ticket();
    world.run(6);
    let away = world.lose_node(1);
    let name = world.delete_copy(0);
    world.run(6);
    assert!(world.replicas.iter().any(|it| it.name_any() == name));
    assert!(world.condition("LastCopy").is_some());
    world.up.insert(away);
    world.run(6);
    assert!(world.replicas.iter().all(|it| it.name_any() != name));
}

/// Else it would be done once more over what was written after the copies were salvaged.
#[test]
fn a_revert_that_was_begun_when_all_copies_were_lost_is_over() {
    let mut world = with_snapshot();
    world.drop_ticket();
    ask_revert(&mut world, "x");
    let reason = |world: &World| world.condition("Revert").and_then(|it| it.reason);
    for _ in 0..30 {
        world.run(1);
        if reason(&world).as_deref() == Some("RevertInProgress") {
            break;
        }
    }
    assert_eq!(reason(&world).as_deref(), Some("RevertInProgress"));
    for index in 0..world.replicas.len() {
        world.kill(index);
    }
    world.pass();
    world.pass();
    assert_eq!(reason(&world).as_deref(), Some("RevertFailure"));
    assert!(world.volume.annotations().is_empty());
}
