//! Programs of others: found on the path, or not there.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A program, or none after having said that what it is for is skipped.
pub fn tool(name: &str, wanted_for: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps file system tools out of the path of ordinary users.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = dirs.map(|dir| dir.join(name)).find(|path| path.is_file());
    if found.is_none() {
        crate::skip(&format!("{wanted_for}: {name} is not installed"));
    }
    found
}

/// Runs a program to its end; not succeeding fails the test. Its standard output comes back.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn describe(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
