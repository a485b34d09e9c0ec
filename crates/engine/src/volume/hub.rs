//! What the tasks of the data thread share: the core, its effects, and who waits for what.
//!
//! Owns: the way from an [`Effect`] to a connection or to the one who asked. Never: waits, or
//! keeps anything borrowed while a task waits. A task hands in everything it has at once
//! ([`Hub::submit`], [`Hub::reply`]) and then calls [`Hub::settle`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::FutureExt;
use rpc::Features;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use wire::frame;

use super::Traffic;
use super::meter::{Entry, Meter};
use super::outlet::Outbox;
use super::pending::{Asked, Client, Pending, Table, Whom};
use super::route::Route;
use crate::core::{
    Command, Core, Done, Effect, Fault, Hold, HoldId, Member, Mode, Now, ReplicaId, Settings,
};
use crate::frontend::FrontendStatus;

/// What the handle of the volume sees of the data thread without asking it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) members: watch::Sender<Arc<[Member]>>,
    pub(crate) traffic: Mutex<Traffic>,
    pub(crate) frontend: Mutex<FrontendStatus>,
    /// The generation that has the volume in the place of this engine.
    pub(crate) cut_off: Mutex<Option<u64>>,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self {
            members: watch::Sender::new(Arc::default()),
            traffic: Mutex::default(),
            frontend: Mutex::default(),
            cut_off: Mutex::default(),
        }
    }

    pub(crate) fn set_frontend(&self, status: FrontendStatus) {
        *self.frontend.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

pub(crate) struct Hub {
    started: Instant,
    /// The moment the batch at hand began; close enough for timeouts and figures.
    now: Cell<Now>,
    core: RefCell<Core>,
    effects: RefCell<Vec<Effect>>,
    spare: Cell<Vec<Effect>>,
    pending: RefCell<Table>,
    routes: RefCell<Vec<(ReplicaId, Route)>>,
    holds: RefCell<HashMap<HoldId, oneshot::Sender<()>>>,
    pub(crate) outbox: Outbox,
    meter: RefCell<Meter>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) settings: Settings,
    /// Bytes that requests of all clients stand for.
    pub(crate) clients_bytes: Cell<usize>,
    /// Ends the thread.
    pub(crate) end: CancellationToken,
    broken: Rc<Cell<bool>>,
    me: Weak<Self>,
}

impl Hub {
    pub(crate) fn new(settings: Settings, seen: Arc<Seen>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            started: Instant::now(),
            now: Cell::default(),
            core: RefCell::new(Core::new(settings)),
            effects: RefCell::default(),
            spare: Cell::default(),
            pending: RefCell::default(),
            routes: RefCell::default(),
            holds: RefCell::default(),
            outbox: Outbox::default(),
            meter: RefCell::default(),
            seen,
            settings,
            clients_bytes: Cell::default(),
            end: CancellationToken::new(),
            broken: Rc::default(),
            me: Weak::clone(me),
        })
    }

    /// Runs `work` on the data thread. A panic in it leaves the volume in no known state: it ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + 'static) -> AbortHandle {
        let (end, broken) = (self.end.clone(), Rc::clone(&self.broken));
        let guarded = async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("the data thread broke down: the volume ends");
                broken.set(true);
                end.cancel();
            }
        };
        tokio::task::spawn_local(guarded).abort_handle()
    }

    /// Whether a panic ended the volume.
    pub(crate) fn broke_down(&self) -> bool {
        self.broken.get()
    }

    /// Begins a batch of calls.
    pub(crate) fn begin(&self) {
        self.now.set(self.started.elapsed());
    }

    /// Calls the core within a batch; [`Self::settle`] applies what comes of it.
    fn with<T>(&self, call: impl FnOnce(&mut Core, Now, &mut Vec<Effect>) -> T) -> T {
        call(&mut self.core.borrow_mut(), self.now.get(), &mut self.effects.borrow_mut())
    }

    /// A batch of one call.
    fn at_once<T>(&self, call: impl FnOnce(&mut Core, Now, &mut Vec<Effect>) -> T) -> T {
        self.begin();
        let value = self.with(call);
        self.settle();
        value
    }

    pub(crate) fn submit(&self, client: Rc<dyn Client>, asked: Asked, command: Command) {
        self.enter(Whom::Client(client), asked, command);
    }

    /// One request outside any batch, for those who ask seldom.
    pub(crate) async fn call(&self, command: Command) -> Result<Done, Fault> {
        let (sender, receiver) = oneshot::channel();
        self.begin();
        self.enter(Whom::Caller(sender), Asked::new(0, &command), command);
        self.settle();
        receiver.await.unwrap_or_else(|_| Err(ended()))
    }

    fn enter(&self, whom: Whom, asked: Asked, command: Command) {
        let pending = Pending { whom, asked, since: self.now.get() };
        let token = self.pending.borrow_mut().insert(pending);
        self.with(|core, now, out| core.submit(now, token, command, out));
    }

    pub(crate) fn reply(&self, replica: ReplicaId, answer: frame::Answer) {
        self.with(|core, now, out| core.reply(now, replica, answer, out));
    }

    /// The replica cannot be talked to any more.
    pub(crate) fn lost(&self, replica: ReplicaId, reason: &str) {
        self.at_once(|core, now, out| core.lost(now, replica, reason, out));
        self.publish();
    }

    /// A replica says that it has another engine: this one gives all of them up.
    pub(crate) fn cut_off(&self, generation: u64) {
        tracing::error!(
            generation,
            "cut off: an engine with generation {generation} has this volume now"
        );
        *self.seen.cut_off.lock().unwrap_or_else(PoisonError::into_inner) = Some(generation);
        self.at_once(|core, now, out| core.cut_off(now, generation, out));
        self.publish();
    }

    pub(crate) fn keep_records(&self, generation: u64, serial: u64) {
        self.at_once(|core, _, _| core.keep_records(generation, serial));
    }

    /// Applies effects until none is left, and lets the outbox send.
    pub(crate) fn settle(&self) {
        loop {
            let mut batch = self.effects.replace(self.spare.take());
            if batch.is_empty() {
                self.spare.set(batch);
                break;
            }
            for effect in batch.drain(..) {
                self.apply(effect);
            }
            self.spare.set(batch);
        }
        self.outbox.wake();
    }

    fn apply(&self, effect: Effect) {
        match effect {
            Effect::Send { replica, request } => self.send(replica, request),
            Effect::Complete { token, result } => {
                let pending = self.pending.borrow_mut().remove(token);
                if let Some(pending) = pending {
                    self.complete(pending, result);
                }
            }
            Effect::Failed { replica, reason } => {
                tracing::error!(replica = replica.0, reason, "replica failed");
                self.unlink(replica);
                self.publish();
            }
            Effect::Held(hold) => {
                if let Some(waiting) = self.holds.borrow_mut().remove(&hold) {
                    // Nobody waits any more: whoever asked for it releases it.
                    let _ = waiting.send(());
                }
            }
        }
    }

    fn send(&self, replica: ReplicaId, request: frame::Request) {
        let routes = self.routes.borrow();
        let Some((_, route)) = routes.iter().find(|(id, _)| *id == replica) else { return };
        if let Some(answer) = route.send(&self.outbox, request) {
            self.reply(replica, answer);
        }
    }

    fn complete(&self, pending: Pending, result: Result<Done, Fault>) {
        let Pending { whom, asked, since } = pending;
        let took = self.now.get().saturating_sub(since);
        let entry = Entry { asked, since, took, well: result.is_ok() };
        self.meter.borrow_mut().record(entry);
        match whom {
            Whom::Client(client) => client.complete(asked, result),
            // The caller gave up waiting; what it asked for is done all the same.
            Whom::Caller(caller) => drop(caller.send(result)),
        }
    }

    /// Takes a connected replica into the set.
    pub(crate) fn add(
        &self,
        features: Features,
        mode: Mode,
        name: String,
        route: impl FnOnce(&Rc<Self>, ReplicaId) -> Route,
    ) -> Option<ReplicaId> {
        let hub = self.me.upgrade()?;
        self.begin();
        let id = self.with(|core, now, _| {
            let id = core.add(now, features, mode);
            core.set_name(id, name);
            id
        });
        let route = route(&hub, id);
        self.routes.borrow_mut().push((id, route));
        self.settle();
        self.publish();
        Some(id)
    }

    pub(crate) fn remove(&self, replica: ReplicaId) {
        self.at_once(|core, now, out| core.remove(now, replica, out));
        self.unlink(replica);
        self.publish();
    }

    pub(crate) fn set_mode(&self, replica: ReplicaId, mode: Mode, reason: &str) {
        self.at_once(|core, now, out| core.set_mode(now, replica, mode, reason, out));
        self.publish();
    }

    /// Closes the connections of a replica.
    fn unlink(&self, replica: ReplicaId) {
        let mut routes = self.routes.borrow_mut();
        let gone: Vec<_> = routes.extract_if(.., |(id, _)| *id == replica).collect();
        drop(routes);
        drop(gone);
    }

    fn publish(&self) {
        let members = self.core.borrow().members();
        self.seen.members.send_if_modified(|known| {
            let changed = **known != *members;
            if changed {
                *known = members.into();
            }
            changed
        });
    }

    /// Asks for a hold; the receiver hears when it is in force.
    pub(crate) fn hold(&self, hold: Hold) -> (HoldId, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        self.begin();
        let id = self.with(|core, now, out| core.hold(now, hold, out));
        self.holds.borrow_mut().insert(id, sender);
        self.settle();
        (id, receiver)
    }

    pub(crate) fn release(&self, hold: HoldId) {
        self.holds.borrow_mut().remove(&hold);
        self.at_once(|core, now, out| core.release(now, hold, out));
    }

    /// Lets time pass: timeouts and pings.
    pub(crate) fn tick(&self) {
        self.at_once(Core::tick);
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.core.borrow().size_bytes()
    }

    pub(crate) fn resize(&self, size_bytes: u64) {
        self.at_once(|core, _, _| core.resize(size_bytes));
    }

    pub(crate) fn set_expanding(&self, expanding: bool) {
        self.at_once(|core, _, _| core.set_expanding(expanding));
    }

    pub(crate) fn set_write_through(&self, write_through: bool) {
        self.at_once(|core, _, _| core.set_write_through(write_through));
    }

    pub(crate) fn set_reader(&self, reader: Option<ReplicaId>) {
        self.at_once(|core, _, _| core.set_reader(reader));
    }

    /// Whether every replica in use can zero a range without being sent the zeros.
    pub(crate) fn zeroes_fast(&self) -> bool {
        let members = self.seen.members.borrow();
        members.iter().filter(|m| m.mode != Mode::Err).all(|m| m.features.has(Features::ZERO))
    }

    /// Ends the current second of the figures.
    pub(crate) fn roll_meter(&self) {
        let traffic = self.meter.borrow_mut().roll();
        *self.seen.traffic.lock().unwrap_or_else(PoisonError::into_inner) = traffic;
    }

    pub(crate) fn log_journal(&self, limit: u64) {
        for entry in self.meter.borrow().journal(limit) {
            let Entry { asked, since, took, well } = *entry;
            let (verb, offset, len) = (asked.verb, asked.offset, asked.len);
            tracing::info!(?verb, offset, len, ?since, ?took, well, "journal");
        }
    }

    /// Forgets every replica and everything under way.
    pub(crate) fn clear(&self) {
        self.routes.take();
        self.pending.take();
        self.holds.take();
    }
}

/// What requests end with when the data thread is no more.
pub(crate) fn ended() -> Fault {
    Fault::Io("the volume is stopped".to_owned())
}
