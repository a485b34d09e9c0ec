//! The engine's command line with real servers: the binary as people and managers start it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on panics, and says where"
)]

mod backup;
mod life;
mod nbd;
mod restore_together;
mod rig;
mod starting;
