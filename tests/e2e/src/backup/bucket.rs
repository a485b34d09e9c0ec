//! A bucket of an S3 service on loopback (`moto_server`, which wants a signature and does not check
//! it), reached by plain HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Where the service listens; `cargo xtask` starts one.
const ADDRESS: &str = "TEST_MOTO_ADDRESS";
/// The usual place.
const USUAL: &str = "127.0.0.1:5000";
const TIMEOUT: Duration = Duration::from_mins(2);
const PUTS_AT_ONCE: usize = 8;
/// Identity and secret of a user; the service knows no others, but takes any.
pub const S3_KEY: &str = "test";

#[derive(Debug, Clone)]
pub struct Bucket {
    pub at: SocketAddr,
    pub name: String,
    /// What stands before every key of ours.
    pub prefix: String,
}

impl Bucket {
    /// A new one; none, after having said so, where there is no service.
    pub fn make() -> Option<Self> {
        let at = std::env::var(ADDRESS).unwrap_or_else(|_| USUAL.to_owned());
        let at: SocketAddr = at.parse().unwrap();
        if let Err(error) = TcpStream::connect_timeout(&at, TIMEOUT) {
            crate::skip(&format!("backups to S3: no moto_server at {at}: {error}"));
            return None;
        }
        let name = format!("holdfast-{:016x}", rand::random::<u64>());
        let bucket = Self { at, name, prefix: "some/path/".to_owned() };
        bucket.must("PUT", &format!("/{}", bucket.name), b"");
        Some(bucket)
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let (status, body) = self.call("GET", &self.path(key), b"");
        assert!(matches!(status, 200 | 404), "{key}: {status}");
        (status == 200).then_some(body)
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.must("PUT", &self.path(key), bytes);
    }

    /// Puts many small objects.
    pub fn put_all(&self, objects: &[(String, Vec<u8>)]) {
        let share = objects.len().div_ceil(PUTS_AT_ONCE).max(1);
        std::thread::scope(|scope| {
            for some in objects.chunks(share) {
                scope.spawn(move || some.iter().for_each(|(key, bytes)| self.put(key, bytes)));
            }
        });
    }

    pub fn remove(&self, key: &str) {
        self.must("DELETE", &self.path(key), b"");
    }

    /// All keys below `backupstore/`, in order.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut token = String::new();
        loop {
            let (bucket, prefix) = (&self.name, &self.prefix);
            let page = self.must(
                "GET",
                &format!("/{bucket}?list-type=2&prefix={prefix}backupstore/{token}"),
                b"",
            );
            let page = String::from_utf8(page).unwrap();
            let found = between(&page, "<Key>", "</Key>");
            keys.extend(
                found.iter().filter_map(|key| key.strip_prefix(prefix.as_str())).map(String::from),
            );
            match between(&page, "<NextContinuationToken>", "</NextContinuationToken>").first() {
                Some(next) => token = format!("&continuation-token={next}"),
                None => break,
            }
        }
        keys.sort();
        keys
    }

    fn path(&self, key: &str) -> String {
        format!("/{}/{}{key}", self.name, self.prefix)
    }

    fn must(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status}");
        answer
    }

    fn call(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect_timeout(&self.at, TIMEOUT).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.at);
        let scope = format!("{S3_KEY}/20260101/us-east-1/s3/aws4_request");
        let signed = format!(
            "Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0\r\n"
        );
        let rest = format!("{signed}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        assert!(!head.contains("transfer-encoding"), "{method} {path}: {head}");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_off(end))
    }
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> Vec<&'t str> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
}
