//! An etcd of our own for the length of a drill: on loopback, on free ports, on restored data.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::super::error::CommandError;
use crate::etcd::{ConnectionConfig, Etcd};

/// From its start until it answers.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

/// What an etcd said about the data.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Booted {
    pub(super) program: PathBuf,
    pub(super) revision: i64,
    #[serde(rename = "hashKV")]
    pub(super) hash_kv: u32,
}

/// The program to boot: as named, or the one in the path, or none.
pub(super) fn find(named: &str) -> Result<Option<PathBuf>, CommandError> {
    if !named.is_empty() {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(Some(path))
        } else {
            Err(CommandError::Usage(format!("etcd: there is no file {named}")))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|place| place.join("etcd"));
    Ok(places.find(|file| file.is_file()))
}

/// Boots it, asks it, and ends it.
pub(super) async fn boot(program: &Path, name: &str, data_dir: &Path) -> Result<Booted, String> {
    let (client, peer) = (address()?, address()?);
    let child =
        start(program, name, data_dir, (&client, &peer)).map_err(|error| error.to_string())?;
    let (revision, hash_kv) = ask(child, &client).await?;
    Ok(Booted { program: program.to_owned(), revision, hash_kv })
}

/// A port nobody listens at now.
fn address() -> Result<String, String> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
    free.map(|at| format!("http://{at}")).map_err(|error| error.to_string())
}

fn start(
    program: &Path,
    name: &str,
    data_dir: &Path,
    (client, peer): (&str, &str),
) -> std::io::Result<Child> {
    Command::new(program)
        .arg("--name")
        .arg(name)
        .arg("--data-dir")
        .arg(data_dir)
        .args(["--listen-client-urls", client, "--advertise-client-urls", client])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
        .arg("--initial-cluster")
        .arg(format!("{name}={peer}"))
        .args(["--log-level", "error"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Also where the drill is given up.
        .kill_on_drop(true)
        .spawn()
}

async fn ask(mut child: Child, client: &str) -> Result<(i64, u32), String> {
    let config =
        ConnectionConfig { endpoints: vec![client.to_owned()], ..ConnectionConfig::default() };
    let etcd = Etcd::connect(&config).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + START_TIMEOUT;
    let revision = loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("etcd ended with {status} on the restored data"));
        }
        match etcd.revision(ASK_TIMEOUT).await {
            Ok(revision) => break revision,
            Err(error) if Instant::now() > deadline => {
                return Err(format!("etcd does not serve the restored data: {error}"));
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    };
    let hash = etcd.hash_kv(0).await.map_err(|error| error.to_string())?;
    // It has nothing to lose.
    let _ = child.kill().await;
    Ok((revision, hash.hash))
}
