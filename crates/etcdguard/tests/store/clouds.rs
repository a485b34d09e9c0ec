//! The providers of Azure and Google, against the emulators that their users know: Azurite and
//! `fake-gcs-server`. Skipped, and said so, without them.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use etcdguard::store::{Environment, Include, SnapStore, Snapshot, StoreConfig};
use jiff::Timestamp;

use crate::services::{Service, azurite, fake_gcs};
use crate::support::{broken, names, read, save};

/// The account that Azurite has, and its key, which everybody knows.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn snapshots() -> (Snapshot, Snapshot) {
    let at = |second| Timestamp::from_second(second).unwrap();
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    (full, Snapshot::delta(8, 9, at(1_700_000_001), None))
}

fn open(provider: &str, endpoint: String, environment: &Environment) -> SnapStore {
    let config = StoreConfig {
        provider: provider.to_owned(),
        prefix: "etcd-main".to_owned(),
        endpoint_override: endpoint,
        ..StoreConfig::default()
    };
    SnapStore::open(&config, environment).unwrap()
}

async fn holds_snapshots(store: &SnapStore, len_bytes: usize) {
    let (full, delta) = snapshots();
    let long: Vec<u8> = (0..=250).cycle().take(len_bytes).collect();
    save(store, &full, &long).await;
    save(store, &delta, b"delta").await;
    let listed = store.list(Include::Unmarked).await.unwrap();
    assert_eq!(names(&listed), [full.snap_name.as_str(), &delta.snap_name]);
    assert!(read(store.fetch(&listed[0]).await.unwrap()).await.unwrap() == long);
    store.save(&full, broken()).await.unwrap_err();
    assert_eq!(store.len_bytes(&full).await.unwrap(), len_bytes as u64, "what was there stays");
    store.delete(&listed[0]).await.unwrap();
    store.delete(&listed[0]).await.unwrap();
    assert_eq!(names(&store.list(Include::All).await.unwrap()), [delta.snap_name.as_str()]);
}

/// That the one that is left is left out once it is marked.
async fn leaves_out_what_is_marked(store: &SnapStore) {
    assert!(store.list(Include::Unmarked).await.unwrap().is_empty());
    assert_eq!(store.list(Include::All).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn google_holds_snapshots() {
    let Some(service) = fake_gcs() else { return };
    let json = [("content-type", "application/json")];
    service.send("POST", "/storage/v1/b?project=p", &json, r#"{"name":"bkt"}"#).await;
    let environment: Environment = [("STORAGE_CONTAINER", "bkt")].into_iter().collect();
    let store = open("GCS", format!("http://{}/storage/v1/", service.at), &environment);
    store.check_access().await.unwrap();
    holds_snapshots(&store, 12_000_000).await;
    let name = format!("etcd-main%2Fv2%2F{}", snapshots().1.snap_name);
    let marked = r#"{"metadata":{"x-etcd-snapshot-exclude":"true"}}"#;
    service.send("PATCH", &format!("/storage/v1/b/bkt/o/{name}"), &json, marked).await;
    leaves_out_what_is_marked(&store).await;
}

/// Signed as Azure wants it.
async fn signed(service: &Service, path: &str, query: &[(&str, &str)], body: &str) {
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&Timestamp::now())
        .unwrap();
    let length = if body.is_empty() { String::new() } else { body.len().to_string() };
    let kind = if body.is_empty() { "" } else { "application/xml" };
    let resource: Vec<String> =
        query.iter().map(|(name, value)| format!("\n{name}:{value}")).collect();
    let text = format!(
        "PUT\n\n\n{length}\n\n{kind}\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-06-08\n\
         /{ACCOUNT}/{ACCOUNT}{path}{}",
        resource.concat()
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(KEY).unwrap());
    let signature = BASE64_STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    let authorization = format!("SharedKey {ACCOUNT}:{signature}");
    let mut headers = vec![
        ("x-ms-date", date.as_str()),
        ("x-ms-version", "2021-06-08"),
        ("authorization", &authorization),
    ];
    if !body.is_empty() {
        headers.push(("content-type", kind));
    }
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    service.send("PUT", &format!("/{ACCOUNT}{path}?{}", query.join("&")), &headers, body).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_holds_snapshots() {
    let Some(service) = azurite() else { return };
    signed(&service, "/bkt", &[("restype", "container")], "").await;
    let dir = tempfile::tempdir().unwrap();
    for (name, value) in [("storageAccount", ACCOUNT), ("storageKey", KEY)] {
        durable::replace(dir.path().join(name), value.as_bytes()).unwrap();
    }
    let environment: Environment = [
        ("STORAGE_CONTAINER", "bkt"),
        ("AZURE_APPLICATION_CREDENTIALS", dir.path().to_str().unwrap()),
    ]
    .into_iter()
    .collect();
    let endpoint = format!("http://{}/{ACCOUNT}", service.at);
    let store = open("ABS", endpoint, &environment);
    holds_snapshots(&store, 12_000_000).await;
    let path = format!("/bkt/etcd-main/v2/{}", snapshots().1.snap_name);
    let tags = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Tags><TagSet><Tag>\
                <Key>x-etcd-snapshot-exclude</Key><Value>true</Value></Tag></TagSet></Tags>";
    signed(&service, &path, &[("comp", "tags")], tags).await;
    leaves_out_what_is_marked(&store).await;
}
