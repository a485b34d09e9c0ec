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
