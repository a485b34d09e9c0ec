//! The guard beside a real etcd. Without one installed these tests say so and pass.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod client;
mod cluster;
mod guard;
mod histories;
mod member;
mod snapshotter;
