//! Replicas and a controller of one volume, each a process, and the commands of the dialect.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use testkit::process::{Process, Scratch, free_port, free_ports, poll_until};

pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);
/// Control, data, agent, and ten receivers.
const REPLICA_PORTS: u16 = 13;

pub(crate) struct Rig {
    scratch: Scratch,
    /// The binary under its other name.
    pub(crate) program: PathBuf,
    pub(crate) volume: String,
    pub(crate) controller_port: u16,
    pub(crate) controller: Option<Process>,
    pub(crate) replicas: Vec<Node>,
    /// Further flags of replicas.
    pub(crate) replica_flags: Vec<String>,
}

pub(crate) struct Node {
    pub(crate) port: u16,
    pub(crate) process: Option<Process>,
}

impl Node {
    pub(crate) fn address(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Rig {
    pub(crate) fn new(volume: &str) -> Self {
        let scratch = Scratch::new().unwrap();
        let program = scratch.path().join("longhorn");
        symlink(env!("CARGO_BIN_EXE_holdfast"), &program).unwrap();
        let controller_port = free_port().unwrap();
        Self {
            scratch,
            program,
            volume: volume.into(),
            controller_port,
            controller: None,
            replicas: Vec::new(),
            replica_flags: Vec::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A replica of the given size; 0: one that was never created.
    pub(crate) fn add_replica(&mut self, size: u64) -> usize {
        let port = free_ports(REPLICA_PORTS).unwrap();
        self.replicas.push(Node { port, process: None });
        let index = self.replicas.len() - 1;
        self.start_replica(index, size);
        index
    }

    /// As a manager starts it: global flags, the directory, flags, the address at the end.
    pub(crate) fn start_replica(&mut self, index: usize, size: u64) {
        let port = self.replicas[index].port;
        let mut command = Command::new(&self.program);
        command.args(["--volume-name", &self.volume, "replica"]);
        command.arg(self.path(&format!("replica{index}")));
        if size != 0 {
            command.args(["--size", &size.to_string()]);
        }
        command.args(["--replica-instance-name", &format!("{}-r-{index}", self.volume)]);
        command.args(&self.replica_flags);
        command.args(["--snapshot-max-count", "100", "--listen", &format!("127.0.0.1:{port}")]);
        let name = format!("r{index}");
        let mut process = Process::start(command, self.scratch.path(), &name).unwrap();
        process.wait_for_port(([127, 0, 0, 1], port).into(), TIMEOUT).unwrap();
        self.replicas[index].process = Some(process);
    }

    /// Starts the controller with the given replicas and does not wait for it.
    pub(crate) fn launch_controller(&mut self, size: u64, addresses: &[String], flags: &[&str]) {
        let mut command = Command::new(&self.program);
        command.args(["--engine-instance-name", &format!("{}-e-0", self.volume)]);
        command.args(["controller", &self.volume]).args(flags);
        for address in addresses {
            command.args(["--replica", address]);
        }
        let size = size.to_string();
        command.args(["--size", &size, "--current-size", &size]);
        command.args(["--listen", &format!("127.0.0.1:{}", self.controller_port)]);
        let process = Process::start(command, self.scratch.path(), "controller").unwrap();
        self.controller = Some(process);
    }

    /// Starts a volume with all replicas and the NBD frontend on a socket, and waits for it.
    pub(crate) fn start_volume(&mut self, size: u64) {
        let addresses: Vec<String> = self.replicas.iter().map(Node::address).collect();
        let socket = self.nbd_socket();
        let flags = ["--frontend", "nbd", "--nbd-unix", socket.to_str().unwrap()];
        self.launch_controller(size, &addresses, &flags);
        self.wait_for_controller();
    }

    pub(crate) fn wait_for_controller(&mut self) {
        let at = ([127, 0, 0, 1], self.controller_port).into();
        self.controller.as_mut().unwrap().wait_for_port(at, TIMEOUT).unwrap();
    }

    pub(crate) fn nbd_socket(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    /// A command to this volume's controller, its words split at blanks.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        let mut command = Command::new(&self.program);
        command.args(["--url", &format!("http://127.0.0.1:{}", self.controller_port)]);
        command.args(line.split_whitespace()).output().unwrap().into()
    }

    /// One that must succeed; what it printed.
    pub(crate) fn ok(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{line}");
        outcome.out
    }

    /// One that must fail; the error in its last line.
    pub(crate) fn error(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""), "{line}");
        let last = outcome.err.lines().last().unwrap().to_owned();
        assert!(last.contains(" level=fatal "), "{last}");
        last.split_once(" error=").unwrap().1.to_owned()
    }

    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }

    /// The modes in the order of the list.
    pub(crate) fn modes(&self) -> Vec<String> {
        let list = self.ok("ls-replica");
        list.lines().skip(1).map(|row| row.split_whitespace().nth(1).unwrap().to_owned()).collect()
    }

    /// Asks until the answer is as wanted.
    pub(crate) fn wait_until(&self, what: &str, look: impl Fn(&Self) -> bool) {
        let seen = poll_until(TIMEOUT, || look(self).then_some(()));
        assert!(seen.is_some(), "{what} did not come; {}", self.controller_log());
    }

    pub(crate) fn controller_log(&self) -> String {
        self.controller.as_ref().map(Process::stderr).unwrap_or_default()
    }
}

/// Sends a signal to a process by its id.
pub(crate) fn signal(process: &Process, signal: rustix::process::Signal) {
    let id = i32::try_from(process.id()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), signal).unwrap();
}

pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
