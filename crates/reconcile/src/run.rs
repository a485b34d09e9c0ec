//! The loop of a controller: keys come from stores, passes run side by side, but never two of a key.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tracing::Instrument;

use crate::cache::Object;
use crate::controller::Context;
use crate::error::Failure;
use crate::key::Key;
use crate::queue::{Backoff, Queue};
use crate::store::Store;

/// So many passes in a row that found that somebody else wrote first are told about.
const CONFLICTS_TOLD: u32 = 8;
/// Passes of different keys that may run at once.
const WORKERS: usize = 5;

/// Of objects of which nothing is heard no more than so many are looked at in each of these.
const RESYNC_TICK: Duration = Duration::from_secs(1);
const RESYNC_MOST: usize = 50;

/// How many of so many objects are looked at together, and the pause before each such part: all of them
/// within the time, evenly, or within a longer one where they are very many. What does not change costs
/// little, however much of it there is.
fn parts(count: usize, every: Duration) -> (usize, Duration) {
    let ticks = usize::try_from(every.as_secs()).unwrap_or(usize::MAX).max(1);
    let at_once = count.div_ceil(ticks).clamp(1, RESYNC_MOST);
    let parts = u32::try_from(count.div_ceil(at_once)).unwrap_or(u32::MAX).max(1);
    (at_once, (every / parts).max(RESYNC_TICK))
}

/// When to look again, though nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next(Option<Duration>);

impl Next {
    /// Only when something changes.
    pub const WAIT: Self = Self(None);

    pub const fn after(pause: Duration) -> Self {
        Self(Some(pause))
    }

    /// The earlier of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(one), Some(two)) => Self(Some(one.min(two))),
            (one, two) => Self(one.or(two)),
        }
    }
}

/// What a controller does with a key. No other input, no memory between passes but caches.
pub trait Reconciler: Send + Sync + 'static {
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Next, Failure>> + Send;
}

/// One queue of keys and where they come from.
pub struct Loop {
    name: &'static str,
    queue: Arc<Queue>,
    context: Context,
    waits: Vec<BoxFuture<'static, ()>>,
    workers: usize,
    resyncs: Vec<BoxFuture<'static, ()>>,
}

impl fmt::Debug for Loop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Loop").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Loop {
    pub fn new(name: &'static str, context: &Context) -> Self {
        Self {
            name,
            queue: Arc::new(Queue::new(Backoff::DEFAULT)),
            context: context.clone(),
            waits: Vec::new(),
            workers: WORKERS,
            resyncs: Vec::new(),
        }
    }

    /// How many keys may be worked on at once; 5 unless told otherwise.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Asks for a pass of every object of the store within this time, though nothing changes; spread over it,
    /// and within a longer one where there are very many of them.
    #[must_use]
    pub fn resync<K: Object>(mut self, store: &Store<K>, every: Duration) -> Self {
        let (store, queue) = (store.clone(), Arc::clone(&self.queue));
        self.resyncs.push(Box::pin(async move {
            loop {
                let all = store.list();
                let (at_once, pause) = parts(all.len(), every);
                if all.is_empty() {
                    tokio::time::sleep(pause).await;
                }
                for some in all.chunks(at_once) {
                    tokio::time::sleep(pause).await;
                    for object in some {
                        queue.add(&Key::of(object.as_ref()));
                    }
                }
            }
        }));
        self
    }

    /// A change of an object asks for a pass of its own key.
    #[must_use]
    pub fn on<K: Object>(self, store: &Store<K>) -> Self {
        self.map(store, |key, _, _| vec![key.clone()])
    }

    /// A change of an object asks for passes of the keys that `keys` names, from the object as it was
    /// and as it is.
    #[must_use]
    pub fn on_related<K: Object>(
        self,
        store: &Store<K>,
        keys: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.map(store, move |_, before, now| {
            before.into_iter().chain(now).flat_map(&keys).collect()
        })
    }

    /// The general form: any keys for any change. Must not wait.
    #[must_use]
    pub fn map<K: Object>(
        mut self,
        store: &Store<K>,
        keys: impl Fn(&Key, Option<&K>, Option<&K>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let queue = Arc::clone(&self.queue);
        let keys = Arc::new(keys);
        let told = Arc::clone(&keys);
        store.listen(move |key, before, now| {
            for key in told(key, before, now) {
                queue.add(&key);
            }
        });
        // Those that were there before somebody listened.
        for object in store.list() {
            for key in keys(&Key::of(object.as_ref()), None, Some(&object)) {
                self.queue.add(&key);
            }
        }
        let store = store.clone();
        self.waits.push(Box::pin(async move { store.ready().await }));
        self
    }

    /// The store must be complete before the first pass, though its changes ask for none.
    #[must_use]
    pub fn needs<K: Object>(mut self, store: &Store<K>) -> Self {
        let store = store.clone();
        self.waits.push(Box::pin(async move { store.ready().await }));
        self
    }

    /// The queue, for those who have reasons of their own to ask for a pass.
    pub fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// Works until it is dropped.
    pub async fn run(self, reconciler: Arc<impl Reconciler>) {
        futures::future::join_all(self.waits).await;
        let work = (0..self.workers).map(|_| {
            let worker = Worker {
                name: self.name,
                queue: Arc::clone(&self.queue),
                context: self.context.clone(),
            };
            worker.run(Arc::clone(&reconciler))
        });
        tokio::join!(futures::future::join_all(work), futures::future::join_all(self.resyncs));
    }
}

struct Worker {
    name: &'static str,
    queue: Arc<Queue>,
    context: Context,
}

impl Worker {
    async fn run(self, reconciler: Arc<impl Reconciler>) {
        loop {
            let key = self.queue.next().await;
            self.context.metrics.depth(self.name, self.queue.depth());
            let span = tracing::info_span!("reconcile", controller = self.name, %key);
            let began = Instant::now();
            // One key that breaks down must not take the others with it.
            let pass = AssertUnwindSafe(reconciler.reconcile(&key)).catch_unwind();
            let result = pass.instrument(span.clone()).await.unwrap_or_else(|panic| {
                Err(Failure::other("end the pass", message(panic.as_ref())))
            });
            span.in_scope(|| self.settle(&key, result, began.elapsed()));
        }
    }

    fn settle(&self, key: &Key, result: Result<Next, Failure>, took: Duration) {
        match result {
            Ok(next) => {
                self.queue.done(key, next.0);
                self.context.metrics.pass(self.name, "done", took);
            }
            Err(Failure::Conflict { kind, key: other }) => {
                let (pause, times) = self.queue.conflicted(key);
                tracing::debug!(kind, key = %other, "changed by somebody else, looking again");
                if times == CONFLICTS_TOLD {
                    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(kind, key = %other, times, pause_ms,
                        "changed by somebody else, or made before, again and again");
                }
                self.context.metrics.pass(self.name, "conflict", took);
            }
            Err(failure) => {
                let pause = self.queue.failed(key);
                self.context.metrics.pass(self.name, "error", took);
                tracing::warn!(
                    error = %telemetry::Chain(&failure),
                    pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                    "the pass failed, will try again"
                );
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .map_or_else(|| "it broke down".to_owned(), |text| format!("it broke down: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_looked_at_as_seldom_as_they_may_and_many_at_a_bounded_rate() {
        let minute = Duration::from_mins(1);
        for (count, at_once, pause) in [
            (0, 1, 60_000),
            (1, 1, 60_000),
            (10, 1, 6_000),
            (1_000, 17, 1_016),
            (3_000, 50, 1_000),
            (100_000, 50, 1_000),
        ] {
            let (found, after) = parts(count, minute);
            assert_eq!((found, after.as_millis()), (at_once, pause), "{count}");
        }
    }
}
