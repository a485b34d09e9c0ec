//! Processes that only pretend to run, for tests and measurements: as unkind as real ones, when told
//! to be. They start and stop when [`Simulated::step`] is called, or at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Instance, Instances, Key, Kind, Launch, Role, StartError, State, Successor};

/// Processes that are not there.
#[derive(Debug)]
pub struct Simulated {
    table: Mutex<Table>,
    notify: Notify,
    steps: Steps,
}

/// When a simulated process reaches its next state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    AtOnce,
    /// By [`Simulated::step`] only.
    ByHand,
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<Key, (Instance, Launch)>,
    changed: BTreeSet<Key>,
    started: u64,
    ending: bool,
}

impl Simulated {
    pub fn new(steps: Steps) -> Self {
        Self { table: Mutex::default(), notify: Notify::new(), steps }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, key: &Key, turn: impl FnOnce(&mut Instance)) {
        let mut table = self.table();
        if let Some((instance, _)) = table.entries.get_mut(key) {
            turn(instance);
            table.changed.insert(key.clone());
            self.notify.notify_one();
        }
    }

    /// Lets a process that starts or stops reach its next state.
    pub fn step(&self, key: &Key) {
        self.turn(key, |it| {
            it.state = match it.state {
                State::Starting => State::Running,
                State::Stopping => State::Stopped,
                other @ (State::Running | State::Stopped | State::Failed | State::Lost) => other,
            };
        });
    }

    /// A process ends by itself.
    pub fn crash(&self, key: &Key, code: Option<i32>) {
        self.turn(key, |it| {
            if !it.state.is_over() {
                it.state = State::Failed;
                it.exit_code = code;
                it.error = Some(match code {
                    Some(code) => format!("exit status {code}"),
                    None => "killed by signal 9".to_owned(),
                });
            }
        });
    }

    /// The one that is to take the place of a process does, or fails.
    pub fn step_next(&self, key: &Key, error: Option<&str>) {
        self.turn(key, |it| {
            let Some(next) = it.next.take() else { return };
            match error {
                None => it.image = next.image,
                Some(why) => it.next = Some(Successor { error: Some(why.to_owned()), ..next }),
            }
        });
    }

    /// The manager is gone for a while, and so are its processes.
    pub fn lose_all(&self) {
        let keys: Vec<Key> = self.table().entries.keys().cloned().collect();
        for key in keys {
            self.turn(&key, |it| {
                if !it.state.is_over() {
                    it.state = State::Lost;
                }
            });
        }
    }

    /// What a process was started with.
    pub fn launched(&self, key: &Key) -> Option<Launch> {
        self.table().entries.get(key).map(|(_, launch)| launch.clone())
    }
}

#[async_trait]
impl Instances for Simulated {
    fn start(&self, launch: Launch) -> Result<(), StartError> {
        let key = launch.key.clone();
        let mut table = self.table();
        if table.ending {
            return Err(StartError::Ending(key));
        }
        if table.entries.get(&key).is_some_and(|(it, _)| !it.state.is_over()) {
            return Err(StartError::Runs(key));
        }
        table.started += 1;
        // Ports of one process after the other: two that run never share one.
        let first = 10_000 + u16::try_from(table.started * 8 % 50_000).unwrap_or(0);
        let instance = Instance {
            key: key.clone(),
            volume: launch.volume.clone(),
            image: launch.image.clone(),
            state: match self.steps {
                Steps::AtOnce => State::Running,
                Steps::ByHand => State::Starting,
            },
            ports: (first, first + 7),
            pid: None,
            run: format!("run-{}", table.started),
            salvage: matches!(&launch.role, Role::Engine(engine) if engine.salvage),
            error: None,
            exit_code: None,
            next: None,
        };
        table.entries.insert(key.clone(), (instance, launch));
        table.changed.insert(key);
        self.notify.notify_one();
        Ok(())
    }

    fn replace(&self, launch: Launch) -> Result<(), StartError> {
        let key = launch.key.clone();
        let mut table = self.table();
        if table.ending {
            return Err(StartError::Ending(key));
        }
        table.started += 1;
        let run = format!("run-{}", table.started);
        let first = 10_000 + u16::try_from(table.started * 8 % 50_000).unwrap_or(0);
        let Some((it, launched)) =
            table.entries.get_mut(&key).filter(|(it, _)| !it.state.is_over())
        else {
            return Err(StartError::Idle(key));
        };
        match self.steps {
            Steps::AtOnce => {
                it.image.clone_from(&launch.image);
                (it.run, it.ports, it.next) = (run, (first, first + 7), None);
                *launched = launch;
            }
            Steps::ByHand => {
                it.next = Some(Successor { image: launch.image, error: None });
            }
        }
        table.changed.insert(key);
        self.notify.notify_one();
        Ok(())
    }

    /// Nothing is ever written.
    fn has_volume(&self, _: &std::path::Path) -> bool {
        true
    }

    fn stop(&self, key: &Key) {
        let steps = self.steps;
        self.turn(key, |it| {
            if !it.state.is_over() {
                it.state = match steps {
                    Steps::AtOnce => State::Stopped,
                    Steps::ByHand => State::Stopping,
                };
            }
        });
    }

    fn forget(&self, key: &Key) {
        let mut table = self.table();
        if let Some((it, _)) = table.entries.get_mut(key) {
            it.next = it.next.take().filter(|next| next.error.is_none());
        }
        if table.entries.get(key).is_some_and(|(it, _)| it.state.is_over()) {
            table.entries.remove(key);
            table.changed.insert(key.clone());
            self.notify.notify_one();
        }
    }

    fn discard(&self, key: &Key) {
        self.forget(key);
    }

    fn get(&self, key: &Key) -> Option<Instance> {
        self.table().entries.get(key).map(|(it, _)| it.clone())
    }

    fn list(&self) -> Vec<Instance> {
        self.table().entries.values().map(|(it, _)| it.clone()).collect()
    }

    async fn changed(&self) -> Vec<Key> {
        loop {
            let told = self.notify.notified();
            let changed = std::mem::take(&mut self.table().changed);
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            told.await;
        }
    }

    async fn shutdown(&self) {
        self.table().ending = true;
        for kind in [Kind::Engine, Kind::Replica] {
            let keys: Vec<Key> = self.table().entries.keys().cloned().collect();
            for key in keys.iter().filter(|key| key.kind == kind) {
                self.turn(key, |it| {
                    if !it.state.is_over() {
                        it.state = State::Stopped;
                    }
                });
            }
        }
    }

    fn address(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
}
