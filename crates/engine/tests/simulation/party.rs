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
/// Two that do not know of each other may want the volume; the second only at times.
pub(crate) const ENGINES: [&str; 2] = ["engine", "rival"];

/// How this volume is run.
#[expect(clippy::struct_excessive_bools, reason = "each is drawn for itself")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// The manager remembers which replicas failed, and starts the volume with any others it
    /// reaches. Otherwise counters alone tell, and all replicas must be reached.
    pub(crate) records: bool,
    /// Replicas keep claims and records: who is newest is known from any of them, and there may
    /// be two engines.
    pub(crate) members: bool,
    pub(crate) counters: bool,
    pub(crate) write_through: bool,
    pub(crate) features: [Features; 3],
    pub(crate) clients_until: Duration,
    /// Before it is expanded, if ever.
    pub(crate) first_size: usize,
    /// Until then it takes backups and nobody sees it.
    pub(crate) shown_from: Duration,
}

impl Style {
    pub(crate) fn draw(rng: &mut Rng, clients_until: Duration) -> Self {
        let members = rng.permille(500);
        let records = !members && rng.permille(500);
        let all = Features::FLUSH | Features::ZERO | Features::STATUS;
        let ours = Features::MEMBERSHIP | Features::PARTIAL;
        let mut features = || match rng.below(8) {
            0 => Features::NONE,
            1 => Features::FLUSH,
            _ if members => all | ours,
            _ => all,
        };
        let mut features = [features(), features(), features()];
        if members && rng.permille(800) {
            // Most sets are not mixed.
            features = [all | ours; 3];
        }
        let mixed = features.iter().any(|it| !it.has(Features::MEMBERSHIP));
        let counters =
            if members { mixed || rng.permille(500) } else { !records || rng.permille(500) };
        let is_standby = members && !mixed && rng.permille(400);
        let standby = Duration::from_millis(400 + rng.below(2_200) as u64);
        Self {
            records,
            members,
            counters,
            write_through: rng.permille(100),
            features,
            clients_until,
            first_size: if rng.permille(500) { SIZE } else { SIZE / 2 },
            shown_from: if is_standby { standby } else { Duration::ZERO },
        }
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
    pub(crate) cut_offs: u64,
    pub(crate) waits: u64,
    pub(crate) reverts: u64,
    pub(crate) expansions: u64,
    /// Changes that were given up since requests under way did not end.
    pub(crate) busy: u64,
    /// Starts that refused a copy for its snapshots.
    pub(crate) chains: u64,
    /// Purges that all copies began, and snapshots that went by them.
    pub(crate) purges: u64,
    pub(crate) purged: u64,
    /// Restores that all copies began.
    pub(crate) restores: u64,
    /// Volumes that were shown with a backup.
    pub(crate) shown: u64,
    /// Volumes that were not shown yet since a copy had not been asked.
    pub(crate) passed_over: u64,
}

/// What whoever keeps a volume on standby remembers.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    /// How many there are; the last one is wanted.
    pub(crate) backups: u64,
    /// Clients have it, and it takes no more backups.
    pub(crate) shown: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) style: Style,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) stores: [Rc<RefCell<Store>>; 3],
    /// What the manager remembers.
    pub(crate) failed: RefCell<[bool; 3]>,
    /// The size that the volume is to have, and the one that the manager knows it to have.
    pub(crate) wanted_size: Cell<usize>,
    pub(crate) known_size: Cell<usize>,
    pub(crate) manager: RefCell<Manager>,
    pub(crate) sessions: Cell<u64>,
    pub(crate) tally: Cell<Tally>,
}

impl Shared {
    pub(crate) fn new(style: Style) -> Rc<Self> {
        let size = style.first_size;
        let store = |features| Rc::new(RefCell::new(Store::new(size, features)));
        let stores = style.features.map(store);
        let mut oracle = Oracle::new(SIZE / CELL, style.write_through);
        oracle.even = style.features.iter().all(|it| it.has(Features::PARTIAL));
        Rc::new(Self {
            style,
            oracle: RefCell::new(oracle),
            stores,
            failed: RefCell::new([false; 3]),
            wanted_size: Cell::new(size),
            known_size: Cell::new(0),
            manager: RefCell::default(),
            sessions: Cell::new(0),
            tally: Cell::new(Tally::default()),
        })
    }

    pub(crate) fn new_session(&self) -> u64 {
        self.sessions.set(self.sessions.get() + 1);
        self.sessions.get()
    }

    /// Whether two engines may be at work: not where one replica knows no claims.
    pub(crate) fn all_claim(&self) -> bool {
        self.style.features.iter().all(|features| features.has(Features::MEMBERSHIP))
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Role {
    /// Which of the engines.
    Engine(Rc<Shared>, usize),
    Replica(Rc<Shared>, usize),
}

#[derive(Debug, Clone)]
pub(crate) enum Timer {
    /// A replica gets round to something.
    Task(u64),
    /// It restores so much more of a backup.
    Restore,
    /// It is rid of one more snapshot.
    Purge,
    /// A call to this peer leaves late: its connection took that long.
    Late(usize),
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
            Role::Engine(shared, own) => {
                Self::Engine(Box::new(Engine::start(shared, *own, context)))
            }
            Role::Replica(shared, own) => Self::Replica(Replica::start(shared, *own)),
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
            (Self::Replica(replica), Timer::Restore) => replica.on_restore(context),
            (Self::Replica(replica), Timer::Purge) => replica.on_purge(context),
            (Self::Engine(engine), timer) => engine.on_timer(&timer, context),
            (Self::Replica(_), _) => {}
        }
    }
}
