//! Google's tokens for parties elsewhere: a service on loopback exchanges them, and a bucket that
//! takes no other.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on panics, and says where; its services end with it"
)]

use std::path::Path;
use std::sync::{Arc, Mutex};

use blobs::{Credentials, Error, Key, Store, open};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What was asked, and whom the services believe.
#[derive(Default)]
struct Inside {
    asked: Vec<String>,
    subject: String,
    expires_in: u32,
}

type Shared = Arc<Mutex<Inside>>;

async fn start(shared: Shared) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, Arc::clone(&shared)));
        }
    });
    at
}

/// One request for each connection.
async fn serve(stream: TcpStream, shared: Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(text) = lower.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let (status, answer) = answer(&head, &String::from_utf8_lossy(&body), &shared);
    let length = answer.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nETag: \"1\"\r\nConnection: close\r\n\
         Last-Modified: Mon, 16 Nov 2026 06:00:00 GMT\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn answer(head: &str, body: &str, shared: &Shared) -> (u16, String) {
    let mut inside = shared.lock().unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    inside.asked.push(path.clone());
    let says = |text: &str| head.to_ascii_lowercase().contains(&text.to_ascii_lowercase());
    let expires_in = inside.expires_in;
    match path.as_str() {
        "/subject" if says("x-planted: planted-header") => {
            (200, format!(r#"{{"inner":"{}"}}"#, inside.subject))
        }
        "/token" if body.contains(&format!("subject_token={}", inside.subject)) => {
            assert!(body.contains("token-exchange") && body.contains("audience=%2F%2Fiam"));
            (200, format!(r#"{{"access_token":"planted-sts","expires_in":{expires_in}}}"#))
        }
        // As unkind as it could be: it repeats what it was sent.
        "/token" => (400, format!(r#"{{"error":"invalid_grant","error_description":"{body}"}}"#)),
        "/impersonate" if says("authorization: bearer planted-sts") => {
            (200, r#"{"accessToken":"planted-account","expireTime":"2100-01-01T00:00:00Z"}"#.into())
        }
        "/bkt/a" if says("authorization: bearer planted-account") => (200, "held".into()),
        _ => (401, format!("{head}{body}")),
    }
}

fn store(at: &str, source: &str) -> Arc<dyn Store> {
    let account = format!(
        r#"{{"type":"external_account","audience":"//iam","token_url":"http://{at}/token",
            "subject_token_type":"urn:ietf:params:oauth:token-type:jwt",
            "service_account_impersonation_url":"http://{at}/impersonate",
            "credential_source":{source}}}"#
    );
    let url = format!("gs://bkt?endpoint=http://{at}");
    open(&url, &Credentials::GoogleExternal { account: account.into() }).unwrap()
}

fn write(path: &Path, text: &str) {
    durable::replace(path, text.as_bytes()).unwrap();
}

fn key() -> Key {
    Key::parse("a").unwrap()
}

#[tokio::test]
async fn tokens_are_exchanged_kept_and_read_again_from_their_file() {
    let shared = Shared::default();
    let at = start(Arc::clone(&shared)).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    write(&file, "planted-one\n");
    let set = |subject: &str, expires_in| {
        let mut inside = shared.lock().unwrap();
        (inside.subject, inside.expires_in) = (subject.to_owned(), expires_in);
    };
    set("planted-one", 3600);
    let store = store(&at, &format!(r#"{{"file":"{}"}}"#, file.display()));
    store.get_range(&key(), 0..2).await.unwrap();
    store.get_range(&key(), 0..2).await.unwrap();
    let asked = shared.lock().unwrap().asked.clone();
    assert_eq!(asked, ["/token", "/impersonate", "/bkt/a", "/bkt/a"], "a token serves for many");

    // The file was replaced, and the pool takes no other any more.
    set("planted-two", 3600);
    let fresh = self::store(&at, &format!(r#"{{"file":"{}"}}"#, file.display()));
    let error = fresh.get_range(&key(), 0..2).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    let mut text = format!("{error} {error:?} {fresh:?}");
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    assert!(text.contains("invalid_grant") && !text.contains("planted"), "{text}");
    write(&file, "planted-two");
    fresh.get_range(&key(), 0..2).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    fresh.get_range(&key(), 0..2).await.unwrap();
}

#[tokio::test]
async fn a_subject_is_asked_at_a_url_too() {
    let shared = Shared::default();
    let at = start(Arc::clone(&shared)).await;
    shared.lock().unwrap().subject = "planted-one".to_owned();
    let source = format!(
        r#"{{"url":"http://{at}/subject","headers":{{"x-planted":"planted-header"}},
            "format":{{"type":"json","subject_token_field_name":"inner"}}}}"#
    );
    let found = store(&at, &source).get_range(&key(), 1..3).await.unwrap();
    assert_eq!(found.bytes, "el", "cut to the range, though all of it was sent");
    let asked = shared.lock().unwrap().asked.clone();
    assert_eq!(asked, ["/subject", "/token", "/impersonate", "/bkt/a"]);
}
