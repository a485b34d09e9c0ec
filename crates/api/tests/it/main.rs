//! What every definition must be, and what documents must survive.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "everything here is test code; the lints know only functions marked as tests"
)]

mod longhorn;
mod names;
mod samples;
mod server;
mod structure;
mod words;
