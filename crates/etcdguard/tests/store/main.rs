//! Stores of snapshots, through their public face.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod clouds;
mod copies;
mod golden;
mod local;
mod oss;
mod s3;
mod services;
mod support;
mod swift;
mod swift_double;
