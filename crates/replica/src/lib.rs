//! One copy of a volume: a directory of sparse files ([`disk`]), the process that serves it to
//! engines ([`server`]), and the agent beside it that does the long file work ([`agent`]).

pub mod agent;
pub mod disk;
pub mod server;

pub use disk::*;
