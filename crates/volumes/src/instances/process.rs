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
use super::{Instance, Instances, Key, Kind, Launch, StartError, State, Successor, command};

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
    /// What every process finds in its environment besides.
    pub environment: Vec<(String, String)>,
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
    /// Another has taken over from it.
    is_replaced: bool,
}

impl Entry {
    fn shown(&self) -> Instance {
        let record = &self.record;
        Instance {
            key: record::first(&record.key),
            volume: record.volume.clone(),
            image: record.image.clone(),
            state: self.state,
            ports: record.ports,
            pid: record.process.as_ref().map(|it| it.pid),
            run: record.run.clone(),
            salvage: record.salvage,
            error: self.error.clone(),
            exit_code: self.exit_code,
            next: None,
        }
    }
}

impl Table {
    /// The entries of one process, the one that came last at the end.
    fn pair(&self, key: &Key) -> Vec<(Key, &Entry)> {
        let places = [record::first(key), record::other(&record::first(key))];
        let mut found: Vec<_> = places
            .into_iter()
            .filter_map(|place| self.entries.get_key_value(&place))
            .map(|(place, entry)| (place.clone(), entry))
            .collect();
        found.sort_by_key(|(_, entry)| entry.record.turn);
        found
    }

    /// One process, as it is to others: the one that came last, once it has taken over or the one
    /// before it is gone.
    fn shown(&self, key: &Key) -> Option<Instance> {
        let pair = self.pair(key);
        let (_, last) = pair.last()?;
        let before = pair.first().filter(|(_, it)| pair.len() > 1 && !it.state.is_over());
        match (before, last.state) {
            (None, _) | (_, State::Running) => Some(last.shown()),
            (
                Some((_, before)),
                State::Starting | State::Stopping | State::Stopped | State::Failed | State::Lost,
            ) => {
                let over = last.state.is_over();
                let why = last.error.clone().unwrap_or_else(|| "it ended".to_owned());
                let image = last.record.image.clone();
                let next = Some(Successor { image, error: over.then_some(why) });
                Some(Instance { next, ..before.shown() })
            }
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
            match find::find(&record, &runs, &host.0.boot) {
                Found::Gone => host.0.lost(record),
                Found::Alive(id, handle) => {
                    runs.remove(&record.run);
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
        host.0.settle_pairs();
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
        table.changed.insert(record::first(key));
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
        let entry = Entry { record, state, error, exit_code, stop, is_replaced: false };
        table.entries.insert(key.clone(), entry);
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
            is_replaced: false,
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
        drop(table);
        if state == State::Running {
            self.end_predecessor(key);
        }
    }

    /// One that took over and answers is the only one of its name.
    fn end_predecessor(&self, key: &Key) {
        let mut table = self.table();
        let pair = table.pair(key);
        let is_last = pair.len() == 2 && pair.last().is_some_and(|(last, _)| last == key);
        let Some((before, is_over)) =
            pair.first().filter(|_| is_last).map(|(it, entry)| (it.clone(), entry.state.is_over()))
        else {
            return;
        };
        tracing::info!(instance = %record::first(key), "another process has taken over from it");
        if is_over {
            table.entries.remove(&before);
            drop(table);
            return self.remove_record(&before);
        }
        if let Some(entry) = table.entries.get_mut(&before) {
            entry.is_replaced = true;
        }
        drop(table);
        self.order_stop(&before);
    }

    /// A manager that was killed may have left two of one name.
    fn settle_pairs(&self) {
        let answering: Vec<Key> = {
            let table = self.table();
            let running = table.entries.iter().filter(|(_, it)| it.state == State::Running);
            running.map(|(key, _)| key.clone()).collect()
        };
        for key in answering {
            self.end_predecessor(&key);
        }
    }

    pub(super) fn is_replaced(&self, key: &Key) -> bool {
        self.table().entries.get(key).is_some_and(|entry| entry.is_replaced)
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
        let (ports, is_replaced) = (entry.record.ports, entry.is_replaced);
        table.ports.release(ports);
        if is_replaced {
            table.entries.remove(key);
        }
        self.tell(&mut table, key);
        drop(table);
        if is_replaced {
            self.remove_record(key);
        }
    }

    fn remove_folder(&self, key: &Key) {
        let folder = record::folder(&self.options.root, key);
        if let Err(error) = std::fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %folder.display(), "cannot remove what is left of {key}");
        }
    }

    /// Takes those of a name that are over out of the table, and says which places are free.
    fn take_over(&self, key: &Key) -> Vec<Key> {
        let mut table = self.table();
        let places = [record::first(key), record::other(&record::first(key))];
        let is_over = |table: &Table, place: &Key| {
            table.entries.get(place).is_none_or(|entry| entry.state.is_over())
        };
        let free: Vec<Key> = places.into_iter().filter(|it| is_over(&table, it)).collect();
        let removed = free.iter().filter(|place| table.entries.remove(*place).is_some()).count();
        if removed > 0 {
            self.tell(&mut table, key);
        }
        free
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

    /// Starts a process in one of the places of its name.
    fn begin(self: &Arc<Self>, launch: Launch, place: &Key, turn: u32) -> Result<(), StartError> {
        let key = launch.key.clone();
        if !record::is_name(&key.name) {
            return Err(StartError::Name(key));
        }
        let mut table = self.table();
        if table.ending {
            return Err(StartError::Ending(key));
        }
        if table.entries.get(place).is_some_and(|entry| !entry.state.is_over()) {
            return Err(StartError::Runs(key));
        }
        let max = self.options.max;
        if table.entries.values().filter(|entry| !entry.state.is_over()).count() >= max {
            return Err(StartError::TooMany { key, max });
        }
        let count = command::port_count(&launch.role);
        let Some(taken) = table.ports.take(count, ports::is_free) else {
            let (first, last) = (*self.options.ports.start(), *self.options.ports.end());
            return Err(StartError::Ports { key, count, first, last });
        };
        let made = Record::new(place.clone(), launch.volume.clone(), launch.image.clone(), taken);
        let record = Record { turn, ..made };
        let stop = CancellationToken::new();
        let entry = Entry {
            record: record.clone(),
            state: State::Starting,
            error: None,
            exit_code: None,
            stop: stop.clone(),
            is_replaced: false,
        };
        table.entries.insert(place.clone(), entry);
        self.tell(&mut table, place);
        drop(table);
        let name = place.to_string();
        self.tasks.spawn(&name, tend::launched(Arc::clone(self), launch, record, stop));
        Ok(())
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
        let table = self.0.table();
        if table.pair(&key).iter().any(|(_, entry)| !entry.state.is_over()) {
            return Err(StartError::Runs(key));
        }
        drop(table);
        self.forget(&key);
        self.0.begin(launch, &key, 0)
    }

    fn replace(&self, launch: Launch) -> Result<(), StartError> {
        let key = launch.key.clone();
        let table = self.0.table();
        let pair = table.pair(&key);
        let living: Vec<_> = pair.iter().filter(|(_, it)| !it.state.is_over()).collect();
        let (place, turn) = match living.as_slice() {
            [] => return Err(StartError::Idle(key)),
            [(place, entry)] => (record::other(place), entry.record.turn.saturating_add(1)),
            _ => return Err(StartError::Runs(key)),
        };
        drop(table);
        self.forget(&key);
        self.0.begin(launch, &place, turn)
    }

    fn stop(&self, key: &Key) {
        self.0.order_stop(key);
        self.0.order_stop(&record::other(key));
    }

    fn forget(&self, key: &Key) {
        for place in self.0.take_over(key) {
            self.0.remove_record(&place);
        }
    }

    fn discard(&self, key: &Key) {
        if !record::is_name(&key.name) {
            return;
        }
        for place in self.0.take_over(key) {
            self.0.remove_record(&place);
            self.0.remove_folder(&place);
        }
    }

    fn get(&self, key: &Key) -> Option<Instance> {
        self.0.table().shown(key)
    }

    fn list(&self) -> Vec<Instance> {
        let table = self.0.table();
        let names: BTreeSet<Key> = table.entries.keys().map(record::first).collect();
        names.iter().filter_map(|name| table.shown(name)).collect()
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
