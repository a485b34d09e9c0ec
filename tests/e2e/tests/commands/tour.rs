//! The tour.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use e2e::server::binary;
use serde_json::Value;
use testkit::process::poll_until;

use crate::shell::{Shell, TIMEOUT, text};

#[test]
fn the_tour_ends_well_and_leaves_nothing() {
    let shell = Shell::start();
    let etcd = testkit::etcd::program("etcd");
    let mut tour = Command::new(binary());
    tour.args(["demo", "--mebibytes", "32", "--kubeconfig"]).arg(shell.server.kubeconfig());
    tour.env_remove("KUBECONFIG").current_dir(shell.server.scratch());
    if let Ok(etcd) = &etcd {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = etcd.parent().map(Path::to_owned).into_iter();
        let folders = folders.chain(std::env::split_paths(&path));
        tour.env("PATH", std::env::join_paths(folders).unwrap());
    }
    let ended = tour.output().unwrap();
    let told = text(&ended.stdout);
    assert!(ended.status.success(), "{told}\n{}", text(&ended.stderr));
    assert!(told.contains("every byte was as it should be"), "{told}");
    assert!(told.contains("status is in-use, backup_status is backing-up"), "{told}");
    assert!(told.contains("all 16 MiB of demo-block-back are as they were written"), "{told}");
    assert!(told.contains("The dashboard shows the same in a browser: http://"), "{told}");
    match etcd {
        Ok(_) => assert!(told.contains("all 110 keys are back as they were written"), "{told}"),
        Err(why) => {
            assert!(told.contains("skipped: there is no etcd on the PATH"), "{told}");
            e2e::skip(&why);
        }
    }
    let rate = shell.json(&["target", "ls"]);
    for target in rate.as_array().unwrap() {
        let left = target.pointer("/metadata/annotations").cloned().unwrap_or_default();
        assert!(!left.to_string().contains("holdfast.io/demo"), "{target}");
    }
    assert_eq!(shell.json(&["volume", "ls"]), Value::Array(Vec::new()));
    assert_eq!(shell.json(&["backup", "ls"]), Value::Array(Vec::new()));
    let targets = shell.run(&["target", "ls", "-o", "name"]);
    assert_eq!(targets.trim(), "backuptargets.longhorn.io/default");
}

#[test]
fn the_tour_touches_nothing_of_others() {
    let shell = Shell::start();
    let size = ["--size", "2MiB", "--replicas", "1", "--wait"];
    shell.run(&[["volume", "create", "demo-data"].as_slice(), &size].concat());
    let store = format!("vfs://{}", shell.server.scratch().join("store").display());
    shell.run(&["target", "set", &store, "--name", "demo-target", "--wait"]);
    let told = shell.refused(&["demo"]);
    let names = "names that somebody else uses: volume demo-data, backuptarget demo-target";
    assert!(told.contains(names), "{told}");
    assert!(told.contains("hint: nothing was touched"), "{told}");
    shell.run(&["demo", "--clean"]);
    let there = |of: &str| shell.run(&[of, "ls", "-o", "name"]);
    assert!(there("volume").contains("volumes.longhorn.io/demo-data"), "a volume is gone");
    assert!(there("target").contains("backuptargets.longhorn.io/demo-target"), "a target is gone");
}

#[test]
fn a_tour_that_is_interrupted_leaves_nothing_and_says_so() {
    let shell = Shell::start();
    let temporary = shell.server.scratch().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let demo = |more: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("demo").args(more).arg("--kubeconfig").arg(shell.server.kubeconfig());
        command.env("TMPDIR", &temporary).env_remove("KUBECONFIG");
        command
    };
    let tour = demo(&["--keep"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_under_way =
        || shell.run(&["volume", "ls", "-o", "name"]).contains("demo-data").then_some(());
    assert!(poll_until(TIMEOUT, is_under_way).is_some(), "the tour makes no volume");
    interrupt(&tour);
    let ended = end_of(tour);
    assert!(!ended.status.success());
    assert!(text(&ended.stderr).contains("interrupted by Ctrl-C"), "{}", text(&ended.stderr));

    // It was told to leave what it made: the next one names all of it, and how to be rid of it.
    let next = demo(&[]).output().unwrap();
    let told = text(&next.stderr);
    assert!(told.contains("volume demo-data") && told.contains("demo --clean"), "{told}");
    let clean = demo(&["--clean"]).output().unwrap();
    assert!(clean.status.success(), "{}", text(&clean.stderr));
    nothing_is_left(&shell, &temporary);

    let mut tour = demo(&["--step"]);
    tour.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tour = tour.spawn().unwrap();
    // Enter for the first step; then it waits at the second.
    tour.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let has_target =
        || shell.run(&["target", "ls", "-o", "name"]).contains("demo-target").then_some(());
    assert!(poll_until(TIMEOUT, has_target).is_some(), "the tour makes no target");
    interrupt(&tour);
    let ended = end_of(tour);
    assert!(!ended.status.success());
    nothing_is_left(&shell, &temporary);
}

fn end_of(mut tour: Child) -> Output {
    let is_over = || tour.try_wait().unwrap();
    if poll_until(TIMEOUT, is_over).is_none() {
        tour.kill().unwrap();
        panic!("the tour does not end");
    }
    tour.wait_with_output().unwrap()
}

fn interrupt(tour: &Child) {
    let status = Command::new("kill").args(["-INT", &tour.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn nothing_is_left(shell: &Shell, temporary: &Path) {
    assert_eq!(shell.json(&["volume", "ls"]), Value::Array(Vec::new()));
    let targets = shell.run(&["target", "ls", "-o", "name"]);
    assert_eq!(targets.trim(), "backuptargets.longhorn.io/default");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0, "a directory is left");
}
