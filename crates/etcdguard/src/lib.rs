//! Guard of an etcd member: snapshots it, checks it, restores it, and keeps its cluster in shape.
//!
//! Owns: everything of the `etcdbrctl` dialect. Never: other dialects, or how objects get into a
//! store (that is `blobs`).

pub mod bolt;
pub mod cli;
pub mod control;
pub mod datadir;
pub mod etcd;
mod nameless;
pub mod restore;
pub mod server;
pub mod store;
