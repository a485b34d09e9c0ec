//! What is different for people: errors in sentences with a hint, and exit codes that tell what
//! became of the work, where a peer's command tells only that it could ask.

use rpc::ptypes::{
    BackupCreateResponse, BackupStatusResponse, DiskInfo, Replica, RestoreStatusResponse,
};

use crate::world::{Outcome, World, run, run_by_hand};

fn told(outcome: &Outcome, error: &str, hint: &str) {
    assert_eq!(outcome.exit_code, 1, "{}", outcome.err);
    let lines: Vec<&str> = outcome.err.lines().collect();
    let has = |at: usize, start: &str, text: &str| {
        lines.get(at).is_some_and(|line| line.starts_with(start) && line.contains(text))
    };
    let last = lines.len().saturating_sub(1);
    assert!(has(last - 1, "error: ", error) && has(last, "hint: ", hint), "{}", outcome.err);
}

#[test]
fn a_server_that_is_not_there_is_named_with_its_address() {
    // Nothing listens at the discard port of this machine, and nothing may.
    let outcome = run_by_hand("--url http://127.0.0.1:1 info");
    told(&outcome, "http://127.0.0.1:1", "--url");
    assert!(!outcome.err.contains("rpc error"), "{}", outcome.err);
}

#[test]
fn mistyped_words_are_answered_with_what_was_meant() {
    told(&run_by_hand("inof"), "inof", "did you mean info?");
    told(&run_by_hand("backup ls vfs:///a --volum x"), "volum", "did you mean --volume?");
    told(&run_by_hand("controller vol"), "--size is required", "controller --help");
}

#[test]
fn what_is_not_there_cannot_be_removed() {
    let world = World::healthy(1);
    world.replicas[0].is(Replica::default());
    told(&world.run_by_hand("snapshot rm gone"), "the snapshot gone is not there", "snapshot ls");
    told(&world.run_by_hand("rm tcp://127.0.0.1:9"), "is not there", "ls-replica");
    assert!(!world.called().iter().any(|call| call.contains("removed") || call.contains("delete")));
}

#[test]
fn a_backup_that_failed_is_no_success() {
    let world = World::healthy(1);
    let status = BackupStatusResponse {
        state: "error".into(),
        error: "the store is full".into(),
        ..BackupStatusResponse::default()
    };
    world.replicas[0].agent.on("backup_status", status);
    assert_eq!(world.run("backup status b").exit_code, 0, "a peer's scripts read the JSON");
    let outcome = world.run_by_hand("backup status b");
    assert_eq!(outcome.exit_code, 1);
    assert!(outcome.out.contains("\"error\":\"the store is full\""), "{}", outcome.out);
    assert!(outcome.err.contains("error: backup b failed: the store is full"), "{}", outcome.err);
}

#[test]
fn a_restore_that_left_something_out_is_no_success() {
    let world = World::healthy(1);
    let status = RestoreStatusResponse {
        state: "complete".into(),
        progress: 100,
        holdfast_left_out: "1 block".into(),
        ..RestoreStatusResponse::default()
    };
    world.replicas[0].agent.on("restore_status", status);
    assert_eq!(world.run("backup restore-status").exit_code, 0);
    let outcome = world.run_by_hand("backup restore-status");
    assert_eq!(outcome.exit_code, 1);
    assert!(outcome.err.contains("left out: 1 block"), "{}", outcome.err);
}

#[test]
fn a_target_whose_directory_is_missing_is_not_empty() {
    let place = tempfile::tempdir().unwrap();
    let target = format!("vfs://{}/mistyped", place.path().display());
    assert_eq!(run(&format!("backup ls {target}")).exit_code, 0);
    told(&run_by_hand(&format!("backup ls {target}")), "mistyped", "mount");
    let there = format!("vfs://{}", place.path().display());
    let empty = run_by_hand(&format!("backup ls -o wide {there}"));
    assert_eq!((empty.exit_code, empty.out.as_str()), (0, ""));
    assert!(empty.err.contains("there are no backups"), "{}", empty.err);
    told(&run_by_hand(&format!("backup scrub --once {there}")), "a backup at", "right target");
}

/// A volume whose replica has a snapshot `s` and is in the middle of a backup, or at its end.
fn backing_up(state: &str, error: &str) -> World {
    let world = World::healthy(1);
    let disks = ["volume-head-001.img", "volume-snap-s.img"];
    let disks = disks.map(|name| (name.to_owned(), DiskInfo::default())).into();
    world.replicas[0].is(Replica { disks, ..Replica::default() });
    let reply = BackupCreateResponse { backup: "b".into(), is_incremental: false };
    world.replicas[0].agent.on("backup_create", reply);
    let (state, error) = (state.into(), error.into());
    let status = BackupStatusResponse { state, error, progress: 7, ..Default::default() };
    world.replicas[0].agent.on("backup_status", status);
    world
}

#[test]
fn a_backup_that_is_waited_for_ends_as_the_backup_does() {
    let line = "backup create s --dest vfs:///t --wait";
    let whole = backing_up("complete", "").run_by_hand(line);
    assert_eq!(whole.exit_code, 0, "{}", whole.err);
    assert!(whole.out.contains("\"state\":\"complete\""), "{}", whole.out);

    let failed = backing_up("error", "the store is full").run_by_hand(line);
    assert_eq!(failed.exit_code, 1);
    assert!(failed.err.contains("error: backup b failed: the store is full"), "{}", failed.err);

    let slow = backing_up("in_progress", "").run_by_hand(&format!("{line} --wait-timeout 0s"));
    assert_eq!(slow.exit_code, 1);
    assert!(slow.err.contains("longer than --wait-timeout allows; it goes on"), "{}", slow.err);
}

#[test]
fn what_cannot_be_waited_for_is_not_begun() {
    let world = backing_up("complete", "");
    let line = "backup create s --dest vfs:///t --wait --wait-timeout soon";
    let outcome = world.run_by_hand(line);
    assert_eq!(outcome.exit_code, 1);
    assert!(outcome.err.contains("\"soon\" is not a time"), "{}", outcome.err);
    assert_eq!(world.calls_of("backup_create").len(), 0);
}
