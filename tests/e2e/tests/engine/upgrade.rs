//! Another engine takes over while clients are at work.

use std::sync::Arc;

use e2e::engine::{Engine, Replica, SECTOR, Setup, TIMEOUT, Volume, signal};
use rustix::process::Signal;

use crate::rebuild::{Writer, seed};
use crate::{pattern, put};

/// New processes on the same directories take over from those that run, which then end.
fn upgrade(volume: &mut Volume) {
    let before = volume.replicas.len();
    for index in 0..before {
        let new = volume.add_process();
        volume.replicas[new].dir = volume.replicas[index].dir.clone();
        volume.replicas[new].start();
    }
    let addresses: Vec<String> = volume.replicas[before..].iter().map(Replica::address).collect();
    let mut arguments = volume.engine_arguments_for(&addresses);
    arguments.push("--upgrade".to_owned());
    let engine = Engine::start(volume.scratch(), &volume.name, &arguments);
    let mut previous = volume.engine.replace(engine).unwrap();
    signal(&previous.process, Signal::HUP);
    previous.process.wait_for_exit(TIMEOUT).unwrap();
    for mut replica in volume.replicas.drain(..before) {
        replica.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_notices_nothing_of_a_live_upgrade() {
    let mut volume = Volume::start(Setup::default());
    let endpoint = volume.endpoint();
    let nbd = Arc::new(volume.nbd().await);
    put(&nbd, 0, 64, 1).await;
    // Every write and flush of it must succeed, on the one connection it has.
    let writer = Writer::start(nbd.clone());
    writer.wait_for(50);
    for _ in 0..2 {
        upgrade(&mut volume);
        writer.wait_for(50);
    }
    let written = writer.stop().await;
    assert_eq!(volume.endpoint(), endpoint, "and others find the volume where it was");
    assert_eq!(volume.modes(), ["RW", "RW", "RW"]);
    let sectors = nbd.size_bytes() / SECTOR;
    for number in written.saturating_sub(sectors)..written {
        let found = nbd.read(number % sectors * SECTOR, 4096).await.unwrap();
        assert_eq!(found, pattern(1, seed(number)), "write {number}");
    }
    put(&volume.nbd().await, 0, 8, 3).await;
    volume.assert_equal();
}
