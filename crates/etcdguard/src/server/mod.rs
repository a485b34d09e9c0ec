//! The sidecar: configuration, HTTP, metrics, initialization, and which controllers run.

pub mod config;
pub mod etcd_config;
pub mod http;
pub mod metrics;
