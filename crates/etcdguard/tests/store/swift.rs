//! The Swift provider, against a Keystone and a Swift on loopback.

use std::path::Path;

use etcdguard::store::gc::{Plan, Policy, collect};
use etcdguard::store::{Environment, Include, SnapStore, Snapshot, StoreConfig, StoreError};
use http::StatusCode;
use jiff::Timestamp;

use crate::support::{Believes, broken, names, read, save};
use crate::swift_double::{CONTAINER, Object, Swift};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn credentials(dir: &Path, swift: &Swift, values: &[(&str, &str)]) -> Environment {
    let url = format!("{}/v3", swift.url);
    let common = [("authURL", url.as_str()), ("region", "one")];
    for (name, value) in common.iter().chain(values) {
        durable::replace(dir.join(name), value.as_bytes()).unwrap();
    }
    let variable = "OPENSTACK_APPLICATION_CREDENTIALS";
    [(variable, dir.to_str().unwrap()), ("STORAGE_CONTAINER", CONTAINER)].into_iter().collect()
}

fn password(dir: &Path, swift: &Swift, password: &str) -> Environment {
    let values = [
        ("username", "tester"),
        ("password", password),
        ("tenantName", "testing"),
        ("domainName", "Default"),
    ];
    credentials(dir, swift, &values)
}

fn open(environment: &Environment, prefix: &str) -> SnapStore {
    let (provider, prefix) = ("Swift".to_owned(), prefix.to_owned());
    let config = StoreConfig { provider, prefix, ..StoreConfig::default() };
    SnapStore::open(&config, environment).unwrap()
}

/// More than two segments.
fn long() -> Vec<u8> {
    (0..=250).cycle().take(12_000_000).collect()
}

#[tokio::test]
async fn objects_are_segments_and_a_manifest_and_go_together() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let environment = password(dir.path(), &swift, "planted");
    let store = open(&environment, "etcd-main");
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    let delta = Snapshot::delta(8, 9, at(1_700_000_001), None);
    save(&store, &full, &long()).await;
    save(&store, &delta, b"delta").await;
    save(&open(&environment, "etcd-main-2"), &delta, b"sibling").await;
    let name = |below: &str| format!("etcd-main/v2/{}{below}", full.snap_name);
    let expected = ["", "/0000000001", "/0000000002", "/0000000003"].map(name);
    assert_eq!(swift.names()[2..6], expected);
    let manifest = swift.inside().objects[&name("")].manifest.clone().unwrap();
    assert!(manifest.starts_with(&format!("{CONTAINER}/{}/", name(""))), "{manifest}");

    let listed = store.list(Include::Unmarked).await.unwrap();
    let whole: Vec<Snapshot> = listed.into_iter().filter(|it| !it.is_chunk).collect();
    assert_eq!(names(&whole), [full.snap_name.as_str(), &delta.snap_name]);
    assert!(read(store.fetch(&whole[0]).await.unwrap()).await.unwrap() == long());
    assert_eq!(store.len_bytes(&full).await.unwrap(), 12_000_000);
    assert_eq!(read(store.fetch(&whole[1]).await.unwrap()).await.unwrap(), b"delta");

    // One that is written again stays whole until the new one is, and leaves no segment behind.
    store.save(&full, broken()).await.unwrap_err();
    assert!(read(store.fetch(&full).await.unwrap()).await.unwrap() == long());
    assert_eq!(swift.names()[2..6], expected, "no segment of the broken one");
    for text in ["short", "other"] {
        save(&store, &full, text.as_bytes()).await;
        assert_eq!(read(store.fetch(&full).await.unwrap()).await.unwrap(), text.as_bytes());
        let left = swift.names().iter().filter(|it| it.starts_with(&name("/"))).count();
        assert_eq!(left, 1);
    }
    store.delete(&full).await.unwrap();
    store.delete(&full).await.unwrap();
    assert_eq!(swift.names().len(), 4, "{:?}", swift.names());
    assert!(store.fetch(&full).await.err().unwrap().is_not_found());
}

/// What others wrote: a manifest that names all that begins with its own name, one that lists its
/// segments, and one that names what is not its own.
#[tokio::test]
async fn objects_of_others_are_read_replaced_and_removed_without_their_neighbours() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let store = open(&password(dir.path(), &swift, "planted"), "p");
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    let put = |name: &str, bytes: &'static [u8], manifest: Option<&str>| {
        let manifest = manifest.map(str::to_owned);
        let object = Object { bytes: bytes.into(), manifest, ..Object::default() };
        swift.inside().objects.insert(name.to_owned(), object);
    };
    let name = format!("p/v2/{}", full.snap_name);
    let theirs = || {
        put(&format!("{name}/0000000001"), b"one ", None);
        put(&format!("{name}/0000000002"), b"two", None);
        put(&name, b"", Some(&format!("{CONTAINER}/{name}")));
    };
    theirs();
    assert_eq!(read(store.fetch(&full).await.unwrap()).await.unwrap(), b"one two");
    store.save(&full, broken()).await.unwrap_err();
    assert_eq!(read(store.fetch(&full).await.unwrap()).await.unwrap(), b"one two");
    save(&store, &full, b"ours").await;
    assert_eq!(read(store.fetch(&full).await.unwrap()).await.unwrap(), b"ours");
    theirs();
    let neighbour = format!("{name}.gz");
    put(&neighbour, b"neighbour", None);
    store.delete(&full).await.unwrap();
    assert_eq!(swift.names(), std::slice::from_ref(&neighbour));
    // All of the container, said by a manifest: not ours to remove.
    put(&name, b"", Some(&format!("{CONTAINER}/")));
    store.delete(&full).await.unwrap();
    assert_eq!(swift.names(), std::slice::from_ref(&neighbour));
    put("segments/1", b"a", None);
    let segments = Some(vec!["segments/1".to_owned()]);
    let object = Object { bytes: "a".into(), segments, ..Object::default() };
    swift.inside().objects.insert(name.clone(), object);
    store.delete(&full).await.unwrap();
    assert_eq!(swift.names(), [neighbour]);
}

#[tokio::test]
async fn tokens_are_renewed_and_credentials_read_again() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let store = open(&password(dir.path(), &swift, "planted"), "p");
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    save(&store, &full, b"x").await;
    assert_eq!(swift.inside().tokens_given, 1, "one token serves for many requests");
    swift.end_tokens();
    assert_eq!(store.list(Include::All).await.unwrap().len(), 2);
    // One that is about to end is not used.
    swift.inside().seconds = 30;
    swift.end_tokens();
    store.list(Include::All).await.unwrap();
    let before = swift.inside().tokens_given;
    store.list(Include::All).await.unwrap();
    assert!(swift.inside().tokens_given > before);
    // Another password: refused, and said without it; then the file is changed.
    swift.inside().password = "planted-too".to_owned();
    swift.inside().seconds = 3600;
    swift.end_tokens();
    let error = store.list(Include::All).await.unwrap_err();
    assert!(matches!(&error, StoreError::Blobs(blobs::Error::Denied { .. })), "{error:?}");
    let (text, debug) = (error.chain(), format!("{error:?} {store:?}"));
    assert!(text.contains("tester") && text.contains("401"), "{text}");
    assert!(!text.contains("planted") && !debug.contains("planted"), "{text} {debug}");
    password(dir.path(), &swift, "planted-too");
    assert_eq!(store.list(Include::All).await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_application_has_credentials_of_its_own() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let values = [("applicationCredentialID", "app"), ("applicationCredentialSecret", "planted")];
    let store = open(&credentials(dir.path(), &swift, &values), "p");
    assert!(store.list(Include::All).await.unwrap().is_empty());
    // Another region, another container: each is named.
    durable::replace(dir.path().join("region"), b"elsewhere").unwrap();
    let environment: Environment = [
        ("OPENSTACK_APPLICATION_CREDENTIALS", dir.path().to_str().unwrap()),
        ("STORAGE_CONTAINER", "nowhere"),
    ]
    .into_iter()
    .collect();
    let error = open(&environment, "p").list(Include::All).await.unwrap_err().chain();
    assert!(error.contains("elsewhere"), "{error}");
    durable::replace(dir.path().join("region"), b"one").unwrap();
    let error = open(&environment, "p").list(Include::All).await.unwrap_err().chain();
    assert!(error.contains("bucket nowhere does not exist"), "{error}");
}

#[tokio::test]
async fn a_busy_swift_whose_listings_come_late_gets_objects_whole() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let store = open(&password(dir.path(), &swift, "planted"), "p");
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    swift.inside().overloaded = 1;
    swift.inside().late = 1;
    save(&store, &full, &long()).await;
    assert_eq!(swift.inside().late, 0, "it was looked at until it showed all");
    assert!(read(store.fetch(&full).await.unwrap()).await.unwrap() == long());
}

/// Asking six times, with pauses, makes nobody wait for the same answer.
#[tokio::test]
async fn what_asking_again_does_not_change_is_asked_once() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let store = open(&password(dir.path(), &swift, "planted"), "p");
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    // A token that is refused is renewed, once.
    for (status, puts) in [(400, 1), (401, 2), (403, 1), (405, 1), (411, 1), (413, 1)] {
        swift.inside().refuses = Some(StatusCode::from_u16(status).unwrap());
        swift.inside().puts = 0;
        let error = store.save(&full, std::io::Cursor::new(b"x".to_vec())).await.unwrap_err();
        assert!(error.is_lasting(), "{error:?}");
        assert!(error.chain().contains(&format!("status {status}")), "{}", error.chain());
        assert_eq!(swift.inside().puts, puts, "{status}");
    }
}

#[tokio::test]
async fn segments_stay_with_their_object_and_go_without_it() {
    let (swift, dir) = (Swift::start().await, tempfile::tempdir().unwrap());
    let store = open(&password(dir.path(), &swift, "planted"), "p");
    let now = Timestamp::now();
    let old = Snapshot::full(7, at(now.as_second() - 3 * 24 * 3600), None, false);
    let new = Snapshot::full(9, now, None, false);
    save(&store, &old, b"old").await;
    save(&store, &new, b"new").await;
    let plan = Plan {
        policy: Policy::LimitBased { max_backups: 2 },
        delta_retention: std::time::Duration::ZERO,
    };
    collect(&store, &plan, now, &Believes).await.unwrap();
    assert_eq!(swift.names().len(), 4, "both are kept, with what they hold");
    // Its writer was killed before the manifest.
    swift.inside().objects.remove(&format!("p/v2/{}", old.snap_name));
    collect(&store, &plan, now, &Believes).await.unwrap();
    assert_eq!(swift.names().len(), 2, "{:?}", swift.names());
    assert_eq!(read(store.fetch(&new).await.unwrap()).await.unwrap(), b"new");
}
