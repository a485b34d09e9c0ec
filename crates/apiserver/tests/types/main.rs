//! Definitions and rights, seen through the front door: what a definition makes, how it changes and
//! goes, and who may do what.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod access;
mod cluster;
mod definitions;
mod reviews;
mod rules;
mod support;
mod versions;
