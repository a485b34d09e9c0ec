//! The embedded API server: the Kubernetes protocol on one SQLite file.

pub mod auth;
pub mod pki;
