//! The S3 provider, against services of others on this machine: `rclone serve s3` (the program that
//! `RCLONE` names, or the one on the path) and `moto_server`. Skipped, and said so, without them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcdguard::store::{Environment, Include, SnapStore, Snapshot, StoreConfig};
use jiff::Timestamp;

use crate::support::{names, read, save};

const PATIENCE: Duration = Duration::from_mins(2);

struct Service {
    child: Child,
    at: SocketAddr,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn program(name: &str, variable: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn start(program: &Path, arguments: &[&str], at: SocketAddr) -> Service {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let mut service = Service { child: command.spawn().unwrap(), at };
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(at).is_err() {
        assert!(Instant::now() < deadline, "{} does not listen", program.display());
        assert!(service.child.try_wait().unwrap().is_none(), "{} ended", program.display());
        std::thread::park_timeout(Duration::from_millis(50));
    }
    service
}

fn rclone(root: &Path) -> Option<Service> {
    let program = program("rclone", "RCLONE")?;
    std::fs::create_dir(root.join("bkt")).unwrap();
    let at = free_port();
    let address = at.to_string();
    let root = root.to_str().unwrap();
    Some(start(&program, &["serve", "s3", root, "--addr", &address, "--config", ""], at))
}

fn moto() -> Option<Service> {
    let program = program("moto_server", "MOTO_SERVER")?;
    let at = free_port();
    let port = at.port().to_string();
    Some(start(&program, &["-H", "127.0.0.1", "-p", &port], at))
}

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
    let broken = tokio_util::io::StreamReader::new(futures::stream::iter(
        (0..12)
            .map(|_| Ok(bytes::Bytes::from(vec![1; 1 << 20])))
            .chain([Err(std::io::Error::other("the other side is gone"))]),
    ));
    store.save(&full, Box::pin(broken)).await.unwrap_err();
    assert_eq!(store.len_bytes(&full).await.unwrap(), 12_000_000, "what was there stays");
    // Credentials that change are taken without a restart.
    credentials(dir.path(), "another");
    store.delete(&listed[1]).await.unwrap();
    assert_eq!(names(&store.list(Include::All).await.unwrap()), [full.snap_name.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_holds_snapshots() {
    let root = tempfile::tempdir().unwrap();
    match rclone(root.path()) {
        Some(service) => {
            holds_snapshots(&service).await;
            assert!(root.path().join("bkt/etcd-main/v2").is_dir());
        }
        None => eprintln!("skipped: no rclone"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moto_holds_snapshots() {
    let Some(service) = moto() else {
        eprintln!("skipped: no moto_server");
        return;
    };
    let made = reqwest::Client::new().put(format!("http://{}/bkt", service.at)).send().await;
    assert!(made.unwrap().status().is_success());
    holds_snapshots(&service).await;
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
