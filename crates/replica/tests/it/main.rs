//! The replica from outside: real directories, the golden one, a model, deaths at every step.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that meets the unexpected should stop there"
)]

mod behaviour;
mod crash;
mod golden;
mod hostile;
mod model;
mod place;
mod power;
mod purge;
mod qcow2;
