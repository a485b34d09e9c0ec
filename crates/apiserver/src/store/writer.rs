//! The one writer: a thread that owns the file, takes what is queued, decides, commits once for
//! all of it, and only then lets anyone see it.
//!
//! Order is everything here: durable, then in memory, then announced, then answered. A batch whose
//! commit fails leaves memory as it was.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::disk::{CommitError, Disk, Row, Totals};
use super::error::{StorageError, WriteError};
use super::object::{Draft, Event, EventKind, Key, Stored};
use super::state::State;
use super::{Expected, Require, Shared};

/// Bounds of one commit.
const MAX_BATCH_WRITES: usize = 256;
const MAX_BATCH_BYTES: usize = 4 << 20;

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

/// A request that was decided, and how.
struct Decided {
    reply: oneshot::Sender<Answer>,
    answer: Answer,
    _room: OwnedSemaphorePermit,
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
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, disk: Disk, totals: Totals, revision: u64) -> Self {
        Self { shared, disk, totals, durable: revision, last: revision, doubt: None }
    }

    /// Works until nobody can send any more, or until told to close.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut closing = Vec::new();
        while let Some(message) = queue.blocking_recv() {
            let mut batch = Vec::new();
            let mut bytes = 0_usize;
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Write(request) => {
                        bytes = bytes.saturating_add(request.draft.size_bytes());
                        batch.push(*request);
                    }
                    Message::Close(closed) => {
                        // What is queued already is still taken; what is not is refused.
                        queue.close();
                        closing.push(closed);
                    }
                }
                if batch.len() >= MAX_BATCH_WRITES || bytes >= MAX_BATCH_BYTES {
                    break;
                }
                next = queue.try_recv().ok();
            }
            self.process(batch);
            // Everyone has been answered.
            self.disk.tidy();
        }
        if let Err(error) = self.disk.close() {
            // Everything acknowledged is in the log, which the next start reads.
            tracing::warn!(error = &error as &dyn std::error::Error, "object store left its log");
        }
        for closed in closing {
            // Whoever asked may have gone.
            let _ = closed.send(());
        }
    }

    fn process(&mut self, batch: Vec<Request>) {
        if batch.is_empty() {
            return;
        }
        if let Err(error) = self.recover() {
            let error = WriteError::Storage(Arc::new(error));
            self.shared.stats.failed(batch.len());
            for request in batch {
                // A caller that gave up hears nothing.
                let _ = request.reply.send(Err(error.clone()));
            }
            return;
        }
        let (plan, decided) = self.decide(batch);
        let outcome = self.carry_out(plan);
        let failure = outcome.err();
        for Decided { reply, answer, _room } in decided {
            // A refusal may rest on a change that was then lost with the batch, so it is not
            // passed on either.
            let answer = failure.clone().map_or(answer, Err);
            let _ = reply.send(answer);
        }
    }

    /// Decides every request against memory and the requests before it.
    fn decide(&mut self, batch: Vec<Request>) -> (Plan, Vec<Decided>) {
        let shared = Arc::clone(&self.shared);
        let state = shared.read();
        let mut view = View { state: &state, changed: HashMap::new() };
        let mut plan = Plan { totals: self.totals, revision: self.last, events: Vec::new() };
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            let Request { key, expected, require, kind, draft, reply, room } = request;
            let answer = view.check(&key, expected, &require, kind).map(|previous| {
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

    fn carry_out(&mut self, plan: Plan) -> Result<(), WriteError> {
        if plan.events.is_empty() {
            return Ok(());
        }
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
                Ok(())
            }
            Err(CommitError::Full) => {
                self.shared.stats.failed(plan.events.len());
                tracing::warn!(path = %self.disk.path().display(), "object store is full");
                Err(WriteError::Full)
            }
            Err(CommitError::Unknown(error)) => self.settle(plan, error),
        }
    }

    /// After a failure that leaves the outcome open, the file decides.
    fn settle(&mut self, plan: Plan, error: StorageError) -> Result<(), WriteError> {
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
            return Ok(());
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

impl Plan {
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
        view.changed.insert(object.key.clone(), now);
        self.events.push(Arc::new(Event::new(kind, Arc::clone(object), previous)));
    }
}

/// The objects as they will be when the requests decided so far are committed.
struct View<'a> {
    state: &'a State,
    changed: HashMap<Key, Option<Arc<Stored>>>,
}

impl View<'_> {
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
