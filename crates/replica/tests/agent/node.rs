//! A replica and its agent on free ports of this machine, and ways to look at their files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use replica::agent::{self, AgentError, AgentOptions};
use replica::server::{self, ReplicaOptions, ServerError};
use replica::{OpenRequest, Options, Replica, View};
use rpc::ptypes::SyncFileInfo;
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::{Address, Deadline, Identity, Peer};
use rustix::fs::{SeekFrom, seek};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NOW: &str = "2026-11-15T06:25:24Z";
pub(crate) const VOLUME: &str = "vol";
/// As many as the default of the flag.
const RECEIVERS: u16 = 10;
const TIMEOUT: Duration = Duration::from_mins(1);

#[expect(clippy::disallowed_methods, reason = "a test has no task tree")]
pub(crate) fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(work)
}

/// Waits for something to become true, but not for ever.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A directory with a volume in it, not served by anybody.
pub(crate) struct Volume {
    pub(crate) place: TempDir,
    pub(crate) size: u64,
    pub(crate) replica: Replica,
}

impl Volume {
    /// A new volume, open.
    pub(crate) fn new(size: u64) -> Self {
        Self::at(tempfile::tempdir().unwrap(), size)
    }

    /// In memory where there is such a place: syncs cost nothing there. It has no extent map, so
    /// this is also the other way to find out where data is.
    pub(crate) fn in_memory(size: u64) -> Self {
        let shared = Path::new("/dev/shm");
        let place =
            if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        Self::at(place.unwrap(), size)
    }

    fn at(place: TempDir, size: u64) -> Self {
        let mut replica = Replica::new(place.path().join("replica"), Options::default());
        replica.create(i64::try_from(size).unwrap(), NOW).unwrap();
        replica.open(&OpenRequest::default()).unwrap();
        Self { place, size, replica }
    }

    pub(crate) fn write(&mut self, seed: u8, len: usize, offset: u64) {
        self.replica.write_at(&pattern(len, seed), offset).unwrap();
    }

    pub(crate) fn snapshot(&mut self, name: &str) {
        self.replica.snapshot(name, true, NOW, None).unwrap();
    }

    pub(crate) fn system_snapshot(&mut self, name: &str) {
        self.replica.snapshot(name, false, NOW, None).unwrap();
    }

    /// Served, and open.
    pub(crate) async fn serve(mut self) -> Node {
        self.replica.close().unwrap();
        let node = Node::start(self.place, self.size).await;
        node.replica().replica_open(rpc::ptypes::ReplicaOpenRequest::default()).await.unwrap();
        node
    }

    /// The same, with the agent in the process of the replica.
    pub(crate) async fn serve_in_one(mut self) -> Node {
        self.replica.close().unwrap();
        let node = Node::start_replica(self.place, self.size, Agent::Within).await;
        node.replica().replica_open(rpc::ptypes::ReplicaOpenRequest::default()).await.unwrap();
        node
    }
}

/// Where the agent of a replica runs.
#[derive(Debug, Clone, Copy)]
enum Agent {
    /// As a process of its own would.
    Apart,
    /// Where the replica does, which it then need not call over the network.
    Within,
}

pub(crate) struct Node {
    pub(crate) place: TempDir,
    pub(crate) control: Address,
    replica: Served<ServerError>,
    agent: Option<Served<AgentError>>,
}

struct Served<E> {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), E>>,
}

impl Node {
    /// An empty volume, served and open.
    pub(crate) async fn new(size: u64) -> Self {
        Volume::new(size).serve().await
    }

    pub(crate) async fn in_memory(size: u64) -> Self {
        Volume::in_memory(size).serve().await
    }

    async fn start(place: TempDir, size: u64) -> Self {
        let mut node = Self::start_replica(place, size, Agent::Apart).await;
        node.start_agent().await;
        node
    }

    async fn start_replica(place: TempDir, size: u64, agent: Agent) -> Self {
        loop {
            let control = Address::new("127.0.0.1", free_ports());
            let stop = CancellationToken::new();
            let dir = place.path().join("replica");
            let sync_agent = matches!(agent, Agent::Within);
            let options = ReplicaOptions { sync_agent, ..replica_options(dir, &control, size) };
            let mut ended = spawn(server::serve(options, stop.clone()));
            if !is_up(&control, &mut ended).await {
                continue;
            }
            if sync_agent && !is_up(&control.sync_agent(), &mut ended).await {
                continue;
            }
            return Self { place, control, replica: Served { stop, ended }, agent: None };
        }
    }

    pub(crate) async fn start_agent(&mut self) {
        let stop = CancellationToken::new();
        let port = self.control.sync_agent().port();
        let options = AgentOptions {
            dir: self.dir(),
            volume_name: VOLUME.into(),
            instance_name: "instance".into(),
            listen: self.control.sync_agent().to_string(),
            replica: self.control.to_string(),
            ports: port + 1..=port + RECEIVERS,
        };
        let mut ended = spawn(agent::run(options, stop.clone()));
        assert!(is_up(&self.control.sync_agent(), &mut ended).await, "the agent did not start");
        self.agent = Some(Served { stop, ended });
    }

    /// As abrupt as it gets inside one process: every job is dropped where it is.
    pub(crate) async fn stop_agent(&mut self) {
        let Served { stop, ended } = self.agent.take().unwrap();
        stop.cancel();
        ended.await.unwrap().unwrap();
    }

    /// Ends everything and gives the volume back, open.
    pub(crate) async fn into_volume(mut self, size: u64) -> Volume {
        self.stop_agent().await;
        self.replica.stop.cancel();
        let _ = self.replica.ended.await;
        let mut replica = Replica::new(self.place.path().join("replica"), Options::default());
        replica.open(&OpenRequest::default()).unwrap();
        Volume { place: self.place, size, replica }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.place.path().join("replica")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub(crate) fn address(&self) -> String {
        format!("tcp://{}", self.control)
    }

    pub(crate) fn replica(&self) -> ReplicaServiceClient<Peer> {
        ReplicaServiceClient::new(
            rpc::connect(&self.control, Identity::default(), Deadline::Usual).unwrap(),
        )
    }

    pub(crate) fn agent(&self) -> SyncAgentServiceClient<Peer> {
        self.agent_as(Identity { volume: VOLUME.into(), instance: "instance".into() })
    }

    pub(crate) fn agent_as(&self, identity: Identity) -> SyncAgentServiceClient<Peer> {
        let peer = rpc::connect(&self.control.sync_agent(), identity, Deadline::Usual).unwrap();
        SyncAgentServiceClient::new(peer)
    }

    pub(crate) fn read_snapshot(&self, name: &str) -> Vec<u8> {
        read_snapshot(&self.dir(), name)
    }

    /// What a rebuild copies: every snapshot and its metadata.
    pub(crate) async fn files(&self) -> Vec<SyncFileInfo> {
        let replica = self.replica().replica_get(()).await.unwrap().into_inner().replica.unwrap();
        let mut files = Vec::new();
        for (name, disk) in replica.disks.iter().filter(|(name, _)| **name != replica.head) {
            let size = disk.size.parse().unwrap();
            for (file, actual_size) in [(name.clone(), size), (format!("{name}.meta"), 0)] {
                files.push(SyncFileInfo {
                    from_file_name: file.clone(),
                    to_file_name: file,
                    actual_size,
                });
            }
        }
        files
    }
}

pub(crate) fn replica_options(dir: PathBuf, control: &Address, size: u64) -> ReplicaOptions {
    ReplicaOptions {
        dir,
        volume_name: VOLUME.into(),
        instance_name: "instance".into(),
        listen: control.to_string(),
        backing_file: None,
        size_bytes: Some(i64::try_from(size).unwrap()),
        sync_agent: false,
        sync_agent_port_count: RECEIVERS,
        revision_counter: true,
        data_unix: false,
        unmap_mark_disk_chain_removed: false,
        snapshot_max_count: 250,
        snapshot_max_size: 0,
        encrypted: false,
    }
}

/// Ports in a row for a replica with its agent.
pub(crate) fn free_ports() -> u16 {
    testkit::process::free_ports(3 + RECEIVERS).unwrap()
}

async fn is_up<E: std::fmt::Debug>(
    address: &Address,
    ended: &mut JoinHandle<Result<(), E>>,
) -> bool {
    loop {
        if ended.is_finished() {
            return false;
        }
        if TcpStream::connect((address.host(), address.port())).await.is_ok() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn read_snapshot(dir: &Path, name: &str) -> Vec<u8> {
    let mut view = View::open(dir, name, 1 << 20).unwrap();
    let mut contents = vec![0xee; usize::try_from(view.size_bytes()).unwrap()];
    view.read_at(&mut contents, 0).unwrap();
    contents
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

/// Ranges with data.
pub(crate) fn extents(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let Ok(start) = seek(&file, SeekFrom::Data(at)) else { break };
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        found.push((start, at));
    }
    found
}

/// Same bytes, same holes.
pub(crate) fn assert_equal(one: &Path, other: &Path) {
    let name = one.display();
    assert_eq!(extents(one), extents(other), "{name}: extents");
    let (one, other) = (File::open(one).unwrap(), File::open(other).unwrap());
    let len = one.metadata().unwrap().len();
    assert_eq!(len, other.metadata().unwrap().len(), "{name}: length");
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < len {
        let want = usize::try_from((len - at).min(1 << 20)).unwrap();
        one.read_exact_at(&mut left[..want], at).unwrap();
        other.read_exact_at(&mut right[..want], at).unwrap();
        assert!(left[..want] == right[..want], "{name}: bytes after {at} differ");
        at += want as u64;
    }
}
