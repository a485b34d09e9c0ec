//! An etcd with its guard beside it, as the pod of an operator has them: real processes, a store
//! in a directory, and the command line of etcd's own tools to look at what came of it.

mod pki;
mod rig;
mod sidecar;

pub use pki::Pki;
pub use rig::{Rig, Run};
pub use sidecar::Sidecar;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Long enough for a loaded machine; nothing waits for it in vain unless something is broken.
pub const TIMEOUT: Duration = Duration::from_mins(2);

/// Runs etcdctl against an endpoint; not succeeding fails the test.
#[track_caller]
pub fn etcdctl(endpoint: &str, arguments: &[&str]) -> String {
    crate::engine::run(testkit::etcd::etcdctl(endpoint).unwrap().args(arguments))
}

/// etcd's own hash over every row up to a revision; 0 is the newest.
#[track_caller]
pub fn hash_kv(endpoint: &str, revision: i64) -> u64 {
    hash_kv_by(&|arguments| etcdctl(endpoint, arguments), revision)
}

/// As [`hash_kv`], by an etcdctl that is told more.
#[track_caller]
fn hash_kv_by(etcdctl: &dyn Fn(&[&str]) -> String, revision: i64) -> u64 {
    let revision = revision.to_string();
    let text = etcdctl(&["endpoint", "hashkv", "--rev", &revision, "--write-out", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer[0]["HashKV"]["hash"].as_u64().unwrap()
}

#[track_caller]
pub fn status(endpoint: &str) -> Value {
    status_by(&|arguments| etcdctl(endpoint, arguments))
}

/// As [`status`], by an etcdctl that is told more.
#[track_caller]
fn status_by(etcdctl: &dyn Fn(&[&str]) -> String) -> Value {
    let text = etcdctl(&["endpoint", "status", "--write-out", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer[0]["Status"].clone()
}

#[track_caller]
pub fn revision(endpoint: &str) -> i64 {
    status(endpoint)["header"]["revision"].as_i64().unwrap()
}

/// Reads a stored object as it was before it was compressed.
pub fn unpacked(path: &Path) -> Vec<u8> {
    use std::io::Read as _;
    let bytes = std::fs::read(path).unwrap();
    let mut plain = Vec::new();
    let name = path.to_str().unwrap().trim_end_matches(".final");
    match name.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("gz") => {
            flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
        }
        Some("zlib") => {
            flate2::read::ZlibDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
        }
        Some(_) | None => plain = bytes,
    }
    plain
}
