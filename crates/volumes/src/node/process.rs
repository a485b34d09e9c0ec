//! Engines and replicas of this node: what is decided of each is done, said, and done again when it
//! did not hold.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::longhorn::{
    DiskStatus, Engine, EngineStatus, InstanceSpec, InstanceState, InstanceStatus, Node, Replica,
    ReplicaStatus,
};
use api::scalar::Time;
use jiff::Timestamp;
use kube::ResourceExt;
use reconcile::{Failure, Key, Next, Object, OrFail as _, Queue, Reconciler, Severity, Store};

use super::decide::{
    Act, FAILED_STARTING, Seen, decide, failed_upgrade, say_creation, say_upgrade,
};
use super::launch::{self, Ground, NotYet};
use super::{Agent, directory};
use crate::instances::{Key as Instance, Kind, Launch, State, Successor};
use crate::replica::is_leaving;
use crate::{FINALIZER, NAMESPACE};

/// Passes at once: some of them remove directories.
pub(super) const WORKERS: usize = 16;
/// Replicas by the identity of their disk.
pub(super) const BY_DISK: &str = "disk";
/// When what keeps a process from starting is looked at again.
const AGAIN: Duration = Duration::from_secs(5);

pub(super) fn disk_of(replica: &Replica) -> Vec<String> {
    replica.spec.disk_id.clone().filter(|id| !id.is_empty()).into_iter().collect()
}

pub(super) fn engines_of(replica: &Replica) -> Vec<Key> {
    let engine = replica.spec.engine_name.as_deref().filter(|name| !name.is_empty());
    engine.map(|name| Key::new(NAMESPACE, name)).into_iter().collect()
}

/// Replicas that wait for their disk are looked at when it is there.
pub(super) fn follow_disks(agent: &Arc<Agent>, queue: Arc<Queue>) {
    let (me, name) = (agent.key(), agent.options.name.clone());
    let replicas = agent.replicas.clone();
    agent.nodes.listen(move |key, before, now| {
        if *key != me || ready_disks(before) == ready_disks(now) {
            return;
        }
        for replica in replicas.list() {
            if replica.spec.instance.node_id.as_deref() == Some(name.as_str()) {
                queue.add(&Key::of(replica.as_ref()));
            }
        }
    });
}

fn ready_disks(node: Option<&Node>) -> Vec<(String, Option<String>)> {
    let statuses = node.and_then(|it| it.status.as_ref()?.disk_status.as_ref());
    let is_ready = |it: &DiskStatus| {
        api::condition::holds(it.conditions.as_deref().unwrap_or_default(), "Ready")
    };
    let ready = statuses.into_iter().flatten().filter(|(_, status)| is_ready(status));
    ready.map(|(name, status)| (name.clone(), status.disk_uuid.clone())).collect()
}

/// What engines and replicas have in common.
trait Subject: Object {
    const KIND: Kind;
    fn spec(&self) -> &InstanceSpec;
    fn status(&self) -> InstanceStatus;
    fn with(&self, status: InstanceStatus) -> Self;
    /// Nobody needs it any more.
    fn leaves(&self) -> bool;
    /// It is told with which copies another engine is to go on.
    fn upgrades(&self) -> bool {
        false
    }
}

impl Subject for Engine {
    const KIND: Kind = Kind::Engine;

    fn spec(&self) -> &InstanceSpec {
        &self.spec.instance
    }

    fn status(&self) -> InstanceStatus {
        self.status.as_ref().map(|it| it.instance.clone()).unwrap_or_default()
    }

    fn with(&self, status: InstanceStatus) -> Self {
        let rest = self.status.clone().unwrap_or_default();
        Self { status: Some(EngineStatus { instance: status, ..rest }), ..self.clone() }
    }

    fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn upgrades(&self) -> bool {
        self.spec.upgraded_replica_address_map.as_ref().is_some_and(|map| !map.is_empty())
    }
}

impl Subject for Replica {
    const KIND: Kind = Kind::Replica;

    fn spec(&self) -> &InstanceSpec {
        &self.spec.instance
    }

    fn status(&self) -> InstanceStatus {
        self.status.as_ref().map(|it| it.instance.clone()).unwrap_or_default()
    }

    fn with(&self, status: InstanceStatus) -> Self {
        Self { status: Some(ReplicaStatus { instance: status }), ..self.clone() }
    }

    fn leaves(&self) -> bool {
        is_leaving(self)
    }
}

pub(super) struct Engines(pub(super) Arc<Agent>);

impl Reconciler for Engines {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let agent = &self.0;
        let launch = |engine: &Engine, upgrade: bool| {
            let replica = |name: &str| agent.replicas.get(&Key::new(NAMESPACE, name));
            let setting = |name: &str| {
                let setting = agent.settings.get(&Key::new(NAMESPACE, name));
                setting.as_deref().and_then(crate::setting::number)
            };
            launch::engine(engine, upgrade, replica, setting, &agent.options.programs)
        };
        let done = agent.settle(&agent.engines, key, launch).await?;
        if let (Some(engine), true) = (&done.leaving, done.gone) {
            agent.host.discard(&Instance::engine(engine.name_any()));
            agent.engines.remove_finalizer(engine, FINALIZER).await?;
        }
        Ok(done.next)
    }
}

pub(super) struct Replicas(pub(super) Arc<Agent>);

impl Reconciler for Replicas {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let agent = &self.0;
        let ground = agent.ground(key).await?;
        let launch = |replica: &Replica, _| match agent.node() {
            Some(node) => launch::replica(replica, &node, ground.as_ref(), &agent.options.programs),
            None => Err(NotYet::NoDisk {
                id: replica.spec.disk_id.clone().unwrap_or_default(),
                path: replica.spec.disk_path.clone().unwrap_or_default(),
            }),
        };
        let done = agent.settle(&agent.replicas, key, launch).await?;
        if let (Some(replica), true) = (&done.leaving, done.gone) {
            agent.remove_data(replica).await?;
            agent.host.discard(&Instance::replica(replica.name_any()));
            agent.replicas.remove_finalizer(replica, FINALIZER).await?;
        }
        Ok(done.next)
    }
}

/// Why a process was not started.
enum NotStarted {
    /// Somebody is at work on it.
    Passing,
    /// It has to wait for so long, for a reason.
    Rests(Duration, String),
    /// It cannot be, for a reason in a word and in words.
    Failed(&'static str, String),
}

struct Settled<S> {
    /// The object, if it is being deleted.
    leaving: Option<Arc<S>>,
    /// No process of it is left here.
    gone: bool,
    next: Next,
}

impl Agent {
    async fn settle<S: Subject>(
        &self,
        store: &Store<S>,
        key: &Key,
        launch: impl Fn(&S, bool) -> Result<Launch, NotYet>,
    ) -> Result<Settled<S>, Failure> {
        let name = Instance { kind: S::KIND, name: key.name.to_string() };
        let nothing = |next| Settled { leaving: None, gone: false, next };
        // Another machine is this node: what runs here is cut off by what that one starts.
        if self.lease.is_lost() {
            return Ok(nothing(Next::after(AGAIN)));
        }
        let Some(object) = store.get(key) else {
            // One that cannot be read is there all the same.
            if !store.is_broken(key) {
                self.end_stray(&name);
            }
            return Ok(nothing(Next::WAIT));
        };
        let deleting = object.leaves();
        let Some(mut verdict) = self.look(object.as_ref(), &name, deleting) else {
            return Ok(nothing(Next::WAIT));
        };
        let (mut next, mut why_not, mut refused) = (Next::WAIT, None, None);
        if verdict.act != Act::Replace {
            self.timeouts.renew(&name);
        }
        match verdict.act {
            Act::Nothing | Act::Forget => {}
            Act::Stop => {
                self.host.stop(&name);
                self.say(object.as_ref(), Severity::Normal, "Stop", &format!("Stops {}", key.name));
            }
            Act::Replace => {
                match self.replace(object.as_ref(), &name, launch(object.as_ref(), true)) {
                    Ok(()) => {}
                    Err(why) => (next, refused) = (Next::after(AGAIN), why),
                }
            }
            Act::Start => match self.start(&name, launch(object.as_ref(), false)) {
                Ok(()) => {
                    let text = format!("Starts {}", key.name);
                    self.say(object.as_ref(), Severity::Normal, "Start", &text);
                    if let Some(begun) = self.look(object.as_ref(), &name, deleting) {
                        verdict = begun;
                    }
                }
                Err(NotStarted::Rests(left, why)) => {
                    next = Next::after(left);
                    why_not = Some((FAILED_STARTING, why));
                }
                Err(NotStarted::Passing) => next = Next::after(AGAIN),
                Err(NotStarted::Failed(reason, why)) => {
                    next = Next::after(AGAIN);
                    let text = format!("Error starting {}: {why}", key.name);
                    self.say(object.as_ref(), Severity::Warning, FAILED_STARTING, &text);
                    why_not = Some((reason, why));
                }
            },
        }
        let ended = self.tell_failure(object.as_ref(), &name);
        let why_not = why_not.or(ended.map(|why| (FAILED_STARTING, why)));
        let why_not = why_not.as_ref().map(|(reason, why)| (*reason, why.as_str()));
        let now = Time::new(Timestamp::now());
        say_creation(&mut verdict.status, why_not, now);
        let successor = self.host.get(&name).and_then(|it| it.next);
        // What was said first is the reason.
        let is_said = refused.is_some() && failed_upgrade(&verdict.status).is_some();
        if !is_said {
            say_upgrade(&mut verdict.status, refused.or(successor).as_ref(), now);
        }
        let written = store.merge(object.as_ref(), &object.with(verdict.status)).await?;
        if verdict.act == Act::Forget {
            self.host.forget(&name);
            // Seen again as one that has no process.
            next = Next::after(Duration::ZERO);
        }
        let leaving = deleting.then_some(written);
        Ok(Settled { leaving, gone: verdict.gone, next })
    }

    fn look<S: Subject>(
        &self,
        object: &S,
        name: &Instance,
        deleting: bool,
    ) -> Option<super::decide::Verdict> {
        let status = object.status();
        let process = self.host.get(name);
        let ip = self.host.address().to_string();
        decide(&Seen {
            me: &self.options.name,
            manager: &self.manager,
            ip: &ip,
            kind: S::KIND,
            spec: object.spec(),
            status: &status,
            deleting,
            upgrades: object.upgrades(),
            process: process.as_ref(),
        })
    }

    /// Has another image take over. Where that cannot be now: what is said of it, if it cannot be for too long.
    fn replace<S: Subject>(
        &self,
        object: &S,
        name: &Instance,
        launch: Result<Launch, NotYet>,
    ) -> Result<(), Option<Successor>> {
        let image = object.spec().image.clone().unwrap_or_default();
        let now = Instant::now();
        // It may be taken back by now, on that word: nothing begins any more.
        let is_given_up =
            self.timeouts.has_run_out(name, now) || failed_upgrade(&object.status()).is_some();
        let begun = launch.map_err(|why| why.to_string()).and_then(|it| {
            if is_given_up {
                return Err("its copies came too late".to_owned());
            }
            self.host.replace(it).map_err(|error| error.to_string())
        });
        let Err(why) = begun else {
            let text = format!("Starts {image} to take over from {}", name.name);
            self.say(object, Severity::Normal, "Start", &text);
            return Ok(());
        };
        // Seen again: copies are still coming, or the node has no place for it.
        tracing::debug!(engine = %name, "cannot be replaced now: {why}");
        let is_over = self.timeouts.is_over(name, now) || is_given_up;
        Err(is_over.then_some(Successor { image, error: Some(why) }))
    }

    /// Starts it, unless it ended too often right after its start.
    fn start(&self, name: &Instance, launch: Result<Launch, NotYet>) -> Result<(), NotStarted> {
        let launch = match launch {
            Ok(launch) => launch,
            Err(why) if why.is_passing() => return Err(NotStarted::Passing),
            Err(why) => return Err(NotStarted::Failed(why.reason(), why.to_string())),
        };
        if let Some((left, why)) = self.rests.left(name, Instant::now()) {
            return Err(NotStarted::Rests(left, why));
        }
        let begun = self.host.start(launch);
        begun.map_err(|error| NotStarted::Failed(FAILED_STARTING, error.to_string()))?;
        self.rests.begun(name, Instant::now());
        Ok(())
    }

    /// What lies where a replica is about to be started. Nothing for one that is not.
    async fn ground(&self, key: &Key) -> Result<Option<Ground>, Failure> {
        let Some(replica) = self.replicas.get(key) else { return Ok(None) };
        let Some(node) = self.node() else { return Ok(None) };
        let runs = self.host.get(&Instance::replica(replica.name_any()));
        let starts = replica.spec.instance.desire_state == Some(InstanceState::Running)
            && replica.spec.instance.node_id.as_deref() == Some(self.options.name.as_str())
            && runs.is_none_or(|it| it.state.is_over());
        let Some(dir) = launch::place(&replica, &node).ok().map(|it| it.dir).filter(|_| starts)
        else {
            return Ok(None);
        };
        let path = replica.spec.disk_path.clone().unwrap_or_default();
        let host = Arc::clone(&self.host);
        let others = self.replicas.by(BY_DISK, replica.spec.disk_id.as_deref().unwrap_or_default());
        let taken_by = launch::taken_by(&replica, others.iter().map(AsRef::as_ref));
        let look = move || Ground {
            disk: super::disk::identity(Path::new(&path)),
            has_volume: host.has_volume(&dir),
            taken_by,
        };
        let found = self.context.tasks.blocking("ground", look).await;
        found.map(Some).or_fail(|| format!("look for the data of replica {}", key.name))
    }

    /// A process without an object: the object was removed by force, or while this node was away.
    fn end_stray(&self, name: &Instance) {
        match self.host.get(name) {
            Some(process) if process.state.is_over() => self.host.discard(name),
            Some(_) => {
                tracing::warn!(instance = %name, "{name} has no object any more and is ended");
                self.host.stop(name);
            }
            None => {}
        }
    }

    /// Says why a process ended by itself, once; and why it did if it never ran.
    fn tell_failure<S: Subject>(&self, object: &S, name: &Instance) -> Option<String> {
        let process = self.host.get(name).filter(|it| it.state == State::Failed)?;
        let status = object.status();
        let ran = status.started == Some(true);
        let why = process.error.unwrap_or_default();
        self.rests.ended(name, &process.run, &why, Instant::now());
        if status.current_state != Some(InstanceState::Error) {
            let reason = if ran { "Error" } else { FAILED_STARTING };
            let doing = if ran { "running" } else { "starting" };
            let text = format!("Error {doing} {}: {why}", name.name);
            self.say(object, Severity::Warning, reason, &text);
        }
        (!ran).then_some(why)
    }

    fn say<S: Subject>(&self, object: &S, severity: Severity, reason: &str, text: &str) {
        self.context.events.say(object, severity, reason, text);
    }

    /// Removes the directory of a replica that is being deleted, unless another replica uses it, as
    /// while an engine is being upgraded.
    async fn remove_data(&self, replica: &Replica) -> Result<(), Failure> {
        let Some(node) = self.node() else { return Ok(()) };
        let dir = match launch::place(replica, &node) {
            Ok(place) if place.is_ready => place.dir,
            // Nothing of it can be reached. If the disk comes back, what is left is an orphan.
            Ok(_) | Err(_) => return Ok(()),
        };
        // One that cannot be read may use it as well; what is left is shown as an orphan then.
        if self.is_shared(replica) || !self.replicas.broken().is_empty() {
            return Ok(());
        }
        let going: PathBuf = dir.clone();
        let removal =
            self.context.tasks.blocking("remove", move || directory::remove(&going)).await;
        let doing = || format!("remove the data of replica {}", replica.name_any());
        removal.or_fail(doing)?.or_fail(doing)
    }

    fn is_shared(&self, replica: &Replica) -> bool {
        let disk = replica.spec.disk_id.as_deref().unwrap_or_default();
        let others = self.replicas.by(BY_DISK, disk);
        others.iter().any(|other| {
            !is_leaving(other)
                && other.metadata.name != replica.metadata.name
                && other.spec.data_directory_name == replica.spec.data_directory_name
        })
    }
}
