//! So many calls at a time, and no more; the rest wait in the order they came.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{Around, Method, Wrapped};
use crate::error::Error;
use crate::store::Store;

#[derive(Debug)]
pub struct Limited {
    turns: Semaphore,
}

impl Limited {
    /// `inner` with at most `calls` calls running.
    pub fn around(inner: Arc<dyn Store>, calls: NonZeroUsize) -> Arc<dyn Store> {
        let calls = calls.get().min(Semaphore::MAX_PERMITS);
        Arc::new(Wrapped { inner, around: Self { turns: Semaphore::new(calls) } })
    }
}

impl Around for Limited {
    async fn around<T: Send>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let turn = self.turns.acquire().await;
        let _turn = turn.map_err(|closed| Error::Unavailable {
            what: method.to_string(),
            source: closed.into(),
        })?;
        call.await
    }
}
