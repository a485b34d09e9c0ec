//! The etcd whose backups are taken: all sorts of changes, made over its JSON gateway, and what it
//! says of any revision.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::guard::{TIMEOUT, hash_kv};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

const KEYS: u32 = 400;
const VALUE_MAX_BYTES: usize = 1200;
/// Longer than any run: a key that ends by itself would be a change nobody waits for.
const LEASE_SECONDS: u32 = 86_400;

/// An endpoint of an etcd, spoken to in JSON.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    address: String,
}

impl Source {
    pub(crate) fn at(endpoint: &str) -> Self {
        Self { address: endpoint.trim_start_matches("http://").to_owned() }
    }

    #[track_caller]
    fn ask(&self, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let body = body.to_string();
        // The old version of the protocol: the answer then comes in one piece.
        let request = format!(
            "POST /v3/{path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {answer}");
        serde_json::from_str(text).unwrap()
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> i64 {
        number(&self.ask("maintenance/status", &json!({}))["header"]["revision"])
    }

    /// etcd's hash over every row up to a revision. The gateway has only the one over the file.
    #[track_caller]
    pub(crate) fn hash(&self, revision: i64) -> i64 {
        hash_kv(&self.address, revision).try_into().unwrap()
    }

    /// Every key as it was at a revision, with all that is known of it.
    pub(crate) fn keys(&self, revision: i64) -> BTreeMap<String, Value> {
        let all = json!({ "key": "AA==", "range_end": "AA==", "revision": revision.to_string() });
        let answer = self.ask("kv/range", &all);
        let found = answer["kvs"].as_array().cloned().unwrap_or_default();
        found.into_iter().map(|kv| (kv["key"].as_str().unwrap().to_owned(), kv)).collect()
    }

    /// One change of any sort.
    pub(crate) fn change(&self, random: &mut StdRng) {
        match random.random_range(0..20) {
            0..11 => drop(self.ask("kv/put", &put(random, None))),
            11..14 => {
                let key = key(random);
                drop(self.ask("kv/deleterange", &json!({ "key": key })));
            }
            14..18 => self.transaction(random),
            _ => self.lease(random),
        }
    }

    /// Many keys in one revision: puts, and a removal of what others may have put.
    fn transaction(&self, random: &mut StdRng) {
        let mut operations: BTreeMap<String, Value> = BTreeMap::new();
        for _ in 0..random.random_range(2..30) {
            let put = put(random, None);
            let key = put["key"].as_str().unwrap().to_owned();
            operations.insert(key, json!({ "request_put": put }));
        }
        let removed = key(random);
        let removal = json!({ "request_delete_range": { "key": removed } });
        operations.entry(removed).or_insert(removal);
        let operations: Vec<Value> = operations.into_values().collect();
        self.ask("kv/txn", &json!({ "success": operations }));
    }

    /// Keys with a lease; sometimes it is taken back, and they go in one revision.
    fn lease(&self, random: &mut StdRng) {
        let granted = self.ask("lease/grant", &json!({ "TTL": LEASE_SECONDS }));
        let id = granted["ID"].as_str().unwrap();
        for _ in 0..random.random_range(1..4) {
            self.ask("kv/put", &put(random, Some(id)));
        }
        if random.random_ratio(1, 3) {
            self.ask("lease/revoke", &json!({ "ID": id }));
        }
    }
}

fn key(random: &mut StdRng) -> String {
    STANDARD.encode(format!("key/{:04}", random.random_range(0..KEYS)))
}

fn put(random: &mut StdRng, lease: Option<&str>) -> Value {
    let mut value = vec![0; random.random_range(0..VALUE_MAX_BYTES)];
    random.fill(value.as_mut_slice());
    let mut put = json!({ "key": key(random), "value": STANDARD.encode(value) });
    if let Some(id) = lease {
        put["lease"] = id.into();
    }
    put
}

/// The gateway writes long numbers as text.
#[track_caller]
pub(crate) fn number(value: &Value) -> i64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| value.as_i64()).unwrap_or_else(|| panic!("{value} is no number"))
}
