//! Calls that fail on purpose, for tests: the n-th one, before or after it was done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Around, Method, Wrapped};
use crate::error::Error;
use crate::key::Key;
use crate::store::Store;

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not reach the store.
    Before,
    /// The store does it, and the answer is lost.
    After,
    /// The store says that there is no such object, whatever it has.
    Denied,
    /// It takes this much longer.
    Delay(Duration),
}

/// The plan, to be changed while the store is used. Clones are the same plan.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    plan: BTreeMap<u64, Fault>,
}

impl Faults {
    /// The `nth` call from now (1 is the next) suffers `fault`.
    pub fn plan(&self, nth: u64, fault: Fault) {
        let mut state = self.lock();
        let at = state.calls.saturating_add(nth);
        state.plan.insert(at, fault);
    }

    /// Faults that no call has met yet.
    pub fn waiting(&self) -> usize {
        self.lock().plan.len()
    }

    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    fn next(&self) -> Option<Fault> {
        let mut state = self.lock();
        state.calls += 1;
        let call = state.calls;
        state.plan.remove(&call)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct Faulty {
    faults: Faults,
}

impl Faulty {
    pub fn around(inner: Arc<dyn Store>, faults: Faults) -> Arc<dyn Store> {
        Arc::new(Wrapped { inner, around: Self { faults } })
    }
}

impl Around for Faulty {
    fn lets_batches_pass(&self) -> bool {
        false
    }

    async fn around<T: Send>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let failed =
            || Error::Unavailable { what: method.to_string(), source: "on purpose".into() };
        match self.faults.next() {
            None => call.await,
            Some(Fault::Before) => Err(failed()),
            Some(Fault::Denied) => {
                Err(Key::parse("on-purpose")
                    .map_or_else(|_| failed(), |key| Error::NotFound { key }))
            }
            Some(Fault::After) => {
                call.await?;
                Err(failed())
            }
            Some(Fault::Delay(longer)) => {
                tokio::time::sleep(longer).await;
                call.await
            }
        }
    }
}
