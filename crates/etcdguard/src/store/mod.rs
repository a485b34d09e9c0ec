//! Stores of snapshots: what objects are called, what they hold, and where they lie.
//!
//! Owns: names and their order ([`snapshot`], [`name`]), what belongs together ([`history`]), contents ([`delta`], [`full`],
//! [`compress`], [`encrypt`]), the way to a store ([`config`], [`provider`], [`SnapStore`]), and
//! what is done with whole stores ([`gc`], [`copy`]). Never: an etcd, or when snapshots are taken.

pub mod compress;
pub mod config;
pub mod copy;
pub mod delta;
pub mod encrypt;
pub mod error;
pub mod full;
pub mod gc;
pub mod history;
pub mod name;
mod provider;
pub mod snapshot;
mod snapstore;

pub use compress::Compression;
pub use config::{Environment, Provider, StoreConfig};
pub use delta::Event;
pub use error::StoreError;
pub use history::{Histories, History};
pub use snapshot::{Kind, Latest, Snapshot};
pub use snapstore::{Include, SnapStore};
