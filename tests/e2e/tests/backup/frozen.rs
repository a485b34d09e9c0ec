//! A deletion that is stopped in the middle of its sweep until its lock has ended, and then goes on: two
//! real processes, and a real signal.

use std::time::Duration;

use e2e::backup::{BLOCK, Source, Target, backup_key, block_key};
use rustix::process::{Pid, Signal, kill_process};
use testkit::process::{Process, Scratch, poll_until};

use crate::in_directory;

/// So many that the sweep is not over before the signal comes, also where that has to wait its turn.
const ORPHANS: u32 = 30_000;
/// A lock ends after 150 s; the rest is for a slow machine.
const PASSED_WITHIN: Duration = Duration::from_mins(6);
const ENDED_WITHIN: Duration = Duration::from_mins(5);

fn signal(process: &Process, signal: Signal) {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, signal).unwrap();
}

#[test]
fn a_frozen_deleter_does_not_go_on_when_its_lock_has_ended() {
    in_directory(frozen);
}

fn frozen(target: &Target) {
    let scratch = Scratch::new().unwrap();
    let mut source = Source::start(1, 16);
    let volume = source.name().to_owned();
    for block in 0..8_u8 {
        source.write(u64::from(block) * BLOCK, &[b'a' + block; 4096]);
    }
    source.snapshot("one");
    source.back_up(target, "one", "backup-one", &[]);
    // As after a deletion that died: all its blocks are nobody's, with many others.
    let Target::Directory(root) = target else { panic!("it is a directory") };
    std::fs::remove_file(root.join(backup_key(&volume, "backup-one"))).unwrap();
    let orphan = |number| (block_key(&volume, &format!("{number:064x}")), b"x".to_vec());
    let orphans: Vec<_> = (0..ORPHANS).map(orphan).collect();
    target.put_all(&orphans);
    let url = target.url();
    let command = target.cli().command(&["backup", "gc", "--volume", &volume, &url]);
    let mut deleter = Process::start(command, scratch.path(), "gc").unwrap();
    let first = root.join(&orphans[0].0);
    poll_until(ENDED_WITHIN, || (!first.exists()).then_some(())).expect("it sweeps");
    signal(&deleter, Signal::STOP);
    assert!(target.blocks(&volume).len() > 8, "it was stopped in time");

    // Refused until the deleter's lock has ended; then the blocks of the first are found and used.
    let backed_up =
        poll_until(PASSED_WITHIN, || source.try_back_up(target, "one", "backup-two", &[]).ok());
    backed_up.expect("a lock that nobody renews is passed");
    signal(&deleter, Signal::CONT);
    let status = deleter.wait_for_exit(ENDED_WITHIN).unwrap();
    let said = format!("{}{}", deleter.stdout(), deleter.stderr());
    assert!(!status.success() && said.contains("lost the lock"), "{status:?} {said}");
    let (ran, report) = target.verify(&volume);
    assert_eq!(ran.code, Some(0), "{report}");
    assert_eq!(report["healthy"][0], "backup-two", "{report}");
    let image = target.image(&volume, "backup-two", source.size_bytes()).unwrap();
    assert!(image == source.snapshots["one"]);
    println!("a frozen deleter: passed, woken, stopped; {} orphans left", report["orphanBlocks"]);
}
