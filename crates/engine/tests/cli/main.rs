//! The command line against servers that only pretend: what each command asks of whom, what it
//! prints, and how it fails.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on panics, and says where"
)]

mod adding;
mod backup;
mod cloning;
mod documents;
mod failing;
mod fakes;
mod replicas;
mod snapshots;
mod volume;
mod world;
