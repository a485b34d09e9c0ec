//! The loop that takes the steps of a machine: one after the other, and while there is none, what
//! comes of the calls that were begun.

use std::collections::VecDeque;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

/// Calls that are under way; each ends with an event.
pub(super) type Calls<E> = FuturesUnordered<BoxFuture<'static, E>>;

/// What came of taking a step.
#[derive(Debug)]
pub(super) enum Taken<E, R> {
    Event(E),
    /// Nothing, or nothing yet.
    Nothing,
    End(R),
}

/// What a step is on its way to.
pub(super) type Taking<'t, E, R> = BoxFuture<'t, Taken<E, R>>;

/// Who takes the steps of a machine. Its futures are boxed: who drives it is generic, and the compiler
/// cannot tell of such that they may move between threads.
pub(super) trait Driver: Send {
    type Step: Send;
    type Event: Send;
    type End: Send;

    /// What follows from an event: the machine's word.
    fn on(&mut self, event: Self::Event) -> Vec<Self::Step>;

    /// Takes one step, or begins a call for it.
    fn take<'t>(
        &'t mut self,
        step: Self::Step,
        calls: &'t mut Calls<Self::Event>,
    ) -> Taking<'t, Self::Event, Self::End>;
}

/// A driver of any kind.
type Any<'d, S, E, R> = dyn Driver<Step = S, Event = E, End = R> + 'd;

/// Takes `first` and all that follows; none if nothing is left to wait for before the end, which no
/// machine lets happen.
pub(super) async fn drive<S, E, R>(driver: &mut Any<'_, S, E, R>, first: Vec<S>) -> Option<R>
where
    S: Send,
    E: Send,
    R: Send,
{
    let mut steps = VecDeque::from(first);
    let mut calls = Calls::new();
    loop {
        let taken = match steps.pop_front() {
            Some(step) => driver.take(step, &mut calls).await,
            None => Taken::Event(calls.next().await?),
        };
        match taken {
            Taken::Event(event) => steps.extend(driver.on(event)),
            Taken::Nothing => {}
            Taken::End(end) => return Some(end),
        }
    }
}
