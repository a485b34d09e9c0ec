//! The nodes of the simulation, and what they share beside the network: the stores, which outlive
//! their processes, and the oracle, which sees everything.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rpc::Features;
use testkit::sim::{Context, Node, Rng};

use crate::engine::Engine;
use crate::message::Message;
use crate::oracle::{CELL, Oracle};
use crate::replica::Replica;
use crate::store::{SECTOR, Store};

pub(crate) const SECTORS: usize = 16;
pub(crate) const SIZE: usize = SECTORS * SECTOR;
pub(crate) const NAMES: [&str; 3] = ["ann", "ben", "eve"];

/// How this volume is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// The manager remembers which replicas failed, and starts the volume with any others it
    /// reaches. Otherwise counters alone tell, and all replicas must be reached.
    pub(crate) records: bool,
    pub(crate) counters: bool,
    pub(crate) write_through: bool,
    pub(crate) features: [Features; 3],
    pub(crate) clients_until: Duration,
}

impl Style {
    pub(crate) fn draw(rng: &mut Rng, clients_until: Duration) -> Self {
        let records = rng.permille(500);
        let all = Features::FLUSH | Features::ZERO | Features::STATUS;
        let mut features = || match rng.below(8) {
            0 => Features::NONE,
            1 => Features::FLUSH,
            _ => all,
        };
        let features = [features(), features(), features()];
        let counters = !records || rng.permille(500);
        Self { records, counters, write_through: rng.permille(100), features, clients_until }
    }
}

/// What happened, to see that it did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) faults: u64,
    pub(crate) starts: u64,
    pub(crate) failures: u64,
    pub(crate) rebuilds: u64,
    pub(crate) mends: u64,
    pub(crate) snapshots: u64,
    pub(crate) checks: u64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) style: Style,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) stores: [Rc<RefCell<Store>>; 3],
    /// What the manager remembers.
    pub(crate) failed: RefCell<[bool; 3]>,
    pub(crate) sessions: Cell<u64>,
    pub(crate) tally: Cell<Tally>,
}

impl Shared {
    pub(crate) fn new(style: Style) -> Rc<Self> {
        let stores = style.features.map(|features| {
            Rc::new(RefCell::new(Store::new(SIZE, !features.has(Features::FLUSH))))
        });
        Rc::new(Self {
            style,
            oracle: RefCell::new(Oracle::new(SIZE / CELL, style.write_through)),
            stores,
            failed: RefCell::new([false; 3]),
            sessions: Cell::new(0),
            tally: Cell::new(Tally::default()),
        })
    }

    pub(crate) fn new_session(&self) -> u64 {
        self.sessions.set(self.sessions.get() + 1);
        self.sessions.get()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Role {
    Engine(Rc<Shared>),
    Replica(Rc<RefCell<Store>>),
}

#[derive(Debug, Clone)]
pub(crate) enum Timer {
    /// A replica gets round to something.
    Task(u64),
    Tick,
    Client,
    Job,
    Restart,
}

#[derive(Debug)]
pub(crate) enum Party {
    Engine(Box<Engine>),
    Replica(Replica),
}

impl Node for Party {
    type Config = Role;
    type Message = Message;
    type Timer = Timer;

    fn start(role: &Role, context: &mut Context<'_, Self>) -> Self {
        match role {
            Role::Engine(shared) => Self::Engine(Box::new(Engine::start(shared, context))),
            Role::Replica(store) => Self::Replica(Replica::start(store)),
        }
    }

    fn on_message(&mut self, from: &str, message: Message, context: &mut Context<'_, Self>) {
        match self {
            Self::Engine(engine) => engine.on_message(from, message, context),
            Self::Replica(replica) => replica.on_message(from, message, context),
        }
    }

    fn on_timer(&mut self, timer: Timer, context: &mut Context<'_, Self>) {
        match (self, timer) {
            (Self::Replica(replica), Timer::Task(id)) => replica.on_task(id, context),
            (Self::Engine(engine), timer) => engine.on_timer(&timer, context),
            (Self::Replica(_), _) => {}
        }
    }
}
