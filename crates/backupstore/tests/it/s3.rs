//! The same over a real S3 service, where there is one: a `moto_server` at `TEST_MOTO_ADDRESS` or on
//! its usual port. Skipped, and said so, where there is none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::{BackupStore, Control, Environment, Shown, TargetUrl};

use crate::world::{SCHEDULE, Volume, back_up, check_all, delete, volume};

const BUCKET: &str = "holdfast-backups";

fn moto() -> std::io::Result<SocketAddr> {
    let at = std::env::var("TEST_MOTO_ADDRESS").unwrap_or_else(|_| "127.0.0.1:5000".to_owned());
    let at: SocketAddr = at.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let head = format!("PUT /{BUCKET} HTTP/1.1\r\nHost: {at}\r\n");
    write!(stream, "{head}Content-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") { Ok(at) } else { Err(std::io::Error::other(answer)) }
}

#[tokio::test]
async fn backups_in_a_bucket() {
    let at = match moto() {
        Ok(at) => at,
        Err(error) => return eprintln!("skipped: no moto_server: {error}"),
    };
    let environment = Environment::from_pairs([
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ("AWS_ENDPOINTS", format!("http://{at}")),
    ]);
    let url = TargetUrl::parse(&format!("s3://{BUCKET}@us-east-1/some/path/")).unwrap();
    let store = BackupStore::open(&url, &environment).await.unwrap().with_schedule(SCHEDULE);
    let (options, control) = (DeleteOptions::default(), Control::default());
    store.check().await.unwrap();
    store.delete_volume(&volume(), &options, &control).await.unwrap();
    let mut of = Volume::new(6);
    of.write(0, 1);
    of.write(3, 2);
    of.snapshot();
    of.write(3, 3);
    of.write(9, 4);
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    assert!(back_up(&store, &of, 1, "backup-2").await.unwrap().is_incremental);
    assert_eq!(check_all(&store, &of).await, 2);
    let deleted = delete(&store, "backup-1").await.unwrap();
    assert_eq!((deleted.blocks.outcome, deleted.blocks.removed_blocks), (Outcome::Removed, 1));
    assert_eq!(check_all(&store, &of).await, 1);
    store.delete_volume(&volume(), &options, &control).await.unwrap();
    assert!(store.list(Shown::Backups).await.unwrap().is_empty());
}
