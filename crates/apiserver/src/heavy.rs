//! Work that takes long, away from the threads that serve everybody.
//!
//! Merging two lists of fifty thousand items takes seconds of a processor, and in all that time
//! nothing in it waits for anything; so does looking into each of many objects for a field. The
//! runtime has few threads: on one of them, such work would hold up answers, watches and health
//! checks.

mod lane;

use std::num::NonZero;
use std::sync::Arc;

use axum::response::Response;

use crate::failure::Failure;
use crate::flow::{Caller, Level};
use crate::request::Verb;
use crate::rest::select::Selection;
use crate::rest::{Call, view};
use crate::server::Server;
use crate::store::{Size, Stored};

use lane::{Lane, Turn};

/// What is sent and what is stored of an object, together; less is worked out in milliseconds.
const HEAVY_ABOVE_BYTES: usize = 256 * 1024;
/// Lists that look into every object, and what they look through.
const PARSED_ABOVE_BYTES: usize = 1024 * 1024;
/// Lists that look at every object from outside.
const SEEN_ABOVE_OBJECTS: usize = 20_000;

/// `{"op":"test","path":"/a"}` and its comma.
const SHORTEST_OPERATION_BYTES: usize = 27;
/// What the operations of one patch may move, all together.
const MOVED_ABOVE_BYTES: usize = 16 * 1024 * 1024;

/// Where such work waits for its turn; the others hold up nobody.
#[derive(Debug)]
pub(crate) struct Lanes {
    writes: Arc<Lane>,
    /// A large write of anybody's must not keep a reader waiting, nor the other way round.
    reads: Arc<Lane>,
    /// Those who must get in to repair things, and those whom others rely on, do not queue behind
    /// the rest.
    system: Arc<Lane>,
}

impl Default for Lanes {
    fn default() -> Self {
        // Half of the processors at most: the other half serves.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let turns = (processors / 2).clamp(1, 4);
        let lane = || Lane::new(turns);
        Self { writes: lane(), reads: lane(), system: lane() }
    }
}

/// Is this a write of something large, or a list that takes long to find, or an object that has to be
/// made anew to be shown?
pub(crate) fn is_heavy(server: &Server, verb: Verb, call: &Call, stored: Option<&Stored>) -> bool {
    let stored_bytes = stored.map_or(0, |stored| stored.body.len());
    match verb {
        Verb::Create | Verb::Update => call.body.len() + stored_bytes > HEAVY_ABOVE_BYTES,
        Verb::Patch => is_heavy_patch(&call.headers, call.body.len(), stored_bytes),
        Verb::List | Verb::Watch | Verb::DeleteCollection => {
            let is_parsed = Selection::looks_into_objects(&call.query);
            is_long_look(verb, is_parsed, server.store.size(&call.resource.id))
        }
        Verb::Get | Verb::Delete => {
            stored_bytes > HEAVY_ABOVE_BYTES
                && stored.is_some_and(|it| !view::is_stored_form(&call.resource, it, call.answer))
        }
    }
}

/// Watches and deletions of many begin with a list. Deleting waits for the disk again and again, and lets
/// others go on meanwhile; looking into what may have to go does not.
fn is_long_look(verb: Verb, is_parsed: bool, size: Size) -> bool {
    (verb == Verb::List && size.objects > SEEN_ABOVE_OBJECTS)
        || (is_parsed && size.bytes > PARSED_ABOVE_BYTES)
}

/// Each operation of a JSON patch may move all that is stored.
fn is_heavy_patch(headers: &http::HeaderMap, sent_bytes: usize, stored_bytes: usize) -> bool {
    let is_json = headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json-patch+json"));
    let operations = if is_json { sent_bytes / SHORTEST_OPERATION_BYTES } else { 1 };
    sent_bytes + stored_bytes > HEAVY_ABOVE_BYTES
        || operations.saturating_mul(sent_bytes + stored_bytes) > MOVED_ABOVE_BYTES
}

/// The object that a call is about, as it is now.
pub(crate) fn stored(server: &Server, call: &Call) -> Option<Arc<Stored>> {
    let namespace = call.namespace().filter(|_| call.resource.namespaced).unwrap_or_default();
    server.store.get(&call.resource.id, namespace, call.path.name.as_deref()?)
}

/// [`crate::dispatch::act`] on a thread of its own.
pub(crate) async fn act(
    server: &Arc<Server>,
    verb: Verb,
    call: Call,
    caller: &Caller,
) -> Result<Response, Failure> {
    let lane = match (caller.level, verb.is_write()) {
        (Level::System | Level::Service, _) => &server.lanes.system,
        (Level::Known | Level::Stranger, true) => &server.lanes.writes,
        (Level::Known | Level::Stranger, false) => &server.lanes.reads,
    };
    let turn: Turn = lane.wait(&caller.name).await;
    // It may have been a long wait.
    call.check_again(server)?;
    let runtime = tokio::runtime::Handle::current();
    let inner = Arc::clone(server);
    let work = move || {
        let _turn = turn;
        runtime.block_on(crate::dispatch::act(&inner, verb, &call))
    };
    let done = server.tasks.blocking("long work", work).await;
    done.map_err(|error| Failure::internal(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{Size, Verb, is_heavy_patch, is_long_look};

    #[test]
    fn whoever_looks_into_many_objects_does_so_elsewhere() {
        let large = Size { objects: 20, bytes: 30 << 20 };
        for verb in [Verb::List, Verb::Watch, Verb::DeleteCollection] {
            assert!(is_long_look(verb, true, large), "{verb:?}");
            assert!(!is_long_look(verb, false, large), "{verb:?}");
            assert!(!is_long_look(verb, true, Size { objects: 20, bytes: 2000 }), "{verb:?}");
        }
        let many = Size { objects: 100_000, bytes: 100 << 20 };
        assert!(is_long_look(Verb::List, false, many));
    }

    #[test]
    fn patches_are_heavy_by_what_they_move() {
        let of = |kind: &'static str| {
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))])
        };
        let json = of("application/json-patch+json");
        let merge = of("application/merge-patch+json");
        for (headers, sent, stored, wanted) in [
            (&json, 300, 20_000, false),
            (&json, 2_000, 100_000, false),
            (&json, 139_000, 60_000, true),
            (&json, 30_000, 90_000, true),
            (&merge, 139_000, 60_000, false),
            (&merge, 210_000, 60_000, true),
        ] {
            assert_eq!(is_heavy_patch(headers, sent, stored), wanted, "{sent} of {stored}");
        }
    }
}
