//! Clients that would fill the memory of a server without limits, and those they must not harm.

use std::time::Duration;

use e2e::{Endpoint, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::{MAPS, TIMEOUT};

const MIB: usize = 1 << 20;
const READERS: usize = 100;
const LIST_OBJECTS: usize = 54;
const SENDERS: usize = 300;
const STRANGERS: usize = 4096;
/// What all of them together may cost.
const GROWTH_MAX_BYTES: u64 = 160 << 20;

async fn ask(endpoint: &Endpoint, head: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut stream = endpoint.tls().await?;
    let all = format!("{head}Host: x\r\nAuthorization: Bearer admin-token\r\n\r\n");
    stream.write_all(all.as_bytes()).await?;
    stream.flush().await?;
    Ok(stream)
}

/// Somebody else is served as if nothing was the matter.
async fn assert_served(endpoint: &Endpoint) {
    let answered = tokio::time::timeout(TIMEOUT, async {
        let mut connection = endpoint.connect().await.unwrap();
        connection.get("/api/v1/namespaces/default").await.unwrap().code()
    });
    assert_eq!(answered.await, Ok(200));
}

#[tokio::test]
async fn lists_that_nobody_reads_share_their_objects() {
    let server = Server::start();
    let endpoint = server.endpoint();
    let mut connection = endpoint.connect().await.unwrap();
    for number in 0..LIST_OBJECTS {
        let body = json!({"metadata": {"name": format!("m{number}")},
            "data": {"a": "x".repeat(MIB / 2)}});
        assert_eq!(connection.post(MAPS, &body).await.unwrap().code(), 201);
    }
    let before = server.resident_bytes();
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(ask(&endpoint, &format!("GET {MAPS} HTTP/1.1\r\n")).await.unwrap());
    }
    // Each has its first piece: the answers are under way.
    for reader in &readers {
        tokio::time::timeout(TIMEOUT, reader.get_ref().0.readable()).await.unwrap().unwrap();
    }
    assert_served(&endpoint).await;
    let growth = server.resident_bytes().saturating_sub(before);
    println!("{READERS} readers that do not read: {} MiB more", growth >> 20);
    assert!(growth < GROWTH_MAX_BYTES, "{} MiB", growth >> 20);
}

#[tokio::test]
async fn bodies_that_do_not_end_have_a_limit() {
    let server = Server::start();
    let endpoint = server.endpoint();
    let before = server.resident_bytes();
    let piece = vec![b' '; 2 * MIB];
    let mut senders = Vec::new();
    for _ in 0..SENDERS {
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            3 * MIB
        );
        let mut stream = ask(&endpoint, &head).await.unwrap();
        // Who is refused may find the connection closed while it sends.
        let sent = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&piece)).await;
        if let Ok(Ok(())) = sent {
            senders.push(stream);
        }
    }
    assert_served(&endpoint).await;
    let growth = server.resident_bytes().saturating_sub(before);
    println!("{SENDERS} bodies that do not end: {} MiB more", growth >> 20);
    assert!(growth < GROWTH_MAX_BYTES, "{} MiB", growth >> 20);
}

/// Lets this process and those it starts open so many files; false if it may not.
fn allow_files(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.current.map(|now| now.max(count)), ..limit };
    setrlimit(Resource::Nofile, wanted).is_ok()
}

#[tokio::test]
async fn idle_strangers_do_not_lock_the_administrator_out() {
    // Those of the other tests of this process, too.
    if !allow_files(2 * STRANGERS as u64) {
        return e2e::skip("idle strangers: this process may not have as many files open");
    }
    let server = Server::start();
    let endpoint = server.endpoint();
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(endpoint.tcp().await.unwrap());
    }
    assert_served(&endpoint).await;
    println!("{} idle connections, and the administrator is served", strangers.len());
}
