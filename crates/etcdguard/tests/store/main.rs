//! Stores of snapshots, through their public face.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod golden;
mod local;
mod support;
