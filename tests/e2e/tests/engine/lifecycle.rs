//! Starting and ending: exit codes, signals, counters, salvage, live upgrade.

use e2e::engine::{Engine, Frontend, Nbd, Replica, Setup, TIMEOUT, Volume, signal};
use rustix::process::Signal;

use crate::{pattern, put};

#[test]
fn sigint_ends_with_zero() {
    let mut volume = Volume::start(Setup::default());
    assert_eq!(volume.stop_engine().code(), Some(0));
    for replica in &mut volume.replicas {
        assert_eq!(replica.stop().code(), Some(0));
    }
}

#[test]
fn sighup_ends_an_engine_as_a_signal_does() {
    use std::os::unix::process::ExitStatusExt as _;
    let mut volume = Volume::start(Setup { replicas: 1, ..Setup::default() });
    let mut engine = volume.engine.take().unwrap();
    signal(&engine.process, Signal::HUP);
    let status = engine.process.wait_for_exit(TIMEOUT).unwrap();
    assert_eq!(status.signal(), Some(1), "{status}");
}

#[test]
fn without_a_usable_replica_the_exit_code_says_why() {
    let mut volume = Volume::prepare(Setup { replicas: 1, ..Setup::default() });
    let launch = |volume: &Volume| {
        let arguments = volume.engine_arguments();
        let mut engine = Engine::launch(volume.scratch(), &volume.name, &arguments);
        let status = engine.process.wait_for_exit(2 * TIMEOUT).unwrap();
        (status.code(), engine.process.stderr())
    };
    let (code, said) = launch(&volume);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no available backend due to service unavailable"), "{said}");
    // There, and of no use: its setting of the revision counter is another.
    volume.replicas[0].setup.revision_counter = false;
    volume.replicas[0].start();
    let (code, said) = launch(&volume);
    assert_eq!(code, Some(61), "{said}");
    assert!(said.contains("no available backend due to replica error"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_a_restart() {
    let mut volume = Volume::start(Setup::default());
    put(&volume.nbd().await, 100, 300, 5).await;
    volume.restart();
    let nbd = volume.nbd().await;
    assert_eq!(nbd.read(100 * 4096, 300 * 4096).await.unwrap(), pattern(300, 5));
    assert_eq!(volume.modes(), ["RW", "RW", "RW"]);
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_tell_which_replica_missed_writes() {
    let mut volume = Volume::start(Setup::default());
    let nbd = volume.nbd().await;
    put(&nbd, 0, 16, 1).await;
    volume.replicas[2].kill();
    put(&nbd, 8, 16, 2).await;
    volume.wait_for_mode(2, "ERR");
    drop(nbd);
    volume.restart();
    assert_eq!(volume.modes(), ["RW", "RW", "ERR"]);
    let nbd = volume.nbd().await;
    assert_eq!(nbd.read(8 * 4096, 16 * 4096).await.unwrap(), pattern(16, 2));
    volume.rebuild(2);
    volume.assert_equal();
    let counter =
        |index: usize| std::fs::read(volume.replicas[index].dir.join("revision.counter")).unwrap();
    assert_eq!(counter(0).len(), 4096);
    assert_eq!(counter(0), counter(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn salvage_keeps_one_replica_and_the_rest_is_rebuilt() {
    let setup = Setup { revision_counter: false, ..Setup::default() };
    let mut volume = Volume::start(setup);
    put(&volume.nbd().await, 0, 64, 8).await;
    volume.kill_engine();
    for replica in &mut volume.replicas {
        replica.kill();
        assert!(!replica.dir.join("revision.counter").exists());
        replica.start();
    }
    volume.setup.engine = vec!["--salvageRequested".to_owned()];
    volume.start_engine();
    let modes = volume.modes();
    assert_eq!(modes.iter().filter(|mode| *mode == "RW").count(), 1, "{modes:?}");
    for (index, mode) in modes.iter().enumerate() {
        if mode != "RW" {
            volume.rebuild(index);
        }
    }
    let nbd = volume.nbd().await;
    assert_eq!(nbd.read(0, 64 * 4096).await.unwrap(), pattern(64, 8));
    volume.assert_equal();
}

/// New processes on the same directories take over from those that still run.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_upgrade_keeps_the_data() {
    let mut volume = Volume::prepare(Setup::default());
    // The new engine is to be found where the old one was.
    let socket = volume.scratch().join("nbd.sock").display().to_string();
    volume.setup.engine = vec!["--nbd-unix".to_owned(), socket];
    volume.replicas.iter_mut().for_each(Replica::start);
    volume.start_engine();
    let endpoint = volume.endpoint();
    let old = volume.nbd().await;
    put(&old, 0, 64, 1).await;
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
    assert_eq!(volume.modes(), ["RW", "RW", "RW"]);
    let new = Nbd::connect(&endpoint).await.unwrap();
    assert_eq!(new.read(0, 64 * 4096).await.unwrap(), pattern(64, 1));
    put(&new, 32, 64, 2).await;
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn frontends_are_stopped_and_started() {
    let volume = Volume::start(Setup { frontend: Frontend::None, ..Setup::default() });
    let cli = volume.cli();
    let info = cli.json(&["info"]);
    assert_eq!((&info["frontend"], &info["endpoint"]), (&"".into(), &"".into()), "{info}");
    cli.run(&["frontend", "start", "nbd"]);
    assert_eq!(cli.json(&["info"])["frontendState"], "up");
    let endpoint = volume.endpoint();
    let nbd = Nbd::connect(&endpoint).await.unwrap();
    put(&nbd, 0, 1, 1).await;
    cli.run(&["frontend", "shutdown"]);
    assert_eq!(cli.json(&["info"])["frontendState"], "down");
    assert!(nbd.read(0, 512).await.is_err());
    Nbd::connect(&endpoint).await.expect_err("nobody listens any more");
    cli.refused(&["frontend", "start", "flying-saucer"], "flying-saucer");
    cli.run(&["frontend", "start", "nbd"]);
    assert_eq!(volume.nbd().await.read(0, 4096).await.unwrap(), pattern(1, 1));
}

/// Scripts call the engine by its old name.
#[test]
fn the_binary_called_longhorn_is_the_engine() {
    let scratch = testkit::process::Scratch::new().unwrap();
    let link = scratch.path().join("longhorn");
    std::os::unix::fs::symlink(e2e::server::binary(), &link).unwrap();
    let text =
        e2e::engine::run(std::process::Command::new(&link).args(["version", "--client-only"]));
    let version: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(version["clientVersion"]["cliAPIVersion"], 12, "{version}");
    assert_eq!(version["clientVersion"]["dataFormatVersion"], 1, "{version}");
    assert!(version["serverVersion"].is_null(), "{version}");
}
