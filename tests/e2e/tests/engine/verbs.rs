//! Commands that no other test of this suite has a reason to call.

use e2e::engine::{Engine, Frontend, Setup, TIMEOUT, Volume};
use testkit::process::poll_until;

use crate::{pattern, put};

/// An engine without replicas is given some, as scripts do it.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_started_by_command() {
    let mut volume = Volume::prepare(Setup { replicas: 2, ..Setup::default() });
    for replica in &mut volume.replicas {
        replica.start();
    }
    let arguments = volume.engine_arguments_for(&[]);
    volume.engine = Some(Engine::start(volume.scratch(), &volume.name, &arguments));
    let (one, two) = (volume.replicas[0].address(), volume.replicas[1].address());
    let size = volume.setup.size_bytes.to_string();
    let start = ["start", &one, &two, "--size", &size, "--current-size", &size];
    volume.cli().run(&start);
    assert_eq!(volume.modes(), ["RW", "RW"]);
    volume.cli().refused(&start, "cannot add multiple replicas if volume is already up");
    let nbd = volume.nbd().await;
    put(&nbd, 0, 8, 1).await;
    assert_eq!(nbd.read(0, 8 * 4096).await.unwrap(), pattern(8, 1));
}

#[test]
fn a_replica_is_declared_failed() {
    let mut volume = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let address = volume.replicas[1].address();
    volume.cli().run(&["update-replica", "--mode", "ERR", &address]);
    assert_eq!(volume.modes(), ["RW", "ERR"]);
    volume.rebuild(1);
    // Already good, and still so.
    volume.cli().run(&["verify-rebuild-replica", &address]);
    assert_eq!(volume.modes(), ["RW", "RW"]);
    assert_eq!(volume.cli().run(&["replica-rebuild-status"]).trim(), "{}");
}

/// Verifying the only copy of a volume must not cost it.
#[test]
fn the_only_replica_survives_being_verified() {
    let volume = Volume::start(Setup { replicas: 1, ..Setup::default() });
    volume.cli().call(&["verify-rebuild-replica", &volume.replicas[0].address()]);
    assert_eq!(volume.modes(), ["RW"]);
}

/// For a restore: written to, not read, nothing copied; and not read from before something was
/// restored to it.
#[test]
fn a_replica_is_added_for_a_restore() {
    let mut volume =
        Volume::start(Setup { replicas: 1, frontend: Frontend::None, ..Setup::default() });
    let new = volume.add_process();
    volume.replicas[new].start();
    let (address, size) = (volume.replicas[new].address(), volume.setup.size_bytes.to_string());
    let add = ["add", "--size", &size, "--current-size", &size, &address, "--restore"];
    volume.cli().run(&add);
    assert_eq!(volume.modes(), ["RW", "WO"]);
    assert!(volume.cli().snapshots().is_empty());
    volume.cli().refused(&["verify-rebuild", &address], "was not filled since it was added");
    assert_eq!(volume.modes(), ["RW", "WO"]);
}

#[test]
fn settings_and_reports() {
    let volume = Volume::start(Setup { replicas: 1, ..Setup::default() });
    let cli = volume.cli();
    for (flag, set) in [("--enable", true), ("--disable", false)] {
        cli.run(&["unmap-mark-snap-chain-removed", flag]);
        assert_eq!(cli.json(&["info"])["unmapMarkSnapChainRemoved"], set);
    }
    let both = cli.call(&["unmap-mark-snap", "--enable", "--disable"]);
    assert_eq!(both.code, Some(1), "{both:?}");
    assert_eq!(cli.run(&["journal", "--limit", "5"]), "");
    assert_eq!(cli.run(&["sync-agent-server-reset"]), "");
    assert!(!cli.run(&["profiler", "show"]).trim().is_empty());
    let version = cli.json(&["version"]);
    assert_eq!(version["serverVersion"]["controllerAPIVersion"], 6, "{version}");
    let unknown = cli.call(&["fly"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stdout.contains("unrecognized command: fly"), "{unknown:?}");
}

/// Scripts write flags after arguments, and booleans in capitals.
#[test]
fn a_hash_is_cancelled_and_asked_for_again() {
    let volume = Volume::start(Setup { replicas: 1, ..Setup::default() });
    let cli = volume.cli();
    cli.run(&["snapshot", "create", "one", "--freeze-fs=True"]);
    cli.run(&["snapshot", "hash", "one", "--rehash"]);
    // It may be over already.
    cli.run(&["snapshot", "hash-cancel", "one"]);
    cli.run(&["hash", "one"]);
    let done = poll_until(TIMEOUT, || {
        let status = cli.json(&["hash-status", "one"]);
        let one = status.as_object()?.values().next()?.clone();
        (one["state"] == "complete").then_some(())
    });
    assert!(done.is_some(), "{}", cli.json(&["hash-status", "one"]));
    cli.run(&["snapshot", "purge", "--skip-if-in-progress"]);
    cli.run(&["snapshot", "purge-status"]);
    cli.run(&["snapshot", "clone-status"]);
}
