//! Definitions that are being deleted: their objects go first. Definitions that could not have
//! their names: they get them when the others are gone.

use serde_json::Value;

use super::controllers::DEFINITIONS;
use super::garbage;
use crate::clock;
use crate::definitions::{self, ID};
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::registry::resource_id;
use crate::rest::admit::{self, Endpoint};
use crate::rest::delete::DEFINITION_FINALIZER;
use crate::rest::options::{DeleteOptions, Propagation};
use crate::server::Server;

/// Deletes the objects of a definition that is going, then lets it go.
pub(super) async fn empty(server: &Server, name: &str) -> Result<Done, Failure> {
    let Some(definition) = server.store.get(ID, "", name) else { return Ok(Done::Unchanged) };
    if !definition.meta.deleting {
        return Ok(Done::Unchanged);
    }
    let registry = server.registry();
    let Some(resource) =
        registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return Ok(Done::Unchanged);
    };
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let id = resource_id(group, plural);
    let instances = registry.by_id(&id);
    // One that an older version let in under the name of a built-in type never had any objects.
    let is_empty = instances.is_some_and(|one| one.built_in().is_some());
    // A definition whose names were never accepted has no objects and no type.
    if let Some(instances) = instances.filter(|one| one.custom().is_some()) {
        let options = DeleteOptions {
            propagation: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        let mut items = server.store.list(&id, None).items;
        items.retain(|one| !(one.meta.deleting && one.meta.finalizers));
        internal::delete_all(server, &DEFINITIONS, instances, "", &items, &options).await?;
    }
    if !is_empty && server.store.count(&id) > 0 {
        return Ok(Done::Unchanged);
    }
    if garbage::all_dangling(server).await? == Done::Overtaken {
        return Ok(Done::Overtaken);
    }
    let now = clock::now();
    let told =
        internal::change(server, &DEFINITIONS, resource, Endpoint::Status, &definition, |object| {
            definitions::emptied(object, now);
        })
        .await?;
    if told == Done::Overtaken {
        return Ok(Done::Overtaken);
    }
    let Some(definition) = server.store.get(ID, "", name) else { return Ok(Done::Unchanged) };
    internal::change(server, &DEFINITIONS, resource, Endpoint::Main, &definition, |object| {
        let list = admit::metadata_mut(object).get_mut("finalizers");
        if let Some(list) = list.and_then(Value::as_array_mut) {
            list.retain(|one| one != DEFINITION_FINALIZER);
        }
    })
    .await
}

/// Gives a definition the names that have become free.
pub(super) async fn claim_names(server: &Server, name: &str) -> Result<Done, Failure> {
    let registry = server.registry();
    let Some(resource) =
        registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return Ok(Done::Unchanged);
    };
    let _turn = server.one_definition_at_a_time(resource).await;
    let Some(definition) = server.store.get(ID, "", name) else { return Ok(Done::Unchanged) };
    let now = clock::now();
    internal::change(server, &DEFINITIONS, resource, Endpoint::Status, &definition, |object| {
        server.settle(resource, object, now);
    })
    .await
}
