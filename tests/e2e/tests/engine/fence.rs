//! One engine for a volume and one process for a directory, with real processes.

use e2e::engine::{Engine, Setup, TIMEOUT, Volume, signal};
use rustix::process::Signal;

use crate::{pattern, put};

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_replaced_is_cut_off_and_its_clients_are_told() {
    let mut volume = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let old = volume.nbd().await;
    put(&old, 0, 16, 1).await;
    let mut arguments = volume.engine_arguments();
    arguments.push("--upgrade".to_owned());
    // It cannot hand its clients over, and does not know yet what has become of the volume.
    signal(&volume.engine.as_ref().unwrap().process, Signal::STOP);
    let engine = Engine::start(volume.scratch(), &volume.name, &arguments);
    let previous = volume.engine.replace(engine).unwrap();
    signal(&previous.process, Signal::CONT);
    let new = volume.nbd().await;
    put(&new, 16, 16, 2).await;
    for block in 0..8_u64 {
        old.write(block * 4096, pattern(1, 9)).await.expect_err("it has lost the volume");
    }
    assert_eq!(new.read(0, 16 * 4096).await.unwrap(), pattern(16, 1));
    assert_eq!(volume.modes(), ["RW", "RW"]);
    // Its end takes nothing from the other.
    drop(previous);
    put(&new, 0, 4, 3).await;
    assert_eq!(volume.modes(), ["RW", "RW"]);
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_a_directory_changes_nothing() {
    let mut volume = Volume::start(Setup { replicas: 1, ..Setup::default() });
    put(&volume.nbd().await, 0, 16, 1).await;
    let second = volume.add_process();
    volume.replicas[second].dir = volume.replicas[0].dir.clone();
    volume.replicas[second].start();
    let said = volume.replicas[second].stderr();
    assert!(said.contains("not serving yet") && said.contains("is in use by process"), "{said}");
    let arguments = volume.engine_arguments_for(&[volume.replicas[second].address()]);
    let mut other = Engine::launch(volume.scratch(), "another", &arguments);
    let status = other.process.wait_for_exit(2 * TIMEOUT).unwrap();
    assert_ne!(status.code(), Some(0), "an engine started on it");
    let mut replica = volume.replicas.remove(second);
    volume.cli().run(&["snapshot", "create", "one"]);
    put(&volume.nbd().await, 8, 16, 2).await;
    replica.stop();
    assert_eq!(volume.nbd().await.read(8 * 4096, 16 * 4096).await.unwrap(), pattern(16, 2));
}

/// Shown by a copy of what an engine that was killed leaves behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_copy_does_not_start_alone_while_the_others_may_come_back() {
    let mut volume = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let nbd = volume.nbd().await;
    put(&nbd, 0, 16, 1).await;
    volume.replicas[1].kill();
    put(&nbd, 0, 16, 2).await;
    drop(nbd);
    volume.kill_engine();
    volume.replicas[0].kill();
    volume.replicas[1].start();
    let arguments = volume.engine_arguments();
    let mut engine = Engine::launch(volume.scratch(), &volume.name, &arguments);
    let status = engine.process.wait_for_exit(4 * TIMEOUT).unwrap();
    assert_eq!(status.code(), Some(1), "{}", engine.process.stderr());
    assert!(engine.process.stderr().contains("may have newer data"), "{}", engine.process.stderr());
    volume.replicas[0].start();
    volume.start_engine();
    assert_eq!(volume.modes(), ["RW", "ERR"]);
    assert_eq!(volume.nbd().await.read(0, 16 * 4096).await.unwrap(), pattern(16, 2));
}
