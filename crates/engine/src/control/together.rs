//! Takes the steps of [`Together`] with the replicas of this engine.

use std::collections::VecDeque;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::core::Mode;
use crate::machine::outcome::{Asked, Outcome};
use crate::machine::together::{Done, Event, Order, Step, Together, Undone};

use super::engine::{Engine, Replica};
use super::link::{CallError, Link};

impl Replica {
    /// As it is asked, if it is a member.
    pub(super) fn asked(&self) -> Option<Asked> {
        let (mode, address) = (self.mode, self.address.clone());
        self.member.map(|id| Asked { id, mode, address })
    }
}

impl Engine {
    /// Has replicas do what `order` says by `call`; `what` says to the log what it was, and `judge` how
    /// one took it.
    pub(super) async fn together<T, F>(
        &self,
        what: &str,
        order: Order,
        call: impl Fn(Link) -> F,
        judge: fn(Result<T, CallError>) -> Outcome,
    ) -> Result<Done, Undone>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let (mut machine, first) = Together::begin(order);
        let mut steps = VecDeque::from([first]);
        let mut calls = FuturesUnordered::new();
        let mut replicas = vec![];
        let mut guard = None;
        loop {
            let event = match steps.pop_front() {
                Some(Step::Hold(kind)) => match self.hold(kind).await {
                    Ok(held) => {
                        guard = Some(held);
                        replicas = self.live();
                        Event::Held(replicas.iter().filter_map(Replica::asked).collect())
                    }
                    Err(busy) => Event::Busy(busy.to_string()),
                },
                Some(Step::Ask(id)) => {
                    let asked = replicas.iter().find(|replica| replica.member == Some(id));
                    let asked = asked.map(|replica| call(replica.link.clone()));
                    calls.extend(asked.map(|asked| async move { (id, judge(asked.await)) }));
                    continue;
                }
                Some(Step::Fail(id, why)) => {
                    self.volume.set_mode(id, Mode::Err, &format!("{what}: {why}")).await;
                    continue;
                }
                Some(Step::Release) => {
                    drop(guard.take());
                    continue;
                }
                Some(Step::Resize(size)) => Event::Resized(self.resize(size).await),
                Some(Step::Record) => {
                    Event::Recorded(self.record().await.map_err(|fault| fault.to_string()))
                }
                Some(Step::End(ended)) => return ended,
                None => match calls.next().await {
                    Some((id, outcome)) => Event::Answered(id, outcome),
                    // Each step but the last is answered by an event.
                    None => return Err(Undone::Replicas("nothing is left to wait for".to_owned())),
                },
            };
            steps.extend(machine.on(event));
        }
    }

    async fn resize(&self, size: u64) -> Result<(), String> {
        self.volume.resize(size).await.map_err(|error| error.to_string())?;
        self.state().size = size;
        Ok(())
    }
}
