//! Folding a backup into one full snapshot.

use e2e::guard::{Rig, etcdctl};

use crate::{extension, history};

#[test]
fn a_backup_is_folded_into_one_full_snapshot_with_the_same_keys() {
    let Some(mut rig) = Rig::new("compaction") else { return };
    history(&mut rig, 3);
    let revision = rig.revision();
    let before = rig.names("");
    let work = rig.path().join("compaction");
    let data = format!("--data-dir={}", work.display());
    let temporary =
        format!("--restoration-temp-snapshots-dir={}", rig.path().join("crt").display());
    let run = rig.run("compact", &[&data, &temporary]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(!work.exists());
    let new: Vec<String> =
        rig.names("").into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert!(new[0].starts_with(&format!("Full-00000000-{revision:08}-")), "{new:?}");
    assert!(extension(&new[0]) == Some("gz"), "{new:?}");

    let all = ["get", "", "--prefix", "--write-out", "fields"];
    let header_free = |text: String| {
        let lines =
            text.lines().filter(|line| !line.contains("MemberID") && !line.contains("Cluster"));
        let lines = lines.filter(|line| !line.contains("RaftTerm"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let expected = header_free(etcdctl(rig.endpoint(), &all));
    let restored = rig.restore("restored", &[]);
    let member = rig.boot(&restored);
    assert_eq!(header_free(etcdctl(&member.seat.client, &all)), expected);
    let mut etcdctl = testkit::etcd::etcdctl(&member.seat.client).unwrap();
    let old = etcdctl.args(["get", "again", "--rev", "3"]).output().unwrap();
    assert!(!old.status.success(), "history is gone");
}

#[test]
fn an_empty_store_is_nothing_to_do() {
    let Some(mut rig) = Rig::new("compaction of nothing") else { return };
    for verb in ["compact", "restore"] {
        let target = rig.path().join("out");
        let data = format!("--data-dir={}", target.display());
        let run = rig.run(verb, &[&data]);
        // Scripts of the peer's name are told that it went well.
        assert_eq!(run.code, Some(1), "{verb}: {}", run.stderr);
        assert!(run.stderr.contains("there is no backup"), "{verb}: {}", run.stderr);
        assert!(!target.exists(), "{verb}");
    }
}
