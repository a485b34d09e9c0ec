//! A database that goes away and comes back.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::rig::{NEW, Place, Rig, id_of, postgres_schema};
use crate::sql::Db;

/// What every server's socket is called, in the folder that clients are told.
const SOCKET: &str = ".s.PGSQL.5432";

/// A door before a server, which can be shut: those inside are cut off.
struct Door {
    real: PathBuf,
    folder: tempfile::TempDir,
    open: JoinSet<()>,
}

impl Door {
    fn new(real: &Path) -> Self {
        Self { real: real.to_owned(), folder: tempfile::tempdir().unwrap(), open: JoinSet::new() }
    }

    fn open(&mut self) {
        let listener = UnixListener::bind(self.folder.path().join(SOCKET)).unwrap();
        let real = self.real.join(SOCKET);
        self.open.spawn(async move {
            // All of them end with this one.
            let mut inside = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let real = real.clone();
                inside.spawn(async move {
                    let Ok(mut server) = UnixStream::connect(real).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    }

    async fn shut(&mut self) {
        self.open.shutdown().await;
        std::fs::remove_file(self.folder.path().join(SOCKET)).unwrap();
    }
}

/// Whoever asks meanwhile is told to come again and nothing is changed; then everything goes on.
#[tokio::test]
async fn a_database_that_comes_back_finds_all_as_it_was() {
    let Some(address) = postgres_schema().await else { return };
    let Some((before, rest)) = address.split_once("host=/") else {
        println!("skipped: the PostgreSQL for tests is not reached by a socket");
        return;
    };
    let (folder, rest) = rest.split_once('&').unwrap_or((rest, ""));
    let mut door = Door::new(Path::new(&format!("/{folder}")));
    door.open();
    let through = format!("{before}host={}&{rest}", door.folder.path().display());
    let rig = Rig::on(Db::open(&through).await.unwrap(), Place::Schema).await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_backups = true);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.passes(3).await;
    door.shut().await;
    let path = format!("/volumes/{volume}");
    let larger = json!({"os-extend": {"new_size": 2}});
    for (method, path, body) in [
        ("GET", path.clone(), Value::Null),
        ("GET", "/volumes/detail".to_owned(), Value::Null),
        ("POST", "/volumes".to_owned(), json!({"volume": {"size": 1}})),
        ("POST", format!("{path}/action"), larger.clone()),
        ("DELETE", format!("/backups/{backup}"), Value::Null),
    ] {
        let seen = rig.call(method, &path, body, NEW).await;
        assert_eq!(seen.code, 503, "{method} {path}: {seen:?}");
        assert!(seen.headers.contains_key("retry-after"), "{seen:?}");
        assert_eq!(seen.body["serviceUnavailable"]["code"], 503);
    }
    assert!(rig.worker.pass().await.is_err());
    assert!(rig.worker.report().await.is_err());
    door.open();
    rig.expect(&volume, "available", Some("backing-up")).await;
    let all = rig.get("/volumes", NEW).await;
    assert_eq!(all.body["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(rig.call("POST", &format!("{path}/action"), larger, NEW).await.code, 202);
    rig.backend.mood(|moods| moods.hold_backups = false);
    rig.settle().await;
    assert_eq!(rig.backup_status(&backup).await, "available");
    rig.expect(&volume, "available", None).await;
    door.shut().await;
}
