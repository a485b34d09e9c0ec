//! Programs of others that the tests use: found, or installed, or said to be missing.
//!
//! Never changes the machine beyond Debian's packages (as root) and `target/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::workspace;

/// The oldest kubectl whose habits the suites know.
const KUBECTL_MIN_MINOR: u32 = 30;
const PYTHON_CLIENT: &str = "kubernetes>=31";

/// Makes sure of kubectl; the error says what to do.
pub(crate) fn kubectl() -> Result<()> {
    if kubectl_minor().is_none() {
        apt_install("kubernetes-client").context("kubectl is missing; install it")?;
    }
    let minor = kubectl_minor().context("kubectl does not tell its version")?;
    if minor < KUBECTL_MIN_MINOR {
        bail!("kubectl 1.{minor} is too old; install 1.{KUBECTL_MIN_MINOR} or newer");
    }
    Ok(())
}

fn kubectl_minor() -> Option<u32> {
    let text =
        workspace::output(Command::new("kubectl").args(["version", "--client", "--output=json"]));
    let version: serde_json::Value = serde_json::from_str(&text.ok()?).ok()?;
    let minor = version.pointer("/clientVersion/minor")?.as_str()?;
    minor.trim_end_matches(|it: char| !it.is_ascii_digit()).parse().ok()
}

/// A Python with the Kubernetes client in a private environment; made if it is not there.
pub(crate) fn python() -> Result<PathBuf> {
    let home = workspace::metadata()?.target_directory.join("venv");
    let python = home.join("bin/python");
    let ready = || workspace::output(Command::new(&python).args(["-c", "import kubernetes"]));
    if ready().is_ok() {
        return Ok(python);
    }
    make_environment(&home).or_else(|_| {
        apt_install("python3-venv").context("python3 cannot make environments")?;
        make_environment(&home)
    })?;
    workspace::output(Command::new(&python).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        PYTHON_CLIENT,
    ]))
    .context("cannot install the Python client")?;
    ready()?;
    Ok(python)
}

fn make_environment(home: &std::path::Path) -> Result<()> {
    workspace::output(Command::new("python3").args(["-m", "venv"]).arg(home)).map(drop)
}

fn apt_install(package: &str) -> Result<()> {
    let user = workspace::output(Command::new("id").arg("-u"))?;
    if user.trim() != "0" {
        return Err(anyhow!("the Debian package is {package}; not root, so it was not installed"));
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet").args(arguments);
        workspace::output(&mut command)
    };
    // Without lists there is nothing to install from; with old ones it may still work.
    let _ = apt(&["update"]);
    apt(&["install", "--yes", "--no-install-recommends", package]).map(drop)
}
