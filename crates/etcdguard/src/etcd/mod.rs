//! Speaking to an etcd: the calls we make, and what its state is.
//!
//! Owns: connections with their TLS and tokens, deadlines, the reasons of rejections, and the
//! [`EtcdMonitor`]. Never: decisions of what to do with an etcd, which are the controllers'.

mod client;
mod config;
mod error;
mod monitor;
mod snapshot;
mod tls;
mod transport;
mod watch;

pub use client::{Etcd, Txn};
pub use config::{ConnectionConfig, TlsFiles};
pub use error::{EtcdError, Rejection};
pub use monitor::{EtcdMonitor, MemberState, Observation, StatusSource, Subscription};
pub use snapshot::SnapshotStream;
pub use watch::{Batch, Watch};

/// Messages and services as etcd names them; written by `cargo xtask codegen`.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_debug_implementations,
    unreachable_pub
)]
pub mod wire {
    include!("generated/etcdserverpb.rs");
}

pub use wire::event::EventType;
pub use wire::{Event, KeyValue, Member, StatusResponse};
