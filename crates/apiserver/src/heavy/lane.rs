//! A queue for work of which little is done at once. Callers have their turns one after the other:
//! whoever has a hundred pieces of work waiting keeps nobody else waiting for more than one of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct Lane(Mutex<Queue<oneshot::Sender<Turn>>>);

/// The right to work; given on when it is dropped.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Lane>>);

/// Who waits, in the order in which they will be called.
#[derive(Debug)]
struct Queue<T> {
    free: usize,
    callers: VecDeque<(Arc<str>, VecDeque<T>)>,
}

impl<T> Queue<T> {
    /// Lets somebody begin at once, or has it wait.
    fn enter(&mut self, caller: &Arc<str>, one: impl FnOnce() -> T) -> bool {
        if let Some(free) = self.free.checked_sub(1) {
            self.free = free;
            return true;
        }
        match self.callers.iter_mut().find(|(name, _)| name == caller) {
            Some((_, waiting)) => waiting.push_back(one()),
            None => self.callers.push_back((Arc::clone(caller), VecDeque::from([one()]))),
        }
        false
    }

    /// Who is next: the first of the first caller, who then queues behind the others.
    fn next(&mut self) -> Option<T> {
        let Some((caller, mut waiting)) = self.callers.pop_front() else {
            self.free += 1;
            return None;
        };
        let one = waiting.pop_front();
        if !waiting.is_empty() {
            self.callers.push_back((caller, waiting));
        }
        one
    }
}

impl Lane {
    pub(super) fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Queue { free: turns, callers: VecDeque::new() })))
    }

    /// Waits for a turn.
    ///
    /// # Cancel safety
    ///
    /// Whoever stops waiting has lost its place; a turn that was on its way to it goes to the next.
    pub(super) async fn wait(self: &Arc<Self>, caller: &Arc<str>) -> Turn {
        let mut told = None;
        let is_free = self.queue().enter(caller, || {
            let (tell, later) = oneshot::channel();
            told = Some(later);
            tell
        });
        match told {
            Some(later) if !is_free => {
                // Whoever has a turn gives it on: the queue lives in what we hold.
                later.await.unwrap_or(Turn(None))
            }
            _ => Turn(Some(Arc::clone(self))),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue<oneshot::Sender<Turn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(lane) = self.0.take() else { return };
        loop {
            let Some(next) = lane.queue().next() else { return };
            match next.send(Self(Some(Arc::clone(&lane)))) {
                Ok(()) => return,
                // Nobody waits there any more; this one must not give the turn on as well.
                Err(mut back) => back.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(turns: usize) -> Queue<&'static str> {
        Queue { free: turns, callers: VecDeque::new() }
    }

    #[test]
    fn callers_have_their_turns_one_after_the_other() {
        let mut queue = queue(1);
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        assert!(queue.enter(&ada, || "a0"));
        for name in ["a1", "a2", "a3"] {
            assert!(!queue.enter(&ada, || name));
        }
        assert!(!queue.enter(&bob, || "b1"));
        assert!(!queue.enter(&bob, || "b2"));
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
        assert!(queue.enter(&bob, || "b3"), "what is over is free again");
    }

    #[tokio::test]
    async fn turns_are_given_on_also_past_those_who_have_gone() {
        let lane = Lane::new(1);
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        let first = lane.wait(&ada).await;
        {
            let gone = lane.wait(&ada);
            let mut gone = std::pin::pin!(gone);
            assert!(futures::poll!(&mut gone).is_pending());
        }
        let mut later = std::pin::pin!(lane.wait(&bob));
        assert!(futures::poll!(&mut later).is_pending());
        drop(first);
        drop(later.await);
        // And nothing is lost on the way.
        drop(lane.wait(&ada).await);
        assert_eq!(lane.queue().free, 1);
    }
}
