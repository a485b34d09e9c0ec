//! Restoring to the newest state and to earlier ones.

use std::os::unix::process::ExitStatusExt as _;

use e2e::guard::{Rig, hash_kv, revision};
use serde_json::Value;

use crate::{guarded, history};

#[test]
fn the_newest_state_comes_back_with_its_history() {
    let Some(mut rig) = Rig::new("restore") else { return };
    history(&mut rig, 4);
    let (wanted, hash) = (rig.revision(), rig.hash_kv());
    let restored = rig.restore("restored", &[]);
    assert!(!rig.path().join("rrt").exists(), "the temporary directory is gone");
    let member = rig.boot(&restored);
    assert_eq!((revision(&member.seat.client), hash_kv(&member.seat.client, 0)), (wanted, hash));
}

#[test]
fn every_revision_and_time_can_be_gone_back_to() {
    let Some(mut rig) = Rig::new("restore to a revision") else { return };
    rig.put("a", "0");
    let sidecar = guarded(&mut rig, &[]);
    for round in 1..=6 {
        rig.put("a", &round.to_string());
        rig.put(&format!("b{round}"), "x");
        if round % 3 == 0 {
            sidecar.json("/snapshot/delta");
        }
    }
    // Between the two writes lies a second that events after it cannot have.
    let middle = std::time::SystemTime::now();
    let at = rig.revision();
    let next = middle + std::time::Duration::from_secs(2);
    testkit::process::poll_until(std::time::Duration::from_secs(10), || {
        (std::time::SystemTime::now() > next).then_some(())
    })
    .unwrap();
    rig.put("a", "late");
    sidecar.json("/snapshot/delta");
    assert_eq!(sidecar.stop(), Some(0));
    for wanted in [5, 8, 9, at] {
        let target = format!("at{wanted}");
        let restored = rig.restore(&target, &[&format!("--to-revision={wanted}")]);
        let member = rig.boot(&restored);
        assert_eq!(revision(&member.seat.client), wanted);
        assert_eq!(hash_kv(&member.seat.client, 0), hash_kv(rig.endpoint(), wanted), "{wanted}");
    }
    let seconds = middle.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 1;
    let time = format!("--to-time={}", rfc3339(seconds));
    let dry = rig.run("restore", &[&time, "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    let told: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!(told["revision"], at, "{told}");
    let restored = rig.restore("then", &[&time]);
    let member = rig.boot(&restored);
    assert_eq!(hash_kv(&member.seat.client, 0), hash_kv(rig.endpoint(), at));
}

/// The civil form of a Unix time, as `date` writes it.
fn rfc3339(seconds: u64) -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn what_cannot_be_restored_is_refused_and_leaves_nothing() {
    let Some(mut rig) = Rig::new("refused restores") else { return };
    history(&mut rig, 2);
    let target = rig.path().join("out");
    let data = format!("--data-dir={}", target.display());
    let newest = rig.names("Incr").pop().unwrap();
    let path = rig.store_dir().join(&newest);
    let good = std::fs::read(&path).unwrap();
    for damage in [&good[..good.len() / 2], b"", b"\x1f\x8b\x08 nonsense"] {
        std::fs::File::create(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, damage))
            .unwrap();
        let run = rig.run("restore", &[&data]);
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        assert!(!target.exists());
    }
    std::fs::File::create(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &good))
        .unwrap();
    for arguments in
        [["--to-revision=0"].as_slice(), &["--to-revision=999999"], &["--to-time=yesterday"]]
    {
        let all: Vec<&str> = [data.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        let run = rig.run("restore", &all);
        assert_eq!(run.code, Some(1), "{arguments:?}: {}", run.stderr);
        assert!(!target.exists());
    }
    std::fs::create_dir_all(target.join("member")).unwrap();
    let run = rig.run("restore", &[&data]);
    assert_eq!(run.code, Some(1), "a directory that is not empty is not written to");
}

#[test]
fn killed_while_restoring_it_succeeds_the_next_time() {
    let Some(mut rig) = Rig::new("killed restore") else { return };
    history(&mut rig, 4);
    let hash = rig.hash_kv();
    let target = rig.path().join("restored");
    for timeout in [5_u64, 20, 40, 80] {
        let mut command = rig.command("restore");
        command.args(rig.store_arguments());
        command.arg(format!("--data-dir={}", target.display()));
        command
            .arg(format!("--restoration-temp-snapshots-dir={}", rig.path().join("rrt").display()));
        command.stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let _ = testkit::process::poll_until(std::time::Duration::from_millis(timeout), || {
            child.try_wait().unwrap()
        });
        // It may end by itself before this.
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        // Whole or not there: never half.
        if target.exists() {
            break;
        }
    }
    if !target.exists() {
        rig.restore("restored", &[]);
    }
    let member = rig.boot(&target);
    assert_eq!(hash_kv(&member.seat.client, 0), hash);
}
