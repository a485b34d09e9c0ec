//! A bucket of OSS that keeps what it holds for so many days, as OSS answers for it: there is no
//! emulator of it to be had.
#![allow(clippy::disallowed_methods, reason = "it ends with the runtime of its test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use etcdguard::store::gc::{Plan, Policy, collect};
use etcdguard::store::{Environment, Include, SnapStore, Snapshot, StoreConfig};
use http::{Method, Response, Uri};
use jiff::{SignedDuration, Timestamp};

use crate::support::{Believes, names};

const REJECTION: &str = "<Code>FileImmutable</Code>\
    <Message>The object is protected by the retention policy of the bucket.</Message>";

/// How it is said that an object stays.
#[derive(Clone, Copy)]
enum Refuses {
    /// As the answer to the request.
    Whole,
    /// As that of one object among those that a request names.
    Entry,
}

#[derive(Clone)]
struct Oss {
    names: Vec<String>,
    refuses: Refuses,
    removals: Arc<AtomicU32>,
}

async fn answer(State(oss): State<Oss>, method: Method, uri: Uri) -> Response<Body> {
    let query = uri.query().unwrap_or_default();
    let (status, body) = match method {
        Method::GET if query.contains("list-type=2") => {
            let contents = |name: &String| {
                format!(
                    "<Contents><Key>{name}</Key><Size>1</Size><ETag>\"e\"</ETag>\
                     <LastModified>2026-11-16T00:00:00.000Z</LastModified></Contents>"
                )
            };
            let all: String = oss.names.iter().map(contents).collect();
            let rest = "<Name>bkt</Name><IsTruncated>false</IsTruncated>";
            (200, format!("<ListBucketResult>{rest}{all}</ListBucketResult>"))
        }
        Method::DELETE | Method::POST => {
            oss.removals.fetch_add(1, Ordering::Relaxed);
            match oss.refuses {
                Refuses::Whole => (409, format!("<Error>{REJECTION}</Error>")),
                Refuses::Entry => {
                    let error = format!("<Error><Key>{}</Key>{REJECTION}</Error>", oss.names[0]);
                    (200, format!("<DeleteResult>{error}</DeleteResult>"))
                }
            }
        }
        _ => (404, "<Error><Code>NoSuchConfiguration</Code></Error>".to_owned()),
    };
    Response::builder().status(status).body(Body::from(body)).unwrap()
}

/// As decision 0065 has it: met, not asked for.
#[tokio::test]
async fn what_a_locked_bucket_keeps_is_left_and_no_failure() {
    let now = Timestamp::now();
    let made = |revision, days: i64| {
        Snapshot::full(revision, now - SignedDuration::from_hours(24 * days), None, false)
    };
    let (old, new) = (made(1, 40), made(2, 1));
    for refuses in [Refuses::Whole, Refuses::Entry] {
        let names_in_bucket =
            [&old, &new].map(|snapshot| format!("p/v2/{}", snapshot.snap_name)).to_vec();
        let oss = Oss { names: names_in_bucket, refuses, removals: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(oss.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });

        let dir = tempfile::tempdir().unwrap();
        for (name, value) in
            [("accessKeyID", "ak"), ("accessKeySecret", "sk"), ("storageEndpoint", &endpoint)]
        {
            durable::replace(dir.path().join(name), value.as_bytes()).unwrap();
        }
        let environment: Environment = [
            ("STORAGE_CONTAINER", "bkt"),
            ("ALICLOUD_APPLICATION_CREDENTIALS", dir.path().to_str().unwrap()),
        ]
        .into_iter()
        .collect();
        let (provider, prefix) = ("OSS".to_owned(), "p".to_owned());
        let config = StoreConfig { provider, prefix, ..StoreConfig::default() };
        let store = SnapStore::open(&config, &environment).unwrap();
        let listed = store.list(Include::All).await.unwrap();
        assert_eq!(names(&listed), [&old.snap_name, &new.snap_name]);

        let plan = Plan {
            policy: Policy::LimitBased { max_backups: 1 },
            delta_retention: std::time::Duration::ZERO,
        };
        for round in 1..=2 {
            let collected = collect(&store, &plan, now, &Believes).await.unwrap();
            assert!(collected.failed.is_empty(), "{:?}", collected.failed);
            assert!(collected.removed.is_empty(), "{:?}", collected.removed);
            assert_eq!(oss.removals.load(Ordering::Relaxed), round, "one request each round");
        }
    }
}
