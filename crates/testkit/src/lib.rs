//! What tests are built with. For `[dev-dependencies]` only.
//!
//! Owns: the simulated world ([`sim`]): clock, network, disks and crashes, all from one seed; and
//! real child processes with their files ([`process`]) and ports ([`ports`]), among them etcd members
//! ([`etcd`]). Never: anything a shipped crate needs.

#![forbid(unsafe_code)]

pub mod etcd;
pub mod ports;
pub mod process;
pub mod sim;
