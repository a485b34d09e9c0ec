//! The one writer: owns the file, decides what it is brought, commits once for all of it, and only
//! then lets anyone see it. Where and when it works, the `desk` says.
//!
//! Order is everything here: durable, then followed, then in memory, then announced, then answered. A batch whose
//! commit fails leaves memory as it was.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::disk::{CommitError, Disk, Row, Totals};
use super::error::{StorageError, WriteError};
use super::object::{Draft, Event, EventKind, Key, Stored};
use super::quota::Quota;
use super::state::{Size, State};
use super::{Expected, Require, Shared};

const SAY_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// How much what waits for its deletion may grow while the disk is full, all together: less than
/// what was set aside for deletions, so that it cannot be used up by what frees nothing.
const MAX_GROWTH_BYTES: usize = 1 << 20;

type Answer = Result<Arc<Stored>, WriteError>;

/// A write on its way to the writer.
pub(super) struct Request {
    pub(super) key: Key,
    pub(super) expected: Expected,
    pub(super) require: Vec<Require>,
    pub(super) kind: EventKind,
    pub(super) draft: Draft,
    pub(super) reply: oneshot::Sender<Answer>,
    /// The request's share of the queue's bytes, given back when it is done.
    pub(super) room: OwnedSemaphorePermit,
}

pub(super) enum Message {
    Write(Box<Request>),
    /// Open the file again if it was lost, and put in order what a write at once has left.
    Look,
    /// Finish what came before, refuse what comes after, and say when the file is closed.
    Close(oneshot::Sender<()>),
}

/// Changes that belong together: durable together or not at all.
#[derive(Debug, Default)]
struct Plan {
    events: Vec<Arc<Event>>,
    totals: Totals,
    revision: u64,
}

/// What became durable of a plan.
#[derive(Clone)]
enum Written {
    All,
    /// The changes of these revisions.
    Only(HashSet<u64>),
}

/// A request that was decided, and how.
struct Decided {
    reply: oneshot::Sender<Answer>,
    answer: Answer,
    _room: OwnedSemaphorePermit,
}

/// Where a writer begins.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) totals: Totals,
    /// The revision of the file.
    pub(super) durable: u64,
    /// The highest revision that may have been given out.
    pub(super) last: u64,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    disk: Disk,
    /// What the file adds up to.
    totals: Totals,
    /// The newest revision the file is known to hold.
    durable: u64,
    /// The newest revision ever given out. One that was lost to a failed commit is not given out
    /// again.
    last: u64,
    /// A commit that failed in such a way that it may have happened nevertheless.
    doubt: Option<Plan>,
    /// What is left of [`MAX_GROWTH_BYTES`] since the disk is full.
    growth_left: usize,
    quota: Quota,
    warnings: telemetry::Seldom,
    _ends: Ends,
}

/// Says that nothing is written any more, also when the writer breaks down.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.health.ended();
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, disk: Disk, start: Start, quota: Quota) -> Self {
        let Start { totals, durable, last } = start;
        let warnings = telemetry::Seldom::new(SAY_AGAIN_AFTER);
        let growth_left = MAX_GROWTH_BYTES;
        let doubt = None;
        let writer = Self {
            _ends: Ends(Arc::clone(&shared)),
            shared,
            disk,
            totals,
            durable,
            last,
            doubt,
            growth_left,
            quota,
            warnings,
        };
        writer.rests();
        writer
    }

    fn rests(&self) {
        self.shared.health.rests(!self.disk.is_connected(), self.disk.is_short());
    }

    /// Does a batch and answers it.
    pub(super) fn work(&mut self, batch: Vec<Request>) {
        self.shared.health.begins();
        self.process(batch);
        self.rests();
    }

    /// Whether a write would find everything as it should be.
    pub(super) fn is_well(&self) -> bool {
        self.disk.is_connected() && !self.disk.is_short()
    }

    /// Whether there is something for [`Self::tidy`].
    pub(super) fn is_untidy(&self) -> bool {
        !self.is_well() || self.disk.is_untidy()
    }

    /// What may take long and no write need wait for.
    pub(super) fn tidy(&mut self) {
        self.shared.health.begins();
        if self.disk.is_short() {
            self.disk.shrink();
        } else {
            self.disk.tidy();
        }
        self.rests();
    }

    /// Leaves one complete file.
    pub(super) fn close(self) {
        let Self { disk, last, .. } = self;
        if let Err(error) = disk.close(last) {
            // Everything acknowledged is in the log, which the next start reads.
            tracing::warn!(error = &error as &dyn std::error::Error, "object store left its log");
        }
    }

    fn process(&mut self, batch: Vec<Request>) {
        if let Err(error) = self.recover() {
            let error = WriteError::Storage(Arc::new(error));
            self.shared.stats.failed(batch.len());
            for request in batch {
                // A caller that gave up hears nothing.
                let _ = request.reply.send(Err(error.clone()));
            }
            return;
        }
        self.disk.look_for_space();
        if !self.disk.is_short() {
            self.growth_left = MAX_GROWTH_BYTES;
        }
        let (plan, decided) = self.decide(batch);
        let outcome =
            if self.disk.is_short() { self.free_space(plan) } else { self.carry_out(plan) };
        for Decided { reply, answer, _room } in decided {
            // A rejection may rest on a change that was then lost with the batch, so it is not
            // passed on either.
            let answer = match (&outcome, answer) {
                (Ok(Written::All), answer) => answer,
                (Ok(Written::Only(revisions)), Ok(object))
                    if revisions.contains(&object.revision) =>
                {
                    Ok(object)
                }
                (Ok(Written::Only(_)), _) => Err(WriteError::Full),
                (Err(error), _) => Err(error.clone()),
            };
            let _ = reply.send(answer);
        }
    }

    /// Decides every request against memory and the requests before it.
    fn decide(&mut self, batch: Vec<Request>) -> (Plan, Vec<Decided>) {
        let shared = Arc::clone(&self.shared);
        let state = shared.read();
        let mut view = View::new(&state);
        let mut plan = Plan { totals: self.totals, revision: self.last, events: Vec::new() };
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            let Request { key, expected, require, kind, draft, reply, room } = request;
            let found = view.check(&key, expected, &require, kind).and_then(|previous| {
                let grows = kind == EventKind::Put && !draft.is_marked();
                if grows {
                    let more = growth(draft.size_bytes(), previous.as_deref());
                    view.check_quota(&self.quota, &key, more)?;
                }
                Ok(previous)
            });
            let answer = found.map(|previous| {
                plan.revision = plan.revision.saturating_add(1);
                let key = match &previous {
                    Some(previous) => previous.key.clone(),
                    None => state.intern(key),
                };
                let object = Arc::new(draft.finish(key, plan.revision));
                plan.add(&mut view, kind, &object, previous);
                object
            });
            decided.push(Decided { reply, answer, _room: room });
        }
        self.shared.stats.rejected(decided.len().saturating_sub(plan.events.len()));
        (plan, decided)
    }

    fn carry_out(&mut self, plan: Plan) -> Result<Written, WriteError> {
        if plan.events.is_empty() {
            return Ok(Written::All);
        }
        match self.commit(plan, Written::All) {
            Err((CommitError::Full, plan)) => {
                if plan.frees_space(self.growth_left) {
                    self.disk.use_reserve();
                }
                self.free_space(plan)
            }
            Err((CommitError::Unknown(error), plan)) => self.settle(plan, Written::All, error),
            Ok(written) => Ok(written),
        }
    }

    /// Writes what of a plan frees space, and nothing else: the disk is full.
    fn free_space(&mut self, plan: Plan) -> Result<Written, WriteError> {
        let wanted = plan.events.len();
        let rest = plan.only_freeing(self.totals, &mut self.growth_left);
        let refused = wanted - rest.events.len();
        if refused > 0 {
            self.refuse(refused);
        }
        if rest.events.is_empty() {
            return if wanted == 0 { Ok(Written::All) } else { Err(WriteError::Full) };
        }
        let written = if refused == 0 {
            Written::All
        } else {
            Written::Only(rest.events.iter().map(|event| event.revision).collect())
        };
        match self.commit(rest, written.clone()) {
            Err((CommitError::Full, rest)) => {
                self.refuse(rest.events.len());
                Err(WriteError::Full)
            }
            Err((CommitError::Unknown(error), rest)) => self.settle(rest, written, error),
            Ok(written) => Ok(written),
        }
    }

    fn refuse(&self, writes: usize) {
        self.shared.stats.failed(writes);
        if let Some(unsaid) = self.warnings.pass() {
            let path = self.disk.path().display();
            tracing::warn!(%path, unsaid, "the disk under the object store is full: writes are refused, deletions are not");
        }
    }

    fn commit(&mut self, plan: Plan, written: Written) -> Result<Written, (CommitError, Plan)> {
        let started = Instant::now();
        let rows: Vec<Row<'_>> = plan
            .events
            .iter()
            .map(|event| Row { kind: event.kind, object: &event.object })
            .collect();
        self.last = plan.revision;
        match self.disk.commit(&rows, plan.revision, plan.totals) {
            Ok(()) => {
                self.publish(plan, started.elapsed());
                Ok(written)
            }
            Err(error) => Err((error, plan)),
        }
    }

    /// After a failure that leaves the outcome open, the file decides.
    fn settle(
        &mut self,
        plan: Plan,
        written: Written,
        error: StorageError,
    ) -> Result<Written, WriteError> {
        let error = Arc::new(error);
        tracing::warn!(
            error = &*error as &dyn std::error::Error,
            path = %self.disk.path().display(),
            "object store failed to commit; opening it again"
        );
        let (writes, revision) = (plan.events.len(), plan.revision);
        self.doubt = Some(plan);
        // When this fails too, the doubt stays until a later write can open the file.
        let recovered = self.recover();
        if recovered.is_ok() && self.durable == revision {
            return Ok(written);
        }
        self.shared.stats.failed(writes);
        Err(WriteError::Storage(error))
    }

    /// Makes sure there is a connection, and that memory says what the file says.
    fn recover(&mut self) -> Result<(), StorageError> {
        if self.disk.is_connected() {
            return Ok(());
        }
        let found = self.disk.reconnect()?;
        match self.doubt.take() {
            Some(plan) if plan.revision == found => {
                self.publish(plan, Duration::ZERO);
                Ok(())
            }
            _ if found == self.durable => Ok(()),
            doubt => {
                self.doubt = doubt;
                self.disk.disconnect();
                let path = self.disk.path().to_owned();
                Err(StorageError::Replaced { path, found, expected: self.durable })
            }
        }
    }

    /// Shows a durable plan to everyone.
    fn publish(&mut self, plan: Plan, took: Duration) {
        let writes = plan.events.len();
        self.totals = plan.totals;
        self.durable = plan.revision;
        if let Some(follower) = self.shared.follower.get() {
            plan.events.iter().for_each(|event| follower(event));
        }
        let mut evicted = Vec::new();
        let mut touched: HashMap<Arc<str>, Arc<watch::Sender<u64>>> = HashMap::new();
        let (objects, log_events, log_bytes) = {
            let mut state = self.shared.change();
            for event in plan.events {
                let resource = Arc::clone(event.resource());
                touched.insert(resource, state.apply(event, &mut evicted));
            }
            (state.total(), state.history_events(), state.history_bytes())
        };
        self.shared.stats.committed(writes, took);
        self.shared.stats.holds(objects, log_events, log_bytes);
        for changed in touched.values() {
            changed.send_replace(plan.revision);
        }
        self.shared.revision.send_replace(plan.revision);
    }
}

/// A deletion, or a step on the way to one: the mark, or a change of what is marked, which is charged
/// for what it adds.
fn frees(event: &Event, growth_left: &mut usize) -> bool {
    let marked = event.previous.as_ref().filter(|previous| previous.meta.deleting);
    match (event.kind, event.object.meta.deleting, marked) {
        (EventKind::Delete, _, _) | (EventKind::Put, true, None) => true,
        (EventKind::Put, false, _) => false,
        (EventKind::Put, true, Some(previous)) => {
            let growth = event.object.body.len().saturating_sub(previous.body.len());
            let left = growth_left.checked_sub(growth);
            *growth_left = left.unwrap_or(*growth_left);
            left.is_some()
        }
    }
}

impl Plan {
    fn frees_space(&self, mut growth_left: usize) -> bool {
        self.events.iter().any(|event| frees(event, &mut growth_left))
    }

    /// The part that frees space, on top of what is there. It relies on none of the rest: whoever
    /// deletes names a revision that was there before.
    fn only_freeing(self, mut totals: Totals, growth_left: &mut usize) -> Self {
        let frees = |event: &Arc<Event>| frees(event, growth_left);
        let events: Vec<_> = self.events.into_iter().filter(frees).collect();
        for event in &events {
            if let Some(previous) = &event.previous {
                totals.subtract(previous);
            }
            if event.kind == EventKind::Put {
                totals.add(&event.object);
            }
        }
        Self { events, totals, revision: self.revision }
    }

    fn add(
        &mut self,
        view: &mut View<'_>,
        kind: EventKind,
        object: &Arc<Stored>,
        previous: Option<Arc<Stored>>,
    ) {
        if let Some(previous) = &previous {
            self.totals.subtract(previous);
        }
        let now = match kind {
            EventKind::Put => {
                self.totals.add(object);
                Some(Arc::clone(object))
            }
            EventKind::Delete => None,
        };
        view.count(&object.key, previous.as_deref(), now.as_deref());
        view.changed.insert(object.key.clone(), now);
        self.events.push(Arc::new(Event::new(kind, Arc::clone(object), previous)));
    }
}

/// The objects as they will be when the requests decided so far are committed.
struct View<'a> {
    state: &'a State,
    changed: HashMap<Key, Option<Arc<Stored>>>,
    /// What the namespaces hold that were changed.
    sizes: HashMap<Arc<str>, Size>,
    all: Size,
}

/// What a new state adds to what is stored.
fn growth(size_bytes: usize, previous: Option<&Stored>) -> Size {
    let before = previous.map_or(0, |previous| previous.body.len());
    Size { objects: usize::from(previous.is_none()), bytes: size_bytes.saturating_sub(before) }
}

impl<'a> View<'a> {
    fn new(state: &'a State) -> Self {
        Self { state, changed: HashMap::new(), sizes: HashMap::new(), all: state.all() }
    }

    fn size_in(&self, namespace: &str) -> Size {
        self.sizes.get(namespace).copied().unwrap_or_else(|| self.state.size_in(namespace))
    }

    fn check_quota(&self, quota: &Quota, key: &Key, more: Size) -> Result<(), WriteError> {
        let used = self.size_in(&key.namespace);
        quota.check(&key.namespace, used, self.all.bytes, more).map_err(WriteError::Quota)
    }

    fn count(&mut self, key: &Key, before: Option<&Stored>, after: Option<&Stored>) {
        let mut size = self.size_in(&key.namespace);
        for size in [&mut size, &mut self.all] {
            if let Some(before) = before {
                size.subtract(before);
            }
            if let Some(after) = after {
                size.add(after);
            }
        }
        self.sizes.insert(Arc::clone(&key.namespace), size);
    }

    fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        match self.changed.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.state.get_key(key),
        }
    }

    /// The state the write replaces, if it may.
    fn check(
        &self,
        key: &Key,
        expected: Expected,
        require: &[Require],
        kind: EventKind,
    ) -> Result<Option<Arc<Stored>>, WriteError> {
        let current = self.get(key);
        match (expected, current) {
            (Expected::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expected::Absent, None) if kind == EventKind::Put => {}
            (Expected::Revision(expected), Some(found)) if found.revision == expected => {}
            (Expected::Absent | Expected::Revision(_), current) => {
                return Err(WriteError::Conflict { current: current.cloned() });
            }
        }
        let holds = |require: &Require| {
            self.get(&require.key).is_some_and(|found| found.revision == require.revision)
        };
        if !require.iter().all(holds) {
            return Err(WriteError::RequirementChanged);
        }
        Ok(current.cloned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::EventKind::{Delete, Put};
    use super::*;

    fn stored(is_marked: bool, bytes: usize) -> Arc<Stored> {
        let mut object = json!({"metadata": {"name": "a", "uid": "u"}, "value": "x".repeat(bytes)});
        if is_marked {
            object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        }
        let draft = Draft::encode(&object, 3 << 20).unwrap();
        Arc::new(draft.finish(Key::new("things", "default", "a"), 7))
    }

    #[test]
    fn what_waits_for_its_deletion_cannot_use_up_what_deletions_need() {
        let free = |kind, before: (bool, usize), after: (bool, usize), left: &mut usize| {
            let [before, after] = [before, after].map(|(marked, bytes)| stored(marked, bytes));
            let event = Arc::new(Event::new(kind, after, Some(before)));
            let plan = Plan { events: vec![event], ..Plan::default() };
            !plan.only_freeing(Totals::default(), left).events.is_empty()
        };
        let mut left = 1000;
        assert!(free(Put, (true, 10), (true, 900), &mut left), "a word about why it waits");
        assert!(!free(Put, (true, 10), (true, 900), &mut left), "and no more");
        assert!(!free(Put, (false, 10), (false, 10), &mut left));
        for (kind, before, after) in [
            (Put, (true, 900), (true, 10)),
            (Put, (false, 10), (true, 10)),
            (Delete, (false, 10), (false, 10)),
            (Delete, (true, 10), (true, 10)),
        ] {
            assert!(free(kind, before, after, &mut left), "{kind:?} {before:?} {after:?}");
        }
        assert_eq!(left, 110);
    }
}
