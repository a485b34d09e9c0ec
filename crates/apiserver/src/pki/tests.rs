use std::os::unix::fs::PermissionsExt;

use rustls::pki_types::ServerName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;

fn at(day: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

fn put(dir: &Path, name: &str, text: &str) {
    use std::io::Write;
    std::fs::File::create(dir.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
}

const ALL: [&str; 7] =
    ["ca.crt", "ca.key", "server.crt", "server.key", "admin.crt", "admin.key", "sa.key"];

#[test]
fn a_first_start_makes_everything_private_and_a_second_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data/pki");
    let first = Pki::open_at(&dir, &[], at(0)).unwrap();
    let before = ALL.map(|name| read(&dir, name));
    for name in ALL {
        let mode = std::fs::metadata(dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let second = Pki::open_at(&dir, &[], at(1)).unwrap();
    assert_eq!(ALL.map(|name| read(&dir, name)), before);
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.admin(), second.admin());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), ALL.len());
}

#[test]
fn open_rights_are_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    let key = dir.path().join("ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_server_certificate_follows_names_and_time_but_keeps_its_key() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    let (cert, key) = (read(dir.path(), "server.crt"), read(dir.path(), "server.key"));
    let names = ["backup.example.org".to_owned(), "192.0.2.7".to_owned()];
    Pki::open_at(dir.path(), &names, at(0)).unwrap();
    let with_names = read(dir.path(), "server.crt");
    assert_ne!(with_names, cert);
    assert_eq!(read(dir.path(), "server.key"), key);
    // Fewer names are no reason to renew.
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    assert_eq!(read(dir.path(), "server.crt"), with_names);
    let late = Pki::open_at(dir.path(), &names, at(600)).unwrap();
    assert_ne!(read(dir.path(), "server.crt"), with_names);
    assert!(late.server_expires_at() > at(600 + 700));
}

#[test]
fn a_damaged_or_missing_authority_is_never_replaced() {
    let damages: [(&str, Option<&str>); 6] = [
        ("ca.crt", Some("noise")),
        ("ca.crt", Some("")),
        ("ca.key", Some("noise")),
        ("ca.key", None),
        ("ca.crt", None),
        ("sa.key", Some("noise")),
    ];
    for (name, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        Pki::open_at(dir.path(), &[], at(0)).unwrap();
        match damage {
            Some(text) => put(dir.path(), name, text),
            None => std::fs::remove_file(dir.path().join(name)).unwrap(),
        }
        let error = Pki::open_at(dir.path(), &[], at(0)).unwrap_err().to_string();
        assert!(error.contains(&dir.path().join(name).display().to_string()), "{error}");
        assert!(error.contains("Restore it from a backup"), "{error}");
    }
}

#[test]
fn an_authority_that_does_not_fit_its_key_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    Pki::open_at(other.path(), &[], at(0)).unwrap();
    put(dir.path(), "ca.key", &read(other.path(), "ca.key"));
    let error = Pki::open_at(dir.path(), &[], at(0)).unwrap_err().to_string();
    assert!(error.contains("ca.crt") && error.contains("does not belong"), "{error}");
    put(dir.path(), "ca.crt", &read(dir.path(), "server.crt"));
    put(dir.path(), "ca.key", &read(dir.path(), "server.key"));
    let error = Pki::open_at(dir.path(), &[], at(0)).unwrap_err().to_string();
    assert!(error.contains("not the certificate of an authority"), "{error}");
}

#[test]
fn an_expired_authority_is_named() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    let error = Pki::open_at(dir.path(), &[], at(4000)).unwrap_err().to_string();
    assert!(error.contains("expired at"), "{error}");
}

/// Whatever prefix of the files a first start got to write, the next start completes it.
#[test]
fn a_first_start_cut_off_anywhere_is_completed() {
    let whole = tempfile::tempdir().unwrap();
    Pki::open_at(whole.path(), &[], at(0)).unwrap();
    let order =
        ["ca.key", "ca.crt", "server.key", "server.crt", "admin.key", "admin.crt", "sa.key"];
    for written in 0..=order.len() {
        let dir = tempfile::tempdir().unwrap();
        for name in &order[..written] {
            put(dir.path(), name, &read(whole.path(), name));
        }
        put(dir.path(), ".durable-7.tmp", "half");
        Pki::open_at(dir.path(), &[], at(0)).unwrap();
        for name in order.iter().take(written) {
            assert_eq!(read(dir.path(), name), read(whole.path(), name), "{name}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), order.len());
    }
}

#[test]
fn a_damaged_leaf_says_how_to_get_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open_at(dir.path(), &[], at(0)).unwrap();
    put(dir.path(), "server.crt", "noise");
    let error = Pki::open_at(dir.path(), &[], at(0)).unwrap_err().to_string();
    assert!(error.contains("server.crt") && error.contains("Remove it"), "{error}");
    for lost in ["server.crt", "server.key", "admin.key"] {
        std::fs::remove_file(dir.path().join(lost)).unwrap();
        Pki::open_at(dir.path(), &[], at(0)).unwrap();
    }
}

#[test]
fn a_client_certificate_names_user_and_groups_and_nothing_outlives_the_authority() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    let long = Duration::from_hours(100 * 365 * 24);
    let issued = pki.issue_client("ada \u{e4}", &["one", "two", "three"], long).unwrap();
    assert!(!format!("{issued:?}").contains(issued.key_pem.lines().nth(1).unwrap()));
    let der = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let groups: Vec<_> =
        certificate.subject().iter_organization().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(groups, ["one", "two", "three"]);
    let ca = CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap();
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(certificate.validity().not_after, ca.validity().not_after);
}

/// Runs a handshake in memory; gives the client certificate the server saw and trusts.
fn handshake(
    pki: &Pki,
    client: Option<&ClientCert>,
    host: &str,
) -> Result<Option<CertificateDer<'static>>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => builder.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(client.cert_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes()).unwrap(),
        )?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut server = rustls::ServerConnection::new(pki.server_config())?;
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut input = &wire[..];
        while !input.is_empty() {
            server.read_tls(&mut input).unwrap();
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut input = &wire[..];
        while !input.is_empty() {
            client.read_tls(&mut input).unwrap();
            client.process_new_packets()?;
        }
    }
    assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
    let trusted = server.peer_certificates().filter(|chain| pki.clients().trusts(chain));
    let seen = trusted.and_then(|chain| chain.first().cloned());
    Ok(seen.map(CertificateDer::into_owned))
}

#[test]
fn a_handshake_tells_our_clients_from_strangers() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pki = Pki::open(dir.path(), &["192.0.2.7".to_owned()]).unwrap();
    let stranger = Pki::open(other.path(), &[]).unwrap();
    for host in ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc", "192.0.2.7"] {
        assert_eq!(handshake(&pki, None, host), Ok(None), "{host}");
    }
    assert!(handshake(&pki, None, "elsewhere.example").is_err());
    let hour = Duration::from_hours(1);
    let ours = pki.issue_client("ada", &["dev", "ops"], hour).unwrap();
    let seen = handshake(&pki, Some(&ours), "localhost").unwrap().unwrap();
    let user = crate::auth::certificate::user(&seen, Timestamp::now()).unwrap();
    assert_eq!((user.name.as_str(), user.in_group("ops")), ("ada", true));
    assert!(handshake(&pki, Some(pki.admin()), "localhost").unwrap().is_some());
    let theirs = stranger.issue_client("ada", &[], hour).unwrap();
    assert_eq!(handshake(&pki, Some(&theirs), "localhost"), Ok(None));
    // A certificate of ours without its key.
    let stolen = ClientCert { key_pem: theirs.key_pem.clone(), ..ours };
    assert!(handshake(&pki, Some(&stolen), "localhost").is_err());
    // The server's own certificate is not one for clients.
    let server = ClientCert {
        cert_pem: read(dir.path(), "server.crt"),
        key_pem: read(dir.path(), "server.key"),
    };
    assert_eq!(handshake(&pki, Some(&server), "localhost"), Ok(None));
}
