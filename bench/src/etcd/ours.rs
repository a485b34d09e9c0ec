//! Our commands, as processes, on a store in a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcdguard::store::snapshot::Layout;
use etcdguard::store::{Kind, Snapshot, name};
use testkit::etcd::{Seat, data_dir};
use testkit::process::Process;

use super::TIMEOUT;
use crate::measure::{self, Cost, stored_bytes};
use crate::usage;

/// Deltas end when they are as long as is usual, seldom because of the time.
const DELTA_PERIOD: &str = "--delta-snapshot-period=3s";

/// A store below the home directory of the commands.
pub(super) struct Store {
    home: PathBuf,
    container: &'static str,
}

impl Store {
    pub(super) fn new(home: &Path, container: &'static str) -> Self {
        Self { home: home.to_owned(), container }
    }

    fn root(&self) -> PathBuf {
        self.home.join(self.container)
    }

    fn objects(&self) -> PathBuf {
        self.root().join(Layout::V2.marker())
    }

    pub(super) fn clear(&self) -> Result<()> {
        super::remove(&self.root())
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        stored_bytes(&self.root())
    }

    fn of_kind(&self, kind: Kind) -> Vec<Snapshot> {
        let Ok(entries) = std::fs::read_dir(self.objects()) else { return Vec::new() };
        let names =
            entries.filter_map(Result::ok).filter_map(|it| it.file_name().into_string().ok());
        let found = names.filter_map(|it| name::parse(Layout::V2, &it).ok());
        found.filter(|it| it.kind == kind).collect()
    }

    pub(super) fn deltas(&self) -> Vec<Snapshot> {
        self.of_kind(Kind::Incr)
    }

    /// `holdfast etcd`, on this store.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(e2e::server::binary());
        command.args(["etcd", name, "--storage-provider=Local"]);
        command.arg(format!("--store-container={}", self.container));
        command.arg(format!("--snapstore-temp-directory={}", self.home.join("temp").display()));
        command.env("HOME", &self.home).env_remove("ETCD_CONF").env_remove("POD_NAMESPACE");
        command
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Plain,
}

/// `holdfast etcd snapshot`, which goes on until it is stopped.
pub(super) struct Guard(Process);

impl Guard {
    /// Starts it on an empty store. The cost is that of its start and its first full snapshot.
    pub(super) fn start(endpoint: &str, store: &Store, packing: Packing) -> Result<(Self, Cost)> {
        let mut command = store.command("snapshot");
        command.arg(format!("--endpoints={endpoint}"));
        // No other full one, and nothing but snapshots.
        command.args(["--schedule=0 0 1 1 *", "--defragmentation-schedule=0 0 1 1 *"]);
        command.args(["--garbage-collection-period=1s", DELTA_PERIOD]);
        command.arg(match packing {
            Packing::Gzip => "--compress-snapshots=true",
            Packing::Plain => "--compress-snapshots=false",
        });
        let mut process = Process::start(command, &store.home, "guard")?;
        let (cost, ()) = measure::until(&mut process, TIMEOUT, || {
            (!store.of_kind(Kind::Full).is_empty()).then_some(())
        })?;
        Ok((Self(process), cost))
    }

    /// Lets `change` change the source, and waits for the delta with the revision it gives. Gives
    /// the cost of collecting, and the seconds that the changes alone took.
    pub(super) fn collect(
        &mut self,
        store: &Store,
        change: impl FnOnce() -> Result<i64>,
    ) -> Result<(Cost, f64)> {
        let pid = self.0.id();
        usage::forget_peak(pid)?;
        let (before_s, start) = (usage::processor_seconds(pid), Instant::now());
        let last = change()?;
        let put_s = start.elapsed().as_secs_f64();
        let (cost, ()) = measure::until(&mut self.0, TIMEOUT, || {
            store.deltas().iter().any(|delta| delta.last_revision >= last).then_some(())
        })?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_s = usage::processor_seconds(pid) - before_s;
        Ok((Cost { wall_s, cpu_s, ..cost }, put_s))
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.0.terminate()?;
        self.0.wait_for_exit(Duration::from_mins(1))?;
        Ok(())
    }
}

/// Into where an etcd on that seat looks for its data.
pub(super) fn restore(store: &Store, seat: &Seat, dir: &Path) -> Result<Cost> {
    let mut command = store.command("restore");
    command
        .arg(format!("--data-dir={}", data_dir(dir, &seat.name).display()))
        .arg(format!("--restoration-temp-snapshots-dir={}", dir.join("restoring").display()))
        .arg(format!("--name={}", seat.name))
        .arg(format!("--initial-cluster={}", seat.listed()))
        .arg(format!("--initial-advertise-peer-urls={}", seat.peer));
    let (cost, _) = measure::run(&mut command, dir)?;
    ensure!(data_dir(dir, &seat.name).is_dir(), "nothing was restored");
    Ok(cost)
}

/// On data that is as it should be, and must stay.
pub(super) fn initialize(store: &Store, data: &Path, mode: &str) -> Result<Cost> {
    let database = data.join("member/snap/db");
    let before = database.metadata()?.modified()?;
    let mut command = store.command("initialize");
    command.arg(format!("--validation-mode={mode}"));
    command.arg(format!("--data-dir={}", data.display()));
    let (cost, _) = measure::run(&mut command, &store.home)?;
    ensure!(database.metadata()?.modified()? == before, "good data was replaced");
    Ok(cost)
}

/// Gives the file that came of it too.
pub(super) fn compact(store: &Store, dir: &Path) -> Result<(Cost, PathBuf)> {
    let before = store.of_kind(Kind::Full);
    let mut command = store.command("compact");
    command.arg(format!("--data-dir={}", dir.join("compacting").display()));
    command.arg(format!("--restoration-temp-snapshots-dir={}", dir.join("restoring").display()));
    let (cost, _) = measure::run(&mut command, dir)?;
    let is_new = |it: &Snapshot| before.iter().all(|old| old.snap_name != it.snap_name);
    let made = store.of_kind(Kind::Full).into_iter().find(is_new).context("nothing was made")?;
    Ok((cost, store.objects().join(made.snap_name)))
}
