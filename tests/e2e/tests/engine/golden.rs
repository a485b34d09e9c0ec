//! A replica directory written by another engine, served by this one.

use std::process::Command;

use e2e::engine::{Frontend, Setup, Volume, run, sum};
use serde_json::Value;

/// The archive is that of the replica crate.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/replica/tests/golden");

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_engine_reads_as_it_did_there() {
    let text = std::fs::read(format!("{GOLDEN}/expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&text).unwrap();
    let size_bytes = expected["size"].as_u64().unwrap();
    let mut volume = Volume::prepare(Setup {
        replicas: 1,
        size_bytes,
        frontend: Frontend::None,
        ..Setup::default()
    });
    // With tar: it keeps the holes, and they mean something here.
    let archive = format!("{GOLDEN}/replica.tar.gz");
    run(Command::new("tar").args(["-xSzf", &archive, "-C"]).arg(volume.scratch()));
    volume.replicas[0].dir = volume.scratch().join("replica");
    volume.replicas[0].start();
    volume.start_engine();
    let cli = volume.cli();
    let states = expected["replica_states"].as_object().unwrap();
    cli.run(&["frontend", "start", "nbd"]);
    let head = volume.nbd().await.read_all().await.unwrap();
    assert_eq!(sum(&head), states["volume-head"]);
    for (name, expected) in states.iter().filter(|(name, _)| *name != "volume-head") {
        cli.run(&["frontend", "shutdown"]);
        cli.run(&["snapshot", "revert", name]);
        cli.run(&["frontend", "start", "nbd"]);
        let contents = volume.nbd().await.read_all().await.unwrap();
        assert_eq!(sum(&contents), *expected, "{name}");
    }
    // A second replica is rebuilt from it, snapshots and all.
    let new = volume.add_process();
    volume.replicas[new].start();
    volume.add(new);
    volume.assert_equal();
    let sums = volume.replicas[new].layers().sums();
    for name in cli.snapshots().iter().filter(|name| states.contains_key(*name)) {
        assert_eq!(sums[name], states[name].as_str().unwrap(), "{name}");
    }
}
