//! The sync agent over its real sockets, beside real replicas: files that travel and arrive equal,
//! broken connections, hostile peers, purges that were cut short, hashes and clones.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that meets the unexpected should stop there"
)]

mod backup;
mod backup_restore;
mod clone;
mod hash;
mod hostile;
mod killed;
mod node;
mod proxy;
mod purge;
mod restore_damage;
mod restore_together;
mod send;
mod speed;
mod sync;
mod verbs;
