//! Engines and copies that do not start, and volumes that nobody gets: what people are told.

use super::*;
use crate::node::say_creation;

fn at(world: &World) -> api::scalar::Time {
    api::scalar::Time::new(world.now)
}

#[test]
fn a_volume_whose_engine_does_not_start_says_why_as_long_as_it_is_wanted() {
    let mut world = World::new(VolumeSpec::default());
    world.run(6);
    world.ticket(NODE);
    world.run(2);
    let now = at(&world);
    let status = world.engine.as_mut().unwrap().status.get_or_insert_default();
    status.instance.current_state = Some(InstanceState::Error);
    status.instance.owner_id = Some(NODE.to_owned());
    say_creation(
        &mut status.instance,
        Some(("FailedStarting", "no two ports in a row are free")),
        now,
    );
    world.pass();
    let told = world.condition("Attach").unwrap();
    assert_eq!(told.reason.as_deref(), Some("FailedStarting"));
    let text = told.message.unwrap();
    assert_eq!(text, "engine v-e-0 does not start on node n1: no two ports in a row are free");
    // Nobody wants it any more.
    world.drop_ticket();
    world.run(3);
    assert_eq!(world.condition("Attach"), None);
}

#[test]
fn a_volume_whose_engine_starts_in_the_end_says_nothing() {
    let mut world = World::new(VolumeSpec::default());
    world.run(6);
    let now = at(&world);
    let name = world.replicas[0].name_any();
    let status = world.replicas[0].status.get_or_insert_default();
    say_creation(&mut status.instance, Some(("FailedStarting", "the disk is not ready")), now);
    world.ticket(NODE);
    world.pass();
    let text = world.condition("Attach").unwrap().message.unwrap();
    assert_eq!(text, format!("replica {name} does not start on node n1: the disk is not ready"));
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.condition("Attach"), None);
}

#[test]
fn a_ticket_for_a_standby_volume_is_refused_with_the_reason() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.ticket(NODE);
    world.run(2);
    let all = world.attachment.status.clone().unwrap().attachment_ticket_statuses.unwrap();
    assert!(!all["api"].satisfied);
    let told = &all["api"].conditions.as_ref().unwrap()[0];
    assert_eq!(told.reason.as_deref(), Some("StandbyVolume"));
    assert!(told.message.as_deref().unwrap().contains("activate it"), "{told:?}");
}
