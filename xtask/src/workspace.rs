//! Where things are, and running programs there.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    // This crate lies one folder below it.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A command run from the root of the workspace.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

pub(crate) fn cargo<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Runs to its end; not succeeding is an error.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{} ended with {status}", describe(command));
    Ok(())
}

/// Runs to its end and hands over each line of standard output as it comes, and whether the
/// program succeeded.
pub(crate) fn follow(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    if let Some(output) = child.stdout.take() {
        for bytes in BufReader::new(output).split(b'\n') {
            line(&String::from_utf8_lossy(&bytes?));
        }
    }
    Ok(child.wait()?.success())
}

/// Runs to its end for what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        describe(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(std::ffi::OsStr::to_string_lossy));
    words.join(" ")
}

/// What `cargo metadata` says about our own packages, and where it builds.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// None is a normal dependency; others are `dev` and `build`.
    pub(crate) kind: Option<String>,
    pub(crate) rename: Option<String>,
    /// None is every platform.
    pub(crate) target: Option<String>,
}

pub(crate) fn metadata() -> Result<Metadata> {
    let text = output(&mut cargo(["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_str(&text).context("cannot read cargo metadata")
}

/// Every file git knows or would take, from the root: what people wrote, not what was built.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let listed =
        output(command("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    Ok(listed.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect())
}
