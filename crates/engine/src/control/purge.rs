//! Has all replicas begin to merge removed snapshots away: takes the steps of [`Purge`].

use std::sync::Arc;

use futures::FutureExt as _;
use rpc::HeadParent;

use crate::machine::outcome::Left;
use crate::machine::purge::{Event, Purge, Step, View};

use super::drive::{Calls, Driver, Taken, Taking, drive};
use super::engine::{CALL_LIMIT, Engine, Replica};
use super::link::{CallError, Link};
use super::together::of;

/// What a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) head_parent: HeadParent,
    /// That a replica purges already is as good.
    pub(super) skips: bool,
}

async fn look(link: Link, address: String, filled: Option<String>) -> Result<View, String> {
    let told = |doing: String| move |error: CallError| format!("{doing}: {}", error.answered());
    let replica = link.get(CALL_LIMIT).await;
    let replica = replica.map_err(told(format!("failed to get replica {address}")))?;
    let purging = link.purge_status(CALL_LIMIT).await;
    let purging =
        purging.map_err(told(format!("failed to get snapshot purge status of {address}")))?;
    // One that keeps no standing is marked a while after it has joined.
    let is_rebuilding = replica.rebuilding || filled.as_ref() == Some(&address);
    Ok(View { is_rebuilding, is_purging: purging.is_purging })
}

impl Engine {
    /// Has all replicas purge; gives those that have not begun, and why.
    pub(super) async fn purge(self: &Arc<Self>, wanted: Wanted) -> Result<Vec<Left>, String> {
        // Nobody joins between the look and the first who begins.
        let _order = self.order.lock().await;
        self.purge_ordered(wanted).await
    }

    /// Without snapshots that nobody needs, what is restored has its place.
    pub(super) async fn purge_before_restore(self: &Arc<Self>) -> Result<(), String> {
        let wanted = Wanted { head_parent: HeadParent::Keep, skips: true };
        let left = self.purge_ordered(wanted).await?;
        left.into_iter().next().map_or(Ok(()), |left| Err(left.message))
    }

    async fn purge_ordered(self: &Arc<Self>, wanted: Wanted) -> Result<Vec<Left>, String> {
        let mut replicas = self.live();
        // A raw file has no snapshots.
        replicas.retain(|replica| replica.link.file().is_none());
        let members = replicas.iter().filter_map(Replica::asked).collect();
        let (machine, first) = Purge::begin(wanted.skips, members);
        let mut purging = Purging {
            engine: Arc::clone(self),
            machine,
            head_parent: wanted.head_parent,
            replicas,
        };
        let ended = drive(&mut purging, first).await;
        ended.unwrap_or_else(|| Err("nothing is left to wait for".to_owned()))
    }
}

struct Purging {
    engine: Arc<Engine>,
    machine: Purge,
    head_parent: HeadParent,
    replicas: Vec<Replica>,
}

impl Driver for Purging {
    type Step = Step;
    type Event = Event;
    type End = Result<Vec<Left>, String>;

    fn on(&mut self, event: Event) -> Vec<Step> {
        self.machine.on(event)
    }

    fn take<'t>(
        &'t mut self,
        step: Step,
        calls: &'t mut Calls<Event>,
    ) -> Taking<'t, Event, Result<Vec<Left>, String>> {
        async move {
            let (engine, head_parent) = (Arc::clone(&self.engine), self.head_parent);
            let gone = || "it failed meanwhile".to_owned();
            let (Step::Look(id) | Step::Ask(id) | Step::LookAgain(id)) = step else {
                let Step::End(ended) = step else { return Taken::Nothing };
                return Taken::End(ended);
            };
            let Some(Replica { link, address, .. }) = of(&self.replicas, id).cloned() else {
                return Taken::Nothing;
            };
            calls.push(match step {
                Step::Ask(_) => async move {
                    let asked = async {
                        let asked = link.purge(CALL_LIMIT, head_parent).await;
                        asked.map_err(|error| {
                            format!("failed to purge snapshots: {}", error.answered())
                        })
                    };
                    Event::Answered(
                        id,
                        engine.unless_failed(id, asked).await.unwrap_or_else(|| Err(gone())),
                    )
                }
                .boxed(),
                Step::LookAgain(_) => async move {
                    let status = engine.unless_failed(id, link.purge_status(CALL_LIMIT)).await;
                    let is_purging = matches!(status, Some(Ok(status)) if status.is_purging);
                    Event::LookedAgain(id, is_purging)
                }
                .boxed(),
                Step::Look(_) | Step::End(_) => async move {
                    let filled = engine.filling.borrow().clone();
                    let looked = engine.unless_failed(id, look(link, address, filled)).await;
                    Event::Looked(id, looked.unwrap_or_else(|| Err(gone())))
                }
                .boxed(),
            });
            Taken::Nothing
        }
        .boxed()
    }
}
