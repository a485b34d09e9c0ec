//! Older engines, and other engines. The steps are those of the plan for volumes that began with an
//! engine which cannot rebuild what restores.

use super::*;
use crate::image::DEFAULT;

fn image_of(world: &World) -> (Option<String>, Option<String>) {
    (world.volume.spec.image.clone(), world.status().current_image)
}

fn ask(world: &mut World, image: &str) {
    world.volume.spec.image = Some(image.to_owned());
}

fn old_standby() -> World {
    let mut world = World::from_backup(true);
    ask(&mut world, OLD);
    world.run(14);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world
}

#[test]
fn a_standby_volume_of_an_older_engine_stays_degraded_follows_and_is_activated() {
    let mut world = old_standby();
    // 10, 11: no copy is made in the place of one that ended.
    world.kill(0);
    world.run(40);
    world.is(&VolumeState::Attached, &Robustness::Degraded);
    let usable = |world: &World| world.replicas.iter().filter(|it| is_usable(it)).count();
    assert_eq!(usable(&world), 1);
    // 12, 13: the next backup is restored all the same.
    world.store("b2", 32 * MIB);
    world.run(10);
    let engine = world.engine.clone().unwrap();
    assert_eq!(engine.status.unwrap().last_restored_backup.as_deref(), Some("b2"));
    // 14: another engine is refused, and nothing is changed.
    ask(&mut world, DEFAULT);
    world.run(3);
    assert_eq!(image_of(&world), (Some(OLD.to_owned()), Some(OLD.to_owned())));
    assert!(world.told.contains(&"FailedEngineUpgrade".to_owned()));
    let told = world.condition("EngineUpgrade").unwrap().message.unwrap();
    assert!(told.contains("cannot do live upgrade for a unhealthy volume v"), "{told}");
    assert_eq!(usable(&world), 1);
    // 15: it is activated with the copy it has.
    world.volume.spec.standby = Some(false);
    world.run(30);
    assert_eq!(world.status().restore_required, Some(false));
    world.is(&VolumeState::Detached, &Robustness::Unknown);
}

#[test]
fn a_plain_volume_of_an_older_engine_heals() {
    let mut world = World::new(VolumeSpec::default());
    ask(&mut world, OLD);
    world.run(6);
    world.ticket(NODE);
    world.run(8);
    world.kill(0);
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn another_engine_comes_when_the_volume_is_detached_and_not_before() {
    let mut world = attached();
    ask(&mut world, OLD);
    world.run(4);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(image_of(&world), (Some(OLD.to_owned()), Some(DEFAULT.to_owned())));
    assert_eq!(world.condition("EngineUpgrade").unwrap().reason.as_deref(), Some("WaitForDetach"));
    // What is made meanwhile is of the engine that serves.
    world.kill(0);
    world.run(30);
    let images = |world: &World| -> BTreeSet<String> {
        world.replicas.iter().filter_map(|it| it.spec.instance.image.clone()).collect()
    };
    assert_eq!(images(&world), BTreeSet::from([DEFAULT.to_owned()]));
    // One that is degraded has given it up.
    ask(&mut world, OLD);
    world.run(2);
    world.drop_ticket();
    world.run(8);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert_eq!(image_of(&world), (Some(OLD.to_owned()), Some(OLD.to_owned())));
    assert_eq!(images(&world), BTreeSet::from([OLD.to_owned()]));
    assert!(world.told.contains(&"EngineUpgraded".to_owned()));
    world.ticket(NODE);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn an_engine_that_is_not_there_is_refused() {
    let mut world = attached();
    world.drop_ticket();
    world.run(6);
    ask(&mut world, "nobody/engine:v9");
    world.run(2);
    assert_eq!(image_of(&world), (Some(DEFAULT.to_owned()), Some(DEFAULT.to_owned())));
    let told = world.condition("EngineUpgrade").unwrap().message.unwrap();
    assert!(told.contains("engine image nobody/engine:v9 is not deployed"), "{told}");
}

/// What must be so when another engine has come.
fn is_upgraded(world: &World, image: &str, copies: usize) {
    let wanted = (Some(image.to_owned()), Some(image.to_owned()));
    assert_eq!(image_of(world), wanted);
    let images: Vec<_> = world.replicas.iter().map(|it| it.spec.instance.image.clone()).collect();
    assert_eq!(images, vec![Some(image.to_owned()); copies]);
    assert!(world.replicas.iter().all(is_usable));
    let places: BTreeSet<_> =
        world.replicas.iter().map(|it| it.spec.data_directory_name.clone()).collect();
    assert_eq!(places.len(), copies, "each copy has a directory of its own");
    let engine = world.engine.clone().unwrap();
    assert_eq!(engine.spec.upgraded_replica_address_map.unwrap_or_default().len(), 0);
    assert_eq!(engine.status.unwrap().instance.current_image.as_deref(), Some(image));
}

#[test]
fn another_engine_takes_over_from_one_that_serves() {
    let mut world = attached();
    let places = |world: &World| -> BTreeSet<_> {
        world.replicas.iter().map(|it| it.spec.data_directory_name.clone()).collect()
    };
    let (before, names) = (places(&world), world.planned());
    ask(&mut world, NEW);
    for _ in 0..12 {
        world.run(1);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
    }
    is_upgraded(&world, NEW, 2);
    assert_eq!(places(&world), before, "the data is where it was");
    assert!(world.planned().iter().all(|name| !names.contains(name)));
    assert_eq!(world.condition("EngineUpgrade").unwrap().reason.as_deref(), Some("Upgraded"));
    assert!(world.told.contains(&"EngineUpgraded".to_owned()));
    // It heals, detaches and comes back as ever.
    world.kill(0);
    world.run(30);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world.drop_ticket();
    world.run(8);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    is_at_home(&mut world, NEW);
}

/// It can be attached and is whole.
fn is_at_home(world: &mut World, image: &str) {
    world.ticket(NODE);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    is_upgraded(world, image, 2);
}

#[test]
fn an_engine_that_does_not_take_over_leaves_everything_as_it_was() {
    let mut world = attached();
    let (replicas, planned) = (world.replicas.clone(), world.planned());
    world.replacing_fails = true;
    ask(&mut world, NEW);
    for _ in 0..12 {
        world.run(1);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
    }
    is_upgraded(&world, DEFAULT, 2);
    assert_eq!((world.replicas.len(), world.planned()), (replicas.len(), planned));
    let told = world.condition("EngineUpgrade").unwrap();
    assert_eq!(told.reason.as_deref(), Some("UpgradeRefused"));
    assert!(told.message.unwrap().contains("exit status 1"));
    // It is tried again when it is asked for again.
    world.replacing_fails = false;
    ask(&mut world, NEW);
    world.run(12);
    is_upgraded(&world, NEW, 2);
}

#[test]
fn a_copy_that_does_not_start_beside_the_one_before_it_ends_the_upgrade() {
    let mut world = attached();
    ask(&mut world, NEW);
    world.pass();
    let twin = world.replicas.iter().position(|it| !is_active(it)).unwrap();
    world.obey();
    world.kill(twin);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    is_upgraded(&world, DEFAULT, 2);
    assert!(world.told.contains(&"FailedEngineUpgrade".to_owned()));
}

#[test]
fn an_engine_is_not_replaced_under_a_backup() {
    let mut world = attached();
    let (id, ticket) = attachment::own(AttacherType::BackupController, "b", NODE, "any");
    let tickets = world.attachment.spec.attachment_tickets.get_or_insert_default();
    tickets.insert(id.clone(), ticket);
    ask(&mut world, NEW);
    world.run(6);
    let told = world.condition("EngineUpgrade").unwrap();
    assert_eq!(told.reason.as_deref(), Some("WaitForIdle"));
    assert!(told.message.unwrap().contains(&id));
    assert_eq!(world.replicas.len(), 2);
    world.attachment.spec.attachment_tickets.get_or_insert_default().remove(&id);
    world.run(12);
    is_upgraded(&world, NEW, 2);
}

#[test]
fn an_image_that_is_not_on_a_node_of_the_volume_waits_for_the_detach() {
    let mut world = attached();
    world.images.insert(NEW.to_owned(), Image { nodes: BTreeSet::new(), ..image(12, (4, 7)) });
    ask(&mut world, NEW);
    world.run(4);
    let told = world.condition("EngineUpgrade").unwrap();
    assert_eq!(told.reason.as_deref(), Some("WaitForDetach"));
    assert!(told.message.unwrap().contains("it is not on node n1"));
}

/// 17 to 24 of the plan for volumes that began with an older engine.
#[test]
fn a_standby_volume_whose_engine_is_replaced_rebuilds_from_then_on() {
    let mut world = old_standby();
    ask(&mut world, DEFAULT);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    is_upgraded(&world, DEFAULT, 2);
    world.kill(0);
    world.run(20);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world.volume.spec.standby = Some(false);
    world.kill(0);
    world.run(30);
    assert_eq!(world.status().restore_required, Some(false));
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    is_at_home(&mut world, DEFAULT);
}

#[test]
fn each_attachment_has_a_higher_right_than_all_before() {
    let mut world = attached();
    let claim = |world: &World| {
        let of_engine = world.engine.as_ref().unwrap().spec.claim_generation;
        assert_eq!(of_engine, world.status().claim_generation);
        of_engine.unwrap()
    };
    let first = claim(&world);
    assert!(first >= 1_000_000, "the clock takes part");
    // An engine that is replaced while it serves keeps the right.
    ask(&mut world, NEW);
    world.run(12);
    assert_eq!(claim(&world), first);
    let mut last = first;
    for _ in 0..3 {
        let status = world.engine.as_mut().unwrap().status.as_mut().unwrap();
        status.instance.current_state = Some(InstanceState::Error);
        world.run(14);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        assert!(claim(&world) > last);
        last = claim(&world);
    }
    // A clock that goes back changes nothing.
    world.now -= SignedDuration::from_hours(1);
    world.drop_ticket();
    world.run(8);
    world.ticket(NODE);
    world.run(8);
    assert!(claim(&world) > last);
}
