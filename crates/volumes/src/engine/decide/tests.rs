use api::longhorn::{InstanceSpec, ReplicaMode as M};

use super::*;

mod walk;

const SIZE: i64 = 1 << 20;

fn at(port: u16) -> String {
    format!("tcp://h:{port}")
}

/// A running engine of two copies, `a` at port 1 and `b` at port 2, with nothing to do.
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself")]
struct World {
    spec: EngineSpec,
    status: EngineStatus,
    look: Look,
    adding: Option<String>,
    resting: BTreeSet<String>,
    rejections: BTreeMap<String, String>,
    asking_restore: bool,
    may_restore: bool,
    asking_clone: bool,
    clone_failure: Option<String>,
    backup_size: Option<i64>,
    is_older: bool,
    now: Timestamp,
}

fn world() -> World {
    let spec = EngineSpec {
        instance: InstanceSpec { volume_size: Some(TextInt(SIZE)), ..InstanceSpec::default() },
        replica_address_map: Some(BTreeMap::from([
            ("a".into(), "h:1".into()),
            ("b".into(), "h:2".into()),
        ])),
        ..EngineSpec::default()
    };
    let modes = BTreeMap::from([(at(1), M::ReadWrite), (at(2), M::ReadWrite)]);
    World {
        spec,
        status: EngineStatus::default(),
        look: Look { size: SIZE, modes, ..Look::default() },
        adding: None,
        resting: BTreeSet::new(),
        rejections: BTreeMap::new(),
        asking_restore: false,
        may_restore: true,
        asking_clone: false,
        clone_failure: None,
        backup_size: Some(SIZE),
        is_older: false,
        now: Timestamp::from_second(1_000_000).unwrap(),
    }
}

impl World {
    fn decide(&self) -> Verdict {
        decide(&Seen {
            now: self.now,
            spec: &self.spec,
            status: &self.status,
            look: &self.look,
            is_full: true,
            adding: self.adding.as_deref(),
            resting: &self.resting,
            asking_restore: self.asking_restore,
            may_restore: self.may_restore,
            may_expand: true,
            rejections: &self.rejections,
            asking_clone: self.asking_clone,
            clone_failure: self.clone_failure.as_deref(),
            backup_size: self.backup_size,
            is_older: self.is_older,
        })
    }

    /// How far the copying of `snap://s/x` is: a word for each copy.
    fn cloning(mut self, words: &[(u16, &str)]) -> Self {
        self.spec.requested_data_source = Some("snap://s/x".into());
        for (port, word) in words {
            let clone = EngineCloneStatus {
                is_cloning: Some(*word == "in_progress"),
                state: Some(ProgressState::from(*word)),
                error: Some(String::new()),
                ..EngineCloneStatus::default()
            };
            self.look.clones.insert(at(*port), clone);
        }
        self
    }

    /// The copies hold these backups; `*` marks one that restores.
    fn restoring(mut self, wanted: &str, held: &[(u16, &str)]) -> Self {
        self.spec.requested_backup_restore = Some(wanted.into());
        for (port, backup) in held {
            let restore = EngineRestoreStatus {
                is_restoring: Some(backup.starts_with('*')),
                last_restored: Some(backup.trim_start_matches('*').to_owned()),
                ..EngineRestoreStatus::default()
            };
            self.look.restores.insert(at(*port), restore);
        }
        self
    }
}

#[test]
fn a_quiet_engine_is_left_alone() {
    let verdict = world().decide();
    assert_eq!(verdict.acts, []);
    assert!(!verdict.busy);
    let modes = verdict.status.replica_mode_map.unwrap();
    assert_eq!(
        modes.into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), M::ReadWrite), ("b".to_owned(), M::ReadWrite)]
    );
}

#[test]
fn one_copy_at_a_time_is_added() {
    let mut it = world();
    it.look.modes.remove(&at(2));
    let add = Act::Add { name: "b".into(), address: at(2), restore: false };
    assert_eq!(it.decide().acts, [add]);
    it.resting.insert("b".into());
    assert_eq!(it.decide().acts, []);
    it.resting.clear();
    it.adding = Some(at(2));
    assert_eq!(it.decide().acts, []);
    it.adding = None;
    it.look.modes.insert(at(3), M::WriteOnly);
    assert!(!it.decide().acts.iter().any(|act| matches!(act, Act::Add { .. })));
    it.look.modes = BTreeMap::from([(at(1), M::Error)]);
    assert_eq!(it.decide().acts, []);
}

#[test]
fn copies_of_no_plan_go_but_never_the_last_that_can_be_read() {
    let mut it = world();
    it.look.modes.insert(at(9), M::ReadWrite);
    assert_eq!(it.decide().acts, [Act::Remove { address: at(9) }]);
    let unknown = it.decide().status.replica_mode_map.unwrap();
    assert!(unknown.contains_key("UNKNOWN-tcp://h:9"));
    it.look.modes = BTreeMap::from([(at(9), M::ReadWrite), (at(1), M::WriteOnly)]);
    assert!(it.decide().acts.is_empty());
    // An engine does not let go of the only one that it has, whatever it is.
    for mode in [M::WriteOnly, M::Error] {
        it.look.modes = BTreeMap::from([(at(9), mode)]);
        assert_eq!(it.decide().acts, []);
    }
    it.spec.replica_address_map = None;
    assert_eq!(it.decide().acts, []);
}

#[test]
fn a_copy_that_is_filled_from_a_backup_is_told_as_one_that_is_rebuilt() {
    let mut it = world().restoring("b2", &[(1, "b2"), (2, "*")]);
    it.look.modes.insert(at(2), M::WriteOnly);
    it.look.restores.get_mut(&at(2)).unwrap().progress = Some(40);
    let nothing = EngineRebuildStatus { state: Some(ProgressState::Unset), ..Default::default() };
    it.look.rebuilds.insert(at(2), nothing);
    let told = it.decide().status.rebuild_status.unwrap();
    let one = &told[&at(2)];
    assert_eq!((one.is_rebuilding, one.progress), (Some(true), Some(40)));
    assert_eq!(one.state, Some(ProgressState::InProgress));
    assert_eq!(told.len(), 1, "one that serves was rebuilt");
}

#[test]
fn a_volume_that_grows_gives_up_copies_that_are_being_filled_and_adds_none() {
    let mut it = world();
    it.spec.instance.volume_size = Some(TextInt(2 * SIZE));
    assert_eq!(it.decide().acts, [Act::Expand { size: 2 * SIZE }]);
    it.look.modes.insert(at(2), M::WriteOnly);
    assert_eq!(it.decide().acts, [Act::Fail { address: at(2) }]);
    it.look.modes.remove(&at(2));
    it.look.is_expanding = true;
    assert_eq!(it.decide().acts, []);
}

#[test]
fn a_restore_is_asked_for_while_one_copy_lacks_the_backup_and_does_not_restore() {
    let asked = |held: &[(u16, &str)]| {
        let acts = world().restoring("b2", held).decide().acts;
        acts == [Act::Restore { backup: "b2".into() }]
    };
    assert!(asked(&[(1, ""), (2, "")]));
    assert!(asked(&[(1, "b1"), (2, "b1")]));
    assert!(asked(&[(1, "b2"), (2, "b1")]));
    assert!(asked(&[(1, "*b1"), (2, "b1")]));
    assert!(!asked(&[(1, "*b1"), (2, "*b1")]));
    assert!(!asked(&[(1, "b2"), (2, "*b1")]));
    assert!(!asked(&[(1, "b2"), (2, "b2")]));
}

#[test]
fn copies_of_an_older_engine_restore_together_and_none_is_filled() {
    let asked = |held: &[(u16, &str)]| {
        let mut it = world().restoring("b2", held);
        it.is_older = true;
        it.decide().acts == [Act::Restore { backup: "b2".into() }]
    };
    assert!(asked(&[(1, ""), (2, "")]));
    assert!(asked(&[(1, "b1"), (2, "b1")]));
    assert!(asked(&[(1, "b2"), (2, "b1")]), "nothing else would ever bring it forward");
    assert!(!asked(&[(1, "*b1"), (2, "b1")]));
    assert!(!asked(&[(1, "*b1"), (2, "b2")]));
    assert!(!asked(&[(1, "b1")]), "one has not answered");
    assert!(!asked(&[(1, "b2"), (2, "b2")]));
    let mut it = world().restoring("b2", &[(1, "b1")]);
    it.look.modes.remove(&at(2));
    it.is_older = true;
    assert_eq!(it.decide().acts, [Act::Restore { backup: "b2".into() }]);
}

#[test]
fn what_all_hold_is_noted_and_never_waited_for() {
    let held = |held: &[(u16, &str)]| {
        world().restoring("b2", held).decide().status.last_restored_backup.unwrap()
    };
    assert_eq!(held(&[(1, "b1"), (2, "b1")]), "b1");
    assert_eq!(held(&[(1, "b2"), (2, "b2")]), "b2");
    assert_eq!(held(&[(1, "b2"), (2, "b1")]), "");
    assert_eq!(held(&[(1, "b2"), (2, "")]), "");
    assert_eq!(held(&[(1, "b2")]), "");
}

/// It was deleted and made again: what the copies hold is an earlier one of its name.
#[test]
fn a_backup_of_the_newest_ones_name_that_is_older_is_not_the_newest() {
    let at_second = |second| Timestamp::from_second(second).unwrap();
    let after = |held: &[(u16, i64)], newest: &str| {
        let mut it = world().restoring("b2", &[(1, "b2"), (2, "b2")]);
        it.look.restored_at =
            held.iter().map(|(port, second)| (at(*port), at_second(*second))).collect();
        it.look.forget_earlier(newest, at_second(100));
        let verdict = it.decide();
        let asked = verdict.acts == [Act::Restore { backup: "b2".into() }];
        (asked, verdict.status.last_restored_backup.unwrap())
    };
    let (asked, whole) = ((true, String::new()), (false, "b2".to_owned()));
    assert_eq!(after(&[(1, 100), (2, 100)], "b2"), whole);
    assert_eq!(after(&[(1, 99), (2, 99)], "b2"), asked);
    assert_eq!(after(&[(1, 100), (2, 99)], "b2"), asked);
    // The store was read before what they hold was made; it is not the newest; it does not say.
    assert_eq!(after(&[(1, 101), (2, 101)], "b2"), whole);
    assert_eq!(after(&[(1, 99), (2, 99)], "b3"), whole);
    assert_eq!(after(&[], "b2"), whole);
}

#[test]
fn nothing_is_restored_while_copies_purge_or_one_has_failed_or_sizes_differ() {
    let base = || world().restoring("b2", &[(1, "b1"), (2, "b1")]);
    let mut it = base();
    let purging = EnginePurgeStatus { is_purging: Some(true), ..EnginePurgeStatus::default() };
    it.look.purges.insert(at(1), purging);
    assert_eq!(it.decide().acts, []);
    let mut it = base();
    it.rejections.insert(at(1), "the disk is full".into());
    let verdict = it.decide();
    assert_eq!(verdict.acts, []);
    let error = verdict.status.restore_status.unwrap()[&at(1)].error.clone();
    assert_eq!(error.as_deref(), Some("the disk is full"));
    let mut it = base();
    it.backup_size = Some(2 * SIZE);
    assert_eq!(it.decide().acts, []);
    let mut it = base();
    it.may_restore = false;
    assert_eq!(it.decide().acts, []);
    it.may_restore = true;
    it.asking_restore = true;
    assert_eq!(it.decide().acts, []);
}

#[test]
fn a_write_only_copy_that_has_restored_serves_and_one_that_is_missing_is_added_for_restore() {
    let mut it = world().restoring("b2", &[(1, "b2"), (2, "b2")]);
    it.look.modes.insert(at(2), M::WriteOnly);
    assert_eq!(it.decide().acts, [Act::Verify { address: at(2) }]);
    let mut it = world().restoring("b2", &[(1, "b2")]);
    it.look.modes.remove(&at(2));
    assert_eq!(it.decide().acts, [Act::Add { name: "b".into(), address: at(2), restore: true }]);
    // It is not looked at before it has answered.
    let mut it = world().restoring("b2", &[(1, "b2")]);
    it.look.modes.insert(at(2), M::WriteOnly);
    assert_eq!(it.decide().acts, []);
}

#[test]
fn a_copy_nobody_fills_is_given_up_after_a_while_and_a_filled_one_serves() {
    let mut it = world();
    it.look.modes.insert(at(2), M::WriteOnly);
    let rebuild = |state: &str, is| EngineRebuildStatus {
        is_rebuilding: Some(is),
        state: Some(ProgressState::from(state)),
        ..EngineRebuildStatus::default()
    };
    it.look.rebuilds.insert(at(2), rebuild("", false));
    let first = it.decide();
    assert_eq!(first.acts, []);
    it.status = first.status;
    it.now += Duration::from_secs(31);
    assert_eq!(it.decide().acts, [Act::Fail { address: at(2) }]);
    // Seen first by a clock that was ahead.
    it.now -= Duration::from_hours(24);
    assert_eq!(it.decide().acts, [Act::Fail { address: at(2) }]);
    it.look.rebuilds.insert(at(2), rebuild("in_progress", true));
    assert_eq!(it.decide().acts, []);
    it.look.rebuilds.insert(at(2), rebuild("complete", false));
    assert_eq!(it.decide().acts, [Act::Verify { address: at(2) }]);
}

#[test]
fn the_frontend_follows_the_plan() {
    let mut it = world();
    it.spec.frontend = Some(Frontend::BlockDevice);
    assert_eq!(it.decide().acts, [Act::StartFrontend]);
    it.look.frontend_up = true;
    assert_eq!(it.decide().acts, []);
    it.spec.disable_frontend = Some(true);
    assert_eq!(it.decide().acts, [Act::StopFrontend]);
}

#[test]
fn an_engine_that_stopped_says_nothing_but_its_size_and_snapshots() {
    let running = world().decide().status;
    let silent = silent(&running);
    assert_eq!(silent.replica_mode_map, None);
    assert_eq!(silent.endpoint, None);
    assert_eq!(silent.current_size, Some(TextInt(SIZE)));
}

#[test]
fn another_volume_is_copied_once_and_nothing_else_is_done_meanwhile() {
    let asked = Act::Clone { source: "snap://s/x".into() };
    let fresh = world().cloning(&[(1, ""), (2, "")]);
    let verdict = fresh.decide();
    assert_eq!(verdict.acts, [asked]);
    assert!(verdict.busy);
    let mut larger = world().cloning(&[(1, "in_progress"), (2, "")]);
    larger.spec.instance.volume_size = Some(TextInt(2 * SIZE));
    larger.asking_clone = true;
    assert_eq!(larger.decide().acts, []);
    for words in [["complete", "complete"], ["in_progress", ""], ["error", "error"]] {
        let world = world().cloning(&[(1, words[0]), (2, words[1])]);
        assert_eq!(world.decide().acts, [], "{words:?}");
    }
    let mut filling = world().cloning(&[(1, ""), (2, "")]);
    filling.look.modes.insert(at(2), M::WriteOnly);
    assert_eq!(filling.decide().acts, []);
}

#[test]
fn a_copy_that_was_not_asked_with_the_others_is_told_as_failed() {
    let errors = |world: &World| -> Vec<String> {
        let all = world.decide().status.clone_status.unwrap();
        all.into_values().map(|it| it.error.unwrap()).collect()
    };
    let left_out = world().cloning(&[(1, "complete"), (2, "")]);
    assert_eq!(errors(&left_out), ["", NEVER_BEGUN]);
    let mut waits = world().cloning(&[(1, "complete"), (2, "")]);
    waits.asking_clone = true;
    assert_eq!(errors(&waits), ["", ""]);
    let runs = world().cloning(&[(1, "in_progress"), (2, "")]);
    assert_eq!(errors(&runs), ["", ""]);
    let mut refused = world().cloning(&[(1, ""), (2, "")]);
    refused.clone_failure = Some("no source".into());
    assert_eq!(errors(&refused), ["no source", "no source"]);
    assert_eq!(refused.decide().acts, []);
    // What was told of an earlier try is forgotten.
    let mut over = left_out;
    over.spec.requested_data_source = Some(String::new());
    assert_eq!(over.decide().status.clone_status, Some(BTreeMap::new()));
}
