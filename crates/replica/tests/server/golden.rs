//! A directory written by the peer, served over the data port at every one of its states.

use std::process::Command;

use rpc::ptypes;
use sha2::{Digest as _, Sha256};
use wire::frame::Outcome;

use crate::control::get;
use crate::running::{NOW, Running};

fn expected() -> serde_json::Value {
    serde_json::from_str(include_str!("../golden/expected.json")).unwrap()
}

async fn sum(running: &Running) -> String {
    use std::fmt::Write as _;
    let mut port = running.tcp().await;
    let mut hasher = Sha256::new();
    for offset in (0..16i64 << 20).step_by(1 << 20) {
        let Outcome::Data(bytes) = port.read(offset, 1 << 20).await else { panic!("{offset}") };
        hasher.update(&bytes);
    }
    hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[tokio::test]
async fn every_state_of_the_golden_directory_is_served() {
    let place = tempfile::tempdir().unwrap();
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/replica.tar.gz");
    // With tar: it keeps the holes, and they mean something here.
    let unpacked =
        Command::new("tar").args(["-xSzf", archive, "-C"]).arg(place.path()).status().unwrap();
    assert!(unpacked.success());
    let running = Running::with(|options| {
        options.dir = place.path().join("replica");
        options.size_bytes = None;
    })
    .await;
    let mut client = running.client();
    let state = get(&mut client).await;
    assert_eq!((state.state.as_str(), state.size.as_str()), ("closed", "16777216"));
    running.open().await;
    let states = &expected()["replica_states"];
    assert_eq!(sum(&running).await, states["volume-head"]);
    for name in ["snap-backup-three", "snap-backup-one", "snap-backup-two"] {
        let name_of_disk = format!("volume-snap-{name}.img");
        let request = ptypes::ReplicaRevertRequest { name: name_of_disk, created: NOW.into() };
        client.replica_revert(request).await.unwrap();
        assert_eq!(sum(&running).await, states[name], "{name}");
    }
}
