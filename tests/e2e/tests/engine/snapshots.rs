//! Snapshots through the command line: taken, listed, reverted to, removed, purged, hashed, cloned.

use e2e::engine::{Setup, TIMEOUT, Volume};
use serde_json::Value;
use testkit::process::poll_until;

use crate::{pattern, put};

fn wait_for(volume: &Volume, arguments: &[&str], done: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let found = poll_until(TIMEOUT, || {
        last = volume.cli().json(arguments);
        let all = last.as_object()?;
        (!all.is_empty() && all.values().all(&done)).then(|| last.clone())
    });
    found.unwrap_or_else(|| panic!("{arguments:?} stays at {last}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_goes_back_to_a_snapshot() {
    let volume = Volume::start(Setup::default());
    let cli = volume.cli();
    let nbd = volume.nbd().await;
    put(&nbd, 0, 64, 1).await;
    assert_eq!(cli.run(&["snapshot", "create", "one"]).trim(), "one");
    put(&nbd, 32, 64, 2).await;
    let flags = ["--label", "who=me", "--freeze-fs=False"];
    let two = cli.run(&[&["snapshot", "create"][..], &flags].concat()).trim().to_owned();
    assert_eq!(two.len(), 36, "{two} is no UUID");
    put(&nbd, 64, 64, 3).await;
    assert_eq!(cli.snapshots(), [two.as_str(), "one"]);
    cli.refused(&["snapshot", "create", "one"], "is already existing");
    assert_eq!(volume.modes(), ["RW", "RW", "RW"]);
    let info = cli.json(&["snapshot", "info"]);
    assert_eq!(info["volume-head"]["parent"], two, "{info}");
    assert_eq!(info[&two]["parent"], "one", "{info}");
    assert_eq!(info[&two]["labels"]["who"], "me", "{info}");
    assert_eq!(info["one"]["children"][&two], true, "{info}");
    assert_eq!(info["one"]["usercreated"], true, "{info}");
    assert_eq!(info["one"]["size"], (64 * 4096).to_string(), "{info}");

    let ran = cli.call(&["snapshot", "revert", "one"]);
    assert_eq!(ran.code, Some(1), "the frontend is up: {ran:?}");
    cli.run(&["frontend", "shutdown"]);
    cli.run(&["snapshot", "revert", "one"]);
    cli.run(&["frontend", "start", "nbd"]);
    let nbd = volume.nbd().await;
    assert_eq!(nbd.read(0, 64 * 4096).await.unwrap(), pattern(64, 1));
    assert_eq!(nbd.read(64 * 4096, 64 * 4096).await.unwrap(), vec![0; 64 * 4096]);
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_snapshots_are_merged_away_under_writes() {
    let volume = Volume::start(Setup::default());
    let cli = volume.cli();
    let nbd = volume.nbd().await;
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        put(&nbd, 16 * number as u64, 64, u8::try_from(number).unwrap()).await;
        cli.run(&["snapshot", "create", name]);
    }
    let before = volume.replicas[0].layers().states();
    let contents = nbd.read_all().await.unwrap();
    cli.run(&["snapshot", "rm", "b", "d"]);
    assert_eq!(cli.snapshots(), ["c", "a"]);
    cli.run(&["snapshot", "purge"]);
    put(&nbd, 8192, 64, 9).await;
    let is_done = |one: &Value| one["isPurging"] == false && one["error"] == "";
    wait_for(&volume, &["snapshot", "purge-status"], is_done);
    for replica in &volume.replicas {
        // As replicas of the other kind have it: the parent of the head stays.
        let layers = replica.layers();
        assert_eq!(layers.chain().len(), 4, "{:?}", layers.chain());
        assert!(layers.states()["c"] == before["c"]);
    }
    cli.run(&["snapshot", "purge", "--fold-head-parent"]);
    put(&nbd, 8256, 64, 10).await;
    wait_for(&volume, &["snapshot", "purge-status"], is_done);
    for replica in &volume.replicas {
        let layers = replica.layers();
        let now = layers.states();
        assert!(now["a"] == before["a"] && now["c"] == before["c"]);
        // The parent of the head too.
        assert_eq!(layers.chain().len(), 3, "{:?}", layers.chain());
    }
    assert_eq!(nbd.read(0, 1 << 20).await.unwrap(), contents[..1 << 20]);
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_hashed_the_same_everywhere() {
    let volume = Volume::start(Setup::default());
    let cli = volume.cli();
    put(&volume.nbd().await, 5, 500, 4).await;
    cli.run(&["snapshot", "create", "one"]);
    cli.run(&["snapshot", "hash", "one"]);
    let status =
        wait_for(&volume, &["snapshot", "hash-status", "one"], |one| one["state"] == "complete");
    let sums: Vec<&Value> =
        status.as_object().unwrap().values().map(|one| &one["checksum"]).collect();
    assert_eq!(sums.len(), 3);
    assert!(
        sums.iter().all(|sum| *sum == sums[0] && sum.as_str().unwrap().len() == 16),
        "{status}"
    );
    let recorded = volume.replicas[0].dir.join("volume-snap-one.img.checksum");
    let recorded: Value = serde_json::from_slice(&std::fs::read(recorded).unwrap()).unwrap();
    assert_eq!(recorded["method"], "crc64");
    assert_eq!(&recorded["checksum"], sums[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_cloned_into_another_volume() {
    let source = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let nbd = source.nbd().await;
    put(&nbd, 0, 256, 6).await;
    source.cli().run(&["snapshot", "create", "base"]);
    put(&nbd, 128, 256, 7).await;
    source.cli().run(&["snapshot", "create", "top"]);
    let expected = nbd.read_all().await.unwrap();
    put(&nbd, 0, 16, 8).await;

    let target = Volume::start(Setup {
        replicas: 2,
        frontend: e2e::engine::Frontend::None,
        ..Setup::default()
    });
    let from = format!("127.0.0.1:{}", source.cli().port);
    let mut arguments = vec!["snapshot", "clone", "--snapshot-name", "top"];
    arguments.extend(["--from-controller-address", &from, "--from-volume-name", &source.name]);
    target.cli().run(&arguments);
    wait_for(&target, &["snapshot", "clone-status"], |one| one["state"] == "complete");
    target.cli().run(&["frontend", "start", "nbd"]);
    let cloned = target.nbd().await.read_all().await.unwrap();
    assert!(cloned == expected);
    target.assert_equal();
}
