//! A whole volume: some replicas, and an engine over them.

use std::path::Path;
use std::process::ExitStatus;

use rustix::process::Signal;
use testkit::process::{Scratch, poll_until};

use super::process::unique;
use super::{Cli, Endpoint, Engine, MIB, Nbd, Program, Replica, ReplicaSetup, TIMEOUT, signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frontend {
    Nbd,
    Socket,
    None,
}

impl Frontend {
    fn name(self) -> &'static str {
        match self {
            Self::Nbd => "nbd",
            Self::Socket => "socket",
            Self::None => "",
        }
    }
}

/// What a volume is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    pub replicas: usize,
    pub size_bytes: u64,
    pub frontend: Frontend,
    pub revision_counter: bool,
    /// Seconds a replica may take to answer: as long as can be, unless a test is about it. The disk
    /// of a loaded machine may take longer than the usual time to flush.
    pub replica_timeout: u32,
    /// Further arguments of every engine.
    pub engine: Vec<String>,
    /// Further arguments of every replica.
    pub replica: Vec<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            replicas: 3,
            size_bytes: 64 * MIB,
            frontend: Frontend::Nbd,
            revision_counter: true,
            replica_timeout: 30,
            engine: Vec::new(),
            replica: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub struct Volume {
    pub name: String,
    pub setup: Setup,
    pub replicas: Vec<Replica>,
    pub engine: Option<Engine>,
    scratch: Scratch,
}

impl Volume {
    /// Everything started and up.
    #[track_caller]
    pub fn start(setup: Setup) -> Self {
        let mut volume = Self::prepare(setup);
        for replica in &mut volume.replicas {
            replica.start();
        }
        volume.start_engine();
        volume
    }

    /// Nothing started yet.
    pub fn prepare(setup: Setup) -> Self {
        Self::prepare_in(Scratch::new().unwrap(), setup)
    }

    /// As [`Volume::prepare`], with all files in a directory of the caller's.
    pub fn prepare_in(scratch: Scratch, setup: Setup) -> Self {
        // Sockets are named after volumes, so the name must be the only one on the machine.
        Self::prepare_as(scratch, format!("test-{}-{}", std::process::id(), unique()), setup)
    }

    /// As [`Volume::prepare_in`], with a name of the caller's. Of volumes of one name, one at most
    /// has a frontend.
    pub fn prepare_as(scratch: Scratch, name: String, setup: Setup) -> Self {
        let count = setup.replicas;
        let mut volume = Self { name, setup, replicas: Vec::new(), engine: None, scratch };
        for _ in 0..count {
            volume.add_process();
        }
        volume
    }

    /// One more replica, not started and not known to the engine.
    pub fn add_process(&mut self) -> usize {
        let index = self.replicas.len();
        let setup = ReplicaSetup {
            program: Program::Ours,
            volume: self.name.clone(),
            instance: format!("{}-r{index}", self.name),
            size_bytes: self.setup.size_bytes,
            revision_counter: self.setup.revision_counter,
            arguments: self.setup.replica.clone(),
            environment: Vec::new(),
        };
        let dir = self.scratch.path().join(format!("r{index}"));
        self.replicas.push(Replica::new(self.scratch.path(), dir, setup));
        index
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The flags of an engine over all replicas.
    pub fn engine_arguments(&self) -> Vec<String> {
        let addresses: Vec<String> = self.replicas.iter().map(Replica::address).collect();
        self.engine_arguments_for(&addresses)
    }

    pub fn engine_arguments_for(&self, addresses: &[String]) -> Vec<String> {
        let size = self.setup.size_bytes.to_string();
        let mut arguments = vec!["--size".into(), size.clone(), "--current-size".into(), size];
        if self.setup.frontend != Frontend::None {
            arguments.extend(["--frontend".into(), self.setup.frontend.name().into()]);
        }
        if !self.setup.revision_counter {
            arguments.push("--disableRevCounter".into());
        }
        let seconds = self.setup.replica_timeout.to_string();
        arguments.extend(["--engine-replica-timeout".into(), seconds]);
        for address in addresses {
            arguments.extend(["--replica".into(), address.clone()]);
        }
        arguments.extend(self.setup.engine.iter().cloned());
        arguments
    }

    #[track_caller]
    pub fn start_engine(&mut self) {
        assert!(self.engine.is_none(), "an engine runs already");
        let arguments = self.engine_arguments();
        self.engine = Some(Engine::start(self.scratch.path(), &self.name, &arguments));
    }

    /// Ends the engine, restarts every replica so that it is closed, and starts a new engine.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.engine.is_some() {
            self.stop_engine();
        }
        for replica in &mut self.replicas {
            replica.restart();
        }
        self.start_engine();
    }

    /// SIGINT, and its end.
    #[track_caller]
    pub fn stop_engine(&mut self) -> ExitStatus {
        let mut engine = self.engine.take().unwrap();
        signal(&engine.process, Signal::INT);
        engine.process.wait_for_exit(TIMEOUT).unwrap()
    }

    pub fn kill_engine(&mut self) {
        self.engine.take().unwrap().process.kill().unwrap();
    }

    #[track_caller]
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub fn cli(&self) -> Cli {
        self.engine().cli()
    }

    pub fn endpoint(&self) -> Endpoint {
        self.engine().endpoint()
    }

    pub async fn nbd(&self) -> Nbd {
        Nbd::connect(&self.endpoint()).await.unwrap()
    }

    /// What the engine says of a replica; none if it does not know it.
    #[track_caller]
    pub fn mode(&self, index: usize) -> Option<String> {
        let address = self.replicas[index].address();
        self.cli().modes().into_iter().find(|(known, _)| *known == address).map(|(_, mode)| mode)
    }

    /// Modes of all replicas, in their order; `-` for those the engine does not know.
    #[track_caller]
    pub fn modes(&self) -> Vec<String> {
        let known = self.cli().modes();
        let mode = |replica: &Replica| {
            let address = replica.address();
            known.iter().find(|(known, _)| *known == address).map_or("-", |(_, mode)| mode)
        };
        self.replicas.iter().map(|replica| mode(replica).to_owned()).collect()
    }

    #[track_caller]
    pub fn wait_for_mode(&self, index: usize, mode: &str) {
        let seen = poll_until(TIMEOUT, || (self.mode(index)? == mode).then_some(()));
        assert!(seen.is_some(), "replica {index} is {:?}, not {mode}", self.mode(index));
    }

    /// As an operator replaces a failed replica: the entry is removed, the process started anew
    /// (on what is left of its directory), and rebuilt.
    #[track_caller]
    pub fn rebuild(&mut self, index: usize) {
        let address = self.replicas[index].address();
        if self.mode(index).is_some() {
            self.cli().run(&["rm-replica", &address]);
        }
        self.replicas[index].restart();
        self.add(index);
    }

    /// Adds a replica that runs and is closed; it is RW afterwards.
    #[track_caller]
    pub fn add(&self, index: usize) {
        let replica = &self.replicas[index];
        let size = self.setup.size_bytes.to_string();
        let instance = &replica.setup.instance;
        let (size_flag, current) = (["--size", &size], ["--current-size", &size]);
        let named = ["--replica-instance-name", instance];
        let address = replica.address();
        let mut arguments = vec!["add-replica", &address];
        arguments.extend(size_flag.into_iter().chain(current).chain(named));
        self.cli().run(&arguments);
        assert_eq!(self.mode(index).as_deref(), Some("RW"));
    }

    /// Every replica holds the same, read through its data port and from its files.
    #[track_caller]
    pub fn assert_equal(&self) -> Vec<u8> {
        let size = self.setup.size_bytes;
        let first = self.replicas[0].contents(size);
        for replica in &self.replicas {
            let contents = replica.contents(size);
            assert_same(&contents, &first, &replica.address());
            assert_same(&replica.layers().contents(), &first, &replica.dir.display().to_string());
        }
        first
    }
}

/// Says where two images differ instead of printing them.
#[track_caller]
pub(super) fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    // Byte by byte takes long, in a build for tests.
    if found == expected {
        return;
    }
    assert_eq!(found.len(), expected.len(), "{what}");
    let differs = found.iter().zip(expected).position(|(left, right)| left != right);
    assert_eq!(differs, None, "{what} differs from the first at this byte");
}
