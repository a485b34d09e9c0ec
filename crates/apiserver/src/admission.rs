//! What the cluster adds to new objects, and refuses because of other objects: the reading part of
//! [`objects::admission`].

use objects::{admission, kinds};
use serde_json::Value;

use crate::failure::Failure;
use crate::registry::Resource;
use crate::rest::admit;
use crate::server::Server;

/// Completes a new object, or says why the cluster does not take it. Its name is final.
pub(crate) fn complete(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    object: &mut Value,
) -> Result<(), Failure> {
    let Some(kind) = resource.built_in() else { return Ok(()) };
    match (kind.group, kind.kind) {
        ("", "Pod") => {
            // Limits are requests, too: what is filled in depends on what is there by default.
            kinds::default(kind, object, None);
            complete_pod(server, resource, namespace.unwrap_or_default(), object)
        }
        ("", "PersistentVolumeClaim") => {
            kinds::default(kind, object, None);
            admission::default_class(object, &all(server, "storage.k8s.io/storageclasses", None));
            limit(server, resource, namespace, object)
        }
        _ => Ok(()),
    }
}

fn complete_pod(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    pod: &mut Value,
) -> Result<(), Failure> {
    admission::tolerate_failing_nodes(pod);
    let account = admission::default_account(pod);
    // The default account is made by upkeep as soon as there is a namespace; it may be on its way.
    let exists = account == admission::DEFAULT_ACCOUNT
        || server.store.get("/serviceaccounts", namespace, &account).is_some();
    if !exists {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} \
             not found"
        );
        return Err(forbidden(resource, pod, &why));
    }
    admission::resolve_priority(pod, &all(server, "scheduling.k8s.io/priorityclasses", None))
        .map_err(|why| forbidden(resource, pod, &why))?;
    admission::apply_limits(pod, &all(server, "/limitranges", Some(namespace)));
    limit(server, resource, Some(namespace), pod)
}

fn limit(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    object: &Value,
) -> Result<(), Failure> {
    let ranges = all(server, "/limitranges", namespace);
    match admission::limit_violations(&resource.kind, object, &ranges).as_slice() {
        [] => Ok(()),
        [one] => Err(forbidden(resource, object, one)),
        many => Err(forbidden(resource, object, &format!("[{}]", many.join(", ")))),
    }
}

fn forbidden(resource: &Resource, object: &Value, why: &str) -> Failure {
    let subject = admit::subject(resource, admit::metadata_text(object, "name"));
    let text = format!("{} {:?} is forbidden: {why}", subject.qualified(), subject.name);
    Failure::forbidden(text).about(subject)
}

/// All objects kept under `id`. What cannot be read is as good as absent; reading it says so.
fn all(server: &Server, id: &str, namespace: Option<&str>) -> Vec<Value> {
    let items = server.store.list(id, namespace).items;
    items.iter().filter_map(|one| one.value().ok()).collect()
}
