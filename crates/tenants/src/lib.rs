//! Self-service backups and restores of tenants: the controllers of `oadp.openshift.io`.
//!
//! A tenant asks in its own namespace; the controllers check, and ask the executor of `velero.io`
//! resources in the administrators' namespace. The tenant never gets a right outside its namespace,
//! and the executor never hears what was not checked here.
//!
//! Each kind is a module: `decide` is its life as a pure function, the rest observes and carries
//! out. Start with [`backup::decide`].
#![forbid(unsafe_code)]

pub mod backup;
pub mod download;
pub mod enforce;
pub mod location;
pub mod names;
pub mod queue;
pub mod restore;
pub mod settings;
pub mod spec;
