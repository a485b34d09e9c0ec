//! What the collector keeps.

use e2e::guard::{Rig, TIMEOUT};
use testkit::process::poll_until;

/// An object that only its name matters of.
fn fabricate(rig: &Rig, kind: &str, start: i64, last: i64, age_seconds: u64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let made = now.as_secs() - age_seconds;
    std::fs::create_dir_all(rig.store_dir()).unwrap();
    let name = format!("{kind}-{start:08}-{last:08}-{made}.gz");
    e2e::write(&rig.store_dir().join(name), "x");
}

fn ranges(rig: &Rig, kind: &str) -> Vec<String> {
    rig.names(kind).iter().map(|name| name[5..22].to_owned()).collect()
}

#[test]
fn only_the_newest_backups_are_kept_and_the_newest_stream_whole() {
    let Some(mut rig) = Rig::new("collection") else { return };
    for round in 0..9 {
        rig.put("a", &round.to_string());
    }
    fabricate(&rig, "Full", 0, 1, 9000);
    fabricate(&rig, "Incr", 2, 2, 8900);
    fabricate(&rig, "Full", 0, 3, 8000);
    fabricate(&rig, "Incr", 4, 4, 7900);
    fabricate(&rig, "Full", 0, 5, 7000);
    fabricate(&rig, "Incr", 6, 6, 6900);
    fabricate(&rig, "Incr", 7, 7, 6800);
    let sidecar = rig.sidecar(&[
        "--delta-snapshot-period=10m",
        "--garbage-collection-period=2s",
        "--garbage-collection-policy=LimitBased",
        "--max-backups=2",
    ]);
    let done = poll_until(TIMEOUT, || {
        let fulls = ranges(&rig, "Full");
        let deltas = ranges(&rig, "Incr");
        (fulls == ["00000000-00000003", "00000000-00000005"]
            && deltas == ["00000006-00000006", "00000007-00000007", "00000008-00000010"])
        .then_some(())
    });
    assert!(done.is_some(), "{:?}\n{}", rig.names(""), sidecar.process.stderr());
}
