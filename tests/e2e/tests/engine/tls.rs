//! NBD over TLS.

use std::path::Path;
use std::process::Command;

use e2e::engine::{MIB, Setup, Volume, run, tool};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority, and a certificate and key for 127.0.0.1, in the files libnbd looks for.
fn certificates(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let put = |name: &str, text: String| e2e::write(&dir.join(name), &text);
    put("ca-cert.pem", authority.pem());
    for name in ["server", "client"] {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let (params, key) = (CertificateParams::new(names).unwrap(), KeyPair::generate().unwrap());
        put(&format!("{name}-cert.pem"), params.signed_by(&key, &authority).unwrap().pem());
        put(&format!("{name}-key.pem"), key.serialize_pem());
    }
}

fn start(dir: &Path, clients_too: bool) -> Volume {
    let file = |name: &str| dir.join(name).display().to_string();
    let mut engine = vec!["--nbd-tls-cert".to_owned(), file("server-cert.pem")];
    engine.extend(["--nbd-tls-key".to_owned(), file("server-key.pem")]);
    if clients_too {
        engine.extend(["--nbd-tls-client-ca".to_owned(), file("ca-cert.pem")]);
    }
    Volume::start(Setup { replicas: 1, engine, ..Setup::default() })
}

fn uri(volume: &Volume, scheme: &str, certificates: &Path) -> String {
    let plain = volume.endpoint().uri();
    let rest = plain.strip_prefix("nbd://").unwrap();
    format!("{scheme}://{rest}?tls-certificates={}", certificates.display())
}

#[test]
fn libnbd_speaks_tls_and_plain_clients_are_refused() {
    let Some(nbdinfo) = tool("nbdinfo", "NBD over TLS") else { return };
    let scratch = testkit::process::Scratch::new().unwrap();
    let dir = scratch.path().join("pki");
    certificates(&dir);
    let volume = start(&dir, false);
    let text = run(Command::new(&nbdinfo).args(["--size", &uri(&volume, "nbds", &dir)]));
    assert_eq!(text.trim(), (64 * MIB).to_string());
    let plain = Command::new(&nbdinfo).args(["--size", &volume.endpoint().uri()]).output().unwrap();
    assert!(!plain.status.success(), "{plain:?}");
}

#[test]
fn clients_must_show_a_certificate_if_told_so() {
    let Some(nbdinfo) = tool("nbdinfo", "NBD over TLS") else { return };
    let scratch = testkit::process::Scratch::new().unwrap();
    let dir = scratch.path().join("pki");
    certificates(&dir);
    let volume = start(&dir, true);
    let size = |uri: &str| Command::new(&nbdinfo).args(["--size", uri]).output().unwrap();
    let known = size(&uri(&volume, "nbds", &dir));
    assert!(known.status.success(), "{known:?}");
    let anonymous = scratch.path().join("anonymous");
    std::fs::create_dir_all(&anonymous).unwrap();
    std::fs::copy(dir.join("ca-cert.pem"), anonymous.join("ca-cert.pem")).unwrap();
    let unknown = size(&uri(&volume, "nbds", &anonymous));
    assert!(!unknown.status.success(), "{unknown:?}");
}
