//! Real processes: children of this one, or of one before it that was killed.
//!
//! Owns: the table of processes and who tends each. They outlive a manager that is killed, and the
//! next one takes them over: from its records, and from what /proc says. Only [`Processes::shutdown`]
//! ends them with the manager.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Signal, pidfd_send_signal};
use tasks::{CancellationToken, Tasks};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::find::{self, Found};
use super::ports::{self, Ports};
use super::record::{self, Ended, Record};
use super::tend::{self, Adopted};
use super::{Instance, Instances, Key, Kind, Launch, StartError, State, command};

/// What a host is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where records and logs are kept.
    pub root: PathBuf,
    /// Where processes listen.
    pub address: IpAddr,
    pub ports: RangeInclusive<u16>,
    /// The program that engines and replicas are commands of.
    pub program: PathBuf,
    /// What every engine is told besides.
    pub engine_arguments: Vec<String>,
    pub max: usize,
    /// How long one may take to end before it is made to.
    pub timeout: Duration,
}

impl Options {
    /// Beside the ports that systems hand out by themselves and those of services.
    pub const PORTS: RangeInclusive<u16> = 10_000..=29_999;
    pub const MAX: usize = 4096;
    pub const TIMEOUT: Duration = Duration::from_secs(8);
}

/// The processes that were there cannot be looked for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot make the directory of processes")]
    Make(#[from] durable::Error),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot take over {key}")]
    Adopt { key: Key, source: io::Error },
}

#[expect(deprecated, reason = "its successor is unsafe, for types that give their descriptor away")]
fn watched(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(handle)
}

/// The processes of this node.
#[derive(Debug, Clone)]
pub struct Processes(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) boot: String,
    pub(super) tasks: Tasks,
    table: Mutex<Table>,
    notify: Notify,
}

#[derive(Debug)]
struct Table {
    entries: BTreeMap<Key, Entry>,
    changed: BTreeSet<Key>,
    ports: Ports,
    ending: bool,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    state: State,
    error: Option<String>,
    exit_code: Option<i32>,
    /// Tells whoever tends it to end it.
    stop: CancellationToken,
}

impl Entry {
    fn shown(&self) -> Instance {
        let record = &self.record;
        Instance {
            key: record.key.clone(),
            volume: record.volume.clone(),
            image: record.image.clone(),
            state: self.state,
            ports: record.ports,
            pid: record.process.as_ref().map(|it| it.pid),
            run: record.run.clone(),
            salvage: record.salvage,
            error: self.error.clone(),
            exit_code: self.exit_code,
        }
    }
}

impl Processes {
    /// Finds what an earlier manager left, and takes over what still runs. Processes of this host
    /// that no record knows are ended.
    pub async fn open(options: Options, tasks: &Tasks) -> Result<Self, OpenError> {
        let root = options.root.clone();
        let failed = |path: PathBuf| move |source| OpenError::Read { path, source };
        durable::create_dir_private(&root)?;
        // One name for it, whatever was given: processes are looked for by it.
        let root = root.canonicalize().map_err(failed(root))?;
        let boot = find::boot().map_err(failed("/proc/sys/kernel/random/boot_id".into()))?;
        let (records, odd) = record::read_all(&root).map_err(failed(root.clone()))?;
        for odd in &odd {
            tracing::error!(folder = ?odd.folder, why = odd.why,
                "a process has a record that cannot be used: it is left alone");
        }
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let ports = Ports::new(options.ports.clone(), seed);
        let table =
            Table { entries: BTreeMap::new(), changed: BTreeSet::new(), ports, ending: false };
        let options = Options { root: root.clone(), ..options };
        let inner = Inner {
            options,
            boot,
            tasks: tasks.child("instances"),
            table: Mutex::new(table),
            notify: Notify::new(),
        };
        let host = Self(Arc::new(inner));
        let mut runs = find::scan(&root, &host.0.boot);
        let mut answering = Vec::new();
        for record in records {
            let found = find::find(&record, &runs, &host.0.boot);
            runs.remove(&record.run);
            match found {
                Found::Gone => host.0.lost(record),
                Found::Alive(id, handle) => {
                    let record = Record { process: Some(id), ..record };
                    let key = record.key.clone();
                    let handle = watched(handle)
                        .map_err(|source| OpenError::Adopt { key: key.clone(), source })?;
                    tracing::info!(instance = %key, pid = record.process.as_ref().map(|it| it.pid),
                        "{key} still runs and is taken over");
                    let at = (host.0.options.address, record.ports.0).into();
                    let host = Arc::clone(&host.0);
                    answering.push(async move {
                        // Asked before anybody looks: one that runs is never shown as starting.
                        let answers = tend::answers(at).await;
                        host.adopted(record, Adopted { handle, answers });
                    });
                }
            }
        }
        futures::future::join_all(answering).await;
        // Which of them has a record that cannot be read, nobody can tell.
        for (run, id) in runs.into_iter().filter(|_| odd.is_empty()) {
            tracing::warn!(run, pid = id.pid, "a process of this node has no record and is ended");
            if let Some(handle) = find::open(&id, &host.0.boot) {
                // It may have ended meanwhile.
                let _ = pidfd_send_signal(handle, Signal::KILL);
            }
        }
        Ok(host)
    }

    /// Removes what is left of processes whose resource is gone.
    pub fn sweep(&self, is_known: impl Fn(&Key) -> bool) {
        for key in record::folders(&self.0.options.root) {
            if !is_known(&key) && self.get(&key).is_none() {
                self.0.remove_folder(&key);
            }
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, table: &mut Table, key: &Key) {
        table.changed.insert(key.clone());
        self.notify.notify_one();
    }

    /// Its manager was gone when it ended, so nobody knows why: for an engine that is a failure, as
    /// its clients were cut off.
    fn lost(&self, record: Record) {
        let (state, error, exit_code) = match &record.ended {
            Some(ended) => (State::Failed, Some(ended.text.clone()), ended.code),
            None => (State::Lost, None, None),
        };
        let mut table = self.table();
        let (key, stop) = (record.key.clone(), CancellationToken::new());
        table.entries.insert(key.clone(), Entry { record, state, error, exit_code, stop });
        self.tell(&mut table, &key);
    }

    fn adopted(self: &Arc<Self>, record: Record, adopted: Adopted) {
        let mut table = self.table();
        table.ports.hold(record.ports);
        let (key, stop) = (record.key.clone(), CancellationToken::new());
        let state = if adopted.answers { State::Running } else { State::Starting };
        let entry = Entry {
            record: record.clone(),
            state,
            error: None,
            exit_code: None,
            stop: stop.clone(),
        };
        table.entries.insert(key.clone(), entry);
        self.tell(&mut table, &key);
        drop(table);
        let name = key.to_string();
        self.tasks.spawn(&name, tend::adopted(Arc::clone(self), record, adopted, stop));
    }

    /// Other ports for a process that found its own in use.
    pub(super) fn other_ports(&self, key: &Key, count: u16) -> Option<(u16, u16)> {
        let mut table = self.table();
        let taken = table.ports.take(count, ports::is_free)?;
        let old = table
            .entries
            .get_mut(key)
            .map(|entry| std::mem::replace(&mut entry.record.ports, taken));
        if let Some(old) = old {
            table.ports.release(old);
        }
        Some(taken)
    }

    /// The record as it was written.
    pub(super) fn recorded(&self, record: &Record) {
        let mut table = self.table();
        if let Some(entry) = table.entries.get_mut(&record.key) {
            entry.record = record.clone();
        }
    }

    /// It answers, or it is being ended.
    pub(super) fn turned(&self, key: &Key, state: State) {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(key).filter(|it| !it.state.is_over()) else {
            return;
        };
        entry.state = state;
        self.tell(&mut table, key);
    }

    /// There is no process any more.
    pub(super) fn over(&self, key: &Key, state: State, ended: Option<Ended>) {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(key) else { return };
        entry.state = state;
        if let Some(ended) = ended {
            entry.error = Some(ended.text);
            entry.exit_code = ended.code;
        }
        let ports = entry.record.ports;
        table.ports.release(ports);
        self.tell(&mut table, key);
    }

    fn remove_folder(&self, key: &Key) {
        let folder = record::folder(&self.options.root, key);
        if let Err(error) = std::fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %folder.display(), "cannot remove what is left of {key}");
        }
    }

    /// Takes one that is over out of the table.
    fn take_over(&self, key: &Key) -> bool {
        let mut table = self.table();
        let is_over = table.entries.get(key).is_none_or(|entry| entry.state.is_over());
        if is_over && table.entries.remove(key).is_some() {
            self.tell(&mut table, key);
        }
        is_over
    }

    fn remove_record(&self, key: &Key) {
        if let Err(error) = record::remove(&self.options.root, key) {
            tracing::warn!(error = %telemetry::Chain(&error), "cannot remove the record of {key}");
        }
    }

    async fn end_all(&self, kind: Kind) {
        let keys: Vec<Key> = {
            let table = self.table();
            let of_kind = table.entries.iter().filter(|(key, _)| key.kind == kind);
            of_kind.filter(|(_, it)| !it.state.is_over()).map(|(key, _)| key.clone()).collect()
        };
        for key in &keys {
            self.order_stop(key);
        }
        // Twice: once to be asked, once to be made to.
        let timeout = self.options.timeout * 2;
        let all_over = async {
            let every = Duration::from_millis(20);
            while keys.iter().any(|key| {
                self.table().entries.get(key).is_some_and(|entry| !entry.state.is_over())
            }) {
                tokio::time::sleep(every).await;
            }
        };
        if tokio::time::timeout(timeout, all_over).await.is_err() {
            tracing::error!(kind = kind.as_str(), "some processes do not end; they are left");
        }
    }

    fn order_stop(&self, key: &Key) {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(key).filter(|it| !it.state.is_over()) else {
            return;
        };
        if entry.state != State::Stopping {
            entry.state = State::Stopping;
            entry.stop.cancel();
            self.tell(&mut table, key);
        }
    }
}

#[async_trait]
impl Instances for Processes {
    fn start(&self, launch: Launch) -> Result<(), StartError> {
        let key = launch.key.clone();
        let inner = &self.0;
        if !record::is_name(&key.name) {
            return Err(StartError::Name(key));
        }
        let mut table = inner.table();
        if table.ending {
            return Err(StartError::Ending(key));
        }
        if table.entries.get(&key).is_some_and(|entry| !entry.state.is_over()) {
            return Err(StartError::Runs(key));
        }
        let max = inner.options.max;
        if table.entries.values().filter(|entry| !entry.state.is_over()).count() >= max {
            return Err(StartError::TooMany { key, max });
        }
        let count = command::port_count(&launch.role);
        let Some(taken) = table.ports.take(count, ports::is_free) else {
            let (first, last) = (*inner.options.ports.start(), *inner.options.ports.end());
            return Err(StartError::Ports { key, count, first, last });
        };
        let record = Record::new(key.clone(), launch.volume.clone(), launch.image.clone(), taken);
        let stop = CancellationToken::new();
        let entry = Entry {
            record: record.clone(),
            state: State::Starting,
            error: None,
            exit_code: None,
            stop: stop.clone(),
        };
        table.entries.insert(key.clone(), entry);
        inner.tell(&mut table, &key);
        drop(table);
        let name = key.to_string();
        inner.tasks.spawn(&name, tend::launched(Arc::clone(inner), launch, record, stop));
        Ok(())
    }

    fn stop(&self, key: &Key) {
        self.0.order_stop(key);
    }

    fn forget(&self, key: &Key) {
        if self.0.take_over(key) {
            self.0.remove_record(key);
        }
    }

    fn discard(&self, key: &Key) {
        if record::is_name(&key.name) && self.0.take_over(key) {
            self.0.remove_record(key);
            self.0.remove_folder(key);
        }
    }

    fn get(&self, key: &Key) -> Option<Instance> {
        self.0.table().entries.get(key).map(Entry::shown)
    }

    fn list(&self) -> Vec<Instance> {
        self.0.table().entries.values().map(Entry::shown).collect()
    }

    async fn changed(&self) -> Vec<Key> {
        loop {
            let told = self.0.notify.notified();
            let changed = std::mem::take(&mut self.0.table().changed);
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            told.await;
        }
    }

    async fn shutdown(&self) {
        self.0.table().ending = true;
        self.0.end_all(Kind::Engine).await;
        self.0.end_all(Kind::Replica).await;
    }

    fn address(&self) -> IpAddr {
        self.0.options.address
    }
}
