//! A volume from its making to its restored twin.

use e2e::engine::{Endpoint, Nbd, blocking};
use serde_json::Value;
use testkit::process::poll_until;

use crate::shell::{Shell, TIMEOUT};

const MIB: u64 = 1 << 20;

fn fill(endpoint: &Endpoint, at: u64, byte: u8) {
    blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        let data = vec![byte; usize::try_from(MIB).unwrap()];
        nbd.write(at * MIB, data.into()).await.unwrap();
        nbd.flush().await.unwrap();
    });
}

fn read(endpoint: &Endpoint, at: u64) -> Vec<u8> {
    blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        nbd.read(at * MIB, u32::try_from(MIB).unwrap()).await.unwrap()
    })
}

fn is_all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|it| *it == byte)
}

#[test]
fn a_volume_is_made_backed_up_restored_and_followed() {
    let shell = Shell::start();
    shell.run(&["volume", "create", "data", "--size", "16MiB", "--replicas", "2", "--wait"]);
    let data = shell.attach("data");
    fill(&data, 3, 7);
    shell.run(&["backup", "create", "data", "--name", "one", "--wait"]);
    let listed = shell.run(&["backup", "ls", "data"]);
    assert!(listed.contains("completed") && listed.contains("2 MiB"), "{listed}");

    shell.run(&["restore", "one", "twin", "--replicas", "2", "--wait"]);
    let twin = shell.attach("twin");
    assert!(is_all(&read(&twin, 3), 7) && is_all(&read(&twin, 4), 0), "the restored bytes differ");
    shell.run(&["volume", "detach", "twin", "--wait"]);

    shell.run(&["dr", "create", "one", "standby", "--replicas", "1"]);
    fill(&data, 5, 9);
    shell.run(&["volume", "expand", "data", "32MiB", "--wait"]);
    shell.run(&["backup", "create", "data", "--name", "two", "--wait"]);
    // A standby volume that follows its source needs nobody's attention.
    let follows = || shell.run(&["dr", "ls"]).contains("up to date").then_some(());
    assert!(poll_until(TIMEOUT, follows).is_some(), "the standby volume stays behind");
    shell.run(&["status", "--check"]);
    shell.run(&["dr", "activate", "standby", "--wait"]);
    let standby = shell.attach("standby");
    assert!(is_all(&read(&standby, 3), 7) && is_all(&read(&standby, 5), 9), "the standby differs");
    let shown = shell.run(&["volume", "show", "standby"]);
    assert!(shown.contains("served at") && shown.contains("reads and writes"), "{shown}");

    let status = shell.json(&["status"]);
    assert_eq!(status.pointer("/backups/completed"), Some(&Value::from(2)), "{status}");
    shell.run(&["status", "--check"]);

    let plan = shell.run(&["backup", "forget", "data", "--keep-last", "1", "--dry-run"]);
    assert!(plan.contains("1 of 2 would be deleted"), "{plan}");
    assert_eq!(shell.json(&["backup", "ls"]).as_array().map(Vec::len), Some(2));
    shell.run(&["backup", "forget", "data", "--keep-last", "1", "--wait"]);
    let names = shell.run(&["backup", "ls", "-o", "name"]);
    assert_eq!(names.trim(), "backups.longhorn.io/two");

    shell.run(&["volume", "rm", "data", "twin", "standby", "--wait"]);
    assert_eq!(shell.json(&["volume", "ls"]), Value::Array(Vec::new()));
}
