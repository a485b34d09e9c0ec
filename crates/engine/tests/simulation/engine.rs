//! An engine process: drives a core by messages, and a client by chance.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use engine::core::{
    Command, Core, Done, Effect, Fault, Hold, HoldId, Mode, ReplicaId, Settings, Token,
};
use engine::machine::outcome::Asked;
use testkit::sim::{Context, Rng};
use wire::membership::Claim;

use crate::jobs::Job;
use crate::mending::Mending;
use crate::message::{Call, Message, Return};
use crate::oracle::{CELL, bytes_of};
use crate::party::{NAMES, Party, Shared, Timer};
use crate::purging::Purging;
use crate::start::Opening;
use crate::store::SECTOR;

const TICK: Duration = Duration::from_millis(100);
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
const REQUESTS_MAX: usize = 16;
pub(crate) const NO_ANSWER: &str = "no answer";

#[derive(Debug)]
pub(crate) enum Phase {
    Opening(Box<Opening>),
    /// Who holds the volume is brought to their disks.
    Recording {
        token: Token,
    },
    /// What the replicas have is brought to their disks before anybody sees it.
    Flushing {
        hold: HoldId,
        begin: u64,
    },
    Serving,
    /// No replica is left; starts anew soon.
    Dead,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peer {
    pub(crate) id: Option<ReplicaId>,
    pub(crate) session: u64,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Rc<Shared>,
    /// Which of the engines this is.
    pub(crate) own: usize,
    pub(crate) claim: Option<Claim>,
    pub(crate) core: Core,
    pub(crate) peers: [Peer; 3],
    pub(crate) phase: Phase,
    pub(crate) mending: Mending,
    /// Up to this snapshot copies do not differ.
    pub(crate) base: Option<String>,
    /// The one that the others are made alike.
    pub(crate) reader: Option<ReplicaId>,
    pub(crate) job: Job,
    pub(crate) purging: Option<Box<Purging>>,
    /// Clients have it: what its copies hold is whole.
    pub(crate) is_shown: bool,
    /// The backup that this engine has asked copies to restore last.
    pub(crate) asked_for: Option<String>,
    calls: BTreeMap<u64, (usize, Duration)>,
    next_call: u64,
    effects: VecDeque<Effect>,
}

impl Engine {
    pub(crate) fn start(shared: &Rc<Shared>, own: usize, context: &mut Context<'_, Party>) -> Self {
        let mut engine = Self {
            shared: Rc::clone(shared),
            own,
            claim: None,
            core: new_core(shared),
            peers: [Peer::default(); 3],
            phase: Phase::Dead,
            mending: Mending::No,
            base: None,
            reader: None,
            job: Job::Idle,
            purging: None,
            is_shown: false,
            asked_for: None,
            calls: BTreeMap::new(),
            next_call: 0,
            effects: VecDeque::new(),
        };
        context.set_timer(TICK, Timer::Tick);
        context.set_timer(Duration::ZERO, Timer::Client);
        context.set_timer(TICK, Timer::Job);
        engine.restart(context);
        engine
    }

    fn restart(&mut self, context: &mut Context<'_, Party>) {
        self.shared.oracle.borrow_mut().engine_gone(self.own);
        self.claim = None;
        self.core = new_core(&self.shared);
        self.calls.clear();
        self.effects.clear();
        self.job = Job::Idle;
        self.purging = None;
        self.mending = Mending::No;
        self.is_shown = self.shared.style.shown_from == Duration::ZERO;
        self.asked_for = None;
        self.open_all(context);
    }

    pub(crate) fn on_message(
        &mut self,
        from: &str,
        message: Message,
        context: &mut Context<'_, Party>,
    ) {
        let Some(peer) = NAMES.iter().position(|name| *name == from) else { return };
        let now = context.now();
        let current = |session| self.peers[peer].id.filter(|_| self.peers[peer].session == session);
        match message {
            Message::Answer { session, answer } => {
                if let Some(id) = current(session) {
                    self.drive(|core, out| core.reply(now, id, answer, out));
                }
            }
            Message::Reset { session } => {
                if let Some(id) = current(session) {
                    self.drive(|core, out| core.lost(now, id, "connection reset", out));
                }
            }
            Message::CutOff { session, generation } => {
                if current(session).is_some() {
                    self.shared.count(|tally| tally.cut_offs += 1);
                    self.drive(|core, out| core.cut_off(now, generation, out));
                }
            }
            Message::Return { call, result } => {
                if self.calls.remove(&call).is_some() {
                    self.returned(peer, call, result, context);
                }
            }
            Message::Frame { .. } | Message::Call { .. } => {}
        }
        self.perform(context);
    }

    pub(crate) fn on_timer(&mut self, timer: &Timer, context: &mut Context<'_, Party>) {
        let now = context.now();
        match timer {
            Timer::Tick => {
                self.drive(|core, out| core.tick(now, out));
                let late: Vec<u64> =
                    self.calls.iter().filter(|(_, (_, at))| *at < now).map(|(id, _)| *id).collect();
                for call in late {
                    if let Some((peer, _)) = self.calls.remove(&call) {
                        self.returned(peer, call, Err(NO_ANSWER.to_owned()), context);
                    }
                }
                self.tick_opening(context);
                self.tick_mending(context);
                self.tick_change(context);
                self.tick_filling(context);
                context.set_timer(TICK, Timer::Tick);
            }
            Timer::Client => {
                self.make_requests(context);
                let pause = Duration::from_micros(context.rng().below(25_000) as u64);
                context.set_timer(pause, Timer::Client);
            }
            Timer::Job => {
                self.begin_job(context);
                let pause = 20 + context.rng().below(250) as u64;
                context.set_timer(Duration::from_millis(pause), Timer::Job);
            }
            Timer::Restart => self.restart(context),
            Timer::Late(peer) => self.call_late(*peer, context),
            Timer::Task(_) | Timer::Restore | Timer::Purge => {}
        }
        self.perform(context);
    }

    pub(crate) fn drive<R>(&mut self, act: impl FnOnce(&mut Core, &mut Vec<Effect>) -> R) -> R {
        let mut out = vec![];
        let result = act(&mut self.core, &mut out);
        self.effects.extend(out);
        result
    }

    /// What a job that was given up had asked is no answer to the next.
    pub(crate) fn forget_calls(&mut self) {
        self.calls.clear();
    }

    pub(crate) fn call(&mut self, peer: usize, request: Call, context: &mut Context<'_, Party>) {
        self.call_numbered(peer, request, context);
    }

    pub(crate) fn call_numbered(
        &mut self,
        peer: usize,
        request: Call,
        context: &mut Context<'_, Party>,
    ) -> u64 {
        self.next_call += 1;
        let call = self.next_call;
        self.calls.insert(call, (peer, context.now() + CALL_TIMEOUT));
        let (session, claim) = (self.peers[peer].session, self.claim.clone());
        context.send(NAMES[peer], Message::Call { call, session, claim, request });
        call
    }

    fn returned(
        &mut self,
        peer: usize,
        call: u64,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        match &mut self.phase {
            Phase::Opening(opening) => opening.returned(peer, result),
            Phase::Recording { .. } => {}
            Phase::Flushing { .. } | Phase::Dead => {}
            Phase::Serving if self.purging.as_ref().is_some_and(|it| it.awaits(call)) => {
                self.purge_returned(call, result, context);
            }
            Phase::Serving => self.job_returned(peer, result, context),
        }
    }

    pub(crate) fn hold(&mut self, hold: Hold, context: &Context<'_, Party>) -> (HoldId, u64) {
        let begin = self.shared.oracle.borrow_mut().moment();
        let now = context.now();
        (self.drive(|core, out| core.hold(now, hold, out)), begin)
    }

    pub(crate) fn release(&mut self, hold: HoldId, context: &Context<'_, Party>) {
        let now = context.now();
        self.drive(|core, out| core.release(now, hold, out));
    }

    fn perform(&mut self, context: &mut Context<'_, Party>) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Send { replica, request } => {
                    if let Some(peer) = self.peer_of(replica) {
                        let session = self.peers[peer].session;
                        context.send(NAMES[peer], Message::Frame { session, request });
                    }
                }
                Effect::Complete { token, result } => self.completed(token, &result, context),
                Effect::Failed { replica, .. } => self.failed(replica, context),
                Effect::Held(hold) => self.held(hold, context),
            }
        }
    }

    pub(crate) fn peer_of(&self, replica: ReplicaId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.id == Some(replica))
    }

    /// Those in use.
    pub(crate) fn members(&self) -> Vec<Asked> {
        let used = self.core.members().into_iter().filter(|member| member.mode != Mode::Err);
        let asked =
            |id, mode| Some(Asked { id, mode, address: NAMES[self.peer_of(id)?].to_owned() });
        used.filter_map(|member| asked(member.id, member.mode)).collect()
    }

    pub(crate) fn mode(&self, peer: usize) -> Option<Mode> {
        let id = self.peers[peer].id?;
        self.core.members().iter().find(|member| member.id == id).map(|member| member.mode)
    }

    pub(crate) fn readable(&self) -> Vec<usize> {
        (0..NAMES.len()).filter(|peer| self.mode(*peer) == Some(Mode::Rw)).collect()
    }

    fn failed(&mut self, replica: ReplicaId, context: &mut Context<'_, Party>) {
        let Some(peer) = self.peer_of(replica) else { return };
        self.shared.count(|tally| tally.failures += 1);
        self.shared.oracle.borrow_mut().replica_gone();
        // What a manager remembers is no part of a world with records.
        if self.readable().is_empty() {
            if matches!(self.job, Job::Idle) && self.core.in_flight() > 0 {
                let what = "no replica and no hold is left, and requests wait".to_owned();
                self.shared.oracle.borrow_mut().complain(what);
            }
            // The last one is what there is to go on with.
            if !matches!(self.phase, Phase::Dead) {
                self.phase = Phase::Dead;
                let pause = 20 + context.rng().below(200) as u64;
                context.set_timer(Duration::from_millis(pause), Timer::Restart);
            }
            return;
        }
        self.shared.failed.borrow_mut()[peer] = true;
        self.job_lost(peer, context);
    }

    fn held(&mut self, hold: HoldId, context: &mut Context<'_, Party>) {
        match self.phase {
            Phase::Flushing { hold: awaited, begin } if awaited == hold => {
                self.shared.oracle.borrow_mut().flushed(begin);
                self.phase = Phase::Serving;
                self.release(hold, context);
                if let Some(reader) = self.reader {
                    self.begin_mending(reader, context);
                }
            }
            Phase::Serving => self.job_held(hold, context),
            Phase::Flushing { .. } | Phase::Recording { .. } | Phase::Opening(_) | Phase::Dead => {}
        }
    }

    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.core.size_bytes()).unwrap()
    }

    /// Submits; `note` learns the token before anything can complete.
    pub(crate) fn submit(
        &mut self,
        command: Command,
        context: &Context<'_, Party>,
        note: impl FnOnce(&mut Self, Token),
    ) {
        let token = self.shared.oracle.borrow_mut().submit(self.own, &command);
        note(self, token);
        let now = context.now();
        self.drive(|core, out| core.submit(now, token, command, out));
    }

    fn completed(
        &mut self,
        token: Token,
        result: &Result<Done, Fault>,
        context: &mut Context<'_, Party>,
    ) {
        self.shared.oracle.borrow_mut().complete(token, result);
        if matches!(self.phase, Phase::Recording { token: own } if own == token) && result.is_ok() {
            return self.recorded(context);
        }
        if !matches!(self.phase, Phase::Serving) || self.job_completed(token, result, context) {
            return;
        }
        self.mend_completed(token, result.is_ok(), context);
    }

    fn make_requests(&mut self, context: &mut Context<'_, Party>) {
        // Nobody has the volume while it is taken back to a snapshot.
        let is_reverted = matches!(&self.job, Job::Change(change) if change.is_revert());
        let serving = matches!(self.phase, Phase::Serving) && !is_reverted && self.is_shown;
        if !serving || context.now() > self.shared.style.clients_until {
            return;
        }
        self.check_shown();
        for _ in 0..=context.rng().below(3) {
            if self.shared.oracle.borrow().open(self.own) < REQUESTS_MAX {
                let value = self.shared.oracle.borrow_mut().fresh_value();
                let command = draw_command(value, self.size(), context.rng());
                self.submit(command, context, |_, _| {});
            }
        }
    }

    /// No hold or request is left, and all replicas are in use.
    pub(crate) fn is_calm(&self) -> bool {
        matches!(self.phase, Phase::Serving)
            && self.is_shown
            && matches!(self.job, Job::Idle)
            && self.is_mended()
            && self.readable().len() == NAMES.len()
            && self.core.in_flight() == 0
    }
}

fn new_core(shared: &Shared) -> Core {
    let mut core = Core::new(Settings {
        replica_timeout: Duration::from_millis(800),
        ping_interval: Duration::from_millis(300),
        write_through: shared.style.write_through,
    });
    core.resize(shared.wanted_size.get() as u64);
    core
}

/// Half of the requests go to a few sectors, so that they meet.
fn draw_command(value: u64, size: usize, rng: &mut Rng) -> Command {
    let kind = rng.below(100);
    let cells = size / CELL;
    let whole = rng.permille(400);
    let hot = if rng.permille(500) { 24 } else { cells };
    let mut first = rng.below(hot);
    let longest = if rng.permille(800) { 12 } else { 40 };
    let mut count = 1 + rng.below(longest);
    if whole {
        let per_sector = SECTOR / CELL;
        first = first / per_sector * per_sector;
        count = count.next_multiple_of(per_sector);
    }
    let count = count.min(cells - first);
    let offset = (first * CELL) as u64;
    let len = u32::try_from(count * CELL).unwrap();
    let data = || Bytes::from(bytes_of(value, count));
    match kind {
        0..50 => Command::Write { offset, data: data(), durable: false },
        50..56 => Command::Write { offset, data: data(), durable: true },
        56..62 => Command::Zero { offset, len, durable: kind == 56 },
        62..66 => Command::Unmap { offset, len },
        66..70 => Command::Status { offset, len },
        70..82 => Command::Flush,
        _ => Command::Read { offset, len },
    }
}
