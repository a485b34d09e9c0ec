//! The run loop: takes the earliest event, moves the clock to it, gives it to its node, and puts
//! what the node asks for into the queue.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::clock::Clock;
use super::network::{Link, Network};
use super::rng::Rng;
use super::{Disk, chaos::Chaos};

/// Events told with a violation: the end of the history.
const TRACE_MAX: usize = 40;
/// Events of one run; more are taken for a livelock.
const EVENTS_MAX: u64 = 2_000_000;

/// A program of the world. It owns its memory; its disk outlives it.
pub trait Node: Sized {
    /// What is told to it when it is added, and again at each start.
    type Config: Clone;
    type Message: Clone + fmt::Debug;
    type Timer: Clone + fmt::Debug;

    /// Starts, for the first time or after a crash, with what the disk kept.
    fn start(config: &Self::Config, context: &mut Context<'_, Self>) -> Self;
    fn on_message(&mut self, from: &str, message: Self::Message, context: &mut Context<'_, Self>);
    fn on_timer(&mut self, timer: Self::Timer, context: &mut Context<'_, Self>);
}

/// What a node sees of the world while it handles one event. What it sends and sets takes effect
/// when it returns, and not at all if it dies before.
#[derive(Debug)]
pub struct Context<'w, N: Node> {
    name: &'w str,
    now: Duration,
    disk: &'w Disk,
    rng: &'w mut Rng,
    sent: Vec<(String, N::Message)>,
    timers: Vec<(Duration, N::Timer)>,
}

impl<N: Node> Context<'_, N> {
    pub fn name(&self) -> &str {
        self.name
    }

    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn disk(&self) -> &Disk {
        self.disk
    }

    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    pub fn send(&mut self, to: &str, message: N::Message) {
        self.sent.push((to.to_owned(), message));
    }

    pub fn set_timer(&mut self, after: Duration, timer: N::Timer) {
        self.timers.push((after, timer));
    }
}

/// An invariant did not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, after {at:?}: {what}\nthe last events:\n  {}", trace.join("\n  "))]
pub struct Violation {
    pub seed: u64,
    pub at: Duration,
    pub what: String,
    pub trace: Vec<String>,
}

struct Slot<N: Node> {
    config: N::Config,
    /// None while it is down.
    node: Option<N>,
    disk: Disk,
    /// Counts its starts: timers of an earlier life are void.
    life: u64,
}

type Action<N> = Box<dyn FnOnce(&mut World<N>)>;
type Check<N> = Box<dyn Fn(&World<N>) -> Result<(), String>>;

enum Event<N: Node> {
    Message { from: String, to: String, message: N::Message },
    Timer { node: String, life: u64, timer: N::Timer },
    Action { what: &'static str, action: Action<N> },
}

pub struct World<N: Node> {
    seed: u64,
    clock: Clock,
    network: Network,
    rng: Rng,
    nodes: BTreeMap<String, Slot<N>>,
    /// By time, then by the order of asking.
    queue: BTreeMap<(Duration, u64), Event<N>>,
    asked: u64,
    handled: u64,
    checks: Vec<Check<N>>,
    trace: VecDeque<String>,
}

impl<N: Node> World<N> {
    pub fn new(seed: u64, link: Link) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            seed,
            clock: Clock::default(),
            network: Network::new(link, rng.split()),
            rng,
            nodes: BTreeMap::new(),
            queue: BTreeMap::new(),
            asked: 0,
            handled: 0,
            checks: vec![],
            trace: VecDeque::new(),
        }
    }

    /// Adds a node with an empty disk, and starts it.
    pub fn add(&mut self, name: &str, config: N::Config) {
        let disk = Disk::new(self.rng.number());
        self.nodes.insert(name.to_owned(), Slot { config, node: None, disk, life: 0 });
        self.start(name);
    }

    /// Checks this after every event of a run.
    pub fn always(&mut self, check: impl Fn(&Self) -> Result<(), String> + 'static) {
        self.checks.push(Box::new(check));
    }

    /// Does this to the world at that time.
    pub fn at(
        &mut self,
        time: Duration,
        what: &'static str,
        action: impl FnOnce(&mut Self) + 'static,
    ) {
        self.enqueue(time, Event::Action { what, action: Box::new(action) });
    }

    /// Plans the faults of `chaos`.
    pub fn unleash(&mut self, chaos: &Chaos) {
        let rng = self.rng.split();
        chaos.plan(self, rng);
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    pub fn names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// The node, unless it is down.
    pub fn node(&self, name: &str) -> Option<&N> {
        self.nodes.get(name)?.node.as_ref()
    }

    /// The nodes that are up.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &N)> {
        self.nodes.iter().filter_map(|(name, slot)| Some((name.as_str(), slot.node.as_ref()?)))
    }

    pub fn disk(&self, name: &str) -> Option<&Disk> {
        Some(&self.nodes.get(name)?.disk)
    }

    /// Events handled so far.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// The end of the history, oldest first.
    pub fn trace(&self) -> impl Iterator<Item = &str> {
        self.trace.iter().map(String::as_str)
    }

    /// A message from outside, as a client would send it; it goes over the network.
    pub fn send(&mut self, from: &str, to: &str, message: &N::Message) {
        for delay in self.network.route(from, to) {
            let time = self.clock.now() + delay;
            let (from, to) = (from.to_owned(), to.to_owned());
            self.enqueue(time, Event::Message { from, to, message: message.clone() });
        }
    }

    /// Power fails at this node: its memory, its timers and what it did not sync are gone.
    pub fn crash(&mut self, name: &str) {
        self.end(name, "crash", Disk::crash);
    }

    /// Its process dies; the disk keeps all it was given.
    pub fn kill(&mut self, name: &str) {
        self.end(name, "kill", Disk::kill);
    }

    /// Power fails at this node inside its `nth` disk call from now.
    pub fn crash_at_disk_call(&mut self, name: &str, nth: u64) {
        if let Some(slot) = self.nodes.get(name) {
            slot.disk.die_at_call(nth);
        }
    }

    /// Starts a node that is down; one that runs is left alone.
    pub fn start(&mut self, name: &str) {
        let Some(slot) = self.nodes.get(name).filter(|slot| slot.node.is_none()) else { return };
        let config = slot.config.clone();
        self.note(|| format!("start {name}"));
        self.with_context(name, |slot, context| slot.node = Some(N::start(&config, context)));
    }

    /// Handles every event up to and including `until`, then lets the clock stand there.
    pub fn run(&mut self, until: Duration) -> Result<(), Violation> {
        let mut left = EVENTS_MAX;
        while let Some(entry) = self.queue.first_entry() {
            let (time, _) = *entry.key();
            if time > until {
                break;
            }
            let event = entry.remove();
            self.clock.move_to(time);
            self.handled += 1;
            self.handle(event);
            self.check()?;
            left -= 1;
            if left == 0 {
                return Err(self.violation(format!("no end after {EVENTS_MAX} events")));
            }
        }
        self.clock.move_to(until);
        Ok(())
    }

    fn handle(&mut self, event: Event<N>) {
        match event {
            Event::Message { from, to, message } => {
                self.note(|| format!("{from} -> {to}: {message:?}"));
                self.with_context(&to, |slot, context| {
                    if let Some(node) = &mut slot.node {
                        node.on_message(&from, message, context);
                    }
                });
            }
            Event::Timer { node: name, life, timer } => {
                if self.nodes.get(&name).is_some_and(|slot| slot.life == life) {
                    self.note(|| format!("{name}: timer {timer:?}"));
                    self.with_context(&name, |slot, context| {
                        if let Some(node) = &mut slot.node {
                            node.on_timer(timer, context);
                        }
                    });
                }
            }
            Event::Action { what, action } => {
                self.note(|| what.to_owned());
                action(self);
            }
        }
    }

    fn with_context(
        &mut self,
        name: &str,
        work: impl for<'w> FnOnce(&mut Slot<N>, &mut Context<'w, N>),
    ) {
        // Out of the map while it works, so that it can look at nothing but its context.
        let Some((name, mut slot)) = self.nodes.remove_entry(name) else { return };
        let disk = slot.disk.clone();
        let mut context = Context {
            name: &name,
            now: self.clock.now(),
            disk: &disk,
            rng: &mut self.rng,
            sent: vec![],
            timers: vec![],
        };
        work(&mut slot, &mut context);
        let Context { sent, timers, .. } = context;
        let life = slot.life;
        self.nodes.insert(name.clone(), slot);
        if disk.is_dead() {
            self.crash(&name);
            return;
        }
        for (to, message) in sent {
            self.send(&name, &to, &message);
        }
        for (after, timer) in timers {
            let time = self.clock.now() + after;
            self.enqueue(time, Event::Timer { node: name.clone(), life, timer });
        }
    }

    fn end(&mut self, name: &str, how: &str, disk: fn(&Disk)) {
        if let Some(slot) = self.nodes.get_mut(name) {
            slot.node = None;
            slot.life += 1;
            disk(&slot.disk);
            self.note(|| format!("{how} {name}"));
        }
    }

    fn enqueue(&mut self, time: Duration, event: Event<N>) {
        self.asked += 1;
        self.queue.insert((time.max(self.clock.now()), self.asked), event);
    }

    fn check(&self) -> Result<(), Violation> {
        self.checks.iter().try_for_each(|check| check(self)).map_err(|what| self.violation(what))
    }

    fn violation(&self, what: String) -> Violation {
        let trace = self.trace.iter().cloned().collect();
        Violation { seed: self.seed, at: self.clock.now(), what, trace }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:?} {}", self.clock.now(), what()));
    }
}

impl<N: Node> fmt::Debug for World<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("World")
            .field("seed", &self.seed)
            .field("now", &self.clock.now())
            .field("nodes", &self.names())
            .field("queued", &self.queue.len())
            .finish_non_exhaustive()
    }
}
