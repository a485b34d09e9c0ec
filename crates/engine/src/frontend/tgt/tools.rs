//! Running the tools of tgt and iSCSI: where they are found, what is said when they are not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::frontend::{FrontendError, Host};

/// Longest run of one tool. A login to a target may take many seconds.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A program of others, and what to install if it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Tgtadm,
    Iscsiadm,
    SgRaw,
}

impl Tool {
    fn program(self) -> &'static str {
        match self {
            Self::Tgtadm => "tgtadm",
            Self::Iscsiadm => "iscsiadm",
            Self::SgRaw => "sg_raw",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Tgtadm => "tgt, with its longhorn backing store",
            Self::Iscsiadm => "open-iscsi",
            Self::SgRaw => "sg3-utils",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tools {
    path: OsString,
    /// Namespaces in which `iscsiadm` runs, if this process is in others.
    namespaces: Option<PathBuf>,
}

impl Tools {
    pub(super) fn new(host: &Host) -> Self {
        let path = host.tools.clone().or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        let namespaces = host.namespaces.join("mnt").exists().then(|| host.namespaces.clone());
        Self { path, namespaces }
    }

    /// # Errors
    /// Names the first tool that is not installed, and the package it comes in.
    pub(super) fn require(&self, tools: &[Tool]) -> Result<(), FrontendError> {
        tools.iter().try_for_each(|tool| {
            // In namespaces of the machine its own programs count, which cannot be seen from here.
            if *tool == Tool::Iscsiadm && self.namespaces.is_some() {
                return Ok(());
            }
            self.find(*tool).map(|_| ())
        })
    }

    fn find(&self, tool: Tool) -> Result<PathBuf, FrontendError> {
        let program = tool.program();
        let found = std::env::split_paths(&self.path)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file());
        found.ok_or_else(|| {
            let package = tool.package();
            FrontendError::Failed(format!("cannot find {program} on PATH: install {package}"))
        })
    }

    /// Runs a tool and gives what it printed.
    ///
    /// # Errors
    /// With the command line and what it said, if it failed.
    pub(super) async fn run(
        &self,
        tool: Tool,
        arguments: &[&str],
    ) -> Result<String, FrontendError> {
        let line = format!("{} {}", tool.program(), arguments.join(" "));
        let failed = |why: String| FrontendError::Failed(format!("failed to run {line}: {why}"));
        let mut command = self.command(tool)?;
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(TIMEOUT, command.output())
            .await
            .map_err(|_| failed(format!("no end after {} s", TIMEOUT.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        tracing::debug!(line, status = %output.status, "ran");
        if output.status.success() {
            return Ok(said);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("{}: {} {}", output.status, complaint.trim(), said.trim())))
    }

    fn command(&self, tool: Tool) -> Result<Command, FrontendError> {
        let mut command = match (&self.namespaces, tool) {
            (Some(namespaces), Tool::Iscsiadm) => {
                let option = |name: &str, file: &str| {
                    let mut option = OsString::from(format!("--{name}="));
                    option.push(namespaces.join(file));
                    option
                };
                let mut command = Command::new("nsenter");
                command.args([option("mount", "mnt"), option("net", "net")]);
                command.arg(tool.program());
                command
            }
            (None, Tool::Iscsiadm) | (_, Tool::Tgtadm | Tool::SgRaw) => {
                Command::new(self.find(tool)?)
            }
        };
        command.env("PATH", &self.path);
        Ok(command)
    }
}

/// The lock around iSCSI sessions that every engine of a machine takes; free again when dropped.
#[derive(Debug)]
pub(super) struct IscsiLock {
    _file: std::fs::File,
}

/// How long others may keep the lock.
const LOCK_TIMEOUT: Duration = Duration::from_mins(2);

const LOCK_RETRY: Duration = Duration::from_millis(100);

impl IscsiLock {
    pub(super) async fn take(run_dir: &Path) -> Result<Self, FrontendError> {
        let path = run_dir.join("longhorn-iscsi.lock");
        let failed = |why: &dyn std::fmt::Display| {
            FrontendError::Failed(format!("cannot lock {}: {why}", path.display()))
        };
        let file = std::fs::File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| failed(&error))?;
        let locking = async {
            while file.try_lock().is_err() {
                tokio::time::sleep(LOCK_RETRY).await;
            }
        };
        let locked = tokio::time::timeout(LOCK_TIMEOUT, locking).await;
        locked.map_err(|_| failed(&"another engine keeps it"))?;
        Ok(Self { _file: file })
    }
}
