//! The suite over a real S3 service: `TEST_S3_URL` (as in `s3://bucket/prefix?endpoint=…`, with the
//! usual `AWS_` variables), or a `moto_server` at `TEST_MOTO_ADDRESS` or on its usual port. Skipped,
//! and said so, where there is neither.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use blobs::{Credentials, Key, Prefix, conformance, open};

const MOTO: &str = "127.0.0.1:5000";
const BUCKET: &str = "holdfast-conformance";

/// Makes the bucket; moto asks for no signature.
fn moto_bucket() -> std::io::Result<String> {
    let at = std::env::var("TEST_MOTO_ADDRESS").unwrap_or_else(|_| MOTO.to_owned());
    let at: SocketAddr = at.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_mins(1))?;
    stream.set_read_timeout(Some(Duration::from_mins(2)))?;
    let head = format!("PUT /{BUCKET} HTTP/1.1\r\nHost: {at}\r\n");
    write!(stream, "{head}Content-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") {
        Ok(format!("s3://{BUCKET}/suite?region=us-east-1&endpoint=http://{at}"))
    } else {
        Err(std::io::Error::other(answer))
    }
}

fn place() -> Result<(String, Credentials), String> {
    if let Ok(url) = std::env::var("TEST_S3_URL") {
        return Ok((url, Credentials::Ambient));
    }
    let credentials = Credentials::S3 {
        access_key_id: "test".to_owned(),
        secret_access_key: "test".into(),
        session_token: None,
    };
    match moto_bucket() {
        Ok(url) => Ok((url, credentials)),
        Err(error) => Err(format!("no TEST_S3_URL, and no moto_server: {error}")),
    }
}

#[tokio::test]
async fn s3_passes_the_suite() {
    let (url, credentials) = match place() {
        Ok(place) => place,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let store = open(&url, &credentials).unwrap();
    conformance::run(store.as_ref(), &Prefix::parse("conformance").unwrap()).await;
    conformance::run_pages(store, &Key::parse("pages").unwrap()).await;
}

/// Whatever is asked of a bucket that is not there, the answer is about the bucket.
#[tokio::test]
async fn a_bucket_that_is_not_there_is_named() {
    let (url, credentials) = match place() {
        Ok(place) => place,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let url = url.replacen(BUCKET, "holdfast-nowhere", 1);
    let store = open(&url, &credentials).unwrap();
    let key = Key::parse("some/key").unwrap();
    for error in [
        store.list_level(&Prefix::ROOT).await.unwrap_err(),
        store.list(&Prefix::ROOT, None).await.unwrap_err(),
        store.get_range(&key, 0..9).await.unwrap_err(),
        store.put(&key, "x".into()).await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.starts_with("bucket holdfast-nowhere does not exist at http"), "{text}");
        assert!(text.contains("not visible to these credentials"), "{text}");
        assert!(!error.is_not_found());
    }
}
