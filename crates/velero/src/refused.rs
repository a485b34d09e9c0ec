//! Objects whose status the API server does not take, as where an object fell out of what its definition
//! allows. What is asked for again at once is refused again: they are left out for a while, so that one of
//! them holds up no queue.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Failure, Next};
use tokio::time::Instant;

/// How long one is left out, unless it changes.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// As it was when it was refused.
#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    version: Option<String>,
    since: Instant,
}

/// What is left out, by kind and name.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<(&'static str, String), Entry>>);

impl Refused {
    /// Whether this failure is about the object, which is then left out for a while.
    pub(crate) fn note(&self, kind: &'static str, object: &ObjectMeta, failure: &Failure) -> bool {
        let Some(why) = failure.rejection() else { return false };
        let name = object.name.clone().unwrap_or_default();
        tracing::warn!(
            kind,
            name,
            why,
            "the API server does not take what is written of an object"
        );
        let (uid, version) = (object.uid.clone(), object.resource_version.clone());
        let mut all = self.lock();
        all.retain(|_, it| it.since.elapsed() < ASK_AGAIN_AFTER);
        all.insert((kind, name), Entry { uid, version, since: Instant::now() });
        true
    }

    /// When an object is to be looked at again, if it is left out.
    pub(crate) fn until(&self, kind: &'static str, object: &ObjectMeta) -> Option<Next> {
        let all = self.lock();
        let entry = all.get(&(kind, object.name.clone().unwrap_or_default()))?;
        let is_same = entry.uid == object.uid && entry.version == object.resource_version;
        let left = ASK_AGAIN_AFTER.saturating_sub(entry.since.elapsed());
        (is_same && !left.is_zero()).then(|| Next::after(left))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(&'static str, String), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
