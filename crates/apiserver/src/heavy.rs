//! Writes that take long to work out, away from the threads that serve everybody.
//!
//! Merging two lists of fifty thousand items takes seconds of a processor, and in all that time
//! nothing in it waits for anything. The runtime has few threads: on one of them, such a write would
//! hold up answers, watches and health checks.

use std::sync::Arc;

use axum::response::Response;
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::flow::Level;
use crate::request::Verb;
use crate::rest::Call;
use crate::server::Server;

/// What is sent and what is stored of an object, together; less is worked out in milliseconds.
const HEAVY_ABOVE_BYTES: usize = 256 * 1024;

/// How many such writes are worked on at once; the others wait, and hold up nobody.
#[derive(Debug)]
pub(crate) struct Lanes {
    everybody: Semaphore,
    /// Those who must get in to repair things, and those whom others rely on, do not queue behind
    /// the rest.
    system: Semaphore,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { everybody: Semaphore::new(1), system: Semaphore::new(1) }
    }
}

/// Is this a write of something large?
pub(crate) fn is_heavy(server: &Server, verb: Verb, call: &Call) -> bool {
    let changes = matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
    let stored = || {
        let name = call.path.name.as_deref()?;
        let key = call.resource.key(call.namespace(), name);
        let stored = server.store.get(&key.resource, &key.namespace, &key.name)?;
        Some(stored.body.len())
    };
    changes && call.body.len() + stored().unwrap_or_default() > HEAVY_ABOVE_BYTES
}

/// [`crate::dispatch::act`] on a thread of its own.
pub(crate) async fn act(
    server: &Arc<Server>,
    verb: Verb,
    call: Call,
    level: Level,
) -> Result<Response, Failure> {
    let lane = match level {
        Level::System | Level::Service => &server.lanes.system,
        Level::Known | Level::Stranger => &server.lanes.everybody,
    };
    // Nobody closes them.
    let _turn = lane.acquire().await.map_err(|error| Failure::internal(error.to_string()))?;
    let runtime = tokio::runtime::Handle::current();
    let inner = Arc::clone(server);
    let work = move || runtime.block_on(crate::dispatch::act(&inner, verb, &call));
    let done = server.tasks.blocking("large write", work).await;
    done.map_err(|error| Failure::internal(error.to_string()))?
}
