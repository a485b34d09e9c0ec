//! A replica process: serves frames and calls, in any order, on top of a store.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use testkit::sim::{Context, Rng};
use wire::frame::{Answer, Outcome, Request};
use wire::membership::Claim;

use crate::message::{Call, Message, Opened, Return};
use crate::oracle::CELL;
use crate::party::{Party, Shared, Timer};
use crate::store::{Ailment, Store, Sync};

#[derive(Debug)]
struct Task {
    from: String,
    session: u64,
    request: Request,
    sync: Sync,
}

#[derive(Debug)]
pub(crate) struct Replica {
    shared: Rc<Shared>,
    store: Rc<RefCell<Store>>,
    tasks: BTreeMap<u64, Task>,
    next: u64,
}

impl Replica {
    pub(crate) fn start(shared: &Rc<Shared>, own: usize) -> Self {
        let (shared, store) = (Rc::clone(shared), Rc::clone(&shared.stores[own]));
        Self { shared, store, tasks: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn on_message(
        &mut self,
        from: &str,
        message: Message,
        context: &mut Context<'_, Party>,
    ) {
        match message {
            Message::Frame { session, request } => self.accept(from, session, request, context),
            Message::Call { call, session, claim, request } => {
                let before = (self.store.borrow().engine.clone(), self.store.borrow().session);
                let clock = i64::from_le_bytes(context.rng().number().to_le_bytes());
                // For reasons of its own, and not the others.
                let goes_on = match &request {
                    Call::Restore { .. } => Some(Timer::Restore),
                    Call::Purge => Some(Timer::Purge),
                    _ => None,
                };
                let refuses = request.is_for_all() && context.rng().permille(50);
                let result = if refuses {
                    Err("too many files are open".to_owned())
                } else {
                    self.call(from, session, claim.as_ref(), request, clock)
                };
                if let (Some(timer), true) = (goes_on, result.is_ok()) {
                    let pause = pause(context.rng());
                    context.set_timer(pause, timer);
                }
                if let (engine, Some(cut)) = before
                    && self.store.borrow().session != Some(cut)
                {
                    self.cut_off(&engine, cut, context);
                }
                context.send(from, Message::Return { call, result });
            }
            Message::Answer { .. }
            | Message::Reset { .. }
            | Message::CutOff { .. }
            | Message::Return { .. } => {}
        }
    }

    /// Tells an engine that its connection is another's now, if the replica can tell that.
    fn cut_off(&self, engine: &str, session: u64, context: &mut Context<'_, Party>) {
        let generation = self.store.borrow().standing.as_ref().map(|it| it.claim.generation);
        context.send(
            engine,
            match generation {
                Some(generation) => Message::CutOff { session, generation },
                None => Message::Reset { session },
            },
        );
    }

    fn accept(
        &mut self,
        from: &str,
        session: u64,
        request: Request,
        context: &mut Context<'_, Party>,
    ) {
        let store = self.store.borrow();
        if store.session != Some(session) {
            let taken = store.session.is_some();
            drop(store);
            return if taken {
                self.cut_off(from, session, context);
            } else {
                context.send(from, Message::Reset { session });
            };
        }
        let delay = delay(context.rng(), store.ailment == Ailment::Slow);
        self.next += 1;
        let task = Task { from: from.to_owned(), session, request, sync: store.begin_sync() };
        self.tasks.insert(self.next, task);
        context.set_timer(delay, Timer::Task(self.next));
    }

    pub(crate) fn on_restore(&mut self, context: &mut Context<'_, Party>) {
        if self.store.borrow_mut().go_on_restoring() {
            let pause = pause(context.rng());
            context.set_timer(pause, Timer::Restore);
        }
    }

    pub(crate) fn on_purge(&mut self, context: &mut Context<'_, Party>) {
        let is_gone = self.store.borrow_mut().go_on_purging();
        self.shared.count(|tally| tally.purged += u64::from(is_gone == Some(true)));
        if is_gone.is_some() {
            let pause = pause(context.rng());
            context.set_timer(pause, Timer::Purge);
        }
    }

    pub(crate) fn on_task(&mut self, id: u64, context: &mut Context<'_, Party>) {
        let Some(Task { from, session, request, sync }) = self.tasks.remove(&id) else { return };
        let mut store = self.store.borrow_mut();
        if store.session != Some(session) {
            return;
        }
        let lying = store.ailment == Ailment::Lying;
        let short = if lying { shortened(&request, context.rng()) } else { None };
        let outcome = store.apply(short.as_ref().unwrap_or(&request), &sync, context.rng());
        let failed = matches!(outcome, Outcome::Error(_));
        let offset = if failed { i64::try_from(store.reached).unwrap() } else { 0 };
        let answer = Answer { sequence: sequence(&request), offset, outcome };
        let answer = if lying && short.is_none() { twisted(answer, context.rng()) } else { answer };
        context.send(&from, Message::Answer { session, answer });
    }

    fn call(
        &mut self,
        from: &str,
        session: u64,
        claim: Option<&Claim>,
        request: Call,
        clock: i64,
    ) -> Result<Return, String> {
        let mut store = self.store.borrow_mut();
        if matches!(request, Call::Look) {
            return Ok(Return::Looked(store.standing.clone()));
        }
        let connects = matches!(request, Call::Open | Call::Prepare { .. });
        match (&store.standing, claim) {
            (Some(standing), Some(claim)) if !connects => {
                standing.permits(claim).map_err(|refused| refused.to_string())?;
            }
            (Some(_), Some(_)) => {}
            // Calls of one engine that overtake each other; of a second nothing is known.
            (_, _) if session < store.last_session => {
                return Err("somebody else has come since".to_owned());
            }
            (_, _) => {}
        }
        if connects {
            store.claim(claim, matches!(request, Call::Prepare { .. }), session)?;
            (store.session, store.last_session) = (Some(session), session);
            from.clone_into(&mut store.engine);
        } else if store.session.is_none() {
            return Err("closed".to_owned());
        }
        match request {
            Call::Look => Err("strange".to_owned()),
            Call::Open => Ok(Return::Opened(Box::new(Opened {
                counter: store.counter,
                rebuilding: store.rebuilding,
                standing: store.standing.clone(),
                size: store.head.len(),
                chain: store.chain(),
                modified_ns: clock,
            }))),
            Call::Prepare { size } => {
                store.begin_rebuild(size);
                Ok(Return::Done)
            }
            Call::Mark { rebuilding } => store.mark(rebuilding).map(|()| Return::Marked),
            Call::Snapshot { name, kept } => store.snapshot(&name, kept).map(|()| Return::Done),
            Call::Revert { name } => store.revert(&name).map(|()| Return::Done),
            Call::Expand { size } => store.expand(size).map(|()| Return::Done),
            Call::View => Ok(Return::View(Box::new(store.view()))),
            Call::Restore { backup, companions, content } => {
                store.begin_restore(backup, companions, content).map(|()| Return::Done)
            }
            Call::Purge => store.begin_purge().map(|()| Return::Done),
            Call::Fetch { name, offset, len } => match store.file(&name) {
                Some(content) => Ok(Return::Data(content.slice(offset..offset + len))),
                None => Err(format!("no snapshot {name}")),
            },
            Call::Store { offset, data } => match &mut store.rebuild {
                Some(rebuild) => {
                    rebuild.base[offset..offset + data.len()].copy_from_slice(&data);
                    Ok(Return::Done)
                }
                None => Err("not being rebuilt".to_owned()),
            },
            Call::Counter => {
                Ok(Return::Counter { counter: store.counter, layers: store.layers.clone() })
            }
            Call::Finish { counter, layers } => {
                let is_done = store.end_rebuild(counter, layers);
                is_done.then_some(Return::Done).ok_or_else(|| "not being rebuilt".to_owned())
            }
        }
    }
}

/// Between two parts of a restore.
fn pause(rng: &mut Rng) -> Duration {
    Duration::from_millis(1 + rng.below(250) as u64)
}

fn delay(rng: &mut Rng, slow: bool) -> Duration {
    let most = match (slow, rng.below(10)) {
        (true, 0..5) => 2_500_000,
        (_, 0) => 8_000,
        (_, _) => 600,
    };
    Duration::from_micros(rng.below(most) as u64)
}

/// Less than was asked for, at times.
fn shortened(request: &Request, rng: &mut Rng) -> Option<Request> {
    match request {
        Request::Write { sequence, offset, data } if data.len() > CELL && rng.permille(500) => {
            let data = data.slice(..data.len() - CELL);
            Some(Request::Write { sequence: *sequence, offset: *offset, data })
        }
        _ => None,
    }
}

fn twisted(answer: Answer, rng: &mut Rng) -> Answer {
    let Answer { sequence, offset, outcome } = answer;
    match rng.below(4) {
        0 => Answer { sequence: sequence ^ 0x8000_0000, offset, outcome },
        1 => Answer { sequence: sequence ^ 0x0008_0000, offset, outcome },
        2 => {
            let outcome = match outcome {
                Outcome::Data(data) => Outcome::Data(data.slice(1..)),
                Outcome::Count(count) => Outcome::Count(count.wrapping_sub(1)),
                other => other,
            };
            Answer { sequence, offset, outcome }
        }
        _ => Answer { sequence, offset, outcome: Outcome::Eof(bytes::Bytes::new()) },
    }
}

pub(crate) fn sequence(request: &Request) -> u32 {
    match request {
        Request::Read { sequence, .. }
        | Request::Write { sequence, .. }
        | Request::Unmap { sequence, .. }
        | Request::Discard { sequence, .. }
        | Request::Ping { sequence }
        | Request::Flush { sequence }
        | Request::Zero { sequence, .. }
        | Request::Hello { sequence, .. }
        | Request::Record { sequence, .. }
        | Request::Status { sequence, .. } => *sequence,
        Request::Close => 0,
    }
}
