//! What the control side does with a volume in use: snapshots, rebuilds, and looking whether all
//! copies are alike. One job at a time.

use std::cell::Ref;
use std::collections::BTreeSet;

use engine::core::{Command, Hold, HoldId, Mode};
use testkit::sim::Context;

use crate::engine::{Engine, Mending, Phase};
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
    Snapshot { hold: HoldId, begin: u64, name: String, waiting: BTreeSet<usize> },
    Rebuild { target: usize, name: String, stage: Stage },
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
        waiting: BTreeSet<usize>,
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
            _ => {
                let (hold, begin) = self.hold(FLUSHED, context);
                let name = format!("snapshot-{}", self.shared.new_session());
                self.job = Job::Snapshot { hold, begin, name, waiting: BTreeSet::new() };
            }
        }
    }

    fn begin_rebuild(&mut self, target: usize, context: &mut Context<'_, Party>) {
        let now = context.now();
        if let Some(id) = self.peers[target].id.take() {
            self.drive(|core, out| core.remove(now, id, out));
        }
        let session = self.shared.new_session();
        self.peers[target].session = session;
        let name = format!("rebuild-{session}");
        self.call(target, Call::Prepare { name: name.clone() }, context);
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
                let waiting = self.snapshot(&name, context);
                self.job = Job::Snapshot { hold, begin, name, waiting };
                self.end_snapshot_if_over(context);
            }
            Job::Rebuild { target, name, stage: Stage::FirstHold { hold, begin } }
                if hold == held =>
            {
                self.inspect(Some(begin));
                let waiting = self.snapshot(&name, context);
                self.job =
                    Job::Rebuild { target, name, stage: Stage::Snapshotting { hold, waiting } };
                self.end_snapshot_if_over(context);
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
            Job::Snapshot { waiting, .. }
            | Job::Rebuild { stage: Stage::Snapshotting { waiting, .. }, .. } => {
                waiting.remove(&peer);
                if result.is_err()
                    && let Some(id) = self.peers[peer].id
                {
                    let now = context.now();
                    self.drive(|core, out| {
                        core.set_mode(now, id, Mode::Err, "snapshot failed", out);
                    });
                }
                self.end_snapshot_if_over(context);
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
                if offset < SIZE {
                    self.fetch(offset, 0, context);
                } else {
                    let (hold, begin) = self.hold(FLUSHED, context);
                    self.set_stage(Stage::SecondHold { hold, begin });
                }
            }
            (Stage::Counting { hold }, Ok(Return::Counter(counter))) => {
                let hold = *hold;
                self.set_stage(Stage::Finishing { hold });
                self.call(target, Call::Finish { counter }, context);
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
    fn snapshot(&mut self, name: &str, context: &mut Context<'_, Party>) -> BTreeSet<usize> {
        let readable = self.readable();
        if let Some(first) = self.copies().first() {
            self.shared.oracle.borrow_mut().take_snapshot(name, &first.1.head);
        }
        for peer in &readable {
            self.call(*peer, Call::Snapshot { name: name.to_owned() }, context);
        }
        readable.into_iter().collect()
    }

    fn end_snapshot_if_over(&mut self, context: &mut Context<'_, Party>) {
        match &self.job {
            Job::Snapshot { hold, waiting, .. } if waiting.is_empty() => {
                let hold = *hold;
                self.job = Job::Idle;
                self.shared.count(|tally| tally.snapshots += 1);
                self.release(hold, context);
            }
            Job::Rebuild { target, stage: Stage::Snapshotting { hold, waiting }, .. }
                if waiting.is_empty() =>
            {
                let (target, hold) = (*target, *hold);
                let features = self.shared.style.features[target];
                let id = self.core.add(context.now(), features, Mode::Wo);
                let standing = self.shared.stores[target].borrow().standing.clone();
                let name = standing.map_or(NAMES[target].to_owned(), |standing| standing.id);
                self.core.set_name(id, name);
                self.peers[target].id = Some(id);
                self.release(hold, context);
                self.fetch(0, 0, context);
            }
            Job::Snapshot { .. } | Job::Rebuild { .. } | Job::Idle | Job::Check { .. } => {}
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
