//! Takes the steps of [`Together`] with the replicas of this engine.

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::core::{Mode, ReplicaId};
use crate::machine::outcome::{Asked, Outcome};
use crate::machine::together::{Done, Event, Order, Step, Together, Undone};
use crate::volume::HoldGuard;

use super::drive::{Calls, Driver, Taken, Taking, drive};
use super::engine::{Engine, Replica};
use super::link::{CallError, Link};

impl Replica {
    /// As it is asked, if it is a member.
    pub(super) fn asked(&self) -> Option<Asked> {
        let (mode, address) = (self.mode, self.address.clone());
        self.member.map(|id| Asked { id, mode, address })
    }
}

/// The one of `replicas` that is this member.
pub(super) fn of(replicas: &[Replica], id: ReplicaId) -> Option<&Replica> {
    replicas.iter().find(|replica| replica.member == Some(id))
}

impl Engine {
    /// Has replicas do what `order` says by `call`; `what` says to the log what it was, and `judge` how
    /// one took it.
    pub(super) async fn together<T, F>(
        &self,
        what: &str,
        order: Order,
        call: impl Fn(Link) -> F + Send + Sync,
        judge: fn(Result<T, CallError>) -> Outcome,
    ) -> Result<Done, Undone>
    where
        T: 'static,
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let (machine, first) = Together::begin(order);
        let ask = |link: Link| {
            let asked = call(link);
            async move { judge(asked.await) }.boxed()
        };
        let ask = &ask;
        let mut all = All { engine: self, machine, what, ask, replicas: vec![], guard: None };
        let ended = drive(&mut all, vec![first]).await;
        ended.unwrap_or_else(|| Err(Undone::Replicas("nothing is left to wait for".to_owned())))
    }

    async fn resize(&self, size: u64) -> Result<(), String> {
        self.volume.resize(size).await.map_err(|error| error.to_string())?;
        self.state().size = size;
        Ok(())
    }
}

/// Has one of them do it.
type Ask<'a> = dyn Fn(Link) -> BoxFuture<'static, Outcome> + Send + Sync + 'a;

/// All that are in use, as of when requests were kept out.
struct All<'a> {
    engine: &'a Engine,
    machine: Together,
    what: &'a str,
    ask: &'a Ask<'a>,
    replicas: Vec<Replica>,
    guard: Option<HoldGuard>,
}

impl Driver for All<'_> {
    type Step = Step;
    type Event = Event;
    type End = Result<Done, Undone>;

    fn on(&mut self, event: Event) -> Vec<Step> {
        self.machine.on(event)
    }

    fn take<'t>(
        &'t mut self,
        step: Step,
        calls: &'t mut Calls<Event>,
    ) -> Taking<'t, Event, Result<Done, Undone>> {
        async move {
            let engine = self.engine;
            match step {
                Step::Hold(kind) => Taken::Event(match engine.hold(kind).await {
                    Ok(held) => {
                        self.guard = Some(held);
                        self.replicas = engine.live();
                        Event::Held(self.replicas.iter().filter_map(Replica::asked).collect())
                    }
                    Err(busy) => Event::Busy(busy.to_string()),
                }),
                Step::Ask(id) => {
                    let asked =
                        of(&self.replicas, id).map(|replica| (self.ask)(replica.link.clone()));
                    calls.extend(
                        asked.map(|it| it.map(move |took| Event::Answered(id, took)).boxed()),
                    );
                    Taken::Nothing
                }
                Step::Fail(id, why) => {
                    engine.volume.set_mode(id, Mode::Err, &format!("{}: {why}", self.what)).await;
                    Taken::Nothing
                }
                Step::Release => {
                    self.guard = None;
                    Taken::Nothing
                }
                Step::Resize(size) => Taken::Event(Event::Resized(engine.resize(size).await)),
                Step::Record => {
                    let recorded = engine.record().await;
                    Taken::Event(Event::Recorded(recorded.map_err(|fault| fault.to_string())))
                }
                Step::End(ended) => Taken::End(ended),
            }
        }
        .boxed()
    }
}
