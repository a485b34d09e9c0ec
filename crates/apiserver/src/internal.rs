//! Writes that controllers of the server itself make: under their own names, with the rights of their
//! own roles, through the same admission as any client's and into the same audit log, but without
//! HTTP.

use std::sync::Arc;

use serde_json::Value;

use crate::auth::audit::Entry;
use crate::auth::controller::Controller;
use crate::auth::{Attributes, User};
use crate::clock;
use crate::failure::Failure;
use crate::registry::Resource;
use crate::rest::admit::{self, Author, Endpoint, Track};
use crate::rest::delete::{self, Deleted};
use crate::rest::options::DeleteOptions;
use crate::rest::{create, view};
use crate::server::{Company, Server, write_failure};
use crate::store::{Change, Expected, Key, Stored, Write, WriteError};

/// The name these writes carry in `managedFields`.
const MANAGER: &str = "holdfast";

/// What became of an internal change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Written,
    /// Nothing to write.
    Unchanged,
    /// The object changed or went meanwhile: look again.
    Overtaken,
}

/// What a controller is about to do.
struct Deed<'a> {
    server: &'a Server,
    user: User,
    verb: &'static str,
    resource: &'a Resource,
    subresource: &'static str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Deed<'a> {
    fn new(
        server: &'a Server,
        controller: &Controller,
        verb: &'static str,
        resource: &'a Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> Self {
        Self { server, user: controller.user(), verb, resource, subresource: "", namespace, name }
    }

    /// May it?
    fn authorize(&self) -> Result<(), Failure> {
        let checked = self.server.authorize(&Attributes {
            verb: self.verb,
            group: &self.resource.group,
            resource: &self.resource.plural,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            ..Attributes::of(&self.user)
        });
        if let Err(failure) = &checked {
            self.record(failure.code().as_u16());
        }
        checked
    }

    /// Writes it into the audit log.
    fn record(&self, code: u16) {
        let Some(audit) = &self.server.audit else { return };
        audit.record(Entry {
            time: clock::now(),
            request_id: uuid::Uuid::new_v4().to_string(),
            user: self.user.name.clone(),
            groups: self.user.groups.clone(),
            source: "process".to_owned(),
            verb: self.verb.to_owned(),
            group: self.resource.group.clone(),
            resource: self.resource.plural.clone(),
            subresource: self.subresource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            code,
            ..Entry::default()
        });
    }

    fn outcome<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        self.record(result.as_ref().map_or_else(|failure| failure.code().as_u16(), |_| 200));
        result
    }
}

/// Creates an object unless it exists.
pub(crate) async fn create(
    server: &Server,
    controller: &Controller,
    resource: &Resource,
    namespace: Option<&str>,
    object: Value,
) -> Result<Done, Failure> {
    let name = admit::metadata_text(&object, "name").to_owned();
    let place = namespace.unwrap_or_default();
    let deed = Deed::new(server, controller, "create", resource, place, &name);
    deed.authorize()?;
    match insert(server, resource, namespace, object).await {
        Ok(Done::Written) => deed.outcome(Ok(Done::Written)),
        Err(failure) => deed.outcome(Err(failure)),
        other => other,
    }
}

/// [`create`] by the server itself, before anybody has rights: the first roles are made so.
pub(crate) async fn insert(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    mut object: Value,
) -> Result<Done, Failure> {
    let now = clock::now();
    let name = admit::metadata_text(&object, "name").to_owned();
    let author = Author { manager: MANAGER, now };
    admit::object_mut(&mut object).insert("kind".into(), resource.kind.as_str().into());
    admit::object_mut(&mut object)
        .insert("apiVersion".into(), resource.api_version.as_str().into());
    admit::new_object(resource, namespace, &mut object, author, Track::Update)?;
    server.settle(resource, &mut object, now);
    let write = Write {
        key: resource.key(namespace, &name),
        expected: Expected::Absent,
        require: create::pins(server, resource, namespace, &name)?,
        change: Change::Put(view::to_stored(resource, object)),
    };
    match server.commit(write, Company::Others).await {
        Ok(_) => Ok(Done::Written),
        Err(WriteError::Exists) => Ok(Done::Unchanged),
        Err(WriteError::Conflict { .. } | WriteError::RequirementChanged) => Ok(Done::Overtaken),
        Err(error) => Err(write_failure(resource, &name, error)),
    }
}

/// Changes an object; one that nothing holds any more after the change is removed.
pub(crate) async fn change(
    server: &Server,
    controller: &Controller,
    resource: &Resource,
    endpoint: Endpoint,
    stored: &Arc<Stored>,
    edit: impl FnOnce(&mut Value),
) -> Result<Done, Failure> {
    let Key { namespace, name, .. } = &stored.key;
    let mut deed = Deed::new(server, controller, "update", resource, namespace, name);
    deed.subresource = endpoint.subresource().unwrap_or_default();
    deed.authorize()?;
    match update(server, Some(&deed.user), resource, endpoint, stored, edit).await {
        Ok(Done::Written) => deed.outcome(Ok(Done::Written)),
        Err(failure) => deed.outcome(Err(failure)),
        other => other,
    }
}

/// [`change`] on behalf of `user`, or by the server itself if there is none.
pub(crate) async fn update(
    server: &Server,
    user: Option<&User>,
    resource: &Resource,
    endpoint: Endpoint,
    stored: &Arc<Stored>,
    edit: impl FnOnce(&mut Value),
) -> Result<Done, Failure> {
    let now = clock::now();
    let old = view::value(resource, stored)?;
    let mut new = old.clone();
    edit(&mut new);
    let author = Author { manager: MANAGER, now };
    if !admit::changed_object(resource, endpoint, &old, &mut new, author, Track::Update)? {
        return Ok(Done::Unchanged);
    }
    if let Some(user) = user {
        server.guard_grants(user, resource, &new, Some(&old))?;
    }
    if endpoint == Endpoint::Main {
        server.settle(resource, &mut new, now);
    }
    let released = stored.meta.deleting && admit::is_released(resource, &new);
    let body = view::to_stored(resource, new);
    let write = Write {
        key: stored.key.clone(),
        expected: Expected::Revision(stored.revision),
        require: Vec::new(),
        change: if released { Change::Delete(body) } else { Change::Put(body) },
    };
    match server.commit(write, Company::Others).await {
        Ok(_) => Ok(Done::Written),
        Err(WriteError::Conflict { .. } | WriteError::RequirementChanged) => Ok(Done::Overtaken),
        Err(error) => Err(write_failure(resource, &stored.key.name, error)),
    }
}

/// Deletes one object.
pub(crate) async fn delete(
    server: &Server,
    controller: &Controller,
    resource: &Resource,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Deleted, Failure> {
    let deed = Deed::new(server, controller, "delete", resource, &key.namespace, &key.name);
    deed.authorize()?;
    let deleted =
        delete::delete_object(server, resource, key, options, clock::now(), Company::Others);
    deed.outcome(deleted.await)
}

/// Deletes many objects of one resource, in `namespace` or everywhere.
pub(crate) async fn delete_all(
    server: &Server,
    controller: &Controller,
    resource: &Resource,
    namespace: &str,
    items: &[Arc<Stored>],
    options: &DeleteOptions,
) -> Result<(), Failure> {
    if items.is_empty() {
        return Ok(());
    }
    let deed = Deed::new(server, controller, "deletecollection", resource, namespace, "");
    deed.authorize()?;
    deed.outcome(delete::delete_all(server, resource, items, options, clock::now(), |_| true).await)
}
