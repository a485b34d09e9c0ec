//! The objects of one kind: the cache of them, and the one way to write them.
//!
//! A write sends what differs from the version it was decided on and nothing else, and is refused if
//! that version is not the newest any more. Its answer goes into the cache before the call returns.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};

use crate::cache::{Broken, Cache, Indexer, Object};
use crate::controller::Context;
use crate::diff::merge_patch;
use crate::error::{Failure, code};
use crate::key::Key;

/// How long a list or watch may be silent before it is begun anew, at most.
const WATCH_SECONDS: u32 = 290;

/// Objects of one kind, in one namespace or in all.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    cache: Cache<K>,
    client: kube::Client,
    status: StatusDoor,
    reported: Mutex<Vec<(String, String)>>,
}

/// Where a status is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusDoor {
    Subresource,
    Main,
}

/// What a store is to be, before it runs.
pub(crate) struct Plan<K> {
    namespace: Option<String>,
    indexers: Vec<(&'static str, Indexer<K>)>,
    status: StatusDoor,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Object> fmt::Debug for Store<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("kind", &K::kind(&())).finish_non_exhaustive()
    }
}

/// Describes a store; [`StoreBuilder::start`] begins to watch.
pub struct StoreBuilder<K>(Plan<K>);

impl<K> fmt::Debug for StoreBuilder<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoreBuilder")
            .field("namespace", &self.0.namespace)
            .finish_non_exhaustive()
    }
}

impl<K: Object> StoreBuilder<K> {
    /// Lets objects be found by what `values` gives for them: [`Store::by`].
    #[must_use]
    pub fn index(
        mut self,
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.0.indexers.push((name, Box::new(values)));
        self
    }

    /// The kind has no status of its own door: it is written with the object.
    #[must_use]
    pub fn status_in_object(mut self) -> Self {
        self.0.status = StatusDoor::Main;
        self
    }

    /// Begins to watch, as a task of the controller.
    pub fn start(self, context: &Context) -> Store<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let Plan { namespace, indexers, status } = self.0;
        let inner = Arc::new(Inner {
            cache: Cache::new(indexers),
            client: context.client.clone(),
            status,
            reported: Mutex::default(),
        });
        let store = Store { inner };
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, &resource),
            None => Api::all_with(context.client.clone(), &resource),
        };
        let name = format!("watch {}", K::plural(&()));
        context.tasks.spawn(&name, store.clone().follow(api, context.clone()));
        store
    }
}

impl<K: Object> Store<K> {
    /// Objects of one namespace.
    pub fn within(namespace: &str) -> StoreBuilder<K> {
        Self::plan(Some(namespace.to_owned()))
    }

    /// Objects of all namespaces, or of none.
    pub fn everywhere() -> StoreBuilder<K> {
        Self::plan(None)
    }

    fn plan(namespace: Option<String>) -> StoreBuilder<K> {
        StoreBuilder(Plan { namespace, indexers: Vec::new(), status: StatusDoor::Subresource })
    }

    /// Waits until everything that is stored was seen once.
    pub async fn ready(&self) {
        self.inner.cache.ready().await;
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.inner.cache.get(key)
    }

    /// All of them, by key.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.inner.cache.list()
    }

    /// Those whose index has this value.
    pub fn by(&self, index: &'static str, value: &str) -> Vec<Arc<K>> {
        self.inner.cache.by(index, value)
    }

    /// Whether there is such an object and it cannot be read. Then it is not absent: leave it.
    pub fn is_broken(&self, key: &Key) -> bool {
        self.inner.cache.is_broken(key)
    }

    /// Those that cannot be read.
    pub fn broken(&self) -> Vec<Broken> {
        self.inner.cache.broken()
    }

    /// Calls `tell` with the key, what was and what is, at every change. It must not wait.
    pub fn listen(&self, tell: impl Fn(&Key, Option<&K>, Option<&K>) + Send + Sync + 'static) {
        self.inner.cache.listen(Box::new(tell));
    }

    /// Makes an object. If it is there already, it is a conflict.
    pub async fn create(&self, object: &K) -> Result<Arc<K>, Failure> {
        let key = Key::of(object);
        let body = document(object, &key)?;
        let made: Result<DynamicObject, _> =
            self.api(&key).create(&PostParams::default(), &dynamic(body, &key)?).await;
        let made = made.map_err(|error| Failure::of_write("create", &K::kind(&()), &key, error))?;
        self.keep(made)
    }

    /// Writes what differs between `old`, as it was read, and `new`: the object first, then its
    /// status. Nothing is sent if nothing differs; somebody else's write in between is a conflict.
    pub async fn update(&self, old: &K, new: &K) -> Result<Arc<K>, Failure> {
        self.write(old, new, true).await
    }

    /// As [`Store::update`], whatever others wrote in between: for fields that have one writer.
    pub async fn merge(&self, old: &K, new: &K) -> Result<Arc<K>, Failure> {
        self.write(old, new, false).await
    }

    /// Asks for the deletion. Not there is deleted; somebody else's object of that name is left.
    pub async fn delete(&self, object: &K) -> Result<(), Failure> {
        self.delete_version(object, None).await
    }

    /// As [`Store::delete`], if it is as it was read: somebody else's write in between is a conflict.
    pub async fn delete_unchanged(&self, object: &K) -> Result<(), Failure> {
        self.delete_version(object, object.resource_version()).await
    }

    async fn delete_version(&self, object: &K, version: Option<String>) -> Result<(), Failure> {
        let key = Key::of(object);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: object.uid(), resource_version: version }),
            ..DeleteParams::background()
        };
        match self.api(&key).delete(&key.name, &params).await {
            // What is left of it, with its finalizers, comes by the watch.
            Ok(_) => Ok(()),
            Err(error) if code(&error) == Some(404) => {
                self.inner.cache.forget(&key);
                Ok(())
            }
            Err(error) => Err(Failure::of_write("delete", &K::kind(&()), &key, error)),
        }
    }

    /// Puts the finalizer on, if it is not there.
    pub async fn add_finalizer(&self, object: &K, finalizer: &str) -> Result<Arc<K>, Failure> {
        let mut with = object.clone();
        if !with.finalizers().iter().any(|one| one == finalizer) {
            with.finalizers_mut().push(finalizer.to_owned());
        }
        self.update(object, &with).await
    }

    /// Takes the finalizer off, if it is there. An object that is gone has none.
    pub async fn remove_finalizer(&self, object: &K, finalizer: &str) -> Result<(), Failure> {
        let mut without = object.clone();
        without.finalizers_mut().retain(|one| one != finalizer);
        match self.update(object, &without).await {
            Ok(_) => Ok(()),
            Err(Failure::Api { source, .. }) if code(&source) == Some(404) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn write(&self, old: &K, new: &K, compare: bool) -> Result<Arc<K>, Failure> {
        let key = Key::of(old);
        let (mut before, mut after) = (document(old, &key)?, document(new, &key)?);
        let split = |document: &mut Map<String, Value>| match self.inner.status {
            StatusDoor::Subresource => document.remove("status").unwrap_or_else(|| json!({})),
            StatusDoor::Main => Value::Null,
        };
        let (status_before, status_after) = (split(&mut before), split(&mut after));
        let mut latest: Option<DynamicObject> = None;
        let mut version = compare.then(|| old.resource_version()).flatten();
        if let Some(patch) = merge_patch(&Value::Object(before), &Value::Object(after)) {
            let done = self.patch(&key, patch, version.as_deref(), None).await?;
            version = version.and(done.resource_version());
            latest = Some(done);
        }
        if let Some(patch) = merge_patch(&status_before, &status_after) {
            let patch = json!({ "status": patch });
            latest = Some(self.patch(&key, patch, version.as_deref(), Some("status")).await?);
        }
        match latest {
            Some(written) => self.keep(written),
            None => Ok(Arc::new(new.clone())),
        }
    }

    async fn patch(
        &self,
        key: &Key,
        mut patch: Value,
        version: Option<&str>,
        door: Option<&str>,
    ) -> Result<DynamicObject, Failure> {
        if let (Some(version), Value::Object(fields)) = (version, &mut patch) {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.insert("resourceVersion".to_owned(), json!(version));
            }
        }
        let (api, params, patch) = (self.api(key), PatchParams::default(), Patch::Merge(patch));
        let done = match door {
            Some(door) => api.patch_subresource(door, &key.name, &params, &patch).await,
            None => api.patch(&key.name, &params, &patch).await,
        };
        done.map_err(|error| {
            if code(&error) == Some(404) {
                self.inner.cache.forget(key);
            }
            Failure::of_write("change", &K::kind(&()), key, error)
        })
    }

    fn api(&self, key: &Key) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<K>(&());
        let client = self.inner.client.clone();
        if key.namespace.is_empty() {
            Api::all_with(client, &resource)
        } else {
            Api::namespaced_with(client, &key.namespace, &resource)
        }
    }

    fn keep(&self, object: DynamicObject) -> Result<Arc<K>, Failure> {
        let gone = object.metadata.deletion_timestamp.is_some()
            && object.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        let key = Key::of(&object);
        let read = crate::cache::decode(object)
            .map_err(|broken| Failure::other(format!("read {} {key}", K::kind(&())), broken.why))?;
        if gone {
            self.inner.cache.forget(&key);
            return Ok(Arc::new(read));
        }
        Ok(self.inner.cache.put(read))
    }

    async fn follow(self, api: Api<DynamicObject>, context: Context) {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        let kind = K::kind(&());
        let said = telemetry::Seldom::new(Duration::from_mins(1));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event, &context),
                Err(error) => {
                    if let Some(unsaid) = said.pass() {
                        tracing::warn!(%kind, unsaid, error = %telemetry::Chain(&error),
                            "cannot watch, will try again");
                    }
                }
            }
        }
    }

    fn take(&self, event: watcher::Event<DynamicObject>, context: &Context) {
        let broken = self.inner.cache.event(event);
        if broken.is_empty() && self.inner.reported.lock().is_ok_and(|it| it.is_empty()) {
            return;
        }
        for one in &broken {
            self.report(one, context);
        }
        let left = self.broken();
        let mut reported = self.inner.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.retain(|(uid, _)| left.iter().any(|it| it.uid == *uid));
        context.metrics.broken(&K::kind(&()), left.len());
    }

    /// Says it once for every version of the object.
    fn report(&self, broken: &Broken, context: &Context) {
        let mark = (broken.uid.clone(), broken.version.clone());
        {
            let mut reported = self.inner.reported.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.contains(&mark) {
                return;
            }
            reported.retain(|(uid, _)| *uid != mark.0);
            reported.push(mark);
        }
        let kind = K::kind(&());
        tracing::warn!(%kind, key = %broken.key, why = broken.why,
            "left alone: it cannot be read");
        let object = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(kind.into_owned()),
            namespace: Some(broken.key.namespace.to_string()).filter(|it| !it.is_empty()),
            name: Some(broken.key.name.to_string()),
            uid: Some(broken.uid.clone()),
            ..Default::default()
        };
        let message = format!("left alone because it cannot be read: {}", broken.why);
        context.events.warn_about(object, "Unreadable", &message);
    }
}

fn document<K: Object>(object: &K, key: &Key) -> Result<Map<String, Value>, Failure> {
    let doing = || format!("write {} {key} as JSON", K::kind(&()));
    match serde_json::to_value(object) {
        Ok(Value::Object(mut fields)) => {
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("managedFields");
                metadata.remove("resourceVersion");
            }
            Ok(fields)
        }
        Ok(_) => Err(Failure::other(doing(), "it is no JSON object")),
        Err(error) => Err(Failure::other(doing(), error)),
    }
}

fn dynamic(body: Map<String, Value>, key: &Key) -> Result<DynamicObject, Failure> {
    serde_json::from_value(Value::Object(body))
        .map_err(|error| Failure::other(format!("write {key} as JSON"), error))
}
