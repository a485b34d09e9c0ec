//! What the control side does with a volume: restores and showing it, and once it is in use snapshots,
//! rebuilds, and looking whether all
//! copies are alike. One job at a time.

use std::cell::Ref;
use std::collections::BTreeSet;

use engine::core::{Done, Fault, Hold, HoldId, Mode, Token};
use engine::machine::restore;
use engine::machine::together::Event;
use testkit::sim::Context;

use crate::change::{Change, What, judge};
use crate::engine::{Engine, Phase};
use crate::filling::Filling;
use crate::message::Return;
use crate::party::{NAMES, Party, SIZE};
use crate::restoring::{Restoring, Showing};
use crate::store::Store;

const FLUSHED: Hold = Hold::Changes { flush: true };

#[derive(Debug)]
pub(crate) enum Job {
    Idle,
    Check { hold: HoldId, begin: u64, flush: bool },
    Change(Box<Change>),
    Rebuild(Box<Filling>),
    Restore(Box<Restoring>),
    Show(Box<Showing>),
}

impl Engine {
    pub(crate) fn begin_job(&mut self, context: &mut Context<'_, Party>) {
        if self.is_shown && self.may_purge() && context.rng().permille(250) {
            return self.begin_purge(context);
        }
        let ready = matches!((&self.phase, &self.job), (Phase::Serving, Job::Idle));
        // A purge is being begun: nobody joins meanwhile.
        if !ready || !self.is_mended() || self.purging.is_some() {
            return;
        }
        self.forget_calls();
        if !self.is_shown {
            return self.begin_standby_job(context);
        }
        let missing = (0..NAMES.len()).find(|peer| self.mode(*peer) != Some(Mode::Rw));
        match (missing, context.rng().below(10)) {
            (Some(target), 0..7) => self.begin_filling(target, context),
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
                self.begin_change(What::Expand, context);
            }
            _ => {
                let name = format!("snapshot-{}", self.shared.new_session());
                self.begin_change(What::Snapshot { name }, context);
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
        self.begin_change(What::Revert { name, token: None }, context);
    }

    pub(crate) fn job_held(&mut self, held: HoldId, context: &mut Context<'_, Party>) {
        match std::mem::replace(&mut self.job, Job::Idle) {
            Job::Check { hold, begin, flush } if hold == held => {
                self.inspect(flush.then_some(begin));
                self.shared.count(|tally| tally.checks += 1);
                self.release(hold, context);
            }
            Job::Change(change) if change.is_held_by(held) => {
                self.job = Job::Change(change);
                self.change_held(context);
            }
            Job::Rebuild(filling) if filling.is_held_by(held) => {
                self.job = Job::Rebuild(filling);
                self.filling_held(context);
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
            Job::Change(_) => {
                if let Some(id) = self.peers[peer].id {
                    self.on_change(Event::Answered(id, judge(result)), context);
                }
            }
            Job::Rebuild(_) => self.filling_returned(peer, result, context),
            Job::Restore(_) => self.restore_returned(peer, result, context),
            Job::Show(_) => self.show_returned(peer, result, context),
        }
    }

    /// A replica failed.
    pub(crate) fn job_lost(&mut self, peer: usize, context: &mut Context<'_, Party>) {
        self.filling_lost(peer, context);
    }

    /// What all copies hold is a snapshot from now on.
    pub(crate) fn note_snapshot(&self, name: &str) {
        if let Some(first) = self.copies().first() {
            self.shared.oracle.borrow_mut().take_snapshot(name, &first.1.head);
        }
    }

    /// Whether it was the job's.
    pub(crate) fn job_completed(
        &mut self,
        token: Token,
        result: &Result<Done, Fault>,
        context: &mut Context<'_, Party>,
    ) -> bool {
        match &self.job {
            Job::Change(change) if change.awaits(token) => {
                let recorded = result.as_ref().map(|_| ()).map_err(ToString::to_string);
                self.on_change(Event::Recorded(recorded), context);
            }
            Job::Rebuild(filling) if filling.awaits(token) => self.filling_recorded(context),
            Job::Restore(restoring) if restoring.awaits(token) => {
                let recorded = result.as_ref().map(|_| ()).map_err(ToString::to_string);
                self.on_restore(restore::Event::Recorded(recorded), context);
            }
            Job::Idle
            | Job::Check { .. }
            | Job::Change(_)
            | Job::Rebuild(_)
            | Job::Restore(_)
            | Job::Show(_) => return false,
        }
        true
    }

    /// The stores behind the replicas that can be read, as far as their processes still live.
    pub(crate) fn copies(&self) -> Vec<(&'static str, Ref<'_, Store>)> {
        let store = |peer: usize| {
            let store = self.shared.stores[peer].borrow();
            (store.session == Some(self.peers[peer].session)).then_some((NAMES[peer], store))
        };
        self.readable().into_iter().filter_map(store).collect()
    }

    /// Under a hold nothing is under way, so all copies must be alike, and with a flush on disk.
    pub(crate) fn inspect(&self, flushed: Option<u64>) {
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
