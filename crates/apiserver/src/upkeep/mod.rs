//! What the server does by itself so that its promises hold: collects garbage, empties namespaces
//! and definitions that are being deleted, gives every namespace its service account, keeps
//! aggregated roles together, lets protected storage go when nothing uses it, and old events. Each of
//! these is a controller with a name and rights of its own ([`controllers`]).
//!
//! One level-triggered loop. The store's change feed only says where to look; what to do is always
//! derived from what is stored now, and a full look at everything repairs whatever was missed.

pub(crate) mod controllers;
mod definitions;
mod events;
mod garbage;
pub(crate) mod namespaces;
mod protection;
mod roles;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::internal::Done;
use crate::server::Server;
use crate::store::{Event, EventKind, Key};

const PARALLEL: usize = 32;
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How long after one look at the feed the next may be. A single change is followed at once; of many,
/// each would wake a thread while those who write wait for their answers.
const REST: Duration = Duration::from_millis(2);
/// What fails is tried twice a second, and said less often.
static COMPLAINTS: telemetry::Seldom = telemetry::Seldom::new(Duration::from_secs(10));
const LOOK_AT_EVERYTHING_EVERY: Duration = Duration::from_mins(5);
const EXPIRE_EVENTS_EVERY: Duration = Duration::from_mins(1);

/// Something to look at. Looking twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    /// Do its owners still exist?
    Dependent(Key),
    /// Is it waiting for its dependents?
    Owner(Key),
    /// Is the namespace empty, if it is going?
    Namespace(Arc<str>),
    /// Has the namespace its service account?
    Account(Arc<str>),
    /// Are all objects of the definition gone, if it is going?
    Definition(Arc<str>),
    /// Are the names free now that the definition could not have?
    Names(Arc<str>),
    /// Does anything still use the claim or volume, if it is going?
    Protected(Key),
    Roles,
    ExpireEvents,
}

/// Runs until the server stops.
pub(crate) async fn run(server: Arc<Server>) {
    // The feed first: what is written while everything is looked at is in one of the two.
    let mut feed = server.store.watch_all(server.store.revision()).ok();
    let mut queue: HashSet<Work> = everything(&server);
    let mut later: HashMap<Work, Instant> = HashMap::new();
    let mut next_full = Instant::now() + LOOK_AT_EVERYTHING_EVERY;
    let mut next_expiry = Instant::now() + EXPIRE_EVENTS_EVERY;
    let mut types = server.registry_changes();
    let mut rested = Instant::now();
    loop {
        let batch: Vec<Work> = queue.drain().collect();
        for work in work_all(&server, batch).await {
            later.insert(work, Instant::now() + RETRY_AFTER);
        }
        let wake =
            later.values().copied().chain([next_full, next_expiry]).min().unwrap_or(next_full);
        tokio::select! {
            events = next(&mut feed, rested) => {
                rested = Instant::now() + REST;
                if let Some(events) = events {
                    for event in &events {
                        look_at(&server, event, &mut queue);
                    }
                } else {
                    // The feed moved on without us.
                    feed = server.store.watch_all(server.store.revision()).ok();
                    queue.extend(everything(&server));
                }
            }
            // Owners whose type was unknown may be known now, or the other way round.
            changed = types.changed() => {
                if changed.is_err() {
                    return;
                }
                queue.extend(dependents(&server));
                queue.extend(nameless(&server));
            }
            () = tokio::time::sleep_until(wake) => {}
        }
        let now = Instant::now();
        if now >= next_full {
            next_full = now + LOOK_AT_EVERYTHING_EVERY;
            queue.extend(everything(&server));
        }
        if now >= next_expiry {
            next_expiry = now + EXPIRE_EVENTS_EVERY;
            queue.insert(Work::ExpireEvents);
        }
        later.retain(|work, at| {
            let due = *at <= now;
            if due {
                queue.insert(work.clone());
            }
            !due
        });
    }
}

/// While it rests, it does not listen either: no change wakes anybody.
async fn next(
    feed: &mut Option<crate::store::Watcher>,
    rested: Instant,
) -> Option<Vec<Arc<Event>>> {
    tokio::time::sleep_until(rested).await;
    feed.as_mut()?.next().await.ok()
}

/// Does a batch of work side by side; what must be done again is returned.
async fn work_all(server: &Arc<Server>, batch: Vec<Work>) -> Vec<Work> {
    futures::stream::iter(batch)
        .map(|work| (server.clone(), work))
        .map(|(server, work)| async move {
            match perform(&server, &work).await {
                Ok(Done::Written | Done::Unchanged) => None,
                Ok(Done::Overtaken) => Some(work),
                Err(failure) => {
                    if let Some(unsaid) = COMPLAINTS.pass() {
                        tracing::warn!(
                            ?work,
                            error = failure.message(),
                            unsaid,
                            "upkeep failed, will try again"
                        );
                    }
                    Some(work)
                }
            }
        })
        .buffer_unordered(PARALLEL)
        .filter_map(|again| async move { again })
        .collect()
        .await
}

async fn perform(server: &Server, work: &Work) -> Result<Done, Failure> {
    match work {
        Work::Dependent(key) => garbage::dependent(server, key).await,
        Work::Owner(key) => garbage::owner(server, key).await,
        Work::Namespace(name) => namespaces::empty(server, name).await,
        Work::Account(name) => namespaces::account(server, name).await,
        Work::Definition(name) => definitions::empty(server, name).await,
        Work::Names(name) => definitions::claim_names(server, name).await,
        Work::Protected(key) => protection::release(server, key).await,
        Work::Roles => roles::aggregate(server).await,
        Work::ExpireEvents => events::expire(server).await,
    }
}

/// Everything worth a look, for the start and for after a gap in the feed.
fn everything(server: &Server) -> HashSet<Work> {
    let mut all = dependents(server);
    for namespace in server.store.list("/namespaces", None).items {
        let name = namespace.key.name.clone();
        all.insert(if namespace.meta.deleting {
            Work::Namespace(name)
        } else {
            Work::Account(name)
        });
    }
    for definition in server.store.list(crate::definitions::ID, None).items {
        if definition.meta.deleting {
            all.insert(Work::Definition(definition.key.name.clone()));
        }
    }
    for resource in [protection::CLAIMS, protection::VOLUMES] {
        let going = server.store.list(resource, None).items.into_iter();
        let going = going.filter(|one| one.meta.deleting);
        all.extend(going.map(|one| Work::Protected(one.key.clone())));
    }
    all.extend(nameless(server));
    all.insert(Work::Roles);
    all.insert(Work::ExpireEvents);
    all
}

fn nameless(server: &Server) -> impl Iterator<Item = Work> {
    server.definitions_without_names().into_iter().map(|name| Work::Names(name.into()))
}

fn dependents(server: &Server) -> HashSet<Work> {
    let mut all = HashSet::new();
    for resource in server.store.resources() {
        for stored in server.store.list(&resource, None).items {
            if !stored.meta.owners.is_empty() {
                all.insert(Work::Dependent(stored.key.clone()));
            }
            if stored.meta.deleting && stored.meta.finalizers {
                all.insert(Work::Owner(stored.key.clone()));
            }
        }
    }
    all
}

/// What a change gives reason to look at.
fn look_at(server: &Server, event: &Event, queue: &mut HashSet<Work>) {
    let object = &event.object;
    let key = &object.key;
    match event.kind {
        EventKind::Put => {
            let before = event.previous.as_ref().map(|previous| &previous.meta.owners);
            if !object.meta.owners.is_empty() && before != Some(&object.meta.owners) {
                queue.insert(Work::Dependent(key.clone()));
            }
            if object.meta.deleting && object.meta.finalizers {
                queue.insert(Work::Owner(key.clone()));
            }
        }
        EventKind::Delete => {
            let orphans = server.store.dependents(&object.meta.uid);
            queue.extend(orphans.into_iter().map(|orphan| Work::Dependent(orphan.key.clone())));
            let owners = object.meta.owners.iter().filter_map(|uid| server.store.by_uid(uid));
            queue.extend(
                owners
                    .filter(|owner| owner.meta.deleting)
                    .map(|owner| Work::Owner(owner.key.clone())),
            );
        }
    }
    if *key.resource == *crate::definitions::ID {
        // Also when nobody waited for this write: its type comes or goes now.
        server.registry();
    }
    match (&*key.resource, event.kind) {
        ("/namespaces", EventKind::Put) if object.meta.deleting => {
            queue.insert(Work::Namespace(key.name.clone()));
        }
        ("/namespaces", EventKind::Put) if event.is_creation() => {
            queue.insert(Work::Account(key.name.clone()));
        }
        ("/serviceaccounts", EventKind::Delete) => {
            queue.insert(Work::Account(key.namespace.clone()));
        }
        // The access rules have followed before the feed speaks.
        ("rbac.authorization.k8s.io/clusterroles", _) => {
            queue.insert(Work::Roles);
        }
        (crate::definitions::ID, EventKind::Put) if object.meta.deleting => {
            queue.insert(Work::Definition(key.name.clone()));
        }
        (protection::CLAIMS | protection::VOLUMES, EventKind::Put) if object.meta.deleting => {
            queue.insert(Work::Protected(key.clone()));
        }
        ("/pods", EventKind::Delete) => {
            let claims = protection::waiting_claims(server, &key.namespace);
            queue.extend(claims.map(Work::Protected));
        }
        _ => {}
    }
    let going = |resource: &str, name: &str| {
        server.store.get(resource, "", name).is_some_and(|found| found.meta.deleting)
    };
    if !key.namespace.is_empty() && going("/namespaces", &key.namespace) {
        queue.insert(Work::Namespace(key.namespace.clone()));
    }
    if let Some((group, plural)) = key.resource.split_once('/') {
        let definition = format!("{plural}.{group}");
        if going(crate::definitions::ID, &definition) {
            queue.insert(Work::Definition(definition.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Change, Expected, Options, Store, Write};

    fn create(name: &str) -> Write {
        let change = Change::Put(json!({"metadata": {"name": name}}));
        let key = Key::new("things", "default", name);
        Write { key, expected: Expected::Absent, require: Vec::new(), change }
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_is_followed_at_once_and_many_together() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path().join("objects.db"), &Options::default()).unwrap();
        let mut feed = store.watch_all(store.revision()).ok();
        store.write(create("a")).await.unwrap();
        let now = Instant::now();
        assert_eq!(next(&mut feed, now).await.unwrap().len(), 1);
        assert_eq!(Instant::now(), now);
        let rested = now + REST;
        for name in ["b", "c", "d"] {
            store.write(create(name)).await.unwrap();
        }
        assert_eq!(next(&mut feed, rested).await.unwrap().len(), 3);
        assert!(Instant::now() >= rested);
    }
}
