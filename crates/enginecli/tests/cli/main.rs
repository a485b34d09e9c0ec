//! The command line against servers that only pretend: what each command asks of whom, what it
//! prints, and how it fails.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that cannot go on panics, and says where"
)]

mod adding;
mod backup;
mod cloning;
mod documents;
mod failing;
mod fakes;
mod locks;
mod manners;
mod replicas;
mod restore_to_file;
mod scrub;
mod snapshots;
mod store;
mod volume;
mod world;
