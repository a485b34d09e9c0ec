//! The S3 provider, and those who speak as it does, against services of others on this machine:
//! `rclone serve s3` and `moto_server`. Skipped, and said so, without them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use etcdguard::store::gc::{Plan, Policy, collect};
use etcdguard::store::{Environment, Include, SnapStore, Snapshot, StoreConfig};
use jiff::{SignedDuration, Timestamp};
use tokio::io::AsyncWriteExt as _;

use crate::services::{Service, TIMEOUT, free_port, moto, rclone};
use crate::support::{Believes, broken, names, read, save};

/// Files of credentials, as they are mounted.
fn credentials(dir: &Path, secret: &str) -> Environment {
    for (name, value) in [
        ("accessKeyID", "ak"),
        ("secretAccessKey", secret),
        ("region", "us-east-1"),
        ("s3ForcePathStyle", "true"),
        ("requestChecksumCalculation", "when_required"),
    ] {
        durable::replace(dir.join(name), value.as_bytes()).unwrap();
    }
    [("AWS_APPLICATION_CREDENTIALS", dir.to_str().unwrap()), ("STORAGE_CONTAINER", "bkt")]
        .into_iter()
        .collect()
}

fn open(service: &Service, environment: &Environment, prefix: &str) -> SnapStore {
    let config = StoreConfig {
        provider: "S3".to_owned(),
        prefix: prefix.to_owned(),
        endpoint_override: format!("http://{}", service.at),
        ..StoreConfig::default()
    };
    SnapStore::open(&config, environment).unwrap()
}

async fn holds_snapshots(service: &Service) {
    let dir = tempfile::tempdir().unwrap();
    let environment = credentials(dir.path(), "sk");
    let store = open(service, &environment, "etcd-main");
    // A range, which some answer with another status than they should.
    let at_range = blobs::open(
        &format!("s3://bkt?region=us-east-1&endpoint=http://{}", service.at),
        &blobs::Credentials::S3 {
            access_key_id: "ak".to_owned(),
            secret_access_key: "sk".into(),
            session_token: None,
        },
    )
    .unwrap();
    let key = blobs::Key::parse("ranges/object").unwrap();
    at_range.put(&key, "0123456789".into()).await.unwrap();
    for (range, text) in [(3..7, "3456"), (8..100, "89"), (10..20, "")] {
        let found = at_range.get_range(&key, range).await.unwrap();
        assert_eq!((found.bytes.as_ref(), found.meta.len_bytes), (text.as_bytes(), 10));
    }
    let at = |second| Timestamp::from_second(second).unwrap();
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    let delta = Snapshot::delta(8, 9, at(1_700_000_001), None);
    // More than two parts.
    let long: Vec<u8> = (0..=250).cycle().take(12_000_000).collect();
    save(&store, &full, &long).await;
    save(&store, &delta, b"delta").await;
    // A sibling whose name begins as ours does.
    save(&open(service, &environment, "etcd-main-2"), &delta, b"sibling").await;
    let listed = store.list(Include::Unmarked).await.unwrap();
    assert_eq!(names(&listed), [full.snap_name.as_str(), &delta.snap_name]);
    assert_eq!(listed[0].prefix, "etcd-main/v2/");
    assert!(read(store.fetch(&listed[0]).await.unwrap()).await.unwrap() == long);
    assert_eq!(read(store.fetch(&listed[1]).await.unwrap()).await.unwrap(), b"delta");
    store.save(&full, broken()).await.unwrap_err();
    assert_eq!(store.len_bytes(&full).await.unwrap(), 12_000_000, "what was there stays");
    // Credentials that change are taken without a restart.
    credentials(dir.path(), "another");
    store.delete(&listed[1]).await.unwrap();
    assert_eq!(names(&store.list(Include::All).await.unwrap()), [full.snap_name.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_holds_snapshots() {
    let root = tempfile::tempdir().unwrap();
    let Some(service) = rclone(root.path()) else { return };
    holds_snapshots(&service).await;
    assert!(root.path().join("bkt/etcd-main/v2").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn moto_holds_snapshots() {
    let Some(service) = moto() else { return };
    service.send("PUT", "/bkt", &[], "").await;
    holds_snapshots(&service).await;
}

/// Uploads that were begun and not ended.
async fn uploads(service: &Service) -> usize {
    service.send("GET", "/bkt?uploads", &[], "").await.matches("<UploadId>").count()
}

/// What a process that was killed had sent of an object shows in no listing, and is paid for.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_of_the_dead_are_given_up_and_those_of_others_are_not() {
    let Some(service) = moto() else { return };
    service.send("PUT", "/bkt", &[], "").await;
    let dir = tempfile::tempdir().unwrap();
    let environment = credentials(dir.path(), "sk");
    let (store, sibling) =
        (open(&service, &environment, "etcd-main"), open(&service, &environment, "etcd-main-2"));
    let full = Snapshot::full(7, Timestamp::from_second(1_700_000_000).unwrap(), None, false);
    let mut begun = 0;
    for store in [&store, &sibling] {
        // More than two parts, and then nothing.
        let (mut sender, body) = tokio::io::duplex(1 << 20);
        let sending = async {
            sender.write_all(&vec![7; 12_000_000]).await.unwrap();
            // Until the service knows of it.
            begun += 1;
            while uploads(&service).await < begun {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            sent = tokio::time::timeout(TIMEOUT, sending) => sent.expect("no upload was begun"),
            done = store.save(&full, body) => panic!("{done:?}"),
        }
    }
    let never = Timestamp::from_second(0).unwrap();
    assert_eq!(store.sweep_uploads(never).await.unwrap(), 0, "they began later");
    let now = Timestamp::now() + SignedDuration::from_hours(1);
    assert_eq!(store.sweep_uploads(now).await.unwrap(), 1);
    assert_eq!(store.sweep_uploads(now).await.unwrap(), 0);
    assert_eq!(sibling.sweep_uploads(now).await.unwrap(), 1);
}

/// Answers everybody with this.
fn always(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 16 << 10]);
            let head = "Content-Type: application/xml\r\nConnection: close\r\n";
            let _ = write!(stream, "HTTP/1.1 403 Forbidden\r\n{head}\r\n{answer}");
        }
    });
    at
}

/// What stops a server at its start, and what it waits for.
#[tokio::test]
async fn credentials_that_cannot_work_are_told_from_a_service_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let environment = credentials(dir.path(), "sk");
    let at = always("<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>");
    let s3 = |at: SocketAddr| StoreConfig {
        provider: "S3".to_owned(),
        endpoint_override: format!("http://{at}"),
        ..StoreConfig::default()
    };
    let refused = SnapStore::open(&s3(at), &environment).unwrap().check_access().await;
    let text = refused.unwrap_err().chain();
    assert!(text.contains("InvalidAccessKeyId"), "{text}");
    SnapStore::open(&s3(free_port()), &environment).unwrap().check_access().await.unwrap();
    let bare: Environment = [("STORAGE_CONTAINER", "bkt")].into_iter().collect();
    let abs = StoreConfig { provider: "ABS".to_owned(), ..StoreConfig::default() };
    let refused = SnapStore::open(&abs, &bare).unwrap().check_access().await;
    assert!(refused.unwrap_err().is_lasting());
    let failed = StoreConfig { provider: "FAILED".to_owned(), ..StoreConfig::default() };
    SnapStore::open(&failed, &bare).unwrap().check_access().await.unwrap();
}

/// Each by the names that its credentials have.
#[tokio::test(flavor = "multi_thread")]
async fn ecs_ocs_and_oss_hold_snapshots() {
    let Some(service) = moto() else { return };
    service.send("PUT", "/bkt", &[], "").await;
    let (at, plain) = (service.at.to_string(), format!("http://{}", service.at));
    let keys = [("accessKeyID", "ak"), ("secretAccessKey", "sk"), ("accessKeySecret", "sk")];
    let dir = tempfile::tempdir().unwrap();
    let endpoints =
        [("endpoint", at.as_str()), ("storageEndpoint", &plain), ("disableSSL", "true")];
    for (name, value) in keys.iter().chain(&endpoints).chain(&[("region", "us-east-1")]) {
        durable::replace(dir.path().join(name), value.as_bytes()).unwrap();
    }
    let place = dir.path().to_str().unwrap();
    let environment: Environment = [
        ("STORAGE_CONTAINER", "bkt"),
        ("ALICLOUD_APPLICATION_CREDENTIALS", place),
        ("OPENSHIFT_APPLICATION_CREDENTIALS", place),
        ("ECS_ENDPOINT", &at),
        ("ECS_ACCESS_KEY_ID", "ak"),
        ("ECS_SECRET_ACCESS_KEY", "sk"),
        ("ECS_DISABLE_SSL", "true"),
    ]
    .into_iter()
    .collect();
    for provider in ["ECS", "OCS", "OSS"] {
        let (provider, prefix) = (provider.to_owned(), provider.to_owned());
        let config = StoreConfig { provider, prefix, ..StoreConfig::default() };
        let store = SnapStore::open(&config, &environment).unwrap();
        let full = Snapshot::full(7, Timestamp::from_second(1_700_000_000).unwrap(), None, false);
        save(&store, &full, &vec![9; 6 << 20]).await;
        let listed = store.list(Include::Unmarked).await.unwrap();
        assert_eq!(names(&listed), [full.snap_name.as_str()]);
        assert!(read(store.fetch(&listed[0]).await.unwrap()).await.unwrap() == vec![9; 6 << 20]);
        store.delete(&listed[0]).await.unwrap();
        assert!(store.list(Include::All).await.unwrap().is_empty());
    }
}

const LOCK: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
    <DefaultRetention><Mode>GOVERNANCE</Mode><Days>2</Days></DefaultRetention></Rule>\
    </ObjectLockConfiguration>";

/// A bucket that keeps versions and locks them: the first that was written counts, whoever writes or
/// removes after, and what is locked is known before it is tried to be removed.
#[tokio::test(flavor = "multi_thread")]
async fn versions_and_locks_are_known() {
    let Some(service) = moto() else { return };
    service.send("PUT", "/bkt", &[("x-amz-bucket-object-lock-enabled", "true")], "").await;
    let dir = tempfile::tempdir().unwrap();
    let environment = credentials(dir.path(), "sk");
    std::fs::remove_file(dir.path().join("requestChecksumCalculation")).unwrap();
    let store = open(&service, &environment, "p");
    let now = Timestamp::now();
    let made = |revision, days: i64| {
        let at = now - SignedDuration::from_hours(24 * days);
        Snapshot::full(revision, at, None, false)
    };
    let (one, two, three) = (made(1, 40), made(2, 39), made(3, 0));
    service.send("PUT", "/bkt?object-lock", &[], LOCK).await;
    save(&store, &one, &vec![1; 6 << 20]).await;
    save(&store, &two, b"first").await;
    save(&store, &two, b"second").await;
    save(&store, &three, b"newest").await;

    let listed = store.list(Include::All).await.unwrap();
    assert_eq!(names(&listed), [&one.snap_name, &two.snap_name, &three.snap_name]);
    assert!(listed.iter().all(|it| it.version_id.is_some()));
    assert_eq!(read(store.fetch(&listed[1]).await.unwrap()).await.unwrap(), b"first");
    assert_eq!(store.len_bytes(&listed[1]).await.unwrap(), 5);
    let until = listed[1].immutable_until.unwrap();
    assert!(until > now + SignedDuration::from_hours(47), "counted from the write: {until}");

    // The policy would have them all go; the lock has the last word, and nothing is tried in vain.
    let plan = Plan {
        policy: Policy::LimitBased { max_backups: 1 },
        delta_retention: std::time::Duration::ZERO,
    };
    let collected = collect(&store, &plan, now, &Believes).await.unwrap();
    assert!(collected.failed.is_empty(), "{:?}", collected.failed);
    assert!(collected.removed.is_empty(), "{:?}", collected.removed);
    // By another clock its time is over. That clock is not believed: the store has just got something.
    let later = now + SignedDuration::from_hours(24 * 3);
    let ahead = collect(&store, &plan, later, &Believes).await.unwrap();
    assert!(ahead.failed.is_empty() && ahead.removed.is_empty(), "{ahead:?}");
    // Whoever tries all the same is refused by the service, which has a clock of its own.
    assert!(store.delete(&listed[1]).await.is_err());
    assert_eq!(read(store.fetch(&listed[1]).await.unwrap()).await.unwrap(), b"first");
}

/// Without a lock: what is removed is the version that was listed, and it is gone for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_left_out_by_its_mark_and_removed_by_its_id() {
    let Some(service) = moto() else { return };
    service.send("PUT", "/bkt", &[], "").await;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    service.send("PUT", "/bkt?versioning", &[], on).await;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&service, &credentials(dir.path(), "sk"), "p");
    let full = Snapshot::full(1, Timestamp::from_second(1_700_000_000).unwrap(), None, false);
    save(&store, &full, b"first").await;
    save(&store, &full, b"second").await;
    // Removed and marked: left out of what is restored, and shown to the collector.
    let path = format!("/bkt/p/v2/{}", full.snap_name);
    let somebody = "AWS4-HMAC-SHA256 Credential=ak/20261116/us-east-1/s3/aws4_request, \
                    SignedHeaders=host, Signature=00";
    let somebody = [("authorization", somebody)];
    service.send("DELETE", &path, &somebody, "").await;
    let listed = store.list(Include::Unmarked).await.unwrap();
    assert_eq!(listed.len(), 1, "a mark of removal alone hides nothing");
    let version = listed[0].version_id.as_deref().unwrap();
    let tags = "<Tagging><TagSet><Tag><Key>x-etcd-snapshot-exclude</Key><Value>true</Value></Tag>\
                </TagSet></Tagging>";
    service.send("PUT", &format!("{path}?tagging&versionId={version}"), &[], tags).await;
    assert!(store.list(Include::Unmarked).await.unwrap().is_empty());
    for text in [b"first".as_slice(), b"second"] {
        let listed = store.list(Include::All).await.unwrap();
        assert_eq!(listed[0].immutable_until, None);
        assert_eq!(read(store.fetch(&listed[0]).await.unwrap()).await.unwrap(), text);
        store.delete(&listed[0]).await.unwrap();
    }
    assert!(store.list(Include::All).await.unwrap().is_empty());
    assert!(!service.send("GET", "/bkt?versions", &[], "").await.contains("<Version>"));
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let environment = credentials(dir.path(), "sk");
    let config = StoreConfig { provider: "S3".to_owned(), ..StoreConfig::default() };
    let nowhere = Environment::default();
    assert!(
        SnapStore::open(&config, &nowhere).unwrap_err().to_string().contains("STORAGE_CONTAINER")
    );
    let bad = StoreConfig { provider: "Tape".to_owned(), ..config };
    assert!(SnapStore::open(&bad, &environment).unwrap_err().to_string().contains("Tape"));
    let failed = StoreConfig { provider: "FAILED".to_owned(), ..bad };
    let failed = SnapStore::open(&failed, &environment).unwrap();
    assert!(failed.list(Include::All).await.is_err());
}
