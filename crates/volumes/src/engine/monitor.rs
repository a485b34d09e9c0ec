//! One task for each engine that runs: look, decide, ask, and write down what changed.
//!
//! Nothing here has to survive: a monitor that is gone is replaced by one that looks anew. Long work
//! (filling a copy, asking for a restore) is a task beside the monitor's and ends with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::condition;
use api::longhorn::{
    BackupVolumeStatus, CloneState, Engine, EngineStatus, InstanceState, Node, Replica,
    ReplicaMode, Volume, VolumeStatus,
};
use jiff::Timestamp;
use reconcile::{Backoff, Failure, Key, Next, Reconciler, Severity};
use tasks::Tasks;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::client::{CallError, Controller, Reach};
use super::decide::{self, Seen};
use super::look::{Depth, Look, look};
use super::refused::Refused;
use super::work;
use crate::NAMESPACE;
use crate::image::CLI_API_WITH_RESTORE_REBUILD;
use crate::volume::World;

/// Between looks while something is under way, and while nothing is.
const SOON: Duration = Duration::from_millis(400);
const LATER: Duration = Duration::from_secs(5);
/// Replicas are asked for snapshots at least so often.
const FULL_EVERY: Duration = Duration::from_secs(30);
/// Of engines with which nothing happens so many are looked at in a second, all together, and of so many
/// the replicas are asked: among very many each waits longer. What does happen asks for a look at once.
const LOOKS_PER_SECOND: usize = 50;
const FULL_LOOKS_PER_SECOND: usize = 2;

/// The pause between looks at an engine with which nothing happens, among so many.
fn pause_among(count: usize, least: Duration, per_second: usize) -> Duration {
    let seconds = u64::try_from(count.div_ceil(per_second)).unwrap_or(u64::MAX);
    least.max(Duration::from_secs(seconds))
}

pub(super) const EXPAND_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };
pub(super) const REBUILD_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };
pub(super) const RESTORE_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };

/// The monitors of all engines that run.
pub(crate) struct Monitors {
    world: Arc<World>,
    running: Mutex<HashMap<Key, Running>>,
    count: Arc<AtomicUsize>,
}

impl fmt::Debug for Monitors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Monitors").finish_non_exhaustive()
    }
}

struct Running {
    reach: Reach,
    generation: Option<i64>,
    nudge: Arc<Notify>,
    tasks: Tasks,
}

impl Monitors {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, running: Mutex::default(), count: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the engine looked at now.
    pub(crate) fn nudge(&self, key: &Key) {
        if let Some(running) = self.lock().get(key) {
            running.nudge.notify_one();
        }
    }

    /// An engine that lost a copy goes on without it, and what is acknowledged from then on is not there. Until
    /// its monitor has looked, that copy counts as a good one: so it looks at once.
    pub(crate) fn look_when_copies_go(monitors: &Arc<Self>) {
        let (world, of_replicas, of_nodes) =
            (&monitors.world, Arc::clone(monitors), Arc::clone(monitors));
        world.replicas.listen(move |_, before, now| {
            if has_ended(before, now) {
                of_replicas.nudge_engine_of(before);
            }
        });
        world.nodes.listen(move |key, before, now| {
            if is_lost(before, now) {
                let all = of_nodes.world.replicas.list();
                let there =
                    |it: &&Arc<Replica>| it.spec.instance.node_id.as_deref() == Some(&*key.name);
                all.iter().filter(there).for_each(|it| of_nodes.nudge_engine_of(Some(it)));
            }
        });
    }

    fn nudge_engine_of(&self, replica: Option<&Replica>) {
        let Some(volume) = replica.and_then(|it| it.spec.instance.volume_name.as_deref()) else {
            return;
        };
        for engine in self.world.engines.by(super::BY_VOLUME, volume) {
            self.nudge(&Key::of(engine.as_ref()));
        }
    }

    fn stop(&self, key: &Key) {
        let mut running = self.lock();
        if let Some(ended) = running.remove(key) {
            self.count.store(running.len(), Ordering::Relaxed);
            ended.tasks.begin_stop();
        }
    }

    /// One monitor for each engine, at the address it has now.
    fn follow(&self, key: &Key, engine: &Engine, reach: Reach) {
        let generation = engine.metadata.generation;
        {
            let mut running = self.lock();
            if let Some(known) = running.get_mut(key).filter(|it| it.reach == reach) {
                // What is wanted of it has changed.
                if known.generation != generation {
                    known.generation = generation;
                    known.nudge.notify_one();
                }
                return;
            }
        }
        self.stop(key);
        let tasks = self.world.context.tasks.child(&key.name);
        let nudge = Arc::new(Notify::new());
        let monitor = Monitor {
            world: Arc::clone(&self.world),
            key: key.clone(),
            reach: reach.clone(),
            tasks: tasks.clone(),
            nudge: Arc::clone(&nudge),
            memory: Arc::default(),
            count: Arc::clone(&self.count),
        };
        tasks.spawn("monitor", monitor.run());
        let mut running = self.lock();
        running.insert(key.clone(), Running { reach, generation, nudge, tasks });
        self.count.store(running.len(), Ordering::Relaxed);
    }
}

/// A copy stopped, however that came, or its object went while it ran.
fn has_ended(before: Option<&Replica>, now: Option<&Replica>) -> bool {
    runs(before) && !runs(now)
}

/// A node is not heard of any more, or its object went.
fn is_lost(before: Option<&Node>, now: Option<&Node>) -> bool {
    is_ready(before) && !is_ready(now)
}

fn runs(replica: Option<&Replica>) -> bool {
    let state = replica.and_then(|it| it.status.as_ref()?.instance.current_state.as_ref());
    state == Some(&InstanceState::Running)
}

fn is_ready(node: Option<&Node>) -> bool {
    let conditions = node.and_then(|it| it.status.as_ref()?.conditions.as_deref());
    condition::holds(conditions.unwrap_or_default(), "Ready")
}

impl Reconciler for Monitors {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(engine) = self.world.engines.get(key) else {
            self.stop(key);
            return Ok(Next::WAIT);
        };
        if let Some(reach) = Reach::of(&engine) {
            self.follow(key, &engine, reach);
            return Ok(Next::WAIT);
        }
        self.stop(key);
        let known = engine.status.clone().unwrap_or_default();
        let silent = decide::silent(&known);
        if silent != known {
            let next = Engine { status: Some(silent), ..engine.as_ref().clone() };
            self.world.engines.merge(&engine, &next).await?;
        }
        Ok(Next::WAIT)
    }
}

/// What one monitor remembers between looks. All of it may be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Address of the copy that is being added.
    pub(super) adding: Option<String>,
    /// Copies that could not be added: how often, and when to try again.
    pub(super) rests: BTreeMap<String, (u32, Instant)>,
    pub(super) asking_restore: bool,
    pub(super) asking_clone: bool,
    pub(super) clone_failure: Option<String>,
    pub(super) rejections: BTreeMap<String, String>,
    refused: Refused,
    pub(super) restore_rest: (u32, Option<Instant>),
    pub(super) expand_rest: (u32, Option<Instant>),
    full_at: Option<Instant>,
    /// Kept between looks: to connect costs several times what a look does.
    controller: Option<Controller>,
}

/// The monitor of one engine.
#[derive(Clone)]
pub(super) struct Monitor {
    pub(super) world: Arc<World>,
    pub(super) key: Key,
    pub(super) reach: Reach,
    pub(super) tasks: Tasks,
    pub(super) nudge: Arc<Notify>,
    memory: Arc<Mutex<Memory>>,
    /// Engines that run, this one among them.
    count: Arc<AtomicUsize>,
}

impl Monitor {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn engine(&self) -> Option<Arc<Engine>> {
        self.world.engines.get(&self.key)
    }

    /// The engine with what its volume has told it.
    fn told(&self) -> Option<Engine> {
        let engine = self.engine()?;
        let volume = self.volume();
        Some(believed(&engine, volume.as_ref().and_then(|it| it.status.as_ref())))
    }

    pub(super) fn volume(&self) -> Option<Arc<Volume>> {
        self.world.volumes.get(&Key::new(NAMESPACE, &self.reach.volume))
    }

    async fn run(self) {
        let said = telemetry::Seldom::new(Duration::from_secs(30));
        let (mut busy, mut nudged) = (true, true);
        loop {
            match self.pass(busy || nudged).await {
                Ok(more) => busy = more,
                Err(error) => {
                    busy = false;
                    if let Some(unsaid) = said.pass() {
                        tracing::warn!(engine = %self.key.name, unsaid, "{error}");
                    }
                }
            }
            let later = || pause_among(self.count(), LATER, LOOKS_PER_SECOND);
            let pause = if busy { SOON } else { later() };
            nudged = tokio::select! {
                () = self.nudge.notified() => true,
                () = tokio::time::sleep(pause) => false,
            };
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    async fn look(&self, depth: Depth) -> Result<Look, CallError> {
        let kept = self.memory().controller.take();
        let controller = match kept {
            Some(controller) => controller,
            None => self.reach.controller()?,
        };
        let found = look(&self.reach, controller.clone(), depth).await?;
        // One that did not answer may never do so again over this connection.
        self.memory().controller = Some(controller);
        Ok(found)
    }

    /// One look and what follows. Says whether to look again soon.
    async fn pass(&self, wants_full: bool) -> Result<bool, String> {
        let Some(engine) = self.told() else { return Ok(false) };
        if is_cut_off(&engine) {
            return Ok(true);
        }
        let full_every = pause_among(self.count(), FULL_EVERY, FULL_LOOKS_PER_SECOND);
        let is_full =
            wants_full || self.memory().full_at.is_none_or(|at| at.elapsed() >= full_every);
        let restores =
            engine.spec.requested_backup_restore.as_deref().is_some_and(|it| !it.is_empty());
        let clones = engine.spec.requested_data_source.as_deref().is_some_and(|it| !it.is_empty());
        let depth = match (is_full, restores, clones) {
            (false, _, _) => Depth::Engine,
            (true, false, false) => Depth::Replicas,
            (true, true, _) => Depth::Restores,
            (true, false, true) => Depth::Clones,
        };
        let mut found = self.look(depth).await.map_err(|error| error.to_string())?;
        if is_full {
            self.memory().full_at = Some(Instant::now());
        }
        // It may have changed while the engine was asked.
        let Some(engine) = self.told() else { return Ok(false) };
        if Reach::of(&engine).as_ref() != Some(&self.reach) {
            return Ok(false);
        }
        if is_cut_off(&engine) {
            return Ok(true);
        }
        if let Some((newest, started)) = self.newest(&engine) {
            found.forget_earlier(&newest, started);
        }
        let verdict = self.decide(&engine, &found, is_full);
        let known = engine.status.clone().unwrap_or_default();
        if verdict.status != known {
            self.tell_modes(&engine, &known, &verdict.status);
            let next = Engine { status: Some(verdict.status), ..engine.clone() };
            let written = self.world.engines.merge(&engine, &next).await;
            written.map_err(|error| telemetry::Chain(&error).to_string())?;
        }
        let mut is_refused = !verdict.acts.is_empty();
        self.memory().refused.keep(&verdict.acts);
        for act in verdict.acts {
            if !self.memory().refused.may(&act, Instant::now()) {
                continue;
            }
            let done = work::perform(self, &found, act.clone()).await;
            is_refused = is_refused && done.is_err();
            self.memory().refused.done(&act, done.is_ok(), Instant::now());
            if let Err(error) = done {
                tracing::warn!(engine = %self.key.name, "{error}");
            }
        }
        Ok(verdict.busy && !is_refused)
    }

    fn decide(&self, engine: &Engine, found: &Look, is_full: bool) -> decide::Verdict {
        let now = Instant::now();
        let over = |rest: &(u32, Option<Instant>)| rest.1.is_none_or(|until| until <= now);
        // Only for whom it matters: all engines are looked through for it.
        let restores =
            engine.spec.requested_backup_restore.as_deref().is_some_and(|it| !it.is_empty());
        let may_restore = restores && self.has_place(engine);
        let is_older = restores && self.is_older(engine);
        let backup_size = self.backup_size(engine);
        let status = engine.status.clone().unwrap_or_default();
        let mut memory = self.memory();
        memory.rejections.retain(|address, _| found.modes.contains_key(address));
        let resting: BTreeSet<String> = memory
            .rests
            .iter()
            .filter(|(_, (_, until))| *until > now)
            .map(|(name, _)| name.clone())
            .collect();
        decide::decide(&Seen {
            now: Timestamp::now(),
            spec: &engine.spec,
            status: &status,
            look: found,
            is_full,
            adding: memory.adding.as_deref(),
            resting: &resting,
            asking_restore: memory.asking_restore,
            may_restore: may_restore && over(&memory.restore_rest),
            may_expand: over(&memory.expand_rest),
            rejections: &memory.rejections,
            asking_clone: memory.asking_clone,
            clone_failure: memory.clone_failure.as_deref(),
            backup_size,
            is_older,
        })
    }

    /// Whether it is of an image that cannot fill copies from a backup. One that nobody knows is this build's.
    fn is_older(&self, engine: &Engine) -> bool {
        let name = engine.spec.instance.image.as_deref().unwrap_or_default();
        let all = self.world.images.list();
        let image = all.iter().find(|it| it.spec.image.as_deref() == Some(name));
        let version = image.and_then(|it| it.status.as_ref()?.cli_api_version);
        version.is_some_and(|it| it < CLI_API_WITH_RESTORE_REBUILD)
    }

    /// The size of the source, as the store has it. A plain restore is of its own size.
    fn backup_size(&self, engine: &Engine) -> Option<i64> {
        self.source(engine)?.size?.parse().ok()
    }

    /// The newest backup of the source, and when it was started, as the store has it.
    fn newest(&self, engine: &Engine) -> Option<(String, Timestamp)> {
        let source = self.source(engine)?;
        Some((source.last_backup_name?, source.last_backup_at?.get()?))
    }

    /// What a standby volume follows.
    fn source(&self, engine: &Engine) -> Option<BackupVolumeStatus> {
        let standby = self.volume()?.status.as_ref()?.is_standby == Some(true);
        let name = engine.spec.backup_volume.as_deref().filter(|_| standby)?;
        self.world.backup_volumes.get(&Key::new(NAMESPACE, name))?.status.clone()
    }

    /// Whether its node may restore one more volume. Standby volumes do not count.
    fn has_place(&self, engine: &Engine) -> bool {
        let world = &self.world;
        let is_standby = |volume: &str| {
            let volume = world.volumes.get(&Key::new(NAMESPACE, volume));
            volume.and_then(|it| it.status.as_ref()?.is_standby) == Some(true)
        };
        if is_standby(&self.reach.volume) {
            return true;
        }
        let limit = world.settings().restores_per_node;
        let node = &engine.spec.instance.node_id;
        let others = world.engines.list().into_iter().filter(|other| {
            let restoring = |status: &EngineStatus| {
                status.restore_status.iter().flatten().any(|(_, it)| it.is_restoring == Some(true))
            };
            other.metadata.name != engine.metadata.name
                && other.spec.instance.node_id == *node
                && other.status.as_ref().is_some_and(restoring)
                && !other.spec.instance.volume_name.as_deref().is_some_and(is_standby)
        });
        i64::try_from(others.count()).unwrap_or(i64::MAX) < limit
    }

    /// People see what becomes of copies.
    fn tell_modes(&self, engine: &Engine, old: &EngineStatus, new: &EngineStatus) {
        let Some(modes) = &new.replica_mode_map else { return };
        for (name, mode) in modes {
            let before = old.replica_mode_map.as_ref().and_then(|old| old.get(name));
            if before == Some(mode) {
                continue;
            }
            let at = new.current_replica_address_map.as_ref().and_then(|map| map.get(name));
            let at = at.map_or("", String::as_str);
            let events = &self.world.context.events;
            let volume = &self.reach.volume;
            match (before, mode) {
                (_, ReplicaMode::Error) => {
                    let text = format!("Detected replica {name} ({at}) in error");
                    events.say(engine, Severity::Warning, "Faulted", &text);
                }
                (_, ReplicaMode::WriteOnly) => {
                    let text = format!(
                        "Start rebuilding replica {name} with Address {at} for volume {volume}"
                    );
                    events.say(engine, Severity::Normal, "Rebuilding", &text);
                }
                (Some(ReplicaMode::WriteOnly), ReplicaMode::ReadWrite) => {
                    let text = format!(
                        "Replica {name} with Address {at} has been rebuilt for volume {volume}"
                    );
                    events.say(engine, Severity::Normal, "Rebuilt", &text);
                }
                (_, ReplicaMode::ReadWrite | ReplicaMode::Other(_)) => {}
            }
        }
    }

    pub(super) fn say(&self, severity: Severity, reason: &str, text: &str) {
        if let Some(engine) = self.engine() {
            self.world.context.events.say(engine.as_ref(), severity, reason, text);
        }
        tracing::info!(engine = %self.key.name, reason, "{text}");
    }
}

/// Another takes over from it: from some moment on its copies refuse it, and what it says of them is
/// nothing.
fn is_cut_off(engine: &Engine) -> bool {
    let status = engine.status.clone().unwrap_or_default();
    decide::is_cut_off(&engine.spec, &status)
}

/// A backup, or another volume, is laid over what an engine serves only if its volume says that it is to be so, too:
/// that the volume is stored later than the engine does not matter, since it is attached for it later still.
fn believed(engine: &Engine, volume: Option<&VolumeStatus>) -> Engine {
    let mut believed = engine.clone();
    let clone = volume.and_then(|it| it.clone_status.as_ref()?.state.as_ref());
    if volume.and_then(|it| it.restore_required) != Some(true) {
        believed.spec.requested_backup_restore = None;
    }
    if clone != Some(&CloneState::Initiated) {
        believed.spec.requested_data_source = None;
    }
    believed
}

/// Whether an engine's object still wants to be restored to this.
pub(super) fn requests(engine: &Engine, backup: &str) -> bool {
    engine.spec.requested_backup_restore.as_deref() == Some(backup)
}

#[cfg(test)]
mod tests {
    use api::longhorn::{Condition, InstanceStatus, NodeStatus, ReplicaStatus};

    use super::*;

    #[test]
    fn nothing_is_laid_over_a_volume_that_knows_nothing_of_it() {
        let mut engine = Engine::default();
        engine.spec.requested_backup_restore = Some("b-1".to_owned());
        engine.spec.requested_data_source = Some("snap://v/s".to_owned());
        let asked = |volume: Option<&VolumeStatus>| {
            let spec = believed(&engine, volume).spec;
            (spec.requested_backup_restore.is_some(), spec.requested_data_source.is_some())
        };
        assert_eq!(asked(None), (false, false));
        let mut volume = VolumeStatus::default();
        assert_eq!(asked(Some(&volume)), (false, false));
        volume.restore_required = Some(true);
        assert_eq!(asked(Some(&volume)), (true, false));
        volume.restore_required = Some(false);
        volume.clone_status.get_or_insert_default().state = Some(CloneState::Initiated);
        assert_eq!(asked(Some(&volume)), (false, true));
        volume.clone_status.get_or_insert_default().state = Some(CloneState::Completed);
        assert_eq!(asked(Some(&volume)), (false, false));
    }

    /// Until somebody has looked at the engine, a copy that it has left behind counts as a good one.
    #[test]
    fn an_engine_is_looked_at_at_once_when_a_copy_ends_or_its_node_goes() {
        let replica = |state: InstanceState| {
            let instance =
                InstanceStatus { current_state: Some(state), ..InstanceStatus::default() };
            Replica { status: Some(ReplicaStatus { instance }), ..Replica::default() }
        };
        let running = replica(InstanceState::Running);
        for state in [
            InstanceState::Error,
            InstanceState::Unknown,
            InstanceState::Stopping,
            InstanceState::Stopped,
        ] {
            let now = replica(state);
            assert!(has_ended(Some(&running), Some(&now)));
            assert!(!has_ended(Some(&now), Some(&now)) && !has_ended(Some(&now), Some(&running)));
        }
        assert!(has_ended(Some(&running), None), "its object was removed by force");
        assert!(!has_ended(Some(&running), Some(&running)) && !has_ended(None, Some(&running)));
        let node = |status: bool| {
            let ready = Condition {
                kind: "Ready".to_owned(),
                status: status.into(),
                last_probe_time: None,
                last_transition_time: None,
                reason: None,
                message: None,
            };
            let status = NodeStatus { conditions: Some(vec![ready]), ..NodeStatus::default() };
            Node { status: Some(status), ..Node::default() }
        };
        assert!(is_lost(Some(&node(true)), Some(&node(false))));
        assert!(is_lost(Some(&node(true)), None));
        assert!(!is_lost(Some(&node(false)), Some(&node(false))));
        assert!(!is_lost(Some(&node(false)), Some(&node(true))));
    }

    #[test]
    fn few_engines_are_looked_at_often_and_many_at_a_bounded_rate() {
        for (count, seconds) in [(0, 5), (1, 5), (250, 5), (251, 6), (1_000, 20), (100_000, 2_000)]
        {
            let pause = pause_among(count, LATER, LOOKS_PER_SECOND);
            assert_eq!(pause.as_secs(), seconds, "{count}");
        }
        assert_eq!(pause_among(1_000, FULL_EVERY, FULL_LOOKS_PER_SECOND).as_secs(), 500);
    }
}
