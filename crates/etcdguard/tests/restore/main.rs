//! Restores from real stores: whole, to a revision, to a time, cut off, damaged; and into a real etcd.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod compaction;
mod etcd;
mod faults;
mod golden;
mod histories;
mod shapes;
mod support;
