//! The control side from outside: its real gRPC server over scripted replicas and over real ones.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected should stop there"
)]

mod copies;
mod expand;
mod fake;
mod fence;
mod files;
mod fill;
mod handover;
mod restore;
mod rig;
mod serving;
mod set;
mod snapshot;
mod start;
mod whole;
