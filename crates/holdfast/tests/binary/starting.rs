//! How the binary is called, and how controllers that cannot start end.

use std::path::Path;
use std::process::Command;

use testkit::process::Process;

use crate::rig::{Outcome, Rig, TIMEOUT};

const SIZE: u64 = 4 << 20;

fn holdfast_path() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holdfast"))
}

fn holdfast(words: &[&str]) -> Outcome {
    Command::new(holdfast_path()).args(words).output().unwrap().into()
}

#[test]
fn both_names_speak_the_dialect() {
    let rig = Rig::new("names");
    let long: Outcome =
        Command::new(&rig.program).args(["version", "--client-only"]).output().unwrap().into();
    let short = holdfast(&["engine", "version", "--client-only"]);
    assert_eq!((long.code, short.code), (Some(0), Some(0)));
    assert_eq!(long.out, short.out);
    assert!(short.out.starts_with("{\n\t\"clientVersion\": {\n"), "{}", short.out);

    for (words, start) in [
        (vec!["engine", "--help"], "Usage: holdfast engine [global flags] COMMAND"),
        (vec!["engine"], "Usage: holdfast engine [global flags] COMMAND"),
        (vec!["engine", "add", "--help"], "Usage: holdfast engine [global flags] add-replica"),
        (vec!["engine", "--version"], "holdfast engine version "),
        (vec!["--help"], "  engine "),
    ] {
        let outcome = holdfast(&words);
        assert_eq!(outcome.code, Some(0), "{words:?}");
        assert!(outcome.out.contains(start), "{words:?}: {}", outcome.out);
    }
    let unknown = holdfast(&["engine", "inof"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(1), "unrecognized command: inof\n"));
    // What stands behind the first word belongs to the engine, whatever it looks like.
    let passed = holdfast(&["engine", "--url", "nowhere", "snapshot", "create", "--", "--help"]);
    assert_eq!(passed.code, Some(1));
    assert!(passed.err.contains("has no port"), "{}", passed.err);
}

#[test]
fn a_controller_whose_replicas_all_failed_ends_with_61() {
    let mut rig = Rig::new("dead");
    // Never created, so there is nothing in it to open.
    rig.add_replica(0);
    let address = rig.replicas[0].address();
    rig.launch_controller(SIZE, &[address], &[]);
    let mut controller = rig.controller.take().unwrap();
    assert_eq!(controller.wait_for_exit(TIMEOUT).unwrap().code(), Some(61));
    let err = controller.stderr();
    let last = err.lines().last().unwrap();
    assert!(last.contains("level=fatal"), "{last}");
    assert!(last.contains("error=\"no available backend due to replica error"), "{last}");
}

#[test]
fn a_controller_that_cannot_reach_a_replica_ends_with_1() {
    let mut rig = Rig::new("away");
    rig.add_replica(SIZE);
    rig.replicas[0].process.take().unwrap().kill().unwrap();
    let address = rig.replicas[0].address();
    rig.launch_controller(SIZE, &[address], &[]);
    let mut controller = rig.controller.take().unwrap();
    assert_eq!(controller.wait_for_exit(TIMEOUT).unwrap().code(), Some(1));
    let err = controller.stderr();
    assert!(err.contains("error=\"no available backend due to service unavailable"), "{err}");
}

#[test]
fn a_replica_that_cannot_use_its_directory_says_so_and_ends_with_1() {
    let rig = Rig::new("nowhere");
    // Nobody, not even root, can make a directory below a file.
    let file = rig.path("file");
    durable::replace(&file, b"in the way").unwrap();
    let dir = file.join("replica");
    for words in [&["replica"][..], &["engine", "replica"]] {
        let program = if words.len() == 1 { &*rig.program } else { holdfast_path() };
        let mut command = Command::new(program);
        command.args(words).arg(&dir).args(["--size", "4194304", "--listen", "127.0.0.1:0"]);
        let mut replica = Process::start(command, &rig.path(""), "replica").unwrap();
        assert_eq!(replica.wait_for_exit(TIMEOUT).unwrap().code(), Some(1), "{words:?}");
        let err = replica.stderr();
        let wanted = format!("cannot use the directory {}: Not a directory", dir.display());
        assert!(err.lines().last().unwrap().contains(&wanted), "{words:?}: {err}");
    }
}

#[test]
fn names_of_another_volume_are_refused() {
    let mut rig = Rig::new("mine");
    rig.add_replica(SIZE);
    rig.start_volume(SIZE);
    let text = rig.error("--volume-name other info");
    assert!(text.contains("incorrect volume name other; check controller address"), "{text}");
    let text = rig.error("--engine-instance-name other info");
    assert!(text.contains("incorrect instance name other; check controller address"), "{text}");
    rig.add_replica(SIZE);
    let second = rig.replicas[1].address();
    let text = rig.error(&format!(
        "add {second} --size {SIZE} --current-size {SIZE} --replica-instance-name other"
    ));
    assert!(text.contains("incorrect instance name other; check replica address"), "{text}");
    assert_eq!(rig.modes(), ["RW"]);
}
