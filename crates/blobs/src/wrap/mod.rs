//! Wrappers: each is a [`Store`] around another. The usual order, from the outside in:
//! [`Retrying`], [`Limited`], [`Measured`], the store. A try that waits for its turn is then not
//! measured as slow, and one that waits to try again holds no turn.

mod faults;
mod limit;
mod metrics;
mod retry;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
pub use faults::{Fault, Faults, Faulty};
pub use limit::Limited;
pub use metrics::{Measured, Metrics};
pub use retry::{Policy, Retrying, RetryingHolds};

use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::store::{Batch, Blob, Capabilities, Level, Meta, Page, Permit, Store, Version};
use crate::stream::{Body, Parts};

/// Which of the methods is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    PutNew,
    PutIfMatch,
    Put,
    PutStream,
    GetRange,
    GetStream,
    Head,
    List,
    ListLevel,
    Delete,
    DeleteMany,
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::PutNew => "put_new",
            Self::PutIfMatch => "put_if_match",
            Self::Put => "put",
            Self::PutStream => "put_stream",
            Self::GetRange => "get_range",
            Self::GetStream => "get_stream",
            Self::Head => "head",
            Self::List => "list",
            Self::ListLevel => "list_level",
            Self::Delete => "delete",
            Self::DeleteMany => "delete_many",
        })
    }
}

/// What a simple wrapper does around any one call.
trait Around: fmt::Debug + Send + Sync {
    fn around<T: Send>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> impl Future<Output = Result<T, Error>> + Send;

    /// Whether batches pass by: there is nothing around what is done in them.
    fn lets_batches_pass(&self) -> bool {
        true
    }
}

/// A store with something around each of its calls.
#[derive(Debug)]
struct Wrapped<A> {
    inner: Arc<dyn Store>,
    around: A,
}

#[async_trait]
impl<A: Around> Store for Wrapped<A> {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.around.around(Method::PutNew, self.inner.put_new(key, bytes)).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        let call = self.inner.put_if_match(key, bytes, version);
        self.around.around(Method::PutIfMatch, call).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.around.around(Method::Put, self.inner.put(key, bytes)).await
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        self.around.around(Method::PutStream, self.inner.put_stream(key, body, parts)).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        self.around.around(Method::GetRange, self.inner.get_range(key, range)).await
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        self.around.around(Method::GetStream, self.inner.get_stream(key)).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        self.around.around(Method::Head, self.inner.head(key)).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        self.around.around(Method::List, self.inner.list(prefix, after)).await
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        self.around.around(Method::ListLevel, self.inner.list_level(prefix)).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        self.around.around(Method::Delete, self.inner.delete(key)).await
    }

    async fn delete_within(&self, key: &Key, permit: &Permit) -> Result<(), Error> {
        self.around.around(Method::Delete, self.inner.delete_within(key, permit)).await
    }

    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        self.around.around(Method::DeleteMany, self.inner.delete_many(keys, permit)).await
    }

    async fn batch(&self, prefix: &Prefix) -> Result<Option<Arc<dyn Batch>>, Error> {
        if self.around.lets_batches_pass() { self.inner.batch(prefix).await } else { Ok(None) }
    }

    async fn settle(&self, prefixes: &[Prefix]) -> Result<(), Error> {
        self.inner.settle(prefixes).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
