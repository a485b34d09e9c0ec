//! What every definition must be, and what documents must survive.

mod names;
mod samples;
mod structure;
