//! The resource types of every dialect Holdfast speaks through Kubernetes resources, their
//! conditions and phases, and the definitions (CRDs) an API server needs to serve them.
//!
//! Owns the shape of resources: names, fields, words, columns, schemas. Never reads a clock, a file
//! or a socket, and never decides anything: what a phase leads to is the business of controllers.
//!
//! A list decoded into these types must not be lost to one odd object in it. So fields are
//! optional, words of foreign machines are open, and durations keep the text they came with; the
//! schemas are what refuses bad input, at the door.
#![forbid(unsafe_code)]

pub mod access;
pub mod condition;
pub mod duration;
pub mod longhorn;
pub mod mirror;
pub mod nonadmin;
pub mod resource;
pub mod scalar;
mod schema;
pub mod selector;
pub mod velero;
mod words;

use std::sync::LazyLock;

use serde_json::Value;

static CRDS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut all = nonadmin::crds();
    all.append(&mut velero::crds());
    all.append(&mut longhorn::crds());
    all
});

/// Every `CustomResourceDefinition`, in an order that does not change between calls or runs.
///
/// The first call builds them; later ones copy.
pub fn crds() -> Vec<Value> {
    CRDS.clone()
}
