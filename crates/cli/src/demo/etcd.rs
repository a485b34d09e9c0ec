//! An etcd of its own: backed up, wrecked and restored.

use std::fs::Metadata;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::http::{self, at};
use super::steps::TIMEOUT;
use super::{Tour, found};
use crate::waiting::Progress;

const KEYS: u64 = 100;
/// Written after the full snapshot: they come back from a delta.
const LATER: u64 = 10;
const EVERY: Duration = Duration::from_millis(100);
const NAME: &str = "demo";
/// The store: a directory below the home directory, as this dialect has it.
const STORE: &str = "store";

/// Where all of it is: beside the store of the tour.
pub(super) fn folder(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".etcd");
    name.into()
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|it| it.join(name)).find(|it| it.is_file())
}

pub(super) async fn an_etcd_comes_back(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let title = "Back up an etcd while it runs, damage its data, and restore it";
    let Some(program) = program("etcd") else {
        return tour.skip(title, "there is no etcd on the PATH").await;
    };
    let folder = folder(&tour.store);
    // One that is there is not ours: what was left of a tour before is gone by now.
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let etcd = Etcd { program, http: http::client()?, ports: ports()?, folder };
    let (shown, store) = (etcd.folder.display(), Etcd::store().join(" "));
    tour.step(
        title,
        &[
            format!("export HOME={shown}"),
            format!("holdfast etcd snapshot --endpoints {} {store}", etcd.endpoint()),
            "kill -9 ETCD".to_owned(),
            format!("holdfast etcd verify {shown}/data"),
            format!("holdfast etcd restore {store} --data-dir {shown}/restored"),
            format!("holdfast etcd verify {shown}/restored"),
        ],
    )
    .await?;
    let member = etcd.start("data").await?;
    etcd.write(0..KEYS).await?;
    let guard = etcd.holdfast("guard", &etcd.guard())?.spawn();
    let mut guard = guard.context("cannot start the guard")?;
    etcd.snapshot_of(&mut guard, "Full-", 1).await?;
    let newest = etcd.write(KEYS..KEYS + LATER).await?;
    etcd.snapshot_of(&mut guard, "Incr-", newest).await?;
    found(&format!("a full snapshot and a delta hold {} keys", KEYS + LATER))?;
    end(member).await?;
    end(guard).await?;
    wreck(&etcd.folder.join("data"))?;
    anyhow::ensure!(!etcd.verify("data").await?, "a wrecked directory was found to be well");
    found("its data directory is damaged now: etcd would not start")?;
    etcd.restore().await?;
    anyhow::ensure!(etcd.verify("restored").await?, "the restored directory is damaged");
    let member = etcd.start("restored").await?;
    let read = etcd.read().await?;
    end(member).await?;
    let wanted: Vec<_> = (0..KEYS + LATER).map(|it| (key(it), value(it))).collect();
    anyhow::ensure!(read == wanted, "the restored keys are not those that were written");
    found(&format!("all {} keys are back as they were written", wanted.len()))
}

struct Etcd {
    program: PathBuf,
    http: reqwest::Client,
    /// For clients, and for other members.
    ports: (u16, u16),
    folder: PathBuf,
}

fn ports() -> anyhow::Result<(u16, u16)> {
    let free = || TcpListener::bind(("127.0.0.1", 0));
    let (one, other) = (free()?, free()?);
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

fn key(place: u64) -> String {
    format!("demo/{place:04}")
}

fn value(place: u64) -> String {
    format!("value {place}, {}", "x".repeat(usize::try_from(place % 50).unwrap_or(0)))
}

impl Etcd {
    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
    }

    fn peer(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.1)
    }

    fn log(&self, name: &str) -> anyhow::Result<Stdio> {
        let path = self.folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&path);
        Ok(file.with_context(|| format!("cannot write {}", path.display()))?.into())
    }

    /// Runs on a data directory, and answers.
    async fn start(&self, data: &str) -> anyhow::Result<Child> {
        let (endpoint, peer) = (self.endpoint(), self.peer());
        let mut command = Command::new(&self.program);
        command.arg("--name").arg(NAME).arg("--data-dir").arg(self.folder.join(data));
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("{NAME}={peer}"), "--log-level", "error"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log(data)?);
        let mut child = command.kill_on_drop(true).spawn().context("cannot start etcd")?;
        let end = Instant::now() + TIMEOUT;
        loop {
            let health = format!("{endpoint}/health");
            let answer = http::ask(&self.http, Method::GET, &health, &[], None).await;
            if answer.is_ok_and(|it| it.is_good() && at(&it.body, "/health") == "true") {
                return Ok(child);
            }
            if let Some(status) = child.try_wait()? {
                anyhow::bail!("etcd ended with {status}; its log: {}", self.said(data));
            }
            anyhow::ensure!(Instant::now() < end, "etcd does not answer at {endpoint}");
            tokio::time::sleep(EVERY).await;
        }
    }

    fn said(&self, name: &str) -> String {
        let path = self.folder.join(format!("{name}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().last().unwrap_or("empty").to_owned()
    }

    async fn call(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        let url = self.endpoint() + path;
        let answer = http::ask(&self.http, Method::POST, &url, &[], Some(&body)).await?;
        anyhow::ensure!(answer.is_good(), "etcd refuses {path}: {}", answer.why());
        Ok(answer.body)
    }

    /// Writes keys, and says at which revision the last was.
    async fn write(&self, places: std::ops::Range<u64>) -> anyhow::Result<i64> {
        let mut revision = 0;
        for place in places {
            let pair = json!({"key": base64(&key(place)), "value": base64(&value(place))});
            let told = self.call("/v3/kv/put", pair).await?;
            let told = at(&told, "/header/revision").as_str().and_then(|it| it.parse().ok());
            revision = told.context("etcd tells no revision")?;
        }
        Ok(revision)
    }

    async fn read(&self) -> anyhow::Result<Vec<(String, String)>> {
        let all = json!({"key": base64("demo/"), "range_end": base64("demo0")});
        let told = self.call("/v3/kv/range", all).await?;
        let pairs = at(&told, "/kvs").as_array().cloned().unwrap_or_default();
        let read = pairs.iter().map(|it| {
            let of = |name: &str| it.get(name).and_then(Value::as_str).and_then(plain);
            of("key").zip(of("value")).context("etcd tells something that is no text")
        });
        read.collect()
    }

    /// The flags that say where snapshots are.
    fn store() -> Vec<String> {
        ["--storage-provider", "Local", "--store-container", STORE].map(str::to_owned).to_vec()
    }

    fn guard(&self) -> Vec<String> {
        let words = ["snapshot", "--delta-snapshot-period", "1s", "--endpoints"].map(str::to_owned);
        [words.to_vec(), vec![self.endpoint()], Self::store()].concat()
    }

    /// This program, as somebody would type it.
    fn holdfast(&self, log: &str, words: &[String]) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("etcd").args(words).current_dir(&self.folder).env("HOME", &self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log(log)?);
        command.kill_on_drop(true);
        Ok(command)
    }

    /// Stays until there is a snapshot up to a revision.
    async fn snapshot_of(
        &self,
        guard: &mut Child,
        kind: &'static str,
        revision: i64,
    ) -> anyhow::Result<()> {
        let store = self.folder.join(STORE);
        let mut progress = Progress::new("the guard".to_owned());
        let end = Instant::now() + TIMEOUT;
        while !snapshots(&store).iter().any(|(of, last)| *of == kind && *last >= revision) {
            progress.say(if kind == "Full-" { "taking a full snapshot" } else { "taking a delta" });
            if let Some(status) = guard.try_wait()? {
                anyhow::bail!("the guard ended with {status}; its log: {}", self.said("guard"));
            }
            anyhow::ensure!(Instant::now() < end, "no snapshot was taken: {}", self.said("guard"));
            tokio::time::sleep(EVERY).await;
        }
        progress.end();
        Ok(())
    }

    /// Whether a data directory is whole.
    async fn verify(&self, data: &str) -> anyhow::Result<bool> {
        let words = ["verify".to_owned(), self.folder.join(data).display().to_string()];
        let status = self.holdfast("verify", &words)?.status().await?;
        Ok(status.success())
    }

    async fn restore(&self) -> anyhow::Result<()> {
        let data = self.folder.join("restored").display().to_string();
        let peer = self.peer();
        let cluster = format!("{NAME}={peer}");
        let words = ["restore", "--data-dir", &data, "--name", NAME, "--initial-cluster", &cluster];
        let words = [&words[..], &["--initial-advertise-peer-urls", &peer]].concat();
        let words = words.into_iter().map(str::to_owned).chain(Self::store());
        let status = self.holdfast("restore", &words.collect::<Vec<_>>())?.status().await?;
        anyhow::ensure!(status.success(), "the restore failed: {}", self.said("restore"));
        Ok(())
    }
}

/// Kinds and last revisions of the snapshots in a store: `Full-00000000-00000101-1763000000`.
fn snapshots(folder: &Path) -> Vec<(&'static str, i64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(snapshots(&path));
        }
        found.extend(path.file_name().and_then(|it| snapshot(it.to_str()?)));
    }
    found
}

fn snapshot(name: &str) -> Option<(&'static str, i64)> {
    let kind = ["Full-", "Incr-"].into_iter().find(|it| name.starts_with(it))?;
    let mut parts = name.split('-').skip(2);
    let last = parts.next()?.parse().ok()?;
    // What is being written has another end.
    let is_whole = parts.next()?.split('.').all(|it| it != "tmp" && it != "part");
    is_whole.then_some((kind, last))
}

async fn end(mut child: Child) -> anyhow::Result<()> {
    child.kill().await.context("a process of the tour does not end")
}

/// Overwrites the beginning of the file that all keys are in.
fn wreck(data: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    let path = data.join("member/snap/db");
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
    file.write_all(&vec![0x5a; 64 << 10])?;
    Ok(file.sync_all()?)
}

/// As etcd takes keys and values in JSON.
fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn plain(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

/// Ends what is left of it and takes its files away.
pub(super) async fn clean_up(store: &Path) -> anyhow::Result<()> {
    let folder = folder(store);
    // In a shared place anybody can make one of that name, or a link to somewhere else.
    let caller = rustix::process::geteuid().as_raw();
    let is_own = |it: Metadata| it.is_dir() && it.uid() == caller;
    if !std::fs::symlink_metadata(&folder).is_ok_and(is_own) {
        return Ok(());
    }
    for process in processes_of(&folder)? {
        let words = ["-9".to_owned(), process.to_string()];
        // It may have ended by itself.
        let _ = Command::new("kill").args(words).stderr(Stdio::null()).status().await;
    }
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Processes that were told of a directory.
fn processes_of(folder: &Path) -> anyhow::Result<Vec<u32>> {
    let begin = folder.display().to_string() + "/";
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let mut words = line.split(|it| *it == 0).map(String::from_utf8_lossy);
        if process != std::process::id() && words.any(|it| it.starts_with(&begin)) {
            found.push(process);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_known_by_their_names() {
        assert_eq!(snapshot("Full-00000000-00000101-1763000000.gz"), Some(("Full-", 101)));
        assert_eq!(snapshot("Incr-00000102-00000111-1763000001.gz"), Some(("Incr-", 111)));
        for other in ["Full-", "Full-1-2", "Full-1-2-3.tmp", "other", "Incr-a-b-c"] {
            assert_eq!(snapshot(other), None, "{other}");
        }
    }

    /// In a shared place anybody can make a directory of that name, or a link.
    #[tokio::test]
    async fn a_directory_of_somebody_else_is_left_alone() {
        use std::os::unix::fs::{chown, symlink};
        let scratch = tempfile::tempdir().unwrap();
        let store = scratch.path().join("holdfast-demo-1");
        let precious = scratch.path().join("precious");
        std::fs::create_dir(&precious).unwrap();
        symlink(&precious, folder(&store)).unwrap();
        clean_up(&store).await.unwrap();
        assert!(folder(&store).exists() && precious.exists());
        std::fs::remove_file(folder(&store)).unwrap();
        std::fs::create_dir(folder(&store)).unwrap();
        // Only root can give it away; others cannot try this.
        if chown(folder(&store), Some(65534), None).is_ok() {
            clean_up(&store).await.unwrap();
            assert!(folder(&store).exists(), "somebody else's directory is gone");
        }
    }

    #[tokio::test]
    async fn what_an_interrupted_tour_has_left_running_is_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let store = scratch.path().join("holdfast-demo-1");
        let data = folder(&store).join("data");
        std::fs::create_dir_all(&data).unwrap();
        let script = "while :; do sleep 1; done";
        let mut left = Command::new("sh").args(["-c", script]).arg(&data).spawn().unwrap();
        // A program that has just begun has no words yet.
        while processes_of(&folder(&store)).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        clean_up(&store).await.unwrap();
        assert!(!left.wait().await.unwrap().success());
        assert!(!folder(&store).exists());
    }
}
