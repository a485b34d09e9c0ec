//! What every definition must be, and what documents must survive.

mod longhorn;
mod names;
mod samples;
mod structure;
mod words;
