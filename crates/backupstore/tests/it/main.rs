//! The crate from outside, over stores in memory and in directories.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::format_collect,
    clippy::case_sensitive_file_extension_comparisons
)]

mod backing_images;
mod chains;
mod faults;
mod folded;
mod forgetful;
mod golden;
mod hostile;
mod locks;
mod power;
mod s3;
mod sim;
mod upload;
mod world;
