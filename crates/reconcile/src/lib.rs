//! What every controller is made of: caches that follow the API server, a queue of keys, and the one
//! way to write objects back.
//!
//! A controller is three functions: `observe` reads caches, `decide` is pure, `apply` writes what
//! differs. This crate owns the rest: which key is looked at when ([`Queue`]), never two passes of
//! one key at a time, errors with growing pauses, conflicts as "look again" and nothing else.
//!
//! ```text
//! watch -> Store (cache, indexes) -> keys -> Queue -> Reconciler::reconcile(key) -> Store::update
//! ```
//!
//! It knows no kind of resource, and works with any `kube::Client`: embedded or of a cluster. Start
//! reading at [`Controller`] and [`Loop`].
#![forbid(unsafe_code)]

mod cache;
mod controller;
mod cron;
mod diff;
mod error;
mod events;
mod key;
mod metrics;
mod queue;
mod run;
mod store;

pub use api::access::Grant;
pub use cache::{Broken, Object};
pub use controller::{Context, Controller};
pub use cron::Cron;
pub use error::{Failure, OrFail};
pub use events::{EVENT_RIGHTS, Events, Severity};
pub use key::Key;
pub use metrics::{Fact, Metrics};
pub use queue::{Backoff, Queue};
pub use run::{Loop, Next, Reconciler};
pub use store::{Store, StoreBuilder};
