//! Kubernetes objects as plain JSON values: what a schema says about them, how patches and
//! server-side apply change them, which of them a selector picks, how they look in a table, and how
//! protobuf bodies become JSON, and JSON protobuf.
//!
//! Owns: every rule of the resource model that can be written as a function of values.
//! Never: reads a clock, a file, a socket or a global; knows about HTTP or storage.
//! Start reading at [`node`]: one description of a type serves built-in kinds and custom resources.

#![forbid(unsafe_code)]

mod access;
pub mod admission;
pub mod builtin;
pub mod cause;
pub mod cel;
pub mod crd;
pub mod defaults;
pub mod event;
pub mod fields;
pub mod json;
pub mod jsonpath;
pub mod kinds;
pub mod managed;
pub mod meta;
pub mod names;
pub mod node;
pub mod page;
pub mod patch;
pub mod path;
pub mod pattern;
pub mod proto;
pub mod prune;
pub mod quantity;
pub mod scale;
pub mod schema;
pub mod selector;
pub mod strategic;
pub mod table;
pub mod time;
pub mod validate;

#[cfg(test)]
mod noise;

#[cfg(test)]
mod testing;
