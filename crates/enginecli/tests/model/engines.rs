//! One engine with its control server, and the command line that is pointed at it.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::control::{Engine, serve};
use engine::core::{Command, Done, Mode};
use engine::{Backend, ControllerOptions, DataProtocol, NbdOptions};
use enginecli::{Console, Invocation, Manner};
use tasks::Tasks;
use testkit::process::poll_until;
use tokio::net::TcpListener;

pub(crate) const VOLUME: &str = "vol-model";
/// Far more than anything takes here.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

fn options(replicas: Vec<String>, size: u64, revision_counter: bool) -> ControllerOptions {
    let size_bytes = i64::try_from(size).unwrap();
    ControllerOptions {
        volume: VOLUME.into(),
        instance_name: String::new(),
        listen: "127.0.0.1:0".into(),
        size_bytes,
        current_size_bytes: size_bytes,
        frontend: String::new(),
        backends: vec![Backend::Tcp],
        replicas,
        upgrade: false,
        claim_generation: None,
        revision_counter,
        salvage: false,
        replica_timeout: Duration::from_secs(8),
        data_protocol: DataProtocol::Tcp,
        unmap_mark_snap_chain_removed: false,
        file_sync_http_client_timeout: Duration::from_secs(30),
        snapshot_max_count: 250,
        snapshot_max_size: 0,
        rebuild_sync_concurrent_limit: 2,
        rebuild_timeout: engine::REBUILD_TIMEOUT,
        nbd: NbdOptions::default(),
    }
}

pub(crate) struct Controller {
    engine: Arc<Engine>,
    port: u16,
    tasks: Tasks,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.tasks.begin_stop();
    }
}

impl Controller {
    pub(crate) async fn start(replicas: Vec<String>, size: u64, revision_counter: bool) -> Self {
        let engine = Engine::launch(options(replicas, size, revision_counter)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tasks = Tasks::new();
        let served = Arc::clone(&engine);
        tasks.spawn("serve", async move { serve(&served, listener).await.unwrap() });
        Self { engine, port, tasks }
    }

    pub(crate) fn cli(&self) -> Cli {
        Cli { port: self.port }
    }

    /// Ends as a process that is told to.
    pub(crate) async fn shut_down(self) {
        self.engine.shutdown().await.unwrap();
    }

    /// Ends as a process that is killed: nobody closes the replicas.
    pub(crate) async fn die(self) {
        self.engine.volume().stop().await;
    }

    pub(crate) async fn submit(&self, command: Command) -> Done {
        self.engine.volume().submit(command).await.unwrap()
    }

    pub(crate) async fn write(&self, offset: usize, data: Vec<u8>, durable: bool) {
        let data = Bytes::from(data);
        self.submit(Command::Write { offset: offset as u64, data, durable }).await;
    }

    pub(crate) async fn read(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let (offset, len) = (range.start as u64, u32::try_from(range.len()).unwrap());
        match self.submit(Command::Read { offset, len }).await {
            Done::Data(data) => data.to_vec(),
            other => panic!("a read gave {other:?}"),
        }
    }

    /// Waits until so many replicas of the data path are usable.
    pub(crate) async fn until_usable(&self, count: usize) {
        let mut members = self.engine.volume().members();
        let usable = members.wait_for(|members| {
            members.iter().filter(|member| member.mode == Mode::Rw).count() == count
        });
        let waited = tokio::time::timeout(TIMEOUT, usable).await;
        waited.expect("waited in vain for a replica to fail").unwrap();
    }
}

/// The command line, for one controller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cli {
    port: u16,
}

impl Cli {
    /// Runs a line that must succeed. Never within a runtime: it has its own.
    pub(crate) fn run(self, line: &str) -> String {
        self.attempt(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Runs a line that may fail: what it prints, or what it complains of.
    pub(crate) fn attempt(self, line: &str) -> Result<String, String> {
        let url = format!("127.0.0.1:{}", self.port);
        let words = ["--url", &url, "--volume-name", VOLUME].into_iter().chain(line.split(' '));
        let words = words.map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console =
            Console { out: &mut out, err: &mut err, shows_progress: false, manner: Manner::Log };
        let exit_code = enginecli::run(words, Invocation::Longhorn, &mut console);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if exit_code == 0 { Ok(text(out)) } else { Err(text(err)) }
    }

    /// Polls `line` until `seen` of what it prints.
    pub(crate) fn until(self, line: &str, seen: impl Fn(&str) -> bool) -> String {
        let look = || Some(self.run(line)).filter(|out| seen(out));
        let found = poll_until(TIMEOUT, look);
        found.unwrap_or_else(|| panic!("waited in vain; {line} says {}", self.run(line)))
    }
}
