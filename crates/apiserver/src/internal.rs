//! Writes the server makes on its own account: the same admission as any client's, no HTTP.

use std::sync::Arc;

use serde_json::Value;

use crate::clock;
use crate::failure::Failure;
use crate::registry::Resource;
use crate::rest::admit::{self, Author, Endpoint, Track};
use crate::rest::{create, view};
use crate::server::{Server, write_failure};
use crate::store::{Change, Expected, Stored, Write, WriteError};

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

/// Creates an object unless it exists.
pub(crate) async fn create(
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
    match server.commit(resource, write).await {
        Ok(_) => Ok(Done::Written),
        Err(WriteError::Exists) => Ok(Done::Unchanged),
        Err(WriteError::Conflict { .. } | WriteError::RequirementChanged) => Ok(Done::Overtaken),
        Err(error) => Err(write_failure(resource, &name, error)),
    }
}

/// Changes an object; one that nothing holds any more after the change is removed.
pub(crate) async fn change(
    server: &Server,
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
    match server.commit(resource, write).await {
        Ok(_) => Ok(Done::Written),
        Err(WriteError::Conflict { .. } | WriteError::RequirementChanged) => Ok(Done::Overtaken),
        Err(error) => Err(write_failure(resource, &stored.key.name, error)),
    }
}
