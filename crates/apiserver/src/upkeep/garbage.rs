//! Owner references: dependents go when their owners are gone, and owners wait for dependents or
//! let go of them when their deletion says so.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde_json::Value;

use super::controllers::GARBAGE;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::registry::{Registry, Resource};
use crate::rest::admit::{self, Endpoint};
use crate::rest::delete::{FOREGROUND, ORPHAN};
use crate::rest::options::{DeleteOptions, Propagation};
use crate::rest::view;
use crate::server::Server;
use crate::store::{Key, Stored};

/// Dependents handled at once: enough to share commits.
const PARALLEL: usize = 64;
/// Objects looked at in search of a ring; larger rings wait for ever.
const RING_LIMIT: usize = 10_000;

/// What is known of one owner an object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Exists,
    /// It exists and wants its dependents to go first.
    Waiting,
    Absent,
    /// Its type is not served, or it can never own this object: do not touch anything.
    Unknown,
}

/// What to do with an object that has owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Collect,
    /// Its owner waits for it: it goes, and its own dependents first.
    CollectForeground,
    /// Some owners are gone or on their way: only the references to them are removed.
    DropDangling,
}

fn judge(owners: &[Owner]) -> Verdict {
    let any = |wanted: Owner| owners.contains(&wanted);
    if owners.is_empty() || any(Owner::Unknown) {
        return Verdict::Keep;
    }
    match (any(Owner::Exists), any(Owner::Waiting), any(Owner::Absent)) {
        (false, false, _) => Verdict::Collect,
        (false, true, _) => Verdict::CollectForeground,
        (true, true, _) | (true, _, true) => Verdict::DropDangling,
        (true, false, false) => Verdict::Keep,
    }
}

/// Looks at an object that names owners.
pub(super) async fn dependent(server: &Server, key: &Key) -> Result<Done, Failure> {
    let Some((resource, stored, object)) = read(server, key)? else { return Ok(Done::Unchanged) };
    let registry = server.registry();
    let owners: Vec<Owner> = references(&object)
        .map(|reference| owner_state(server, &registry, &stored, reference))
        .collect();
    let propagation = match judge(&owners) {
        Verdict::Keep => return Ok(Done::Unchanged),
        Verdict::DropDangling => {
            let mut states = owners.iter();
            return internal::change(
                server,
                &GARBAGE,
                &resource,
                Endpoint::Main,
                &stored,
                |object| {
                    let list = admit::metadata_mut(object).get_mut("ownerReferences");
                    if let Some(list) = list.and_then(Value::as_array_mut) {
                        list.retain(|_| {
                            !matches!(states.next(), Some(Owner::Absent | Owner::Waiting))
                        });
                    }
                },
            )
            .await;
        }
        Verdict::Collect => own_policy(&object),
        // Without dependents of its own there is nothing to wait for.
        Verdict::CollectForeground if server.store.dependents(&stored.meta.uid).is_empty() => {
            own_policy(&object)
        }
        Verdict::CollectForeground => Propagation::Foreground,
    };
    if stored.meta.deleting && stored.meta.finalizers {
        return Ok(Done::Unchanged);
    }
    let options = DeleteOptions {
        propagation: Some(propagation),
        uid: Some(stored.meta.uid.to_string()),
        resource_version: Some(stored.revision.to_string()),
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    match internal::delete(server, &GARBAGE, &resource, key, &options).await {
        Ok(_) => Ok(Done::Written),
        Err(failure) if failure.code() == http::StatusCode::NOT_FOUND => Ok(Done::Unchanged),
        Err(failure) if failure.code() == http::StatusCode::CONFLICT => Ok(Done::Overtaken),
        Err(failure) => Err(failure),
    }
}

/// Collects what has lost an owner. Needed before a type goes: nobody can say afterwards whether an
/// owner of that type exists.
pub(super) async fn all_dangling(server: &Server) -> Result<Done, Failure> {
    let mut dangling = Vec::new();
    for resource in server.store.resources() {
        let items = server.store.list(&resource, None).items;
        dangling.extend(
            items
                .into_iter()
                .filter(|one| one.meta.owners.iter().any(|uid| server.store.by_uid(uid).is_none())),
        );
    }
    let done: Vec<Done> = futures::stream::iter(dangling)
        .map(|one| async move { dependent(server, &one.key).await })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    Ok(if done.contains(&Done::Overtaken) { Done::Overtaken } else { Done::Unchanged })
}

/// An object collected in the background keeps what its finalizers ask for.
fn own_policy(object: &Value) -> Propagation {
    if has_finalizer(object, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(object, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

/// An object with its type and its contents.
type Found = (Arc<Resource>, Arc<Stored>, Value);

fn read(server: &Server, key: &Key) -> Result<Option<Found>, Failure> {
    let registry = server.registry();
    let Some(resource) = registry.by_id(&key.resource).cloned() else { return Ok(None) };
    let Some(stored) = server.store.get(&key.resource, &key.namespace, &key.name) else {
        return Ok(None);
    };
    let object = view::value(&resource, &stored)?;
    Ok(Some((resource, stored, object)))
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|one| one == name))
}

fn owner_state(
    server: &Server,
    registry: &Registry,
    dependent: &Stored,
    reference: &Value,
) -> Owner {
    let text = |member: &str| reference.get(member).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let Some(resource) = registry.by_kind(group, text("kind")) else { return Owner::Unknown };
    if resource.namespaced && dependent.key.namespace.is_empty() {
        // A namespace is missing from the reference, so nobody can say which object is meant.
        return Owner::Unknown;
    }
    let Some(owner) = server.store.by_uid(text("uid")) else { return Owner::Absent };
    let scope = if resource.namespaced { &*dependent.key.namespace } else { "" };
    let same = owner.key.resource == resource.id
        && *owner.key.namespace == *scope
        && *owner.key.name == *text("name");
    if !same {
        return Owner::Absent;
    }
    if is_waiting(&owner) { Owner::Waiting } else { Owner::Exists }
}

/// Is it being deleted in the foreground?
fn is_waiting(stored: &Stored) -> bool {
    stored.meta.deleting && stored.meta.foreground
}

/// Looks at an object that is being deleted and may wait for its dependents.
pub(super) async fn owner(server: &Server, key: &Key) -> Result<Done, Failure> {
    let Some((resource, stored, object)) = read(server, key)? else { return Ok(Done::Unchanged) };
    if !stored.meta.deleting {
        return Ok(Done::Unchanged);
    }
    if has_finalizer(&object, ORPHAN) {
        return orphan_dependents(server, &resource, &stored).await;
    }
    if has_finalizer(&object, FOREGROUND) {
        return wait_for_dependents(server, &resource, &stored).await;
    }
    Ok(Done::Unchanged)
}

async fn orphan_dependents(
    server: &Server,
    resource: &Resource,
    stored: &Arc<Stored>,
) -> Result<Done, Failure> {
    let uid = &*stored.meta.uid;
    let freed: Vec<Done> = futures::stream::iter(server.store.dependents(uid))
        .map(|dependent| async move { free(server, &dependent, uid).await })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    if freed.contains(&Done::Overtaken) {
        return Ok(Done::Overtaken);
    }
    release(server, resource, stored, ORPHAN).await
}

/// Removes the reference to one owner.
async fn free(server: &Server, dependent: &Arc<Stored>, owner: &str) -> Result<Done, Failure> {
    let registry = server.registry();
    let Some(kind) = registry.by_id(&dependent.key.resource) else { return Ok(Done::Unchanged) };
    internal::change(server, &GARBAGE, kind, Endpoint::Main, dependent, |object| {
        let list = admit::metadata_mut(object).get_mut("ownerReferences");
        if let Some(list) = list.and_then(Value::as_array_mut) {
            list.retain(|one| one.get("uid").and_then(Value::as_str) != Some(owner));
        }
    })
    .await
}

async fn wait_for_dependents(
    server: &Server,
    resource: &Resource,
    stored: &Arc<Stored>,
) -> Result<Done, Failure> {
    let staying = server.store.dependents(&stored.meta.uid);
    let staying = staying.into_iter().filter(|one| !one.meta.deleting);
    let done: Vec<Done> = futures::stream::iter(staying)
        .map(|one| async move { dependent(server, &one.key).await })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    if done.contains(&Done::Overtaken) {
        return Ok(Done::Overtaken);
    }
    // Those without finalizers are gone by now; the others will be heard of when they go.
    let uid = &*stored.meta.uid;
    if blocking(server, stored).iter().any(|one| !waits_for(server, one, uid)) {
        return Ok(Done::Unchanged);
    }
    release(server, resource, stored, FOREGROUND).await
}

/// Does `from` itself wait for the object `target`, perhaps over others? In such a ring somebody
/// has to go first.
fn waits_for(server: &Server, from: &Arc<Stored>, target: &str) -> bool {
    let mut seen: HashSet<Box<str>> = HashSet::new();
    let mut next = vec![from.clone()];
    while let Some(one) = next.pop() {
        if *one.meta.uid == *target {
            return true;
        }
        if seen.len() < RING_LIMIT && is_waiting(&one) && seen.insert(one.meta.uid.clone()) {
            next.extend(blocking(server, &one));
        }
    }
    false
}

/// The dependents an owner waits for.
fn blocking(server: &Server, owner: &Stored) -> Vec<Arc<Stored>> {
    let mut all = server.store.dependents(&owner.meta.uid);
    all.retain(|one| one.meta.holds_back.contains(&owner.meta.uid));
    all
}

async fn release(
    server: &Server,
    resource: &Resource,
    stored: &Arc<Stored>,
    finalizer: &str,
) -> Result<Done, Failure> {
    internal::change(server, &GARBAGE, resource, Endpoint::Main, stored, |object| {
        let list = admit::metadata_mut(object).get_mut("finalizers");
        if let Some(list) = list.and_then(Value::as_array_mut) {
            list.retain(|one| one != finalizer);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_goes_only_when_no_owner_is_left() {
        use Owner::{Absent, Exists, Unknown, Waiting};
        for (owners, verdict) in [
            (&[][..], Verdict::Keep),
            (&[Exists], Verdict::Keep),
            (&[Absent], Verdict::Collect),
            (&[Absent, Absent], Verdict::Collect),
            (&[Exists, Absent], Verdict::DropDangling),
            (&[Unknown, Absent], Verdict::Keep),
            (&[Waiting], Verdict::CollectForeground),
            (&[Waiting, Absent], Verdict::CollectForeground),
            (&[Waiting, Exists], Verdict::DropDangling),
            (&[Waiting, Exists, Absent], Verdict::DropDangling),
        ] {
            assert_eq!(judge(owners), verdict, "{owners:?}");
        }
    }
}
