//! A bucket of an S3 service on loopback, reached by plain HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// Where the service listens; `cargo xtask` starts one.
const ADDRESS: &str = "TEST_MOTO_ADDRESS";
/// The usual place.
const USUAL: &str = "127.0.0.1:5000";
const TIMEOUT: Duration = Duration::from_mins(2);
const PUTS_AT_ONCE: usize = 8;
/// Identity and secret of the user whom the service knows.
pub const S3_KEY: &str = "test";
pub const S3_SECRET: &str = "test-secret";
const REGION: &str = "us-east-1";
/// As long as the hash function takes at a time.
const HMAC_BLOCK: usize = 64;

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
                // In the order of names, as it is signed.
                &format!(
                    "/{bucket}?{}list-type=2&prefix={}",
                    token,
                    escaped(&format!("{prefix}backupstore/"))
                ),
                b"",
            );
            let page = String::from_utf8(page).unwrap();
            let found = between(&page, "<Key>", "</Key>");
            keys.extend(
                found.iter().filter_map(|key| key.strip_prefix(prefix.as_str())).map(String::from),
            );
            match between(&page, "<NextContinuationToken>", "</NextContinuationToken>").first() {
                Some(next) => token = format!("continuation-token={}&", escaped(next)),
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
        let signed = signed(method, path, self.at);
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

/// The headers that say who asks, as services want it since 2012; the body is not signed.
fn signed(method: &str, path: &str, at: SocketAddr) -> String {
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = time.split('T').next().unwrap();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (names, body) = ("host;x-amz-content-sha256;x-amz-date", "UNSIGNED-PAYLOAD");
    let headers = format!("host:{at}\nx-amz-content-sha256:{body}\nx-amz-date:{time}\n");
    let request = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{body}");
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    let sum = hex(&Sha256::digest(request));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{sum}");
    let secret = format!("AWS4{S3_SECRET}").into_bytes();
    let parts = [day, REGION, "s3", "aws4_request", &text];
    let signature = parts.iter().fold(secret, |key, part| hmac(&key, part.as_bytes()));
    let who = format!("Credential={S3_KEY}/{scope}, SignedHeaders={names}");
    format!(
        "Authorization: AWS4-HMAC-SHA256 {who}, Signature={}\r\nx-amz-content-sha256: {body}\r\n\
         x-amz-date: {time}\r\n",
        hex(&signature)
    )
}

/// With keys that are shorter than a block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let padded = |pad: u8| -> Vec<u8> {
        (0..HMAC_BLOCK).map(|at| key.get(at).copied().unwrap_or(0) ^ pad).collect()
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape =
        |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}
