//! What a write does to an object, seen through the front door: metadata, ownership, patches,
//! deletion, collection. Every rule here is one that real clients rely on.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod apply;
mod cluster;
mod collect;
mod collisions;
mod controllers;
mod delete;
mod events;
mod metadata;
mod namespaces;
mod options;
mod patch;
mod put;
mod support;
