//! What is written to a store: names, contents, when.

use e2e::guard::{Rig, etcdctl, unpacked};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::os::unix::fs::PermissionsExt as _;

use crate::{extension, guarded};

/// The part before the trailer, which must be its hash.
#[track_caller]
fn hashed(object: &[u8]) -> &[u8] {
    let (body, hash) = object.split_at(object.len() - 32);
    assert_eq!(Sha256::digest(body).as_slice(), hash);
    body
}

#[test]
fn snapshots_are_named_and_hold_what_the_dialect_says() {
    let Some(mut rig) = Rig::new("objects") else { return };
    rig.put("a", "1");
    rig.put("b", "2");
    let sidecar = guarded(&mut rig, &[]);
    rig.put("k1", "v1");
    let lease = etcdctl(rig.endpoint(), &["lease", "grant", "3600"]);
    let lease = lease.split(' ').nth(1).unwrap();
    etcdctl(rig.endpoint(), &["put", "--lease", lease, "k1", "v2"]);
    rig.delete("k1");
    rig.put("k2", "");
    let told = sidecar.json("/snapshot/delta");

    let full = &rig.names("Full")[0];
    assert!(full.starts_with("Full-00000000-00000003-") && extension(full) == Some("gz"), "{full}");
    let delta = &rig.names("Incr")[0];
    assert!(
        delta.starts_with("Incr-00000004-00000007-") && extension(delta) == Some("gz"),
        "{delta}"
    );
    assert_eq!(told["snapName"], delta.as_str());
    let path = rig.store_dir().join(full);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let object = unpacked(&path);
    assert_eq!(object.len() % 512, 32);
    hashed(&object);

    let object = unpacked(&rig.store_dir().join(delta));
    let events: Vec<Value> = serde_json::from_slice(hashed(&object)).unwrap();
    let events: Vec<&Value> = events.iter().map(|event| &event["etcdEvent"]).collect();
    let lease = i64::from_str_radix(lease, 16).unwrap();
    assert_eq!(
        json!(events),
        json!([
            {"kv": {"key": "azE=", "create_revision": 4, "mod_revision": 4, "version": 1,
                    "value": "djE="}},
            {"kv": {"key": "azE=", "create_revision": 4, "mod_revision": 5, "version": 2,
                    "value": "djI=", "lease": lease}},
            {"type": 1, "kv": {"key": "azE=", "mod_revision": 6}},
            {"kv": {"key": "azI=", "create_revision": 7, "mod_revision": 7, "version": 1}},
        ])
    );
}

#[test]
fn every_compression_is_restored_by_its_suffix() {
    let Some(mut rig) = Rig::new("compression") else { return };
    rig.put("a", &"x".repeat(500));
    let mut expected = rig.hash_kv();
    for (flag, suffix) in [
        ("--compression-policy=gzip", ".gz"),
        ("--compression-policy=zlib", ".zlib"),
        ("--compression-policy=lzw", ".Z"),
        ("--compress-snapshots=false", ""),
    ] {
        let sidecar = guarded(&mut rig, &[flag]);
        rig.put("b", &"y".repeat(500));
        let full = sidecar.json("/snapshot/full");
        assert_eq!(full["compressionSuffix"], suffix);
        rig.put("c", &suffix.repeat(9));
        assert_eq!(sidecar.json("/snapshot/delta")["compressionSuffix"], suffix);
        assert_eq!(sidecar.stop(), Some(0));
        let newer = rig.hash_kv();
        assert_ne!(newer, expected);
        expected = newer;
        let restored = rig.restore(&format!("restored{suffix}"), &[]);
        let member = rig.boot(&restored);
        assert_eq!(e2e::guard::hash_kv(&member.seat.client, 0), expected, "{suffix}");
    }
}

#[test]
fn a_delta_holds_every_write_acknowledged_before_it_was_asked_for() {
    let Some(mut rig) = Rig::new("acknowledged writes") else { return };
    let sidecar = guarded(&mut rig, &[]);
    for round in 0..10 {
        rig.put("w", &round.to_string());
        let delta = sidecar.json("/snapshot/delta");
        assert!(delta["lastRevision"].as_i64().unwrap() >= rig.revision(), "{delta}");
    }
}

#[test]
fn a_restart_goes_on_with_deltas() {
    let Some(mut rig) = Rig::new("restart") else { return };
    rig.put("a", "1");
    assert_eq!(guarded(&mut rig, &[]).stop(), Some(0));
    rig.put("b", "2");
    let sidecar = guarded(&mut rig, &[]);
    rig.wait_for_objects("Incr", 1);
    assert_eq!(rig.names("Full").len(), 1);
    assert_eq!(sidecar.stop(), Some(0));
}
