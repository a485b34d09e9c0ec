//! One replica: its server and agent in this process, and its directory.

use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use replica::View;
use replica::server::{ReplicaOptions, ServerError, serve};
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::{Address, Deadline, Identity, ptypes};
use tasks::{CancellationToken, Tasks};
use tempfile::TempDir;
use testkit::process::free_ports;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use wire::frame::{self, Limits, Outcome, Reply, Request};
use wire::membership::{Claim, Standing};

use crate::engines::VOLUME;

/// Ports after the agent's that file receivers may use.
const RECEIVERS: u16 = 4;
const INDEX_BYTES: usize = 1 << 20;

type Ended = oneshot::Receiver<Result<(), ServerError>>;

pub(crate) struct Node {
    place: TempDir,
    revision_counter: bool,
    control: Address,
    running: Option<(CancellationToken, Ended)>,
    tasks: Tasks,
}

impl Node {
    /// In an empty directory, not running.
    pub(crate) fn new(revision_counter: bool) -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
            revision_counter,
            control: Address::new("127.0.0.1", 1),
            running: None,
            tasks: Tasks::new(),
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("tcp://{}", self.control)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Forgets everything it holds.
    pub(crate) fn clear(&mut self) {
        assert!(!self.is_running());
        self.place = tempfile::tempdir().unwrap();
    }

    /// Serves its directory, at ports that are still free when it comes to it.
    pub(crate) async fn start(&mut self, size: u64) {
        loop {
            self.control = Address::new("127.0.0.1", free_ports(3 + RECEIVERS).unwrap());
            let stop = CancellationToken::new();
            let (tell, ended) = oneshot::channel();
            let serving = serve(self.options(size), stop.clone());
            self.tasks.spawn("replica", async move {
                let _ = tell.send(serving.await);
            });
            if let Some(ended) = self.came_up(ended).await {
                self.running = Some((stop, ended));
                return;
            }
        }
    }

    /// Nothing if its ports were taken after all.
    async fn came_up(&self, mut ended: Ended) -> Option<Ended> {
        let agent = self.control.sync_agent();
        loop {
            if TcpStream::connect((agent.host(), agent.port())).await.is_ok() {
                return Some(ended);
            }
            match tokio::time::timeout(Duration::from_millis(5), &mut ended).await {
                Err(_) => {}
                Ok(Ok(Err(ServerError::Listen { .. }))) => return None,
                Ok(other) => panic!("the replica did not start: {other:?}"),
            }
        }
    }

    /// Ends it without closing anything, as a kill would.
    pub(crate) async fn kill(&mut self) {
        let Some((stop, ended)) = self.running.take() else { return };
        stop.cancel();
        ended.await.unwrap().unwrap();
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("replica")
    }

    fn options(&self, size: u64) -> ReplicaOptions {
        ReplicaOptions {
            dir: self.directory(),
            volume_name: VOLUME.into(),
            instance_name: String::new(),
            listen: self.control.to_string(),
            backing_file: None,
            size_bytes: Some(i64::try_from(size).unwrap()),
            sync_agent: true,
            sync_agent_port_count: RECEIVERS,
            revision_counter: self.revision_counter,
            data_unix: false,
            unmap_mark_disk_chain_removed: false,
            snapshot_max_count: 250,
            snapshot_max_size: 0,
            encrypted: false,
        }
    }

    /// What it says of itself.
    pub(crate) async fn get(&self) -> ptypes::Replica {
        let peer = rpc::connect(&self.control, Identity::default(), Deadline::Usual).unwrap();
        let reply = ReplicaServiceClient::new(peer).replica_get(()).await;
        reply.unwrap().into_inner().replica.unwrap()
    }

    /// The volume at a snapshot, from the files.
    pub(crate) fn snapshot(&self, name: &str) -> Vec<u8> {
        let mut view = View::open(&self.directory(), name, INDEX_BYTES).unwrap();
        let mut bytes = vec![0; usize::try_from(view.size_bytes()).unwrap()];
        view.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// What this one alone holds from the start on.
    pub(crate) async fn read(&self, len: usize) -> Vec<u8> {
        let size = u32::try_from(len).unwrap();
        match self.ask(Request::Read { sequence: 1, offset: 0, size }).await {
            Outcome::Data(bytes) => bytes.to_vec(),
            other => panic!("a read gave {other:?}"),
        }
    }

    /// Writes to this one alone, as an engine that dies before it reaches the others.
    pub(crate) async fn write(&self, offset: usize, data: Bytes) {
        let offset = i64::try_from(offset).unwrap();
        let standing: Standing = serde_json::from_str(&self.get().await.holdfast_standing).unwrap();
        let Claim { generation, engine } = standing.claim;
        let mut line = self.dial().await;
        let hello = Request::Hello { sequence: 0, generation, engine: engine.into() };
        for request in [hello, Request::Write { sequence: 1, offset, data }] {
            let outcome = ask(&mut line, request).await;
            assert!(matches!(outcome, Outcome::Count(_)), "{outcome:?}");
        }
    }

    async fn ask(&self, request: Request) -> Outcome {
        ask(&mut self.dial().await, request).await
    }

    async fn dial(&self) -> TcpStream {
        let data = self.control.data();
        TcpStream::connect((data.host(), data.port())).await.unwrap()
    }
}

/// One request at a time.
async fn ask(stream: &mut TcpStream, request: Request) -> Outcome {
    let mut buf = BytesMut::new();
    frame::encode_request(&request, Limits::default()).unwrap().put(&mut buf);
    stream.write_all(&buf).await.unwrap();
    buf.clear();
    loop {
        if let Some(reply) = frame::decode_reply(&mut buf, Limits::default()).unwrap() {
            let Reply::Answer(answer) = reply else { panic!("it hung up") };
            return answer.outcome;
        }
        assert_ne!(stream.read_buf(&mut buf).await.unwrap(), 0, "it hung up");
    }
}
