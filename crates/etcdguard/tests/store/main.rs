//! Stores of snapshots, through their public face.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod copies;
mod golden;
mod local;
mod s3;
mod support;
