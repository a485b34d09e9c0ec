//! The command line of `holdfast etcd` and of the binary called `etcdbrctl`.
//!
//! Owns: what can be typed ([`table`]), how it is read ([`parse`]), log lines, exit codes. Never:
//! what a server or a restore does. One file a command.

mod completion;
mod flag;
mod help;
mod log;
mod parse;
mod settings;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

pub use self::completion::definition;
