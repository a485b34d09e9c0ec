//! Our side: a volume of real processes, backed up and restored by the commands its users have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use e2e::engine::{Frontend, Replica, Setup, Volume};
use rpc::ptypes::BackupStatusRequest;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use serde_json::Value;
use testkit::process::Process;
use tokio::runtime::Runtime;

use super::contents::{Changes, Data, compare};
use super::target::{Direction, Target};
use crate::measure::{Cost, run, settle_with_memory};
use crate::usage;

const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(crate) struct Ours<'t> {
    target: &'t Target,
    data: Data,
    image: PathBuf,
    scratch: PathBuf,
    concurrent: u32,
    volume: Volume,
    runtime: Runtime,
}

type Agent = SyncAgentServiceClient<rpc::Peer>;

impl<'t> Ours<'t> {
    /// A volume of one replica that holds the image, which is its first snapshot from then on: it
    /// must stay as it is as long as this lives.
    pub(crate) fn start(
        target: &'t Target,
        data: Data,
        image: &Path,
        scratch: &Path,
        concurrent: u32,
    ) -> Result<Self> {
        let mut volume = Volume::prepare(setup(data, 1, Frontend::Nbd));
        for replica in &mut volume.replicas {
            replica.start();
            replica.stop();
            let head = replica.dir.join("volume-head-000.img");
            std::fs::remove_file(&head).context("the head is not where it was")?;
            std::fs::hard_link(image, &head)?;
            replica.start();
        }
        volume.start_engine();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (image, scratch) = (image.to_owned(), scratch.to_owned());
        Ok(Self { target, data, image, scratch, concurrent, volume, runtime })
    }

    fn command(&self, volume: &Volume, arguments: &[&str]) -> Command {
        let mut command = Command::new(e2e::server::binary());
        let url = format!("http://127.0.0.1:{}", volume.engine().cli().port);
        command.args(["engine", "--url", &url]).args(arguments);
        command.envs(self.target.environment());
        command
    }

    fn say(&self, volume: &Volume, arguments: &[&str]) -> Result<String> {
        Ok(run(&mut self.command(volume, arguments), &self.scratch)?.1)
    }

    /// Writes to the volume.
    pub(crate) fn change(&self, changes: &Changes) -> Result<()> {
        self.runtime.block_on(async {
            let nbd = self.volume.nbd().await;
            let mut writes = Vec::new();
            changes.each(|at, bytes| {
                writes.push((at, Bytes::copy_from_slice(bytes)));
                Ok(())
            })?;
            for (at, bytes) in writes {
                let written = nbd.write(at, bytes).await;
                ensure!(written.is_ok(), "cannot write at {at}: {written:?}");
            }
            ensure!(nbd.flush().await.is_ok(), "cannot flush");
            Ok(())
        })
    }

    pub(crate) fn snapshot(&self, name: &str) -> Result<()> {
        self.say(&self.volume, &["snapshot", "create", name]).map(drop)
    }

    /// Backs a snapshot up; the backup is named after it.
    pub(crate) fn back_up(&self, snapshot: &str) -> Result<Cost> {
        self.measured(&self.volume, Direction::Up, || {
            let (_, text) = run(&mut self.create(snapshot), &self.scratch)?;
            let created: Value = serde_json::from_str(&text)?;
            ensure!(created.get("backupID").is_some(), "no backup: {text}");
            let replica = self.volume.replicas.first().context("no replica")?;
            self.wait_for_backup(replica, snapshot)
        })
    }

    fn create(&self, snapshot: &str) -> Command {
        let (limit, url) = (self.concurrent.to_string(), self.target.url());
        let mut arguments = vec!["backup", "create", snapshot, "--backup-name", snapshot];
        arguments.extend(["--dest", &url, "--concurrent-limit", &limit]);
        self.command(&self.volume, &arguments)
    }

    /// Several at once, not measured.
    pub(crate) fn back_up_all(&self, snapshots: &[String]) -> Result<()> {
        let start = |snapshot: &String| {
            self.create(snapshot).stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        };
        let started = snapshots.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        for mut command in started {
            ensure!(command.wait()?.success(), "a backup was not begun");
        }
        let replica = self.volume.replicas.first().context("no replica")?;
        snapshots.iter().try_for_each(|snapshot| self.wait_for_backup(replica, snapshot))
    }

    fn wait_for_backup(&self, replica: &Replica, backup: &str) -> Result<()> {
        let mut agent = agent(&self.runtime, replica)?;
        self.runtime.block_on(async {
            loop {
                let request = BackupStatusRequest { backup: backup.to_owned() };
                let status = agent.backup_status(request).await?.into_inner();
                match status.state.as_str() {
                    "complete" => return Ok(()),
                    "error" => bail!("the backup failed: {}", status.error),
                    _ => tokio::time::sleep(LOOK_EVERY).await,
                }
            }
        })
    }

    fn backup_url(&self, backup: &str) -> String {
        format!("{}?backup={backup}&volume={}", self.target.url(), self.volume.name)
    }

    /// Restores a backup to a new volume, and looks whether the first and the last replica hold what
    /// the image does, where it does.
    pub(crate) fn restore(&self, backup: &str, replicas: usize, checks: bool) -> Result<Cost> {
        let volume = Volume::start(setup(self.data, replicas, Frontend::None));
        self.target.warm()?;
        let mut fetched_bytes = 0;
        let mut cost = self.measured(&volume, Direction::Down, || {
            let (url, limit) = (self.backup_url(backup), self.concurrent.to_string());
            self.say(&volume, &["backup", "restore", &url, "--concurrent-limit", &limit])?;
            for replica in &volume.replicas {
                fetched_bytes += self.wait_for_restore(replica)?;
            }
            Ok(())
        })?;
        if !self.target.is_s3() {
            // They also read from their own files what they give to others.
            cost.moved_bytes = fetched_bytes;
        }
        if checks {
            for replica in volume.replicas.first().into_iter().chain(volume.replicas.last()) {
                let restored = snapshot_file(&replica.dir)?;
                compare(&restored, &self.image, self.data.size_bytes)?;
            }
        }
        Ok(cost)
    }

    /// Says how much came from the store.
    fn wait_for_restore(&self, replica: &Replica) -> Result<u64> {
        let mut agent = agent(&self.runtime, replica)?;
        self.runtime.block_on(async {
            loop {
                let status = agent.restore_status(()).await?.into_inner();
                ensure!(status.error.is_empty(), "the restore failed: {}", status.error);
                if !status.is_restoring && status.state == "complete" {
                    return Ok(status.holdfast_fetched_bytes);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    }

    pub(crate) fn delete(&self, backup: &str) -> Result<Cost> {
        let url = self.backup_url(backup);
        settle_with_memory(&self.scratch, self.data.size_bytes)?;
        let before = self.target.traffic(Direction::Down, &[]);
        let mut command = self.command(&self.volume, &["backup", "rm", &url]);
        let (mut cost, _) = run(&mut command, &self.scratch)?;
        if self.target.is_s3() {
            cost.moved_bytes = self.target.traffic(Direction::Down, &[]) - before;
        }
        Ok(cost)
    }

    fn measured(
        &self,
        volume: &Volume,
        direction: Direction,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Cost> {
        let copies = u64::try_from(volume.replicas.len())?;
        settle_with_memory(&self.scratch, copies.saturating_mul(self.data.size_bytes))?;
        let (all, workers) = processes(volume);
        for pid in &all {
            usage::forget_peak(*pid).context("cannot reset the peak of memory")?;
        }
        let seconds = || all.iter().map(|pid| usage::processor_seconds(*pid)).sum::<f64>();
        let before = (seconds(), usage::children_seconds());
        let traffic = self.target.traffic(direction, &workers);
        let start = Instant::now();
        work()?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_s = seconds() - before.0 + usage::children_seconds() - before.1;
        let peak_bytes = all.iter().filter_map(|pid| usage::peak_bytes(*pid)).max().unwrap_or(0);
        let moved_bytes = self.target.traffic(direction, &workers).saturating_sub(traffic);
        Ok(Cost { wall_s, cpu_s, peak_bytes, moved_bytes })
    }
}

fn setup(data: Data, replicas: usize, frontend: Frontend) -> Setup {
    Setup { replicas, size_bytes: data.size_bytes, frontend, ..Setup::default() }
}

fn agent(runtime: &Runtime, replica: &Replica) -> Result<Agent> {
    let _inside = runtime.enter();
    let address = rpc::Address::new("127.0.0.1", replica.control_port()).sync_agent();
    let peer = rpc::connect(&address, rpc::Identity::default(), rpc::Deadline::Usual)?;
    Ok(SyncAgentServiceClient::new(peer))
}

/// Everything that runs for a volume, and those among them that exchange data with a store.
fn processes(volume: &Volume) -> (Vec<u32>, Vec<u32>) {
    let replicas: Vec<u32> =
        volume.replicas.iter().filter_map(|it| it.process.as_ref()).map(Process::id).collect();
    let agents: Vec<u32> = replicas.iter().flat_map(|pid| usage::children(*pid)).collect();
    let workers: Vec<u32> = replicas.into_iter().chain(agents).collect();
    let engine = volume.engine.iter().map(|engine| engine.process.id());
    (engine.chain(workers.iter().copied()).collect(), workers)
}

/// The only snapshot of a replica.
fn snapshot_file(dir: &Path) -> Result<PathBuf> {
    let mut found = None;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_image = path.extension().is_some_and(|it| it == "img");
        if is_image && name.starts_with("volume-snap-") {
            found = Some(path);
        }
    }
    found.with_context(|| format!("no snapshot in {}", dir.display()))
}
