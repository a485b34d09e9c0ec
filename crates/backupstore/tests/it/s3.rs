//! The same over real S3 services, where there are any: a `moto_server` at `TEST_MOTO_ADDRESS` or on its
//! usual port, which keeps conditions; and programs in the path, or named by a variable: an `rclone`, which
//! is found out by the probe, a `minio` and a `versitygw`, which keep conditions. Skipped, and said so,
//! where there is none.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{self, Child, Stdio};
use std::time::{Duration, Instant};

use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::{AbilityValues, BackupStore, Control, Environment, Shown, TargetUrl};
use tempfile::TempDir;

use crate::world::{SCHEDULE, Volume, back_up, check_all, delete, volume};

const BUCKET: &str = "holdfast-backups";
const KEY: &str = "test";
const SECRET: &str = "test-secret";

fn moto() -> io::Result<SocketAddr> {
    let at = std::env::var("TEST_MOTO_ADDRESS").unwrap_or_else(|_| "127.0.0.1:5000".to_owned());
    let at: SocketAddr = at.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_mins(1))?;
    stream.set_read_timeout(Some(Duration::from_mins(2)))?;
    let head = format!("PUT /{BUCKET} HTTP/1.1\r\nHost: {at}\r\n");
    write!(stream, "{head}Content-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") { Ok(at) } else { Err(io::Error::other(answer)) }
}

async fn opened(at: SocketAddr) -> BackupStore {
    let environment = Environment::from_pairs([
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_ENDPOINTS", format!("http://{at}")),
    ]);
    let url = TargetUrl::parse(&format!("s3://{BUCKET}@us-east-1/some/path/")).unwrap();
    BackupStore::open(&url, &environment).await.unwrap().with_schedule(SCHEDULE)
}

#[tokio::test]
async fn backups_in_a_bucket() {
    let at = match moto() {
        Ok(at) => at,
        Err(error) => return eprintln!("skipped: no moto_server: {error}"),
    };
    let used = live(&opened(at).await).await;
    assert_eq!((used.conditional_writes, used.listings_at_once), (Some(true), Some(true)));
}

/// A service in a process that ends with the test, over a directory with a bucket in it.
struct Service {
    process: Child,
    _dir: TempDir,
}

/// How one is started at an address, over a directory.
type Command = fn(&str, &SocketAddr, &Path) -> process::Command;

fn rclone(program: &str, at: &SocketAddr, dir: &Path) -> process::Command {
    let mut command = process::Command::new(program);
    command.args(["serve", "s3", "--vfs-cache-mode", "off", "--addr", &at.to_string()]);
    command.args(["--auth-key", &format!("{KEY},{SECRET}")]).arg(dir);
    command.env("RCLONE_CONFIG", dir.join("none"));
    command
}

fn minio(program: &str, at: &SocketAddr, dir: &Path) -> process::Command {
    let mut command = process::Command::new(program);
    command.args(["server", "--quiet", "--address", &at.to_string()]).arg(dir);
    command.env("MINIO_ROOT_USER", KEY).env("MINIO_ROOT_PASSWORD", SECRET);
    // It asks nobody for news, and needs no home.
    command.env("MINIO_UPDATE", "off").env("MINIO_BROWSER", "off").env("HOME", dir);
    command
}

fn versitygw(program: &str, at: &SocketAddr, dir: &Path) -> process::Command {
    let mut command = process::Command::new(program);
    command.args(["--port", &at.to_string(), "posix"]).arg(dir);
    command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
    command
}

impl Service {
    /// The one that this variable names, or a program of this name in the path.
    fn start(variable: &str, usual: &str, command: Command) -> io::Result<(Self, SocketAddr)> {
        let program = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
        let dir = TempDir::new()?;
        std::fs::create_dir(dir.path().join(BUCKET))?;
        let at = SocketAddr::from(([127, 0, 0, 1], testkit::process::free_port()?));
        let mut command = command(&program, &at, dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut started = Self { process: command.spawn()?, _dir: dir };
        let deadline = Instant::now() + Duration::from_mins(2);
        while TcpStream::connect_timeout(&at, Duration::from_millis(100)).is_err() {
            if let Some(status) = started.process.try_wait()? {
                return Err(io::Error::other(format!("{program} ended with {status}")));
            }
            assert!(Instant::now() < deadline, "{program} does not answer");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok((started, at))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn backups_in_a_bucket_of_another_service() {
    let (_rclone, at) = match Service::start("RCLONE", "rclone", rclone) {
        Ok(started) => started,
        Err(error) => return eprintln!("skipped: no rclone that serves S3: {error}"),
    };
    let used = live(&opened(at).await).await;
    println!("rclone: {used:?}");
    // What is set by hand is gone by, by all who use the target.
    let set = AbilityValues { listings_at_once: Some(false), ..AbilityValues::default() };
    opened(at).await.set_target(set).await.unwrap();
    let info = opened(at).await.inspect_target().await.unwrap();
    assert_eq!((info.set, info.used.listings_at_once), (set, Some(false)));
}

/// Services that keep conditions, each by its own means: they are found to.
#[tokio::test]
async fn backups_in_buckets_of_services_that_keep_conditions() {
    let services: [(&str, &str, Command); 2] =
        [("MINIO", "minio", minio), ("VERSITYGW", "versitygw", versitygw)];
    for (variable, usual, command) in services {
        let (_service, at) = match Service::start(variable, usual, command) {
            Ok(started) => started,
            Err(error) => {
                eprintln!("skipped: no {usual}: {error}");
                continue;
            }
        };
        let used = live(&opened(at).await).await;
        println!("{usual}: {used:?}");
        let found = (used.conditional_writes, used.listings_at_once);
        assert_eq!(found, (Some(true), Some(true)), "{usual}");
    }
}

/// What the target was found to be able to.
async fn live(store: &BackupStore) -> AbilityValues {
    let (options, control) = (DeleteOptions::default(), Control::default());
    store.check().await.unwrap();
    store.delete_volume(&volume(), &options, &control).await.unwrap();
    let mut of = Volume::new(6);
    of.write(0, 1);
    of.write(3, 2);
    of.snapshot();
    of.write(3, 3);
    of.write(9, 4);
    back_up(store, &of, 0, "backup-1").await.unwrap();
    assert!(back_up(store, &of, 1, "backup-2").await.unwrap().is_incremental);
    assert_eq!(check_all(store, &of).await, 2);
    let used = store.inspect_target().await.unwrap().used;
    let is_strong = used.conditional_writes == Some(true) && used.listings_at_once == Some(true);
    let deleted = delete(store, "backup-1").await.unwrap().blocks;
    assert_eq!((deleted.outcome, deleted.orphan_blocks), (Outcome::Removed, 1));
    // Where not all is sure, what is young stays.
    assert_eq!(deleted.removed_blocks == 1, is_strong, "{deleted:?}");
    assert_eq!(check_all(store, &of).await, 1);
    store.delete_volume(&volume(), &options, &control).await.unwrap();
    assert!(store.list(Shown::Backups).await.unwrap().is_empty());
    used
}
