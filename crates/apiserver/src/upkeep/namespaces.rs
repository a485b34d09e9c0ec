//! Namespaces: emptied before they go, and never without a service account while they stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::controllers::{ACCOUNTS, NAMESPACES};
use crate::clock;
use crate::definitions::set_condition;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::rest::admit::Endpoint;
use crate::rest::options::{DeleteOptions, Propagation};
use crate::server::Server;
use crate::store::Stored;

const FINALIZER: &str = "kubernetes";

/// Every namespace has an account for what runs in it.
pub(super) async fn account(server: &Server, namespace: &str) -> Result<Done, Failure> {
    let alive =
        server.store.get("/namespaces", "", namespace).is_some_and(|one| !one.meta.deleting);
    if !alive || server.store.get("/serviceaccounts", namespace, "default").is_some() {
        return Ok(Done::Unchanged);
    }
    let registry = server.registry();
    let Some(resource) = registry.resource("", "v1", "serviceaccounts") else {
        return Ok(Done::Unchanged);
    };
    let account = json!({"metadata": {"name": "default"}});
    match internal::create(server, &ACCOUNTS, resource, Some(namespace), account).await {
        // It went in the meantime.
        Err(failure) if failure.code().is_client_error() => Ok(Done::Unchanged),
        other => other,
    }
}

/// Deletes what is in a namespace that is going; lets the namespace go when nothing is left.
pub(super) async fn empty(server: &Server, name: &str) -> Result<Done, Failure> {
    let Some(namespace) = server.store.get("/namespaces", "", name) else {
        return Ok(Done::Unchanged);
    };
    if !namespace.meta.deleting {
        return Ok(Done::Unchanged);
    }
    let registry = server.registry();
    let Some(resource) = registry.resource("", "v1", "namespaces") else {
        return Ok(Done::Unchanged);
    };
    delete_contents(server, name).await?;
    let left = contents(server, name);
    let now = clock::now();
    if left.is_empty() {
        return internal::change(
            server,
            &NAMESPACES,
            resource,
            Endpoint::Finalize,
            &namespace,
            |object| {
                if let Some(list) =
                    object.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut)
                {
                    list.retain(|one| one != FINALIZER);
                }
            },
        )
        .await;
    }
    internal::change(server, &NAMESPACES, resource, Endpoint::Status, &namespace, |object| {
        report(object, &left, now);
    })
    .await
}

/// What clients can still see: objects of a definition that somebody took away from under them
/// cannot be deleted by anyone, so a namespace does not wait for them.
fn contents(server: &Server, namespace: &str) -> Vec<Arc<Stored>> {
    let registry = server.registry();
    let resources = server.store.resources();
    resources
        .iter()
        .filter(|id| registry.by_id(id).is_some())
        .flat_map(|resource| server.store.list(resource, Some(namespace)).items)
        .collect()
}

async fn delete_contents(server: &Server, namespace: &str) -> Result<(), Failure> {
    let registry = server.registry();
    // Nothing here runs pods, so nobody would end their grace period.
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    for id in server.store.resources() {
        let Some(resource) = registry.by_id(&id).filter(|resource| resource.namespaced) else {
            continue;
        };
        let mut items = server.store.list(&id, Some(namespace)).items;
        items.retain(|one| !(one.meta.deleting && one.meta.finalizers));
        internal::delete_all(server, &NAMESPACES, resource, namespace, &items, &options).await?;
    }
    Ok(())
}

/// Says in the namespace's conditions what it is waiting for.
fn report(object: &mut Value, left: &[Arc<Stored>], now: Timestamp) {
    let mut kinds: Vec<String> = Vec::new();
    for one in left {
        let (group, plural) = one.key.resource.split_once('/').unwrap_or_default();
        let count = left.iter().filter(|other| other.key.resource == one.key.resource).count();
        let dot = if group.is_empty() { "" } else { "." };
        let text = format!("{plural}{dot}{group} has {count} resource instances");
        if !kinds.contains(&text) {
            kinds.push(text);
        }
    }
    let remaining = format!("Some resources are remaining: {}", kinds.join(", "));
    let held = finalizers(left);
    let (holds, why, holders) = if held.is_empty() {
        ("False", "ContentHasNoFinalizers", "No remaining object has a finalizer".to_owned())
    } else {
        ("True", "SomeFinalizersRemain", format!("Some finalizers are remaining: {held}"))
    };
    // Everything is known and nothing is parsed here, so these two cannot fail.
    let known = "All resource types are known";
    for (kind, status, reason, message) in [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", known),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions", known),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "Everything was deleted; some of it may wait for finalizers",
        ),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining),
        ("NamespaceFinalizersRemaining", holds, why, &holders),
    ] {
        set_condition(object, kind, status, reason, message, now);
    }
}

/// Which finalizers hold how many objects.
fn finalizers(left: &[Arc<Stored>]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for object in left.iter().filter(|one| one.meta.finalizers).filter_map(|one| one.value().ok()) {
        let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        for name in list.into_iter().flatten().filter_map(Value::as_str) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    let texts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    texts.join(", ")
}
