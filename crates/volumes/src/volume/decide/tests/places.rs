//! Where copies are when a volume wants them near, and copies that somebody deletes.

use api::longhorn::DataLocality;

use super::*;

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

fn with_locality(locality: DataLocality, replicas: i32) -> World {
    let mut world =
        World::new(VolumeSpec { data_locality: Some(locality), ..VolumeSpec::default() });
    world.volume.spec.number_of_replicas = Some(replicas);
    world.up = nodes(&["n1", "n2", "n3"]);
    world.settings.node_soft = false;
    world
}

impl World {
    fn places(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.replicas.iter().filter_map(|it| it.spec.instance.node_id.as_deref()).collect();
        all.sort_unstable();
        all
    }

    /// As `kubectl delete lhr` does.
    pub(super) fn delete_copy(&mut self, index: usize) -> String {
        let replica = &mut self.replicas[index];
        replica.metadata.deletion_timestamp = Some(meta::Time(self.now));
        replica.name_any()
    }

    fn move_to(&mut self, node: &str) {
        self.drop_ticket();
        self.run(6);
        self.ticket(node);
        self.run(8);
        self.is(&VolumeState::Attached, &Robustness::Healthy);
    }
}

#[test]
fn a_copy_follows_the_volume_and_one_elsewhere_goes() {
    let mut world = with_locality(DataLocality::BestEffort, 2);
    world.run(6);
    let missing = ["n1", "n2", "n3"].into_iter().find(|it| !world.places().contains(it)).unwrap();
    world.ticket(missing);
    world.run(16);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.places().len(), 2, "{:?}", world.places());
    assert!(world.places().contains(&missing), "{:?}", world.places());
    // It comes along to the next node.
    let other = ["n1", "n2", "n3"].into_iter().find(|it| !world.places().contains(it)).unwrap();
    world.move_to(other);
    world.run(16);
    assert_eq!(world.places().len(), 2, "{:?}", world.places());
    assert!(world.places().contains(&other), "{:?}", world.places());
}

#[test]
fn a_node_that_is_to_be_emptied_is_and_no_volume_is_degraded_for_it() {
    let mut world = with_locality(DataLocality::Disabled, 2);
    world.run(6);
    world.ticket("n1");
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    let leaves = world.places()[0].to_owned();
    let stays = world.places()[1].to_owned();
    world.evicting.insert(leaves.clone());
    for _ in 0..30 {
        world.run(1);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
    }
    assert!(!world.places().contains(&leaves.as_str()), "{:?}", world.places());
    assert_eq!(world.places().len(), 2, "{:?}", world.places());
    // With nowhere to go the copy stays where it is.
    world.evicting = nodes(&["n1", "n2", "n3"]);
    world.run(30);
    assert_eq!(world.places().len(), 2);
    let asked = |it: &Replica| it.spec.eviction_requested == Some(true);
    assert!(world.replicas.iter().all(asked));
    world.evicting.clear();
    world.run(10);
    assert!(!world.replicas.iter().any(asked), "it is taken back");
    assert!(world.places().contains(&stays.as_str()));
}

#[test]
fn a_copy_that_finds_no_room_near_is_not_made_and_nobody_is_alarmed() {
    let mut world = with_locality(DataLocality::BestEffort, 2);
    // The third node runs engines, and takes no copies.
    world.volume.spec.node_selector = Some(vec!["never".into()]);
    world.run(6);
    world.volume.spec.node_selector = None;
    world.up = nodes(&["n1", "n2"]);
    world.run(6);
    let tagged = world.seen();
    assert_eq!(tagged.replicas.len(), 2);
    world.up = nodes(&["n1", "n2", "n3"]);
    world.volume.spec.topology_requirement =
        Some(vec![BTreeMap::from([("topology.kubernetes.io/zone".into(), "z".into())])]);
    world.ticket("n3");
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.places(), ["n1", "n2"]);
    assert_eq!(world.condition("Scheduled").unwrap().status, api::condition::Status::True);
}

#[test]
fn the_only_copy_of_a_strictly_local_volume_is_where_it_is_first_attached() {
    let mut world = with_locality(DataLocality::StrictLocal, 1);
    world.run(6);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert_eq!(world.places(), [""; 0]);
    assert_eq!(
        world.condition("Scheduled").unwrap().reason.as_deref(),
        Some("WaitForFirstAttachment")
    );
    world.ticket("n2");
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.places(), ["n2"]);
    // Elsewhere it does not go, and says why.
    world.drop_ticket();
    world.run(6);
    world.ticket("n1");
    world.run(8);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    let statuses = world.attachment.status.clone().unwrap().attachment_ticket_statuses.unwrap();
    let told = statuses["api"].conditions.clone().unwrap();
    assert!(
        told[0].message.as_deref().unwrap().contains("its only copy is on node n2"),
        "{told:?}"
    );
    world.ticket("n2");
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn a_strictly_local_volume_has_one_copy_unless_somebody_says_so_too() {
    let mut world = with_locality(DataLocality::StrictLocal, 0);
    world.run(1);
    assert_eq!(world.volume.spec.number_of_replicas, Some(1));
    // What is usual for all is not for those that want many.
    let mut world = World::new(VolumeSpec::default());
    world.settings.data_locality = DataLocality::StrictLocal;
    world.run(1);
    assert_eq!(world.volume.spec.data_locality, Some(DataLocality::Disabled));
    assert_eq!(world.volume.spec.number_of_replicas, Some(2));
}

#[test]
fn the_last_good_copy_serves_until_another_is_whole_whoever_deletes_it() {
    let mut world = attached();
    world.kill(0);
    world.run(1);
    let last = world.delete_copy(1);
    let deleted = |world: &World| world.replicas.iter().any(|it| it.name_any() == last);
    world.pass();
    assert!(deleted(&world) && world.planned().contains(&last), "{:?}", world.planned());
    let told = world.condition("LastCopy").unwrap();
    assert!(told.message.unwrap().contains(&last));
    assert!(world.told.contains(&"LastCopyKept".to_owned()));
    // The other is filled from it; then it goes, and a third takes its place.
    world.obey();
    world.run(30);
    assert!(!deleted(&world));
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(world.condition("LastCopy").is_none());
    assert_eq!(world.told.iter().filter(|it| *it == "LastCopyKept").count(), 1);
}

#[test]
fn all_copies_that_are_deleted_at_once_are_replaced_before_they_go() {
    let mut world = attached();
    let old: Vec<String> = (0..2).map(|index| world.delete_copy(index)).collect();
    world.run(1);
    assert_eq!(world.replicas.iter().filter(|it| old.contains(&it.name_any())).count(), 2);
    world.run(40);
    assert!(world.replicas.iter().all(|it| !old.contains(&it.name_any())));
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn the_last_copy_of_a_detached_volume_stays_and_goes_with_it() {
    let mut world = attached();
    world.drop_ticket();
    world.run(6);
    for index in 0..2 {
        world.delete_copy(index);
    }
    world.run(10);
    assert_eq!(world.replicas.len(), 2);
    assert!(world.condition("LastCopy").is_some());
    world.volume.metadata.deletion_timestamp = Some(meta::Time(world.now));
    world.run(2);
    assert!(world.replicas.is_empty());
}

#[test]
fn a_copy_ends_when_its_engine_has_let_go_of_it_and_not_under_it() {
    for shrinks in [false, true] {
        let mut world = attached();
        world.volume.spec.number_of_replicas = Some(3);
        world.run(12);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        if shrinks {
            world.volume.spec.number_of_replicas = Some(2);
        } else {
            world.delete_copy(0);
        }
        let before = world.replicas.len();
        for _ in 0..20 {
            world.pass();
            let modes = world.engine.as_ref().unwrap().status.clone().unwrap();
            let modes = modes.replica_mode_map.unwrap_or_default();
            for replica in world.replicas.iter().filter(|it| is_leaving(it)) {
                let mode = modes.get(&replica.name_any());
                assert_eq!(mode, None, "{} ends under its engine", replica.name_any());
            }
            world.obey();
            world.now += SignedDuration::from_millis(200);
        }
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        assert_eq!(world.replicas.len(), before - usize::from(shrinks));
        assert!(world.replicas.iter().all(|it| it.metadata.deletion_timestamp.is_none()));
    }
}

#[test]
fn one_of_several_good_copies_goes_at_once() {
    let mut world = attached();
    let name = world.delete_copy(0);
    world.run(2);
    assert!(world.replicas.iter().all(|it| it.name_any() != name));
    assert!(world.condition("LastCopy").is_none());
}

#[test]
fn copies_that_are_filled_are_named() {
    let mut world = attached();
    assert!(world.condition("Rebuilding").is_none());
    world.kill(0);
    let mut named = Vec::new();
    for _ in 0..20 {
        world.run(1);
        let told = world.condition("Rebuilding");
        named.extend(
            told.filter(|it| it.status == api::condition::Status::True).map(|it| it.message),
        );
    }
    assert!(!named.is_empty() && named[0].as_deref().unwrap().contains("on node n1"), "{named:?}");
    let told = world.condition("Rebuilding").unwrap();
    assert_eq!(told.status, api::condition::Status::False);
}
