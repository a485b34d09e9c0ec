//! What a service says of objects beside their bytes: which version there is, until when it may not
//! be removed, and whether it was marked to be left out.
//!
//! Owns: the listings of S3, Google and Azure that tell so, which the library underneath does not
//! know, and what is done with one version. A service that tells none of it has plain listings.

mod azure;
mod google;
mod s3;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
pub(crate) use azure::AzureHolds;
pub(crate) use google::GoogleHolds;
use jiff::Timestamp;
pub(crate) use s3::{S3Holds, bucket_url};

use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::store::{Meta, Store, list_all};
use crate::wire::Fault;

/// Of an answer that lists.
const LISTING_MAX_BYTES: usize = 16 << 20;
/// Objects asked for at once.
const PAGE: &str = "1000";

/// An object as such a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub meta: Meta,
    /// To be given back for reading and removing exactly this; none where there is one only.
    pub version: Option<String>,
    /// The service refuses to remove it before.
    pub locked_until: Option<Timestamp>,
    /// It was marked to be left out of whatever is done with the others.
    pub is_excluded: bool,
}

impl Held {
    fn plain(meta: Meta) -> Self {
        Self { meta, version: None, locked_until: None, is_excluded: false }
    }
}

#[async_trait]
pub trait Holds: fmt::Debug + Send + Sync {
    /// All objects under `prefix`; `mark` is the name of the tag that says `true` of what is to be
    /// left out. For prefixes of known size: it holds them all.
    async fn list(&self, prefix: &Prefix, mark: &str) -> Result<Vec<Held>, Error>;

    /// The store as it shows one version of an object; none where there are no versions.
    fn reading(&self, version: &str) -> Option<Arc<dyn Store>>;

    /// Removes that version; one that is not there is removed already.
    async fn delete(&self, key: &Key, version: &str) -> Result<(), Error>;

    /// Gives up uploads in parts under `prefix` that began before `time` and were never finished;
    /// says how many. Services that let go of them by themselves have none.
    async fn sweep_uploads(&self, prefix: &Prefix, time: Timestamp) -> Result<u64, Error>;
}

/// A store of which nothing more is known.
#[derive(Debug)]
pub struct Plain(pub Arc<dyn Store>);

#[async_trait]
impl Holds for Plain {
    async fn list(&self, prefix: &Prefix, _: &str) -> Result<Vec<Held>, Error> {
        let found = list_all(self.0.as_ref(), prefix).await?;
        Ok(found.into_iter().map(Held::plain).collect())
    }

    fn reading(&self, _: &str) -> Option<Arc<dyn Store>> {
        None
    }

    async fn delete(&self, key: &Key, _: &str) -> Result<(), Error> {
        self.0.delete(key).await
    }

    async fn sweep_uploads(&self, _: &Prefix, _: Timestamp) -> Result<u64, Error> {
        Ok(0)
    }
}

/// A store, and what else its service says.
#[derive(Debug, Clone)]
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub holds: Arc<dyn Holds>,
}

impl Opened {
    pub fn plain(store: Arc<dyn Store>) -> Self {
        Self { holds: Arc::new(Plain(Arc::clone(&store))), store }
    }
}

/// Where names in a bucket begin, for a store that is a folder of it.
#[derive(Debug, Clone)]
struct Folder(Option<Key>);

impl Folder {
    fn whole(&self, key: &Key) -> String {
        self.0.as_ref().map_or_else(|| key.to_string(), |folder| format!("{folder}/{key}"))
    }

    /// With a slash at its end, where it is not all of the bucket.
    fn prefix(&self, prefix: &Prefix) -> String {
        match (prefix.folder(), &self.0) {
            (Some(key), _) => format!("{}/", self.whole(key)),
            (None, Some(folder)) => format!("{folder}/"),
            (None, None) => String::new(),
        }
    }

    fn below(&self, name: &str) -> Option<Key> {
        let below = match &self.0 {
            Some(folder) => name.strip_prefix(folder.as_str())?.strip_prefix('/')?,
            None => name,
        };
        Key::parse(below).ok()
    }
}

fn listing(prefix: &str) -> String {
    format!("the listing of {prefix}")
}

fn bad_listing(prefix: &str) -> Error {
    let fault = Fault::Answer { status: 200, what: "no listing that can be read" };
    fault.into_error(listing(prefix))
}
