//! Owner references: dependents go when their owners are gone, and owners wait for dependents or
//! let go of them when their deletion says so.

use std::sync::Arc;

use serde_json::Value;

use crate::clock;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::registry::{Registry, Resource};
use crate::rest::admit::{self, Endpoint};
use crate::rest::delete::{self, FOREGROUND, ORPHAN};
use crate::rest::options::{DeleteOptions, Propagation};
use crate::rest::view;
use crate::server::Server;
use crate::store::{Key, Stored};

/// What is known of one owner an object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Exists,
    /// It exists and waits for its blocking dependents to go.
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
    /// Some owners are gone: only their references are removed.
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
        (true, _, true) => Verdict::DropDangling,
        (true, _, false) => Verdict::Keep,
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
            return internal::change(server, &resource, Endpoint::Main, &stored, |object| {
                let list = admit::metadata_mut(object).get_mut("ownerReferences");
                if let Some(list) = list.and_then(Value::as_array_mut) {
                    list.retain(|_| states.next() != Some(&Owner::Absent));
                }
            })
            .await;
        }
        Verdict::Collect => own_policy(&object),
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
    match delete::delete_object(server, &resource, key, &options, clock::now()).await {
        Ok(_) => Ok(Done::Written),
        Err(failure) if failure.code() == http::StatusCode::NOT_FOUND => Ok(Done::Unchanged),
        Err(failure) if failure.code() == http::StatusCode::CONFLICT => Ok(Done::Overtaken),
        Err(failure) => Err(failure),
    }
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
    let blocks = reference.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false);
    let waiting = owner.meta.deleting
        && owner.meta.finalizers
        && blocks
        && owner.value().is_ok_and(|object| has_finalizer(&object, FOREGROUND));
    if waiting { Owner::Waiting } else { Owner::Exists }
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
    for dependent in server.store.dependents(&stored.meta.uid) {
        let registry = server.registry();
        let Some(kind) = registry.by_id(&dependent.key.resource) else { continue };
        let freed = internal::change(server, kind, Endpoint::Main, &dependent, |object| {
            let list = admit::metadata_mut(object).get_mut("ownerReferences");
            if let Some(list) = list.and_then(Value::as_array_mut) {
                list.retain(|one| {
                    one.get("uid").and_then(Value::as_str) != Some(&*stored.meta.uid)
                });
            }
        })
        .await?;
        if freed == Done::Overtaken {
            return Ok(Done::Overtaken);
        }
    }
    release(server, resource, stored, ORPHAN).await
}

async fn wait_for_dependents(
    server: &Server,
    resource: &Resource,
    stored: &Arc<Stored>,
) -> Result<Done, Failure> {
    for one in blocking(server, stored) {
        if !one.meta.deleting {
            dependent(server, &one.key).await?;
        }
    }
    // Those without finalizers are gone by now; the others will be heard of when they go.
    if !blocking(server, stored).is_empty() {
        return Ok(Done::Unchanged);
    }
    release(server, resource, stored, FOREGROUND).await
}

/// The dependents an owner waits for. Others follow when it is gone.
fn blocking(server: &Server, owner: &Stored) -> Vec<Arc<Stored>> {
    let blocks = |reference: &Value| {
        reference.get("uid").and_then(Value::as_str) == Some(&*owner.meta.uid)
            && reference.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
    };
    let mut all = server.store.dependents(&owner.meta.uid);
    all.retain(|one| one.value().is_ok_and(|object| references(&object).any(blocks)));
    all
}

async fn release(
    server: &Server,
    resource: &Resource,
    stored: &Arc<Stored>,
    finalizer: &str,
) -> Result<Done, Failure> {
    internal::change(server, resource, Endpoint::Main, stored, |object| {
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
            (&[Waiting, Exists], Verdict::Keep),
        ] {
            assert_eq!(judge(owners), verdict, "{owners:?}");
        }
    }
}
