//! stub

pub mod store;
