//! What the sidecar answers over HTTP.

pub mod client;
pub mod transport;
