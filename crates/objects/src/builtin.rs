//! The built-in Kubernetes types: one table of names, field numbers and list semantics, from which
//! come the [`Node`] trees here and the protobuf decoder in [`crate::proto`].
//!
//! Owns: what a built-in kind looks like. Never: what it is worth (defaults of the server,
//! validation), and never edits the table by hand: `cargo xtask codegen` writes it.

pub mod openapi;
mod shape;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::node::Node;
use table::Table;

/// The tree of a built-in kind, or `None` if there is no such kind in the table.
pub fn node(group: &str, version: &str, kind: &str) -> Option<Arc<Node>> {
    let api_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    trees().kinds.get(&(api_version.as_str(), kind)).cloned()
}

/// The tree of `metadata`, the same for built-in kinds and custom resources.
pub fn object_meta() -> Arc<Node> {
    Arc::clone(&trees().object_meta)
}

/// Every built-in kind of the table as (apiVersion, kind), in the order of the table.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    Table::get().kinds().map(|(api_version, kind, _)| (api_version, kind))
}

struct Trees {
    kinds: HashMap<(&'static str, &'static str), Arc<Node>>,
    object_meta: Arc<Node>,
}

fn trees() -> &'static Trees {
    static TREES: OnceLock<Trees> = OnceLock::new();
    TREES.get_or_init(|| {
        let mut shapes = shape::Shapes::new(Table::get());
        let object_meta = shapes.object_meta();
        let kinds = Table::get()
            .kinds()
            .map(|(api_version, kind, id)| ((api_version, kind), shapes.root(id)))
            .collect();
        Trees { kinds, object_meta }
    })
}
