//! One replicated volume: what it promises to those who write to it, the replicas under it, the
//! frontends over it, and its control server.
//!
//! Start reading at [`core`]: the whole data path as a pure state machine, driven here by sockets
//! ([`volume`]) and in tests by the simulator. [`control`] starts, grows, snapshots and rebuilds, in the
//! order that [`machine`] gives; [`frontend`] is how bytes come in. The command line is a crate of its own, `enginecli`.

pub mod control;
pub mod core;
pub mod frontend;
pub mod machine;
mod options;
pub mod volume;

pub use options::{
    Backend, ControllerOptions, DataProtocol, NbdOptions, REBUILD_TIMEOUT, TlsFiles,
};
