//! What the end-to-end suites share: the real binary under test, and a plain HTTPS connection to it.
//!
//! Never: knows the server from inside. Whatever a suite checks, it checks from where a client
//! stands. The suites are the files under `tests/`.

pub mod backup;
pub mod connection;
pub mod engine;
pub mod guard;
pub mod rejections;
pub mod server;
pub mod velero;
pub mod volumes;

pub use connection::{Answer, Connection, Endpoint, Events};
pub use server::{ADMIN_TOKEN, BOB_TOKEN, MANAGER_TOKEN, Server};

use std::io::Write as _;
use std::path::Path;

/// Writes a file a test needs. It need not outlive a crash.
pub fn write(path: &Path, text: &str) {
    std::fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Says why a test does not run here; `cargo xtask test` counts these lines.
pub fn skip(why: &str) {
    println!("skipped: {why}");
}
