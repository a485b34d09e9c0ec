//! Copying of backups from one store to another: the `copy` command, and the second site.
//!
//! Owns: which snapshots are copied ([`select`]), the copying with its checks ([`copy`]), and the
//! wait for the last snapshot of a source ([`wait_for_final`]). Never: a delete of anything but a
//! copy of its own that came out wrong.

mod apply;
mod select;

pub use apply::{Copied, Junk, Progress, copy, wait_for_final};
pub use select::{Selection, has_recent_final, select};

#[cfg(test)]
mod tests;
