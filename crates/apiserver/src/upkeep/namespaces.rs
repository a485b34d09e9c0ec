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
use crate::rest::delete::NAMESPACE_FINALIZER;
use crate::rest::options::{DeleteOptions, Propagation};
use crate::server::{Company, Server};
use crate::store::{Change, Expected, Stored, Write, WriteError};

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
                    list.retain(|one| one != NAMESPACE_FINALIZER);
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

/// Everything that is stored in a namespace, whether or not its type is served: what stayed would be
/// that of whoever gets the name next.
pub(crate) fn contents(server: &Server, namespace: &str) -> Vec<Arc<Stored>> {
    let resources = server.store.resources();
    let of = |resource| server.store.list(resource, Some(namespace)).items;
    resources.iter().flat_map(|resource| of(resource)).collect()
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
        let mut items = server.store.list(&id, Some(namespace)).items;
        let Some(resource) = registry.by_id(&id) else {
            // Their definition was taken away from under them: nobody can ask for anything about
            // them, so nobody will take their finalizers off.
            for one in &items {
                remove(server, one).await?;
            }
            continue;
        };
        items.retain(|one| !(one.meta.deleting && one.meta.finalizers));
        internal::delete_all(server, &NAMESPACES, resource, namespace, &items, &options).await?;
    }
    Ok(())
}

/// Takes an object of no type out of the store.
async fn remove(server: &Server, stored: &Stored) -> Result<(), Failure> {
    tracing::warn!(
        resource = %stored.key.resource,
        namespace = %stored.key.namespace,
        name = %stored.key.name,
        "an object that no definition describes goes with its namespace"
    );
    let change = Change::Delete(stored.value().unwrap_or_else(|_| json!({})));
    let expected = Expected::Revision(stored.revision);
    let write = Write { key: stored.key.clone(), expected, require: Vec::new(), change };
    match server.commit(write, Company::Others).await {
        Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Failure::internal(error.to_string())),
    }
}

/// How many kinds and finalizers a condition names.
const NAMED: usize = 20;

/// The first of them, and how many more there are: the text goes into an object.
fn some(texts: impl ExactSizeIterator<Item = String>) -> String {
    let more = texts.len().saturating_sub(NAMED);
    let mut text = texts.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text = format!("{text} and {more} more");
    }
    text
}

/// Says in the namespace's conditions what it is waiting for.
fn report(object: &mut Value, left: &[Arc<Stored>], now: Timestamp) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for one in left {
        *kinds.entry(&one.key.resource).or_default() += 1;
    }
    let kinds = some(kinds.iter().map(|(id, count)| {
        let (group, plural) = id.split_once('/').unwrap_or_default();
        let dot = if group.is_empty() { "" } else { "." };
        format!("{plural}{dot}{group} has {count} resource instances")
    }));
    let remaining = format!("Some resources are remaining: {kinds}");
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
    some(counts.iter().map(|(name, count)| format!("{name} in {count} resource instances")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Meta;

    fn left(resource: &str, number: usize) -> Arc<Stored> {
        let object = json!({"metadata": {"finalizers": ["x.io/all", format!("x.io/f{number}")]}});
        Arc::new(Stored {
            key: crate::store::Key::new(resource, "n", format!("o{number}")),
            revision: 1,
            body: object.to_string().into(),
            meta: Meta { finalizers: true, ..Meta::default() },
        })
    }

    /// With as many objects as tenants like to leave, each with names of its own: the report is made
    /// in one walk, and fits into an object.
    #[test]
    fn a_report_of_many_objects_stays_short() {
        let mut all: Vec<_> = (0..20_000).map(|number| left("/configmaps", number)).collect();
        all.push(left("test.io/widgets", 0));
        let mut object = json!({});
        report(&mut object, &all, "2026-01-02T03:04:05Z".parse().unwrap());
        let text = |kind: &str| {
            let all = object["status"]["conditions"].as_array().unwrap();
            let found = all.iter().find(|one| one["type"] == kind).unwrap();
            found["message"].as_str().unwrap().to_owned()
        };
        assert_eq!(
            text("NamespaceContentRemaining"),
            "Some resources are remaining: configmaps has 20000 resource instances, \
             widgets.test.io has 1 resource instances"
        );
        let held = text("NamespaceFinalizersRemaining");
        assert!(held.contains("x.io/all in 20001 resource instances"), "{held}");
        assert!(held.ends_with(" and 19981 more"), "{held}");
    }
}
