//! Events are kept for an hour after their last write.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::controllers::EVENTS;
use crate::clock;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::rest::options::DeleteOptions;
use crate::server::Server;
use crate::store::Stored;

const KEEP: SignedDuration = SignedDuration::from_hours(1);

pub(super) async fn expire(server: &Server) -> Result<Done, Failure> {
    let registry = server.registry();
    let Some(resource) = registry.resource("", "v1", "events") else { return Ok(Done::Unchanged) };
    let now = clock::now();
    let Ok(limit) = now.checked_sub(KEEP) else { return Ok(Done::Unchanged) };
    let mut old: Vec<Arc<Stored>> = server.store.list(&resource.id, None).items;
    old.retain(|stored| last_write(stored).is_some_and(|at| at < limit));
    let options = DeleteOptions::default();
    internal::delete_all(server, &EVENTS, resource, "", &old, &options).await?;
    Ok(Done::Written)
}

/// Only times the server itself has written count; clients may say anything in the others.
fn last_write(stored: &Stored) -> Option<Timestamp> {
    let object = stored.value().ok()?;
    let written = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let times = written.into_iter().flatten().map(|entry| entry.get("time"));
    times
        .chain([object.pointer("/metadata/creationTimestamp")])
        .filter_map(|time| time?.as_str()?.parse().ok())
        .max()
}
