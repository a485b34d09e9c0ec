//! Over TLS, byte by byte.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{MAPS, World};

pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) async fn connect(world: &World, protocols: &[&str]) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = world.server.pki().ca_pem();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
    let address = world.server.address();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Reads until `wanted` has been seen, and returns everything.
pub(crate) async fn read_until(stream: &mut TlsStream<TcpStream>, wanted: &str) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(wanted) {
            return text;
        }
        let read = tokio::time::timeout(TIMEOUT, stream.read(&mut buffer)).await.unwrap();
        let count = read.unwrap_or(0);
        assert!(count > 0, "ended before {wanted:?}: {text}");
        all.extend_from_slice(&buffer[..count]);
    }
}

pub(crate) fn request(method: &str, path: &str, more: &str) -> String {
    request_by("secret", method, path, more)
}

/// By whoever has this token.
pub(crate) fn request_by(token: &str, method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\r\n")
}

#[tokio::test]
async fn both_protocols_are_offered() {
    let world = World::start().await;
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"][..], Some(&b"http/1.1"[..])),
        (&[][..], None),
    ] {
        let stream = connect(&world, offered).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
    }
}

#[tokio::test]
async fn a_watch_is_chunked_and_ends_cleanly_at_shutdown() {
    let world = World::start().await;
    let mut stream = connect(&world, &["http/1.1"]).await;
    let path = format!("{MAPS}?watch=true&labelSelector=a%3Db");
    stream.write_all(request("GET", &path, "").as_bytes()).await.unwrap();
    // The head comes at once, before any event.
    let head = read_until(&mut stream, "\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 200 ok"), "{head}");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    world.map("x", &json!({"a": "b"})).await;
    read_until(&mut stream, "\"ADDED\"").await;
    world.tasks.begin_stop();
    read_until(&mut stream, "0\r\n\r\n").await;
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let world = World::start().await;
    let mut stream = connect(&world, &["http/1.1"]).await;
    stream.write_all(request("HEAD", MAPS, "").as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    stream.write_all(request("GET", "/version?", "").as_bytes()).await.unwrap();
    read_until(&mut stream, "gitVersion").await;
}

#[tokio::test]
async fn whoever_sends_too_much_still_hears_why() {
    let world = World::start().await;
    let giant = vec![b'x'; 5 << 20];
    for (path, code) in [(MAPS, "413"), ("/api/v1/nopes", "404")] {
        let mut stream = connect(&world, &["http/1.1"]).await;
        let head = request("POST", path, &format!("content-length: {}\r\n", giant.len()));
        stream.write_all(head.as_bytes()).await.unwrap();
        // All of it is taken, or the connection is closed behind the answer.
        let _ = stream.write_all(&giant).await;
        let answer = read_until(&mut stream, "\"status\":\"Failure\"").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    }
}

#[tokio::test]
async fn an_announced_giant_is_refused_without_waiting_for_it() {
    let world = World::start().await;
    let mut stream = connect(&world, &["http/1.1"]).await;
    let head = request("POST", MAPS, "content-length: 4000000\r\nexpect: 100-continue\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "RequestEntityTooLarge").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}
