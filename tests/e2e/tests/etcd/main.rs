//! The guard of an etcd member, as etcd, its wrapper and an operator see it: processes, HTTP, files
//! and leases, with a real etcd and its own tools to judge what came of it.

mod collection;
mod compaction;
mod drills;
mod faults;
mod http;
mod initialization;
mod leases;
mod objects;
mod restoring;
mod tls;

use e2e::guard::{Rig, Sidecar};

/// Far from any snapshot, so that only what a test asks for is taken.
const QUIET: [&str; 1] = ["--delta-snapshot-period=10m"];

/// A guard that leads and has taken its first full snapshot.
#[track_caller]
fn guarded(rig: &mut Rig, arguments: &[&str]) -> Sidecar {
    let all: Vec<&str> = QUIET.iter().chain(arguments).copied().collect();
    let mut sidecar = rig.sidecar(&all);
    sidecar.wait_until_healthy();
    rig.wait_for_objects("Full", 1);
    sidecar
}

/// A full snapshot of 20 keys, and `deltas` of some changes each, of all sorts.
#[track_caller]
fn history(rig: &mut Rig, deltas: u32) {
    for key in 0..20 {
        rig.put(&format!("base/{key:03}"), &format!("value {key}"));
    }
    let sidecar = guarded(rig, &[]);
    for round in 0..deltas {
        for key in 0..5 {
            rig.put(&format!("base/{:03}", key * 3 + round), &format!("round {round}"));
        }
        rig.put(&format!("empty/{round}"), "");
        rig.delete(&format!("base/{:03}", round + 1));
        rig.put("again", "x");
        rig.delete("again");
        assert!(sidecar.json("/snapshot/delta").is_object());
    }
    assert_eq!(sidecar.stop(), Some(0));
}

/// What an object's name ends with, behind its last dot.
fn extension(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, extension)| extension)
}
