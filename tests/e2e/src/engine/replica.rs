//! One replica process and its directory.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::Signal;
use testkit::process::Process;

use super::process::{signal, unique, wait_until_serving};
use super::{Frames, Layers, Ports, Program, TIMEOUT};

/// How a replica is started.
#[derive(Debug, Clone)]
pub struct ReplicaSetup {
    pub program: Program,
    pub volume: String,
    pub instance: String,
    pub size_bytes: u64,
    pub revision_counter: bool,
    pub arguments: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
}

/// A replica that runs, or one between two starts. Its ports stay its own.
#[derive(Debug)]
pub struct Replica {
    pub process: Option<Process>,
    pub dir: PathBuf,
    pub setup: ReplicaSetup,
    ports: Ports,
    scratch: PathBuf,
}

impl Replica {
    /// Not started yet. Its output will be in `scratch`.
    pub fn new(scratch: &Path, dir: PathBuf, setup: ReplicaSetup) -> Self {
        Self {
            process: None,
            dir,
            setup,
            ports: Ports::claim().unwrap(),
            scratch: scratch.to_owned(),
        }
    }

    /// Starts it on its directory and waits until it serves.
    #[track_caller]
    pub fn start(&mut self) {
        self.launch();
        wait_until_serving(self.process.as_mut().unwrap(), self.ports.base());
    }

    /// Starts it, whatever comes of it.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "{} runs already", self.address());
        self.ports.wait_until_free(TIMEOUT).unwrap();
        let name = format!("replica-{}-{}", self.ports.base(), unique());
        self.process = Some(Process::start(self.command(), &self.scratch, &name).unwrap());
    }

    fn command(&self) -> Command {
        let setup = &self.setup;
        let mut command = setup.program.command();
        command.args(["--volume-name", &setup.volume, "replica"]).arg(&self.dir);
        command.args(["--size", &setup.size_bytes.to_string()]);
        command.args(["--replica-instance-name", &setup.instance]);
        if !setup.revision_counter {
            command.arg("--disableRevCounter");
        }
        command.args(&setup.arguments);
        command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
        command.args(["--listen", &self.listen()]);
        command
    }

    fn listen(&self) -> String {
        format!("127.0.0.1:{}", self.ports.base())
    }

    pub fn address(&self) -> String {
        format!("tcp://{}", self.listen())
    }

    pub fn control_port(&self) -> u16 {
        self.ports.base()
    }

    /// SIGKILL, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
        }
    }

    /// SIGINT, and its end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        signal(&process, Signal::INT);
        process.wait_for_exit(TIMEOUT).unwrap()
    }

    /// SIGINT if it runs, then started anew: how one gets a replica that is not open.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.process.is_some() {
            self.stop();
        }
        self.start();
    }

    /// Forgets everything it ever stored. It must not run.
    pub fn wipe(&self) {
        assert!(self.process.is_none());
        std::fs::remove_dir_all(&self.dir).unwrap();
    }

    /// A connection to its data port.
    pub fn frames(&self) -> Frames {
        Frames::tcp(self.ports.base() + 1)
    }

    /// Everything it holds, read through its data port.
    #[track_caller]
    pub fn contents(&self, size_bytes: u64) -> Vec<u8> {
        self.frames().read_all(size_bytes)
    }

    /// What its directory holds, without asking it.
    pub fn layers(&self) -> Layers {
        Layers::open(&self.dir)
    }

    pub fn stderr(&self) -> String {
        self.process.as_ref().map(Process::stderr).unwrap_or_default()
    }
}
