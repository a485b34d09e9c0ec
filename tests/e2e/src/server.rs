//! The binary under test: built if need be, started in a directory of its own, gone with the test.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use testkit::process::{Process, Scratch, WaitError};

use crate::{Endpoint, write};

/// Token of a user who may do everything.
pub const ADMIN_TOKEN: &str = "admin-token";
/// Token of the user that a cluster's controller manager is.
pub const MANAGER_TOKEN: &str = "manager-token";
/// Token of user `bob` in group `team-b`, who has no rights of his own.
pub const BOB_TOKEN: &str = "bob-token";
const TOKENS: &str = "admin-token,admin,uid-admin,\"system:masters\"\n\
                      bob-token,bob,uid-bob,\"team-b\"\n\
                      manager-token,system:kube-controller-manager,uid-manager\n";

/// Long enough for a loaded machine; nothing waits for it in vain unless something is broken.
pub const TIMEOUT: Duration = Duration::from_mins(3);
/// How long a server may take to end its volumes when its test is over.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The binary: what `HOLDFAST_BIN` says, or built on the spot.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("HOLDFAST_BIN") {
        Some(path) => path.into(),
        None => build(),
    })
}

/// The binary by the name of the peer whose scripts the suites stand for: a link beside it.
pub fn longhorn() -> &'static Path {
    static LINK: OnceLock<PathBuf> = OnceLock::new();
    LINK.get_or_init(|| {
        let binary = std::path::absolute(binary()).unwrap();
        let folder = binary.parent().unwrap().join("by-name");
        std::fs::create_dir_all(&folder).unwrap();
        let link = folder.join("longhorn");
        match std::os::unix::fs::symlink(&binary, &link) {
            // Made by another suite.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.unwrap(),
        }
        link
    })
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--package", "holdfast"]).status().unwrap();
    assert!(status.success(), "cannot build the binary");
    // Test programs lie in `<target>/debug/deps`.
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(2).unwrap().join("holdfast")
}

/// A running `holdfast up`, or one between two starts.
#[derive(Debug)]
pub struct Server {
    process: Option<Process>,
    data_dir: PathBuf,
    url: String,
    starts: u32,
    scratch: Scratch,
    /// More arguments of `up`.
    more: Vec<String>,
}

/// Engines and replicas outlive a server that is killed: they end with the test.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.terminate();
            let _ = process.wait_for_exit(END_TIMEOUT);
        }
        testkit::process::end_all_below(self.scratch.path());
    }
}

impl Server {
    /// Started on fresh data, ready to serve.
    pub fn start() -> Self {
        let scratch = Scratch::new().unwrap();
        let data_dir = scratch.path().join("data");
        Self::start_in(scratch, data_dir)
    }

    /// As [`Server::start`], with more arguments.
    pub fn start_with(more: &[&str]) -> Self {
        let scratch = Scratch::new().unwrap();
        let data_dir = scratch.path().join("data");
        Self::begin(scratch, data_dir, more)
    }

    /// As [`Server::start`], with its data in a directory of the caller's.
    pub fn start_in(scratch: Scratch, data_dir: PathBuf) -> Self {
        Self::begin(scratch, data_dir, &[])
    }

    /// As [`Server::start_in`], with more arguments.
    pub fn start_on(scratch: Scratch, data_dir: PathBuf, more: &[&str]) -> Self {
        Self::begin(scratch, data_dir, more)
    }

    fn begin(scratch: Scratch, data_dir: PathBuf, more: &[&str]) -> Self {
        write(&scratch.path().join("tokens.csv"), TOKENS);
        let more = more.iter().map(|it| (*it).to_owned()).collect();
        let (process, url) = (None, String::new());
        let mut server = Self { process, data_dir, url, starts: 0, scratch, more };
        server.start_again().unwrap();
        server
    }

    /// The command line of `up` on this data.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.arg("up").arg("--data-dir").arg(&self.data_dir);
        if !self.more.iter().any(|it| it == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(["--block-listen", "127.0.0.1:0", "--dashboard-listen", "127.0.0.1:0"]);
        command.arg("--token-auth-file");
        command.arg(self.scratch.path().join("tokens.csv"));
        command.args(&self.more);
        command
    }

    /// Starts it on the data it left; the port is a new one.
    pub fn start_again(&mut self) -> Result<(), WaitError> {
        let mut process = self.launch();
        let line = process.wait_for_line("https://", TIMEOUT)?;
        let from = line.find("https://").unwrap();
        let url = line[from..].split_whitespace().next().unwrap();
        url.trim_end_matches('/').clone_into(&mut self.url);
        self.process = Some(process);
        Ok(())
    }

    /// Starts another `up` on the same data, whatever comes of it.
    pub fn launch(&mut self) -> Process {
        self.starts += 1;
        // A new name each time: output of an earlier start must not be taken for this one's.
        let name = format!("up-{}", self.starts);
        Process::start(self.command(), self.scratch.path(), &name).unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
        }
    }

    /// SIGTERM, and its end.
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        process.terminate().unwrap();
        process.wait_for_exit(TIMEOUT).unwrap()
    }

    /// Runs another subcommand on this data to its end.
    pub fn holdfast(&self, arguments: &[&str]) -> std::process::Output {
        let (first, rest) = arguments.split_first().unwrap();
        let mut command = Command::new(binary());
        command.arg(first).arg("--data-dir").arg(&self.data_dir).args(rest);
        command.output().unwrap()
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the Block Storage API is, as the banner tells.
    pub fn block_url(&mut self) -> String {
        let process = self.process.as_mut().unwrap();
        let line = process.wait_for_line("  Block Storage    http://", TIMEOUT).unwrap();
        let from = line.find("http://").unwrap_or_else(|| panic!("{line}"));
        line[from..].trim().trim_end_matches("/v3").to_owned()
    }

    /// Where the dashboard is, as the banner tells.
    pub fn dashboard_url(&mut self) -> String {
        let process = self.process.as_mut().unwrap();
        let line = process.wait_for_line("  dashboard        http", TIMEOUT).unwrap();
        let from = line.find("http").unwrap_or_else(|| panic!("{line}"));
        line[from..].split_whitespace().next().unwrap().to_owned()
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A directory for the test's own files.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("kubeconfig")
    }

    pub fn ca(&self) -> PathBuf {
        self.data_dir.join("pki/ca.crt")
    }

    pub fn process_id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Resident memory now.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.process_id()).unwrap()
    }

    /// What it has logged since its last start.
    pub fn stderr(&self) -> String {
        self.process.as_ref().map(Process::stderr).unwrap_or_default()
    }

    pub fn endpoint(&self) -> Endpoint {
        let ca = std::fs::read(self.ca()).unwrap();
        Endpoint::new(&self.url, &ca, ADMIN_TOKEN)
    }

    /// A kube-rs client with the administrator's kubeconfig.
    pub async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).unwrap()
    }

    pub async fn config(&self) -> kube::Config {
        config_of(&self.kubeconfig()).await
    }
}

/// What a kubeconfig file says to kube-rs.
pub async fn config_of(path: &Path) -> kube::Config {
    // A second call finds it installed; that is all it would do.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(path).unwrap();
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()
}

/// Resident memory of any process, as the kernel tells it.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
