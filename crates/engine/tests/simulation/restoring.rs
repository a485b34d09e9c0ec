//! Restores in the simulation: a volume that is on standby takes backups, and is shown to clients once it
//! has one whole. Takes the steps that the engine's own machine gives, with calls that may be lost,
//! copies that may fail and engines that may die in between; the copies go on by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::core::{Command, Mode, ReplicaId, Token};
use engine::machine::restore::{Event, Restore, Step, Told, Wanted, unfinished};
use testkit::sim::Context;

use crate::engine::Engine;
use crate::jobs::Job;
use crate::message::{Call, Return};
use crate::party::{NAMES, Party, Timer};

#[derive(Debug)]
pub(crate) struct Restoring {
    backup: String,
    machine: Restore,
    waiting: BTreeMap<usize, Awaits>,
    /// Calls that have not left yet.
    late: BTreeMap<usize, Call>,
    record: Option<Token>,
}

#[derive(Debug, Clone, Copy)]
enum Awaits {
    Look,
    Answer,
    LookAgain,
}

impl Restoring {
    pub(crate) fn awaits(&self, token: Token) -> bool {
        self.record == Some(token)
    }
}

/// A frontend is about to start: what the copies say of backups.
#[derive(Debug)]
pub(crate) struct Showing {
    waiting: Vec<usize>,
    told: Vec<Told>,
}

impl Engine {
    /// Whoever keeps the volume on standby wants something of it.
    pub(crate) fn begin_standby_job(&mut self, context: &mut Context<'_, Party>) {
        self.check_owned();
        let now = context.now();
        let mut manager = self.shared.manager.borrow_mut();
        let is_wanted = now >= self.shared.style.shown_from;
        if is_wanted && (manager.shown || context.rng().permille(600)) {
            drop(manager);
            return self.begin_showing(context);
        }
        if !is_wanted && (manager.backups == 0 || context.rng().permille(400)) {
            manager.backups += 1;
        }
        let backup = format!("backup-{}", manager.backups);
        drop(manager);
        if !self.shared.manager.borrow().shown && backup != "backup-0" {
            self.begin_restore(backup, context);
        }
    }

    fn begin_restore(&mut self, backup: String, context: &mut Context<'_, Party>) {
        self.shared.oracle.borrow_mut().make_backup(&backup);
        let size = self.size() as u64;
        let wanted = Wanted {
            backup: backup.clone(),
            backup_volume: "elsewhere".to_owned(),
            backup_bytes: size,
            volume: "here".to_owned(),
            volume_bytes: size,
            fresh_disk: "volume-snap-restored.img".to_owned(),
        };
        let (machine, first) = Restore::begin(wanted, self.members());
        let (waiting, late) = (BTreeMap::new(), BTreeMap::new());
        let restoring = Restoring { backup, machine, waiting, late, record: None };
        self.job = Job::Restore(Box::new(restoring));
        self.take_restore_steps(first, context);
    }

    pub(crate) fn on_restore(&mut self, event: Event, context: &mut Context<'_, Party>) {
        if let Job::Restore(restoring) = &mut self.job {
            let steps = restoring.machine.on(event);
            self.take_restore_steps(steps, context);
        }
    }

    pub(crate) fn restore_returned(
        &mut self,
        peer: usize,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        let Job::Restore(restoring) = &mut self.job else { return };
        let (Some(id), Some(awaits)) = (self.peers[peer].id, restoring.waiting.remove(&peer))
        else {
            return;
        };
        let strange = || "strange".to_owned();
        let event = match (awaits, result) {
            (Awaits::Look, Ok(Return::View(view))) => Event::Looked(id, Ok(*view)),
            (Awaits::Look, result) => Event::Looked(id, Err(result.err().unwrap_or_else(strange))),
            (Awaits::Answer, result) => Event::Answered(id, result.map(|_| ())),
            (Awaits::LookAgain, Ok(Return::View(view))) => {
                Event::LookedAgain(id, Ok(view.restored))
            }
            (Awaits::LookAgain, result) => {
                Event::LookedAgain(id, Err(result.err().unwrap_or_else(strange)))
            }
        };
        self.on_restore(event, context);
    }

    fn call_to_restore(
        &mut self,
        id: ReplicaId,
        awaits: Awaits,
        request: Call,
        context: &mut Context<'_, Party>,
    ) {
        let Some(peer) = self.peer_of(id) else { return };
        if let Job::Restore(restoring) = &mut self.job {
            restoring.waiting.insert(peer, awaits);
            if matches!(awaits, Awaits::Answer) && context.rng().permille(400) {
                restoring.late.insert(peer, request);
                let pause = Duration::from_millis(context.rng().below(400) as u64);
                return context.set_timer(pause, Timer::Late(peer));
            }
        }
        self.call(peer, request, context);
    }

    pub(crate) fn call_late(&mut self, peer: usize, context: &mut Context<'_, Party>) {
        let Job::Restore(restoring) = &mut self.job else { return };
        if let Some(request) = restoring.late.remove(&peer) {
            self.call(peer, request, context);
        }
    }

    fn take_restore_steps(&mut self, steps: Vec<Step>, context: &mut Context<'_, Party>) {
        let now = context.now();
        for step in steps {
            match step {
                Step::Look(id) => self.call_to_restore(id, Awaits::Look, Call::View, context),
                Step::Ask(id, order) => {
                    let Job::Restore(restoring) = &self.job else { return };
                    let backup = restoring.backup.clone();
                    let data = self.shared.oracle.borrow().backup(&backup, self.size());
                    self.asked_for = Some(backup.clone());
                    let companions = order.companions;
                    let request = Call::Restore { backup, companions, content: data };
                    self.call_to_restore(id, Awaits::Answer, request, context);
                }
                Step::LookAgain(id) => {
                    self.call_to_restore(id, Awaits::LookAgain, Call::View, context);
                }
                Step::Purge => {
                    let what = "a volume on standby has snapshots".to_owned();
                    return self.shared.oracle.borrow_mut().complain(what);
                }
                Step::Fail(id, why) => {
                    self.drive(|core, out| core.set_mode(now, id, Mode::Err, &why, out));
                }
                Step::Record => self.submit(Command::Record, context, |engine, token| {
                    if let Job::Restore(restoring) = &mut engine.job {
                        restoring.record = Some(token);
                    }
                }),
                Step::End(ended) => {
                    self.job = Job::Idle;
                    let is_begun = ended.is_ok_and(|left| left.is_empty());
                    self.shared.count(|tally| tally.restores += u64::from(is_begun));
                    return self.check_owned();
                }
            }
        }
    }

    /// What was asked for is done by all that may ever be read from, or by none: the engine sees to that,
    /// whoever asked for it may be gone.
    fn check_owned(&self) {
        let Some(backup) = &self.asked_for else { return };
        let copies = self.copies();
        let follows = |name: &&str| {
            copies.iter().any(|(copy, store)| copy == name && store.restore.follows(backup))
        };
        let names: Vec<&str> = copies.iter().map(|(name, _)| *name).collect();
        let (begun, left): (Vec<&str>, Vec<&str>) = names.into_iter().partition(follows);
        if let ([one, ..], [other, ..]) = (begun.as_slice(), left.as_slice()) {
            let what = format!(
                "{backup} has no owner: {one} restores it, {other} does not, and nobody asks"
            );
            self.shared.oracle.borrow_mut().complain(what);
        }
    }

    fn begin_showing(&mut self, context: &mut Context<'_, Party>) {
        let waiting = self.readable();
        self.job = Job::Show(Box::new(Showing { waiting: waiting.clone(), told: vec![] }));
        for peer in waiting {
            self.call(peer, Call::View, context);
        }
    }

    pub(crate) fn show_returned(
        &mut self,
        peer: usize,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        let Job::Show(showing) = &mut self.job else { return };
        let Some(at) = showing.waiting.iter().position(|other| *other == peer) else { return };
        showing.waiting.remove(at);
        let address = NAMES[peer].to_owned();
        showing.told.push(match result {
            Ok(Return::View(view)) => {
                Told { address, identity: view.identity, restored: Ok(view.restored) }
            }
            Ok(_) => Told { address, identity: None, restored: Err("strange".to_owned()) },
            Err(why) => Told { address, identity: None, restored: Err(why) },
        });
        if !showing.waiting.is_empty() {
            return;
        }
        let told = std::mem::take(&mut showing.told);
        self.job = Job::Idle;
        match unfinished(&told) {
            None => self.show(&told),
            Some(why) => {
                let is_passed_over = why.contains("was to be restored with it and was not");
                self.shared.count(|tally| tally.passed_over += u64::from(is_passed_over));
                let manager = self.shared.manager.borrow();
                let (backups, shown) = (manager.backups, manager.shown);
                drop(manager);
                // Who wants to have it shown asks again for what is not whole.
                if !shown && backups > 0 && context.rng().permille(700) {
                    self.begin_restore(format!("backup-{backups}"), context);
                }
            }
        }
    }

    /// Clients have it from now on.
    fn show(&mut self, told: &[Told]) {
        self.is_shown = true;
        self.check_shown();
        let whole = told.iter().filter_map(|it| it.restored.as_ref().ok());
        let backup = whole.map(|restored| restored.last.clone()).find(|last| !last.is_empty());
        let is_first = !std::mem::replace(&mut self.shared.manager.borrow_mut().shown, true);
        if is_first {
            self.shared.oracle.borrow_mut().show(backup.as_deref(), self.size());
            self.shared.count(|tally| tally.shown += u64::from(backup.is_some()));
            self.inspect(None);
        }
    }

    /// Nothing of a volume is shown while a backup is on its way into a copy that can be read.
    pub(crate) fn check_shown(&self) {
        let is_half = |store: &crate::store::Store| {
            store.restore.running.is_some()
                || (store.restore.last.is_empty() && !store.restore.unfinished.is_empty())
        };
        if let Some((name, _)) = self.copies().iter().find(|(_, store)| is_half(store)) {
            let what = format!("the volume is shown while {name} is being restored");
            self.shared.oracle.borrow_mut().complain(what);
        }
    }
}
