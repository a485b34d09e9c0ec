//! Clients that hold on to connections, or do not speak the protocol.

use e2e::Server;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::{MAPS, TIMEOUT};

const SLOW_CLIENTS: usize = 200;
const MEMORY_MAX_BYTES: u64 = 200 << 20;

/// What the server said before it closed the connection, cleanly or not; only hanging on is wrong.
async fn ended(stream: &mut (impl AsyncRead + Unpin), otherwise: &str) -> Vec<u8> {
    let mut said = Vec::new();
    let end = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut said)).await;
    assert!(end.is_ok(), "{otherwise}");
    said
}

#[tokio::test]
async fn slow_clients_are_cut_off_while_others_are_served() {
    let server = Server::start();
    let endpoint = server.endpoint();
    let mut slow = Vec::new();
    for number in 0..SLOW_CLIENTS {
        let mut stream = endpoint.tls().await.unwrap();
        let start = format!("GET /version HTTP/1.1\r\nHost: slow-{number}\r\nX-Slow: ");
        stream.write_all(start.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        slow.push(stream);
    }
    // Some do not even begin to speak TLS.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(endpoint.tcp().await.unwrap());
    }
    let answered = tokio::time::timeout(TIMEOUT, async {
        endpoint.connect().await.unwrap().get(MAPS).await.unwrap().code()
    });
    assert_eq!(answered.await, Ok(200));
    assert!(server.resident_bytes() < MEMORY_MAX_BYTES, "{}", server.resident_bytes());
    for mut stream in slow {
        ended(&mut stream, "a slow client was never cut off").await;
    }
    for mut stream in silent {
        ended(&mut stream, "a silent client was never cut off").await;
    }
}

#[tokio::test]
async fn a_body_that_never_comes_is_not_waited_for_forever() {
    let server = Server::start();
    let mut stream = server.endpoint().tls().await.unwrap();
    let start = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    stream.write_all(start.as_bytes()).await.unwrap();
    ended(&mut stream, "the server waits forever").await;
}

#[tokio::test]
async fn garbage_instead_of_tls_or_http_harms_nobody() {
    let server = Server::start();
    let endpoint = server.endpoint();
    let garbage: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff], &[0; 4096], &[0xff; 4096]];
    for bytes in garbage {
        let mut stream = endpoint.tcp().await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let _ = stream.shutdown().await;
        ended(&mut stream, "garbage keeps a connection open").await;
    }
    for bytes in garbage.iter().skip(1) {
        let mut stream = endpoint.tls().await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let _ = stream.shutdown().await;
        ended(&mut stream, "garbage keeps a connection open").await;
    }
    assert_eq!(endpoint.connect().await.unwrap().get("/readyz").await.unwrap().code(), 200);
}

#[tokio::test]
async fn requests_sent_without_waiting_are_answered_in_order() {
    let server = Server::start();
    let mut stream = server.endpoint().tls().await.unwrap();
    let request = |path: &str, close: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n{close}\r\n"
        )
    };
    let all = [
        request("/api/v1/namespaces/default", ""),
        request("/version", ""),
        request("/api/v1/namespaces/nothing", "Connection: close\r\n"),
    ];
    stream.write_all(all.concat().as_bytes()).await.unwrap();
    let answers = ended(&mut stream, "no end").await;
    let text = String::from_utf8_lossy(&answers);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
    assert!(at("\"Namespace\"") < at("\"gitVersion\""));
    assert!(at("\"gitVersion\"") < at("HTTP/1.1 404"));
}
