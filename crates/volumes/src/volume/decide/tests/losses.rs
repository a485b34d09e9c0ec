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
fn a_standby_volume_leaves_a_node_that_is_gone() {
    let mut world = World::from_backup(true);
    world.settings.node_soft = false;
    world.up.insert("n2".to_owned());
    world.run(16);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    let dead = world.volume.spec.node_id.clone().unwrap();
    let engine = world.engine.as_mut().unwrap().status.as_mut().unwrap();
    engine.instance.current_state = Some(InstanceState::Unknown);
    engine.instance.owner_id = Some(dead.clone());
    let there = |it: &Replica| it.spec.instance.node_id.as_ref() == Some(&dead);
    let index = world.replicas.iter().position(there).unwrap();
    world.replicas[index].status.as_mut().unwrap().instance.current_state =
        Some(InstanceState::Unknown);
    world.lose_node(index);
    world.run(16);
    assert_ne!(world.volume.spec.node_id.as_deref(), Some(dead.as_str()));
    assert_eq!(world.status().state, Some(VolumeState::Attached));
    assert_ne!(world.status().owner_id.as_deref(), Some(dead.as_str()));
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

/// Somebody has deleted all backups of the source. What the copies hold is the newest there is.
#[test]
fn a_volume_whose_source_has_no_backups_any_more_is_activated_when_the_store_says_so() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.backup_volume = None;
    world.target = Some(BackupTarget::default());
    world.volume.spec.standby = Some(false);
    world.run(12);
    let asked = world.target.as_ref().unwrap().spec.sync_requested_at.unwrap();
    let mut read = |available: bool, at: Timestamp| {
        let status = world.target.as_mut().unwrap().status.get_or_insert_default();
        status.available = Some(available);
        status.last_synced_at = Some(Time::new(at));
        world.run(12);
        world.status().is_standby
    };
    assert_eq!(read(true, asked.timestamp() - SignedDuration::from_secs(1)), Some(true));
    assert_eq!(read(false, asked.timestamp()), Some(true), "the store does not answer");
    assert_eq!(read(true, asked.timestamp()), Some(false));
    world.is(&VolumeState::Detached, &Robustness::Unknown);
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

/// The store went after it had said that there is a newer backup, and before that was here.
#[test]
fn a_volume_whose_store_is_lost_is_activated_with_what_it_holds_though_there_was_a_newer_backup() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.store_is_lost = true;
    world.store("b2", 32 * MIB);
    world.run(6);
    world.volume.spec.standby = Some(false);
    world.run(12);
    assert_eq!(world.status().is_standby, Some(true), "b2 is not restored");
    let told = world.condition("Activated").unwrap().message.unwrap();
    assert!(told.contains("backup b2") && told.contains("activate-with=b1"), "{told}");
    let annotate = |world: &mut World, backup: &str| {
        let with = (crate::volume::ACTIVATE_WITH.to_owned(), backup.to_owned());
        world.volume.annotations_mut().extend([with]);
        world.run(12);
    };
    annotate(&mut world, "b0");
    assert_eq!(world.status().is_standby, Some(true), "no copy holds b0");
    annotate(&mut world, "b1");
    assert_eq!(world.status().is_standby, Some(false));
    assert!(world.condition("Activated").is_none());
    world.is(&VolumeState::Detached, &Robustness::Unknown);
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

/// The disk of a copy is gone, and what ran on it with it. Its node lives.
fn lose_disk(world: &mut World, index: usize) -> String {
    let name = world.replicas[index].name_any();
    world.no_disk.insert(name.clone());
    name
}

/// Else one disk would keep down every volume that has a copy on it.
#[test]
fn a_volume_is_attached_without_a_copy_whose_disk_is_gone() {
    let mut world = on_two_nodes();
    world.drop_ticket();
    world.run(6);
    let lost = lose_disk(&mut world, 1);
    let here = world.replicas[0].spec.instance.node_id.clone().unwrap();
    world.ticket(&here);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Degraded);
    assert!(has_failed(&world.replicas[1]), "what was written since it does not have");
    // The disk is back: what lies there is filled before it counts.
    world.no_disk.remove(&lost);
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.replicas.len(), 2);
}

#[test]
fn the_only_copy_is_waited_for_when_its_disk_is_gone() {
    let mut world = World::new(VolumeSpec::default());
    world.volume.spec.number_of_replicas = Some(1);
    world.run(6);
    let lost = lose_disk(&mut world, 0);
    world.ticket(NODE);
    world.run(8);
    assert_eq!(world.status().state, Some(VolumeState::Attaching));
    assert!(!has_failed(&world.replicas[0]));
    // Its node is told to start it, and says why it does not.
    assert_eq!(world.replicas[0].spec.instance.desire_state, Some(InstanceState::Running));
    world.no_disk.remove(&lost);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn a_failed_copy_whose_disk_is_gone_is_replaced_by_another() {
    let mut world = on_two_nodes();
    world.up.insert("n3".to_owned());
    let lost = world.kill(1);
    lose_disk(&mut world, 1);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Degraded);
    world.now += SignedDuration::try_from(world.settings.replenish_wait).unwrap();
    world.run(20);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(world.planned().iter().all(|name| *name != lost));
}

#[test]
fn a_deleted_copy_of_a_volume_at_rest_stays_when_the_disk_of_the_other_is_gone() {
    let mut world = on_two_nodes();
    world.drop_ticket();
    world.run(6);
    let lost = lose_disk(&mut world, 1);
    let name = world.delete_copy(0);
    world.run(6);
    assert!(world.replicas.iter().any(|it| it.name_any() == name), "the last copy is removed");
    assert!(world.condition("LastCopy").is_some());
    world.no_disk.remove(&lost);
    world.run(6);
    assert!(world.replicas.iter().all(|it| it.name_any() != name));
}

/// Of two copies the second went on alone, and its node is lost. What the first has is behind, however the
/// clock was set meanwhile, and however soon after each other they failed.
#[test]
fn what_failed_last_is_what_failed_last_whatever_the_clock_says() {
    for set_back in [SignedDuration::from_hours(1), SignedDuration::ZERO] {
        let mut world = on_two_nodes();
        world.settings.rebuilds_per_node = 0;
        let behind = world.kill(1);
        world.run(1);
        assert!(has_failed(&world.replicas[1]));
        world.now -= set_back;
        world.lose_node(0);
        world.set_mode(0, ReplicaMode::Error);
        world.run(20);
        assert!(!world.planned().contains(&behind), "a stale copy is served");
        world.is(&VolumeState::Detached, &Robustness::Faulted);
    }
}

/// The engine has grown before it could be told that it need not.
#[test]
fn an_expansion_that_is_taken_back_too_late_has_happened() {
    let mut world = attached();
    world.volume.spec.size = Some(TextInt(64 * MIB));
    world.pass();
    let old = world.engine.clone().unwrap().status;
    world.obey();
    let grown = std::mem::replace(&mut world.engine.as_mut().unwrap().status, old);
    // Nobody has looked at it since.
    world.volume.spec.size = Some(TextInt(32 * MIB));
    world.pass();
    world.engine.as_mut().unwrap().status = grown;
    world.pass();
    let size = Some(TextInt(64 * MIB));
    assert_eq!(world.volume.spec.size, size);
    assert_eq!(world.engine.as_ref().unwrap().spec.instance.volume_size, size);
    world.kill(0);
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

/// Somebody has it attached without a frontend from the moment on in which it is activated: it is not closed,
/// and what is lost then is filled from the others, not from a backup.
#[test]
fn a_volume_that_is_activated_and_stays_attached_asks_for_no_backup() {
    let mut world = World::from_backup(true);
    world.run(12);
    let (_, mut ticket) = attachment::own(AttacherType::LonghornApi, "x", NODE, "true");
    ticket.id = Some("api".to_owned());
    let tickets = world.attachment.spec.attachment_tickets.get_or_insert_default();
    tickets.insert("api".to_owned(), ticket);
    world.volume.spec.standby = Some(false);
    world.run(12);
    assert_eq!(world.status().restore_required, Some(false));
    assert_eq!(world.status().state, Some(VolumeState::Attached));
    let asked = world.engine.as_ref().unwrap().spec.requested_backup_restore.clone();
    assert_eq!(asked.unwrap_or_default(), "");
}

/// Else an hour without the store, in the middle of a restore, would cost the volume that is kept for such hours.
#[test]
fn a_standby_volume_whose_store_went_away_under_it_follows_again_later() {
    for activates in [false, true] {
        let mut world = World::from_backup(true);
        world.run(12);
        world.broken = (0..99).map(|serial| format!("v-r-{serial:08x}")).collect();
        world.store("b2", 32 * MIB);
        world.run(20);
        world.is(&VolumeState::Detached, &Robustness::Faulted);
        assert!(world.held.values().all(|held| held == "b1"), "{:?}", world.held);
        world.broken.clear();
        world.volume.spec.standby = Some(!activates);
        world.run(20);
        world.is(&VolumeState::Detached, &Robustness::Faulted);
        world.now += SignedDuration::from_mins(5);
        world.run(40);
        assert!(world.held.values().all(|held| held == "b2"), "{:?}", world.held);
        if activates {
            assert_eq!(world.status().restore_required, Some(false));
            world.is(&VolumeState::Detached, &Robustness::Unknown);
        } else {
            world.is(&VolumeState::Attached, &Robustness::Healthy);
        }
    }
}

/// A pass that ends before the copy is let go of leaves one that would be good, and is behind.
#[test]
fn a_copy_that_is_deleted_while_the_volume_is_attached_is_left_behind_as_failed() {
    for passes in 0..6 {
        let mut world = on_two_nodes();
        world.drop_ticket();
        world.run(6);
        let here = world.replicas[0].spec.instance.node_id.clone().unwrap();
        world.ticket(&here);
        world.run(passes);
        world.delete_copy(0);
        // What must always hold is looked at after every write.
        world.run(20);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
    }
}
