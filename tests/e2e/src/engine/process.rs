//! One engine (controller) process.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testkit::process::{Process, poll_until};

use super::{Cli, Endpoint, Ports, TIMEOUT, is_serving};
use crate::server::{binary, longhorn};

/// Whose engine or replica runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Program {
    #[default]
    Ours,
    /// A real one of the peer, by its path.
    Peer(PathBuf),
}

impl Program {
    /// To be told what to serve.
    pub(super) fn command(&self) -> Command {
        match self {
            Self::Ours => {
                let mut command = Command::new(binary());
                command.arg("engine");
                command
            }
            Self::Peer(program) => Command::new(program),
        }
    }

    /// By the name that scripts call.
    pub(super) fn by_name(&self) -> &Path {
        match self {
            Self::Ours => longhorn(),
            Self::Peer(program) => program,
        }
    }
}

/// An engine that serves, or has ended.
#[derive(Debug)]
pub struct Engine {
    pub process: Process,
    pub ports: Ports,
    program: Program,
    volume: String,
}

/// Sends a signal to one process.
pub fn signal(process: &Process, signal: Signal) {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, signal).unwrap();
}

impl Engine {
    /// Starts one; what it is told besides name and address is up to the caller.
    pub fn launch(scratch: &Path, volume: &str, arguments: &[String]) -> Self {
        Self::launch_of(&Program::Ours, scratch, volume, arguments)
    }

    /// As [`Engine::launch`], perhaps the peer's.
    pub fn launch_of(
        program: &Program,
        scratch: &Path,
        volume: &str,
        arguments: &[String],
    ) -> Self {
        let ports = Ports::claim().unwrap();
        let mut command = program.command();
        command.args(["controller", volume]).args(arguments);
        command.args(["--listen", &format!("127.0.0.1:{}", ports.base())]);
        // A port is held by one engine at a time, so the name is its own.
        let name = format!("engine-{}-{}", ports.base(), unique());
        let process = Process::start(command, scratch, &name).unwrap();
        Self { process, ports, program: program.clone(), volume: volume.to_owned() }
    }

    /// As [`Engine::launch`], and waits until it serves.
    #[track_caller]
    pub fn start(scratch: &Path, volume: &str, arguments: &[String]) -> Self {
        let mut engine = Self::launch(scratch, volume, arguments);
        engine.wait_until_serving();
        engine
    }

    #[track_caller]
    pub fn wait_until_serving(&mut self) {
        wait_until_serving(&mut self.process, self.ports.base());
    }

    pub fn cli(&self) -> Cli {
        let cli = Cli::new(self.ports.base(), &self.volume);
        Cli { program: self.program.clone(), ..cli }
    }

    /// Where the frontend is to be found.
    #[track_caller]
    pub fn endpoint(&self) -> Endpoint {
        let info = self.cli().json(&["info"]);
        Endpoint::parse(info["endpoint"].as_str().unwrap())
    }
}

/// Fails the test if the process ends first.
#[track_caller]
pub(super) fn wait_until_serving(process: &mut Process, port: u16) {
    let mut ended = None;
    let up = poll_until(TIMEOUT, || {
        ended = process.wait_for_exit(std::time::Duration::ZERO).ok();
        (ended.is_some() || is_serving(port)).then_some(())
    });
    let output = || format!("{}{}", process.stdout(), process.stderr());
    assert!(ended.is_none(), "it ended ({ended:?}) before it served:\n{}", output());
    assert!(up.is_some(), "port {port} does not serve:\n{}", output());
}

/// A number no other call in this process gets.
pub(super) fn unique() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
