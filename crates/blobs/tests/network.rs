//! Services that do not answer, answer slowly, or answer that they will not: how long they are waited
//! for, and what the caller is told.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on panics, and says where; its services end with it"
)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blobs::wrap::{Policy, Retrying};
use blobs::{Credentials, Error, Key, Network, Prefix, Retry, Store, list_all, open_over};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const KEY_ID: &str = "AKIAEXAMPLE";
const SECRET: &str = "very-hidden";

fn key() -> Key {
    Key::parse("a/b").unwrap()
}

fn store_at(address: &str, silence: Duration) -> Arc<dyn Store> {
    let credentials = Credentials::S3 {
        access_key_id: KEY_ID.into(),
        secret_access_key: SECRET.into(),
        session_token: None,
    };
    let network = Network { silence_timeout: Some(silence), ..Network::default() };
    let url = format!("s3://backups/dir?region=eu-west-1&endpoint=http://{address}");
    open_over(&url, &credentials, &network).unwrap()
}

/// The whole error, with its causes.
fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    assert!(!text.contains(SECRET), "{text}");
    text
}

/// A service of one kind of answer; it ends with the runtime.
async fn service<F, S>(serve: F) -> String
where
    F: Fn(TcpStream) -> S + Send + 'static,
    S: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Reads one request with what it carries.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).to_ascii_lowercase();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest);
            let length = length.lines().next().unwrap_or("0").trim().parse().unwrap_or(0);
            if rest.len() >= length {
                return Ok(());
            }
        }
        if stream.read_buf(&mut seen).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// One answer a connection, and it says so: a client would ask again on one that is about to end.
async fn answering(answer: String) -> String {
    let answer = answer.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    service(move |mut stream| {
        let answer = answer.clone();
        async move {
            request(&mut stream).await?;
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await
        }
    })
    .await
}

fn error_answer(status: &str, headers: &str, code: &str, more: &str) -> String {
    let body = format!("<Error><Code>{code}</Code><Message>Sorry</Message>{more}</Error>");
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// A tenant names the store, so the store must not name where we go.
#[tokio::test]
async fn nobody_is_followed_to_another_address() {
    let asked = Arc::new(AtomicU64::new(0));
    let inner = service({
        let asked = Arc::clone(&asked);
        move |mut stream| {
            asked.fetch_add(1, Ordering::Relaxed);
            async move { stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await }
        }
    })
    .await;
    for status in ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"] {
        let to = format!("Location: http://{inner}/v2/keys/x\r\n");
        let sending =
            answering(format!("HTTP/1.1 {status}\r\n{to}Content-Length: 0\r\n\r\n")).await;
        let store = store_at(&sending, Duration::from_secs(30));
        let (root, key) = (Prefix::ROOT, key());
        let errors = [
            store.list_level(&root).await.unwrap_err(),
            store.head(&key).await.unwrap_err(),
            store.put(&key, "cfg".into()).await.unwrap_err(),
            store.delete(&key).await.unwrap_err(),
        ];
        assert_eq!(asked.load(Ordering::Relaxed), 0, "{status}");
        if !status.starts_with("303") {
            assert!(told(&errors[2]).contains("sends us elsewhere"), "{}", told(&errors[2]));
        }
    }
}

#[tokio::test]
async fn a_service_that_says_nothing_is_given_up() {
    let silent = service(|mut stream| async move {
        request(&mut stream).await?;
        std::future::pending().await
    })
    .await;
    // Long enough to ask in, on a loaded machine; all of them at once, so that it is not long.
    let store = store_at(&silent, Duration::from_secs(2));
    let policy =
        Policy { tries_max: 2, first_pause: Duration::from_millis(1), ..Policy::default() };
    let store = Retrying::around(store, policy);
    let (root, key) = (Prefix::ROOT, key());
    let (page, level, head, get, stream, put, new, delete) = tokio::join!(
        async { store.list(&root, None).await.unwrap_err() },
        async { store.list_level(&root).await.unwrap_err() },
        async { store.head(&key).await.unwrap_err() },
        async { store.get_range(&key, 0..10).await.unwrap_err() },
        async { store.get_stream(&key).await.err().unwrap() },
        async { store.put(&key, "cfg".into()).await.unwrap_err() },
        async { store.put_new(&key, "cfg".into()).await.unwrap_err() },
        async { store.delete(&key).await.unwrap_err() },
    );
    for error in [page, level, head, get, stream, put, new, delete] {
        assert_eq!(error.retry(), Retry::Later);
        let text = told(&error);
        let place = format!("http://{silent} took the connection and gave no answer to ");
        assert!(text.contains(&place), "{text}");
        assert!(text.contains("given up after 2 tries in "), "{text}");
        assert!(text.contains("check that it is the endpoint of an object store"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_may_take_long_as_long_as_it_goes_on() {
    let silence = Duration::from_secs(4);
    let slow = service(|mut stream| async move {
        request(&mut stream).await?;
        let head = "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 50\r\n\
                    Last-Modified: Sun, 15 Nov 2026 23:55:38 GMT\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            stream.write_all(b"x").await?;
        }
        Ok(())
    })
    .await;
    let store = store_at(&slow, silence);
    let (meta, body) = store.get_stream(&key()).await.unwrap();
    let read: Vec<_> = futures::TryStreamExt::try_collect(body).await.unwrap();
    assert_eq!((meta.len_bytes, read.concat().len()), (50, 50));
}

#[tokio::test]
async fn an_answer_that_stops_is_given_up() {
    let stuck = service(|mut stream| async move {
        request(&mut stream).await?;
        let head = "HTTP/1.1 206 Partial Content\r\nETag: \"x\"\r\nContent-Length: 30\r\n\
                    Content-Range: bytes 0-29/30\r\n\
                    Last-Modified: Sun, 15 Nov 2026 23:55:38 GMT\r\n\r\nabc";
        stream.write_all(head.as_bytes()).await?;
        std::future::pending().await
    })
    .await;
    let store = store_at(&stuck, Duration::from_secs(2));
    let error = store.get_range(&key(), 0..30).await.unwrap_err();
    let text = told(&error);
    assert!(text.contains("no more of its answer"), "{text}");
    assert_eq!(error.retry(), Retry::Later);
}

#[tokio::test]
async fn a_place_where_nobody_listens_is_named() {
    // Bound and not listened at: nobody else gets it meanwhile.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = held.local_addr().unwrap().to_string();
    let store = store_at(&address, Duration::from_secs(20));
    let error = store.list_level(&Prefix::ROOT).await.unwrap_err();
    let text = told(&error);
    assert!(text.contains(&format!("no connection to http://{address}: ")), "{text}");
    assert!(text.contains("refused") && text.contains("check the endpoint"), "{text}");
    assert_eq!(error.retry(), Retry::Later);
}

#[tokio::test]
async fn a_rejection_says_what_is_wrong_and_is_not_tried_again() {
    let skew = "<RequestTime>20261115T100000Z</RequestTime>\
                <ServerTime>2026-11-15T12:00:00Z</ServerTime>";
    let region = "x-amz-bucket-region: us-east-2\r\n";
    for (answer, part) in [
        (
            error_answer("404 Not Found", "", "NoSuchBucket", ""),
            "bucket backups does not exist at http://",
        ),
        (
            error_answer("301 Moved Permanently", region, "PermanentRedirect", ""),
            "is not in the region eu-west-1 of http://",
        ),
        (
            error_answer(
                "400 Bad Request",
                "",
                "AuthorizationHeaderMalformed",
                "<Region>us-east-2</Region>",
            ),
            "but in us-east-2; name that region",
        ),
        (
            error_answer("403 Forbidden", "", "AccessDenied", ""),
            "in bucket backups to the key id AKIAEXAMPLE; check the rights",
        ),
        (
            error_answer("403 Forbidden", "", "SignatureDoesNotMatch", ""),
            "does not accept the signature of the key id AKIAEXAMPLE",
        ),
        (
            error_answer("403 Forbidden", "", "InvalidAccessKeyId", ""),
            "does not know the key id AKIAEXAMPLE",
        ),
        (
            error_answer("403 Forbidden", "", "RequestTimeTooSkewed", skew),
            "this machine says 20261115T100000Z, http://",
        ),
        (error_answer("400 Bad Request", "", "ExpiredToken", ""), "get a new one"),
    ] {
        let store = store_at(&answering(answer).await, Duration::from_secs(20));
        let page = store.list(&Prefix::ROOT, None).await.unwrap_err();
        let level = store.list_level(&Prefix::ROOT).await.unwrap_err();
        let get = store.get_range(&key(), 0..10).await.unwrap_err();
        let put = store.put_new(&key(), "x".into()).await.unwrap_err();
        let swap = store.put(&key(), "x".into()).await.unwrap_err();
        let delete = store.delete(&key()).await.unwrap_err();
        for error in [page, level, get, put, swap, delete] {
            let text = told(&error);
            assert!(text.contains(part), "{part}: {text}");
            assert_eq!(error.retry(), Retry::Never, "{text}");
            assert!(!error.is_not_found(), "{text}");
        }
    }
}

/// To HEAD there are no words; a header may still say it.
#[tokio::test]
async fn an_answer_without_words_is_understood() {
    let head = "Content-Length: 0\r\n\r\n";
    for (answer, part) in [
        (
            format!("HTTP/1.1 403 Forbidden\r\n{head}"),
            "refuses HEAD in bucket backups to the key id",
        ),
        (
            format!("HTTP/1.1 400 Bad Request\r\nx-amz-bucket-region: us-east-2\r\n{head}"),
            "but in us-east-2",
        ),
    ] {
        let store = store_at(&answering(answer).await, Duration::from_secs(20));
        let error = store.head(&key()).await.unwrap_err();
        let text = told(&error);
        assert!(text.contains(part), "{text}");
        assert_eq!(error.retry(), Retry::Never);
    }
    let gone = answering(format!("HTTP/1.1 404 Not Found\r\n{head}")).await;
    let error = store_at(&gone, Duration::from_secs(20)).head(&key()).await.unwrap_err();
    assert!(error.is_not_found());
}

#[tokio::test]
async fn what_is_no_rejection_stays_what_it_was() {
    let missing = answering(error_answer("404 Not Found", "", "NoSuchKey", "")).await;
    let store = store_at(&missing, Duration::from_secs(20));
    assert!(store.get_range(&key(), 0..9).await.unwrap_err().is_not_found());
    store.delete(&key()).await.unwrap();
    let error = store.list_level(&Prefix::ROOT).await.unwrap_err();
    assert!(told(&error).contains("bucket backups does not exist at"), "{}", told(&error));
    assert_eq!(error.retry(), Retry::Never);
    let busy = answering(error_answer("503 Slow Down", "", "SlowDown", "")).await;
    let store = store_at(&busy, Duration::from_secs(20));
    assert_eq!(store.list_level(&Prefix::ROOT).await.unwrap_err().retry(), Retry::Later);
    let taken = error_answer("412 Precondition Failed", "", "PreconditionFailed", "");
    let store = store_at(&answering(taken).await, Duration::from_secs(20));
    let error = store.put_new(&key(), "x".into()).await.unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error:?}");
}

#[tokio::test]
async fn a_list_without_end_is_given_up() {
    let folders = "<CommonPrefixes><Prefix>dir/f/</Prefix></CommonPrefixes>".repeat(1000);
    let body = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated>\
         <NextContinuationToken>on</NextContinuationToken>{folders}</ListBucketResult>"
    );
    let length = body.len();
    let endless =
        answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")).await;
    let store = store_at(&endless, Duration::from_secs(5));
    let listing = tokio::time::timeout(Duration::from_mins(1), store.list_level(&Prefix::ROOT));
    let error = listing.await.expect("it went on listing").unwrap_err();
    let text = told(&error);
    assert!(text.contains("more than 100000 entries"), "{text}");
    assert_eq!(error.retry(), Retry::Never, "{text}");
}

/// A service that keeps to signatures takes nothing that was damaged on its way.
#[tokio::test]
async fn what_is_uploaded_goes_with_its_checksum() {
    let heads = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&heads);
    let address = service(move |mut stream| {
        let heads = Arc::clone(&seen);
        async move {
            let mut head = vec![0; 16 << 10];
            let len = stream.read(&mut head).await?;
            heads.lock().unwrap().push_str(&String::from_utf8_lossy(&head[..len]));
            let answer =
                "HTTP/1.1 200 OK\r\nConnection: close\r\nETag: x\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).await
        }
    })
    .await;
    store_at(&address, Duration::from_secs(20)).put_new(&key(), "x".into()).await.unwrap();
    let head = heads.lock().unwrap().to_ascii_lowercase();
    let sum = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
    assert!(head.contains(&format!("x-amz-content-sha256: {sum}")), "{head}");
}

/// It does not look at where a page is to begin.
#[tokio::test]
async fn a_list_that_does_not_go_on_is_given_up() {
    let object = |number: u64| {
        format!(
            "<Contents><Key>dir/f/{number:04}</Key><LastModified>2026-01-02T15:04:05.000Z\
             </LastModified><ETag>x</ETag><Size>1</Size></Contents>"
        )
    };
    let objects: String = (0..1000).map(object).collect();
    let body = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated>\
         <NextContinuationToken>on</NextContinuationToken>{objects}</ListBucketResult>"
    );
    let length = body.len();
    let endless =
        answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")).await;
    let store = store_at(&endless, Duration::from_secs(5));
    let listing =
        tokio::time::timeout(Duration::from_mins(1), list_all(store.as_ref(), &Prefix::ROOT));
    let error = listing.await.expect("it went on listing").unwrap_err();
    let text = told(&error);
    assert!(text.contains("cannot list objects in the order of their names"), "{text}");
    assert_eq!(error.retry(), Retry::Never, "{text}");
}

#[tokio::test]
async fn an_answer_that_is_longer_than_asked_for_is_not_read_on() {
    const MOST: u64 = 64 << 20;
    const PIECE: usize = 64 << 10;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let endless = service(move |mut stream| {
        let sent = Arc::clone(&counted);
        async move {
            request(&mut stream).await?;
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n\
                 Last-Modified: Mon, 02 Jan 2006 15:04:05 GMT\r\nContent-Length: {MOST}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            let piece = "x".repeat(PIECE);
            while sent.fetch_add(piece.len() as u64, Ordering::Relaxed) < MOST {
                stream.write_all(piece.as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await;
    let store = store_at(&endless, Duration::from_secs(5));
    let error = store.get_range(&key(), 0..10).await.unwrap_err();
    assert!(told(&error).contains("instead of 10"), "{}", told(&error));
    assert!(sent.load(Ordering::Relaxed) < MOST, "all of it was read");
}

/// What `openssl req -x509` makes: it has signed itself, and says that it is an authority. A service
/// that shows it.
async fn behind_an_authority(name: &str, until: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let address = service(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await?;
            request(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"1\"\r\n").await?;
            stream.write_all(b"Last-Modified: Mon, 16 Nov 2026 06:00:00 GMT\r\n\r\n").await?;
            stream.shutdown().await
        }
    })
    .await;
    (address, certificate.pem())
}

async fn heads(address: &str, pem: &str) -> Result<(), String> {
    let credentials = Credentials::S3 {
        access_key_id: KEY_ID.into(),
        secret_access_key: SECRET.into(),
        session_token: None,
    };
    let network = Network { ca_pem: Some(pem.to_owned()), ..Network::default() };
    let url = format!("s3://backups/dir?region=eu-west-1&endpoint=https://{address}");
    let store = open_over(&url, &credentials, &network).unwrap();
    store.head(&key()).await.map(drop).map_err(|error| told(&error))
}

#[tokio::test]
async fn a_certificate_that_a_user_names_is_believed_though_it_is_an_authority() {
    let (address, pem) = behind_an_authority("127.0.0.1", 2100).await;
    heads(&address, &pem).await.unwrap();
    let (_, other) = behind_an_authority("127.0.0.1", 2100).await;
    let refused = heads(&address, &other).await.unwrap_err();
    assert!(refused.contains("certificate"), "another one was named: {refused}");
    let (address, pem) = behind_an_authority("elsewhere.example", 2100).await;
    let refused = heads(&address, &pem).await.unwrap_err();
    assert!(refused.contains("not valid for name"), "it is somebody else's: {refused}");
    let (address, pem) = behind_an_authority("127.0.0.1", 2020).await;
    let refused = heads(&address, &pem).await.unwrap_err();
    assert!(refused.contains("expired"), "its time is over: {refused}");
}
