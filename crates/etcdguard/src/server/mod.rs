//! The sidecar: configuration, HTTP, metrics, initialization, and which controllers run.

pub mod config;
pub mod controllers;
pub mod etcd_config;
pub mod http;
pub mod initialize;
mod leftovers;
pub mod member;
pub mod metrics;
mod run;

pub use run::{ServeError, serve};
