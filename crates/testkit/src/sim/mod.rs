//! A world from a seed: named nodes, a virtual clock, a network that delays, loses, repeats and
//! parts, and disks that forget what was not synced.
//!
//! The code under test is sans-io: a [`Node`] gets messages and timers, and asks for others
//! through its [`Context`]. Nothing here reads a real clock or a real source of chance, so a seed
//! is a history: a failure names its seed, and `SIM_SEED=<seed> cargo test <name>` plays it again.
//!
//! Start at [`World`]; a whole example is in `tests/lease.rs`.

mod chaos;
mod clock;
mod network;
mod rng;
mod seeds;
#[cfg(test)]
mod tests;
mod world;

pub use chaos::Chaos;
pub use clock::Clock;
pub use durable::sim::SimDisk as Disk;
pub use network::{Link, Network};
pub use rng::Rng;
pub use seeds::for_seeds;
pub use world::{Context, Node, Violation, World};
