//! Checks that somebody runs before they are needed.

use e2e::guard::Rig;
use serde_json::Value;

use crate::history;

#[test]
fn a_drill_restores_boots_and_compares() {
    let Some(mut rig) = Rig::new("drill") else { return };
    history(&mut rig, 2);
    let (revision, hash) = (rig.revision(), rig.hash_kv());
    let etcd = format!("--etcd={}", testkit::etcd::program("etcd").unwrap().display());
    let scratch = format!("--scratch-dir={}", rig.path().join("drill").display());
    let run = rig.run("drill", &[&etcd, &scratch]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["succeeded"], true, "{report}");
    assert_eq!(report["revision"], revision, "{report}");
    assert_eq!(report["hashKV"], hash, "{report}");
    assert_eq!(report["etcd"]["hashKV"], hash, "{report}");
    assert!(!rig.path().join("drill").exists(), "it cleans up");

    let newest = rig.names("Incr").pop().unwrap();
    e2e::write(&rig.store_dir().join(newest), "damaged");
    let run = rig.run("drill", &[&etcd, &scratch]);
    assert_eq!(run.code, Some(1));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["succeeded"], false, "{report}");
    assert!(report["error"].as_str().is_some_and(|it| !it.is_empty()), "{report}");
}

#[test]
fn directories_and_snapshots_are_verified() {
    let Some(mut rig) = Rig::new("verify") else { return };
    history(&mut rig, 1);
    let revision = rig.revision();
    rig.stop_etcd();
    let data = rig.data_dir();
    let full = rig.store_dir().join(&rig.names("Full")[0]);
    let delta = rig.store_dir().join(&rig.names("Incr")[0]);
    let verify = |path: &std::path::Path| {
        let output = rig.command("verify").args(["--output=json"]).arg(path).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), told)
    };
    for path in [&data, &full, &delta] {
        let (code, told) = verify(path);
        assert_eq!((code, &told["valid"]), (Some(0), &Value::Bool(true)), "{told}");
    }
    assert_eq!(verify(&data).1["revision"], revision);
    assert_eq!(verify(&delta).1["revision"], revision);
    for path in [&full, &delta, &data.join("member/snap/db")] {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes.truncate(middle);
        std::fs::File::create(path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes))
            .unwrap();
    }
    for path in [&data, &full, &delta] {
        let (code, told) = verify(path);
        assert_eq!((code, &told["valid"]), (Some(1), &Value::Bool(false)), "{told}");
    }
}
