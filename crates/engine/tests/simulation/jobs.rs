//! What the control side does with a volume in use: snapshots, rebuilds, and looking whether all
//! copies are alike. One job at a time.

use std::cell::Ref;
use std::collections::{BTreeMap, BTreeSet};

use engine::core::{Command, Hold, HoldId, Mode, Token};
use testkit::sim::Context;

use crate::engine::{Engine, Mending, NO_ANSWER, Phase};
use crate::message::{Call, Return};
use crate::party::{NAMES, Party, SIZE};
use crate::store::{SECTOR, Store};

/// Bytes copied at a time.
const CHUNK: usize = 4 * SECTOR;
const FLUSHED: Hold = Hold::Changes { flush: true };

#[derive(Debug)]
pub(crate) enum Job {
    Idle,
    Check { hold: HoldId, begin: u64, flush: bool },
    Snapshot { hold: HoldId, begin: u64, name: String, asked: Asked },
    Revert { hold: HoldId, name: String, stage: Reverting },
    Expand { hold: HoldId, begin: u64, asked: Asked },
    Rebuild { target: usize, name: String, stage: Stage },
}

#[derive(Debug)]
pub(crate) enum Reverting {
    Holding,
    /// Under this token the oracle knows it.
    Asking {
        revert: Token,
        asked: Asked,
    },
    /// Who did not follow is written down before it is said to be done.
    Recording {
        revert: Token,
        record: Token,
    },
}

/// All copies that can be read are to do the same.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    waiting: BTreeSet<usize>,
    /// What those say that did not do it.
    refused: BTreeMap<usize, String>,
    done: BTreeSet<usize>,
}

impl Asked {
    fn returned(&mut self, peer: usize, result: Result<Return, String>) {
        if !self.waiting.remove(&peer) {
            return;
        }
        match result {
            Ok(_) => drop(self.done.insert(peer)),
            Err(why) => drop(self.refused.insert(peer, why)),
        }
    }

    /// Who is out: all that did not follow those that did. Where none did, all have what they had but
    /// those that did not answer; of which one stays if there are no others.
    fn out(&self) -> Vec<usize> {
        let is_lost = |peer: &usize| self.refused[peer] == NO_ANSWER;
        let refused = || self.refused.keys().copied();
        if !self.done.is_empty() {
            return refused().collect();
        }
        let is_sure = refused().any(|peer| !is_lost(&peer));
        refused().filter(is_lost).skip(usize::from(!is_sure)).collect()
    }
}

#[derive(Debug)]
pub(crate) enum Stage {
    Preparing,
    /// For the snapshot that is copied.
    FirstHold {
        hold: HoldId,
        begin: u64,
    },
    Snapshotting {
        hold: HoldId,
        asked: Asked,
    },
    Fetching {
        offset: usize,
        tries: usize,
    },
    Storing {
        offset: usize,
    },
    /// For the last look.
    SecondHold {
        hold: HoldId,
        begin: u64,
    },
    Counting {
        hold: HoldId,
    },
    Finishing {
        hold: HoldId,
    },
}

impl Engine {
    pub(crate) fn begin_job(&mut self, context: &mut Context<'_, Party>) {
        let ready = matches!((&self.phase, &self.job), (Phase::Serving, Job::Idle));
        if !ready || self.mending != Mending::Done {
            return;
        }
        self.forget_calls();
        let missing = (0..NAMES.len()).find(|peer| self.mode(*peer) != Some(Mode::Rw));
        match (missing, context.rng().below(10)) {
            (Some(target), 0..7) => self.begin_rebuild(target, context),
            (_, 0..3) => {
                let flush = context.rng().permille(500);
                let kind =
                    if context.rng().permille(700) { Hold::Changes { flush } } else { Hold::All };
                let flush = kind == FLUSHED;
                let (hold, begin) = self.hold(kind, context);
                self.job = Job::Check { hold, begin, flush };
            }
            (_, 3..5) => self.begin_revert(context),
            (_, 5..7) if self.size() < SIZE => {
                self.shared.wanted_size.set(SIZE);
                let (hold, begin) = self.hold(FLUSHED, context);
                self.job = Job::Expand { hold, begin, asked: Asked::default() };
            }
            _ => {
                let (hold, begin) = self.hold(FLUSHED, context);
                let name = format!("snapshot-{}", self.shared.new_session());
                self.job = Job::Snapshot { hold, begin, name, asked: Asked::default() };
            }
        }
    }

    /// To one that all copies have, of which it is known what it holds.
    fn begin_revert(&mut self, context: &mut Context<'_, Party>) {
        let names = |peer: &usize| -> BTreeSet<String> {
            self.shared.stores[*peer].borrow().layers.all.keys().cloned().collect()
        };
        let everywhere = self.readable().iter().map(names).reduce(|one, other| &one & &other);
        let oracle = self.shared.oracle.borrow();
        let known = everywhere.into_iter().flatten().filter(|name| oracle.knows(name));
        let known: Vec<String> = known.collect();
        drop(oracle);
        let Some(name) = context.rng().choose(&known).cloned() else { return };
        let (hold, _) = self.hold(Hold::All, context);
        self.job = Job::Revert { hold, name, stage: Reverting::Holding };
    }

    fn begin_rebuild(&mut self, target: usize, context: &mut Context<'_, Party>) {
        let now = context.now();
        if let Some(id) = self.peers[target].id.take() {
            self.drive(|core, out| core.remove(now, id, out));
        }
        let session = self.shared.new_session();
        self.peers[target].session = session;
        let name = format!("rebuild-{session}");
        let size = self.size();
        self.call(target, Call::Prepare { name: name.clone(), size }, context);
        self.job = Job::Rebuild { target, name, stage: Stage::Preparing };
    }

    pub(crate) fn job_held(&mut self, held: HoldId, context: &mut Context<'_, Party>) {
        match std::mem::replace(&mut self.job, Job::Idle) {
            Job::Check { hold, begin, flush } if hold == held => {
                self.inspect(flush.then_some(begin));
                self.shared.count(|tally| tally.checks += 1);
                self.release(hold, context);
            }
            Job::Snapshot { hold, begin, name, .. } if hold == held => {
                self.inspect(Some(begin));
                let asked = self.snapshot(&name, true, context);
                self.job = Job::Snapshot { hold, begin, name, asked };
                self.end_if_over(context);
            }
            Job::Revert { hold, name, stage: Reverting::Holding } if hold == held => {
                let revert = self.shared.oracle.borrow_mut().begin_revert(self.own, &name);
                let asked = self.ask_all(&Call::Revert { name: name.clone() }, context);
                self.job = Job::Revert { hold, name, stage: Reverting::Asking { revert, asked } };
                self.end_if_over(context);
            }
            Job::Expand { hold, begin, .. } if hold == held => {
                self.inspect(Some(begin));
                let asked = self.ask_all(&Call::Expand { size: SIZE }, context);
                self.job = Job::Expand { hold, begin, asked };
                self.end_if_over(context);
            }
            Job::Rebuild { target, name, stage: Stage::FirstHold { hold, begin } }
                if hold == held =>
            {
                self.inspect(Some(begin));
                let asked = self.snapshot(&name, false, context);
                self.job =
                    Job::Rebuild { target, name, stage: Stage::Snapshotting { hold, asked } };
                self.end_if_over(context);
            }
            Job::Rebuild { target, name, stage: Stage::SecondHold { hold, begin } }
                if hold == held =>
            {
                self.inspect(Some(begin));
                self.job = Job::Rebuild { target, name, stage: Stage::Counting { hold } };
                match self.readable().first() {
                    Some(source) => self.call(*source, Call::Counter, context),
                    None => self.abort(context),
                }
            }
            other => self.job = other,
        }
    }

    pub(crate) fn job_returned(
        &mut self,
        peer: usize,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        match &mut self.job {
            Job::Idle | Job::Check { .. } => {}
            Job::Revert { stage: Reverting::Holding | Reverting::Recording { .. }, .. } => {}
            Job::Snapshot { asked, .. }
            | Job::Expand { asked, .. }
            | Job::Revert { stage: Reverting::Asking { asked, .. }, .. }
            | Job::Rebuild { stage: Stage::Snapshotting { asked, .. }, .. } => {
                asked.returned(peer, result);
                self.end_if_over(context);
            }
            Job::Rebuild { target, .. } => {
                let target = *target;
                self.rebuild_returned(target, peer, result, context);
            }
        }
    }

    fn rebuild_returned(
        &mut self,
        target: usize,
        peer: usize,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        let Job::Rebuild { stage, .. } = &mut self.job else { return };
        match (stage, result) {
            (Stage::Preparing, Ok(_)) => {
                let (hold, begin) = self.hold(FLUSHED, context);
                self.set_stage(Stage::FirstHold { hold, begin });
            }
            (Stage::Fetching { offset, .. }, Ok(Return::Data(data))) => {
                let offset = *offset;
                self.set_stage(Stage::Storing { offset });
                self.call(target, Call::Store { offset, data }, context);
            }
            (Stage::Fetching { offset, tries }, Err(_)) if *tries < 4 => {
                let (offset, tries) = (*offset, *tries + 1);
                self.fetch(offset, tries, context);
            }
            (Stage::Storing { offset }, Ok(_)) => {
                let offset = *offset + CHUNK;
                if offset < self.size() {
                    self.fetch(offset, 0, context);
                } else {
                    let (hold, begin) = self.hold(FLUSHED, context);
                    self.set_stage(Stage::SecondHold { hold, begin });
                }
            }
            (Stage::Counting { hold }, Ok(Return::Counter { counter, layers })) => {
                let hold = *hold;
                self.set_stage(Stage::Finishing { hold });
                self.call(target, Call::Finish { counter, layers }, context);
            }
            (Stage::Finishing { hold }, Ok(_)) if peer == target => {
                let hold = *hold;
                self.finish_rebuild(target, hold, context);
            }
            (_, _) => self.abort(context),
        }
    }

    fn finish_rebuild(&mut self, target: usize, hold: HoldId, context: &mut Context<'_, Party>) {
        let Some(id) = self.peers[target].id else { return self.abort(context) };
        let now = context.now();
        self.drive(|core, out| core.set_mode(now, id, Mode::Rw, "", out));
        self.shared.failed.borrow_mut()[target] = false;
        self.job = Job::Idle;
        self.inspect(None);
        self.shared.count(|tally| tally.rebuilds += 1);
        self.release(hold, context);
        if self.claim.is_some() {
            self.submit(Command::Record, context, |_, _| {});
        }
    }

    fn set_stage(&mut self, next: Stage) {
        if let Job::Rebuild { stage, .. } = &mut self.job {
            *stage = next;
        }
    }

    fn fetch(&mut self, offset: usize, tries: usize, context: &mut Context<'_, Party>) {
        let sources = self.readable();
        let Job::Rebuild { name, .. } = &self.job else { return };
        let name = name.clone();
        match context.rng().choose(&sources) {
            Some(source) => {
                self.set_stage(Stage::Fetching { offset, tries });
                self.call(*source, Call::Fetch { name, offset, len: CHUNK }, context);
            }
            None => self.abort(context),
        }
    }

    /// Gives a rebuild up; it is begun again later.
    fn abort(&mut self, context: &Context<'_, Party>) {
        let Job::Rebuild { target, stage, .. } = std::mem::replace(&mut self.job, Job::Idle) else {
            return;
        };
        let now = context.now();
        if let Some(id) = self.peers[target].id.take() {
            self.drive(|core, out| core.remove(now, id, out));
        }
        match stage {
            Stage::FirstHold { hold, .. }
            | Stage::Snapshotting { hold, .. }
            | Stage::SecondHold { hold, .. }
            | Stage::Counting { hold }
            | Stage::Finishing { hold } => self.release(hold, context),
            Stage::Preparing | Stage::Fetching { .. } | Stage::Storing { .. } => {}
        }
    }

    /// A replica failed.
    pub(crate) fn job_lost(&mut self, peer: usize, context: &Context<'_, Party>) {
        if matches!(self.job, Job::Rebuild { target, .. } if target == peer) {
            self.abort(context);
        }
    }

    /// Asks all that can be read for a snapshot.
    fn snapshot(&mut self, name: &str, kept: bool, context: &mut Context<'_, Party>) -> Asked {
        if let Some(first) = self.copies().first() {
            self.shared.oracle.borrow_mut().take_snapshot(name, &first.1.head);
        }
        self.ask_all(&Call::Snapshot { name: name.to_owned(), kept }, context)
    }

    fn ask_all(&mut self, request: &Call, context: &mut Context<'_, Party>) -> Asked {
        let readable = self.readable();
        for peer in &readable {
            self.call(*peer, request.clone(), context);
        }
        Asked { waiting: readable.into_iter().collect(), ..Asked::default() }
    }

    /// Fails those that fell behind; whether any copy did it.
    fn settle(&mut self, asked: &Asked, context: &Context<'_, Party>) -> bool {
        let now = context.now();
        for peer in asked.out() {
            if let Some(id) = self.peers[peer].id {
                let why = &asked.refused[&peer];
                self.drive(|core, out| core.set_mode(now, id, Mode::Err, why, out));
            }
        }
        !asked.done.is_empty()
    }

    fn end_if_over(&mut self, context: &mut Context<'_, Party>) {
        match std::mem::replace(&mut self.job, Job::Idle) {
            Job::Snapshot { hold, asked, .. } if asked.waiting.is_empty() => {
                if self.settle(&asked, context) {
                    self.shared.count(|tally| tally.snapshots += 1);
                }
                self.release(hold, context);
                self.submit(Command::Record, context, |_, _| {});
            }
            Job::Revert { hold, name, stage: Reverting::Asking { revert, asked } }
                if asked.waiting.is_empty() =>
            {
                let is_done = self.settle(&asked, context);
                self.release(hold, context);
                if !is_done {
                    return self.shared.oracle.borrow_mut().end_revert(revert, false);
                }
                self.submit(Command::Record, context, |engine, record| {
                    let stage = Reverting::Recording { revert, record };
                    engine.job = Job::Revert { hold, name, stage };
                });
            }
            Job::Expand { hold, asked, .. } if asked.waiting.is_empty() => {
                if self.settle(&asked, context) {
                    self.core.resize(SIZE as u64);
                    // The manager hears of it late, perhaps not before the next start.
                    if !self.shared.style.members || context.rng().permille(500) {
                        self.shared.known_size.set(SIZE);
                    }
                    self.shared.count(|tally| tally.expansions += 1);
                }
                self.release(hold, context);
                self.submit(Command::Record, context, |_, _| {});
            }
            Job::Rebuild { target, name, stage: Stage::Snapshotting { hold, asked } }
                if asked.waiting.is_empty() =>
            {
                self.settle(&asked, context);
                self.job =
                    Job::Rebuild { target, name, stage: Stage::Fetching { offset: 0, tries: 0 } };
                let features = self.shared.style.features[target];
                let id = self.core.add(context.now(), features, Mode::Wo);
                let standing = self.shared.stores[target].borrow().standing.clone();
                let name = standing.map_or(NAMES[target].to_owned(), |standing| standing.id);
                self.core.set_name(id, name);
                self.peers[target].id = Some(id);
                self.release(hold, context);
                self.fetch(0, 0, context);
            }
            other => self.job = other,
        }
    }

    /// Whether it was the job's.
    pub(crate) fn job_completed(&mut self, token: Token, is_ok: bool) -> bool {
        match &self.job {
            Job::Revert { stage: Reverting::Recording { revert, record }, .. }
                if *record == token =>
            {
                self.shared.oracle.borrow_mut().end_revert(*revert, is_ok);
                self.shared.count(|tally| tally.reverts += u64::from(is_ok));
                self.job = Job::Idle;
                true
            }
            _ => false,
        }
    }

    /// The stores behind the replicas that can be read, as far as their processes still live.
    fn copies(&self) -> Vec<(&'static str, Ref<'_, Store>)> {
        let store = |peer: usize| {
            let store = self.shared.stores[peer].borrow();
            (store.session == Some(self.peers[peer].session)).then_some((NAMES[peer], store))
        };
        self.readable().into_iter().filter_map(store).collect()
    }

    /// Under a hold nothing is under way, so all copies must be alike, and with a flush on disk.
    fn inspect(&self, flushed: Option<u64>) {
        let copies = self.copies();
        let mut oracle = self.shared.oracle.borrow_mut();
        if let Some(begin) = flushed {
            oracle.flushed(begin);
            for (name, store) in &copies {
                if !store.is_on_disk() {
                    oracle.complain(format!("{name} was flushed, and not all is on its disk"));
                }
            }
        }
        let heads: Vec<(&str, &[u8])> =
            copies.iter().map(|(name, store)| (*name, store.head.as_slice())).collect();
        oracle.check_copies(&heads, flushed.is_some());
    }
}
