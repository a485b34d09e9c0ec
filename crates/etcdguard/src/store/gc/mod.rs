//! Collection of old snapshots: what is to go ([`decide`]), and its removal ([`collect`]).
//!
//! Never: when it runs, and for whom.

mod apply;
mod decide;

pub use apply::{Collected, Inspect, Look, collect};
pub use decide::{Delete, Keep, Plan, Policy, decide};
