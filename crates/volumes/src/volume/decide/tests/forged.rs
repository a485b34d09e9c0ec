//! What somebody with the right to do so writes into a status, and what cannot be so: it is not believed.

use api::longhorn::VolumeCloneStatus;

use super::*;

fn serves(world: &World) -> bool {
    world.volume.spec.disable_frontend != Some(true)
        && world.engine.as_ref().unwrap().spec.disable_frontend != Some(true)
}

#[test]
fn a_volume_that_was_made_from_nothing_does_not_come_to_restore() {
    let mut world = attached();
    world.volume.status.as_mut().unwrap().restore_required = Some(true);
    world.volume.status.as_mut().unwrap().restore_initiated = Some(true);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(serves(&world), "its frontend is gone");
    assert_ne!(world.status().restore_required, Some(true));
    assert!(!world.told.contains(&"DetachedUnexpectedly".to_owned()));
}

#[test]
fn a_restore_that_is_over_does_not_begin_again() {
    for standby in [false, true] {
        let mut world = World::from_backup(false);
        world.run(20);
        world.ticket(NODE);
        world.run(8);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        let status = world.volume.status.as_mut().unwrap();
        (status.restore_required, status.is_standby) = (Some(true), Some(standby));
        world.run(12);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        assert!(serves(&world), "its frontend is gone");
        let asked = world.engine.as_ref().unwrap().spec.requested_backup_restore.clone();
        assert_eq!(asked.as_deref(), Some(""), "a backup is laid over what was written since");
        let status = world.status();
        assert_eq!((status.restore_required, status.is_standby), (Some(false), Some(false)));
    }
}

/// Half of the data is there: whoever applies a manifest without the wish does not get it served.
#[test]
fn a_restore_that_was_begun_is_not_called_off_with_its_wish() {
    for standby in [false, true] {
        let mut world = World::from_backup(standby);
        let told = |world: &World| {
            let engine = world.engine.as_ref();
            engine.is_some_and(|it| it.spec.requested_backup_restore.as_deref() == Some("b1"))
        };
        while !told(&world) {
            world.run(1);
        }
        world.volume.spec.from_backup = None;
        world.run(1);
        let status = world.status();
        assert_eq!(status.restore_required, Some(true), "standby: {standby}");
        assert_eq!(status.is_standby.unwrap_or_default(), standby);
        assert!(told(&world), "standby: {standby}");
    }
}

#[test]
fn a_volume_that_serves_does_not_come_to_follow() {
    let mut world = attached();
    world.volume.status.as_mut().unwrap().is_standby = Some(true);
    world.run(6);
    assert_ne!(world.status().is_standby, Some(true));
    assert!(world.attachment.status.as_ref().unwrap().attachment_ticket_statuses.as_ref().unwrap()["api"].satisfied);
}

#[test]
fn a_volume_that_was_made_from_nothing_is_no_unfinished_copy() {
    for state in [CloneState::Initiated, CloneState::Failed] {
        let mut world = attached();
        world.volume.status.as_mut().unwrap().clone_status =
            Some(VolumeCloneStatus { state: Some(state.clone()), ..VolumeCloneStatus::default() });
        let before: Vec<String> = world.replicas.iter().map(ResourceExt::name_any).collect();
        world.run(12);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        assert!(serves(&world), "its frontend is gone");
        let now: Vec<String> = world.replicas.iter().map(ResourceExt::name_any).collect();
        assert_eq!(now, before, "{state:?}: its copies are thrown away");
    }
}

/// Its copies would be thrown away for those of another try, with all that was written since.
#[test]
fn a_copy_that_is_complete_does_not_become_an_unfinished_one() {
    for state in
        [CloneState::Initiated, CloneState::CopyCompletedAwaitingHealthy, CloneState::Failed]
    {
        let mut world = clones::cloned();
        world.run(40);
        assert_eq!(clones::clone_state(&world), CloneState::Completed);
        world.ticket(NODE);
        world.run(8);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        let before: Vec<String> = world.replicas.iter().map(ResourceExt::name_any).collect();
        world.volume.status.as_mut().unwrap().clone_status =
            Some(VolumeCloneStatus { state: Some(state.clone()), ..VolumeCloneStatus::default() });
        world.run(12);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        assert!(serves(&world), "its frontend is gone");
        let now: Vec<String> = world.replicas.iter().map(ResourceExt::name_any).collect();
        assert_eq!(now, before, "{state:?}: its copies are thrown away");
        assert_eq!(clones::clone_state(&world), CloneState::Completed);
    }
}

#[test]
fn a_volume_of_an_image_that_nobody_knows_waits_for_it_and_says_so() {
    let image = Some("example/engine:v3".to_owned());
    let mut world = World::new(VolumeSpec { image, ..VolumeSpec::default() });
    world.ticket(NODE);
    world.run(6);
    assert!(world.engine.is_none() && world.replicas.is_empty());
    let told = world.condition("EngineImage").unwrap();
    assert_eq!(told.status, api::condition::Status::False);
    assert!(told.message.unwrap().contains("example/engine:v3"));
    world.images.insert("example/engine:v3".to_owned(), image_of_tests());
    world.run(16);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(world.condition("EngineImage").is_none());
}

fn image_of_tests() -> Image {
    super::image(12, (4, 6))
}
