//! An etcd that serves over TLS, and only who shows a certificate.

use e2e::guard::{Pki, Rig, TIMEOUT, hash_kv, revision};

use crate::guarded;

/// Flags of a guard that knows the etcd, and is known to it.
fn known(rig: &Rig) -> Vec<String> {
    let mut flags = rig.pki().of_client();
    flags.push("--insecure-skip-tls-verify=false".to_owned());
    flags
}

fn borrowed(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[test]
fn an_etcd_that_asks_for_certificates_is_guarded_and_restored() {
    let Some(mut rig) = Rig::secured("mutual TLS") else { return };
    rig.put("a", "1");
    let flags = known(&rig);
    let sidecar = guarded(&mut rig, &borrowed(&flags));
    rig.put("b", "2");
    assert_eq!(sidecar.json("/snapshot/delta")["lastRevision"], rig.revision());
    assert_eq!(sidecar.stop(), Some(0));
    let (newest, hash) = (rig.revision(), rig.hash_kv());
    let restored = rig.restore("restored.etcd", &[]);
    let booted = rig.boot(&restored);
    assert_eq!(revision(&booted.seat.client), newest);
    assert_eq!(hash_kv(&booted.seat.client, 0), hash);
}

#[test]
fn a_guard_that_etcd_does_not_know_or_that_does_not_know_it_says_so() {
    let Some(mut rig) = Rig::secured("wrong certificates") else { return };
    let other = Pki::new(rig.path().join("other"), &[]);
    let strict = "--insecure-skip-tls-verify=false".to_owned();
    let mut another_authority = known(&rig);
    another_authority.push(other.authority());
    let mut another_identity = vec![rig.pki().authority(), strict.clone()];
    another_identity.extend(other.of_client().into_iter().skip(1));
    let mut no_file = known(&rig);
    no_file.push("--cert=/nowhere/client.pem".to_owned());
    for (flags, said) in [
        (another_authority, "--cacert"),
        (vec![rig.pki().authority(), strict], "--cert"),
        (another_identity, "--cert"),
        (no_file, "/nowhere/client.pem"),
    ] {
        let endpoint = format!("--endpoints={}", rig.endpoint());
        let mut all = vec![endpoint.as_str(), "--etcd-connection-timeout=10s"];
        all.extend(borrowed(&flags));
        let run = rig.run("snapshot", &all);
        assert_eq!(run.code, Some(1), "{flags:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{said} is not in: {}", run.stderr);
    }
    assert!(rig.names("").is_empty());
}

#[test]
fn a_server_without_a_certificate_stays_says_why_and_takes_no_snapshot() {
    let Some(mut rig) = Rig::secured("no certificate") else { return };
    let flags = [rig.pki().authority(), "--insecure-skip-tls-verify=false".to_owned()];
    let mut sidecar = rig.sidecar(&borrowed(&flags));
    let told = sidecar.process.wait_for_line("the etcd member is Unknown", TIMEOUT).unwrap();
    assert!(told.contains("--cert"), "{told}");
    assert_eq!(sidecar.get("/healthz").0, 503);
    assert_eq!(sidecar.stop(), Some(0));
    assert!(rig.names("").is_empty());
}
