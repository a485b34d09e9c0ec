//! Claims and volumes wait with their end until nothing uses them.

use std::sync::Arc;

use objects::admission::{self, CLAIM_PROTECTION, VOLUME_PROTECTION};
use serde_json::Value;

use super::controllers::STORAGE;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::rest::admit::{self, Endpoint};
use crate::rest::view;
use crate::server::Server;
use crate::store::{Key, Stored};

pub(super) const CLAIMS: &str = "/persistentvolumeclaims";
pub(super) const VOLUMES: &str = "/persistentvolumes";

/// Lets a claim or volume go that is being deleted and that nothing uses.
pub(super) async fn release(server: &Server, key: &Key) -> Result<Done, Failure> {
    let Some(stored) = server.store.get(&key.resource, &key.namespace, &key.name) else {
        return Ok(Done::Unchanged);
    };
    let registry = server.registry();
    let Some(resource) = registry.by_id(&key.resource) else { return Ok(Done::Unchanged) };
    let (finalizer, used) = match &*key.resource {
        CLAIMS => (CLAIM_PROTECTION, claim_is_used(server, key)?),
        _ => (VOLUME_PROTECTION, admission::is_bound(&view::value(resource, &stored)?)),
    };
    if used || !stored.meta.deleting {
        return Ok(Done::Unchanged);
    }
    internal::change(server, &STORAGE, resource, Endpoint::Main, &stored, |object| {
        let list = admit::metadata_mut(object).get_mut("finalizers");
        if let Some(list) = list.and_then(Value::as_array_mut) {
            list.retain(|one| one != finalizer);
        }
    })
    .await
}

/// A pod that cannot be read may use anything.
fn claim_is_used(server: &Server, key: &Key) -> Result<bool, Failure> {
    let registry = server.registry();
    let Some(pods) = registry.resource("", "v1", "pods") else { return Ok(false) };
    let uses = |pod: &Arc<Stored>| {
        view::value(pods, pod).map(|pod| admission::uses_claim(&pod, &key.name))
    };
    for pod in server.store.list("/pods", Some(&key.namespace)).items {
        if uses(&pod)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What may be free to go now that a pod of this namespace is gone.
pub(super) fn waiting_claims(server: &Server, namespace: &str) -> impl Iterator<Item = Key> {
    let claims = server.store.list(CLAIMS, Some(namespace)).items;
    claims.into_iter().filter(|claim| claim.meta.deleting).map(|claim| claim.key.clone())
}
