//! The control side of an engine process: starts the volume, serves `ControllerService`, and
//! changes the volume on request: snapshots, size, replicas, frontend.
//!
//! Owns: every call to a replica's control server, the order of changes, what callers are told.
//! Never: reads or writes of the volume's data, which [`volume`](crate::volume) carries. Start reading
//! at [`run`], then [`Engine`]; each operation is the file of its name.

mod beyond;
mod drive;
mod each;
mod engine;
mod expand;
mod extents;
mod fill;
mod freeze;
mod frontends;
mod handover;
mod limits;
mod link;
mod mend;
mod paths;
mod probe;
mod purge;
mod rebuild;
mod release;
mod replicas;
mod restore;
mod revert;
mod serve;
mod service;
mod settings;
mod snapshot;
mod start;
mod tend;
mod together;
mod version;
mod watch;

pub use engine::Engine;
pub use serve::{ControlError, run, serve};
pub use start::StartError;
pub use version::version;
