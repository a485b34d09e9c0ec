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

/// Who takes the steps of a machine.
pub(super) trait Driver {
    type Step;
    type Event;
    type End;

    /// What follows from an event: the machine's word.
    fn on(&mut self, event: Self::Event) -> Vec<Self::Step>;

    /// Takes one step, or begins a call for it.
    fn take(
        &mut self,
        step: Self::Step,
        calls: &mut Calls<Self::Event>,
    ) -> impl Future<Output = Taken<Self::Event, Self::End>> + Send;
}

/// Takes `first` and all that follows; none if nothing is left to wait for before the end, which no
/// machine lets happen.
pub(super) async fn drive<D: Driver>(driver: &mut D, first: Vec<D::Step>) -> Option<D::End> {
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
