//! Real replicas: servers with directories of their own, in this process.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use replica::server::{ReplicaOptions, ServerError, serve};
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::{Address, Deadline, Identity, Peer, ptypes};
use tasks::{CancellationToken, Tasks};
use tempfile::TempDir;
use testkit::process::free_ports;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use wire::frame::{self, Limits, Outcome, Reply, Request};
use wire::membership::{Claim, Standing};

use crate::rig::{SIZE, VOLUME};

/// Ports after the agent's that file receivers may use.
const RECEIVERS: u16 = 4;

pub(crate) struct Copy {
    place: TempDir,
    revision_counter: bool,
    control: Address,
    running: Option<(CancellationToken, oneshot::Receiver<Result<(), ServerError>>)>,
    tasks: Tasks,
}

impl Copy {
    pub(crate) async fn new(revision_counter: bool) -> Self {
        let mut copy = Self {
            place: tempfile::tempdir().unwrap(),
            revision_counter,
            control: Address::new("127.0.0.1", 1),
            running: None,
            tasks: Tasks::new(),
        };
        copy.start().await;
        copy
    }

    pub(crate) async fn some<const N: usize>(revision_counter: bool) -> [Self; N] {
        let copies = futures::future::join_all((0..N).map(|_| Self::new(revision_counter))).await;
        copies.try_into().ok().unwrap()
    }

    /// As callers name it.
    pub(crate) fn address(&self) -> String {
        format!("tcp://{}", self.control)
    }

    /// Serves its directory, at ports that are still free when it comes to it.
    pub(crate) async fn start(&mut self) {
        loop {
            self.control = Address::new("127.0.0.1", free_ports(3 + RECEIVERS).unwrap());
            let stop = CancellationToken::new();
            let (tell, mut ended) = oneshot::channel();
            let serving = serve(self.options(), stop.clone());
            self.tasks.spawn("replica", async move {
                let _ = tell.send(serving.await);
            });
            loop {
                let agent = self.control.sync_agent();
                if TcpStream::connect((agent.host(), agent.port())).await.is_ok() {
                    self.running = Some((stop, ended));
                    return;
                }
                match tokio::time::timeout(Duration::from_millis(5), &mut ended).await {
                    Err(_) => {}
                    Ok(Ok(Err(ServerError::Listen { .. }))) => break,
                    Ok(other) => panic!("the replica did not start: {other:?}"),
                }
            }
        }
    }

    /// Ends it without closing anything, as a kill would.
    pub(crate) async fn kill(&mut self) {
        let (stop, ended) = self.running.take().unwrap();
        stop.cancel();
        ended.await.unwrap().unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join("replica").join(name)
    }

    fn options(&self) -> ReplicaOptions {
        ReplicaOptions {
            dir: self.place.path().join("replica"),
            volume_name: VOLUME.into(),
            instance_name: String::new(),
            listen: self.control.to_string(),
            backing_file: None,
            size_bytes: Some(i64::try_from(SIZE).unwrap()),
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

    fn peer(address: &Address) -> Peer {
        rpc::connect(address, Identity::default(), Deadline::Usual).unwrap()
    }

    pub(crate) fn client(&self) -> ReplicaServiceClient<Peer> {
        ReplicaServiceClient::new(Self::peer(&self.control))
    }

    pub(crate) fn agent(&self) -> SyncAgentServiceClient<Peer> {
        SyncAgentServiceClient::new(Self::peer(&self.control.sync_agent()))
    }

    pub(crate) async fn get(&self) -> ptypes::Replica {
        self.client().replica_get(()).await.unwrap().into_inner().replica.unwrap()
    }

    /// What this copy alone holds at `offset`.
    pub(crate) async fn mark_removed(&self, snapshot: &str) {
        let request = ptypes::DiskMarkAsRemovedRequest { name: snapshot.to_owned() };
        self.client().disk_mark_as_removed(request).await.unwrap();
    }

    pub(crate) async fn read(&self, offset: i64, size: u32) -> Vec<u8> {
        match self.ask(Request::Read { sequence: 1, offset, size }).await {
            Outcome::Data(bytes) => bytes.to_vec(),
            other => panic!("a read gave {other:?}"),
        }
    }

    /// Writes to this copy alone, as an engine that dies before it reaches the others.
    pub(crate) async fn write(&self, offset: i64, bytes: &[u8]) {
        let data = Bytes::copy_from_slice(bytes);
        let Claim { generation, engine } = self.standing().await.claim;
        let hello = Request::Hello { sequence: 0, generation, engine: engine.into() };
        let write = Request::Write { sequence: 1, offset, data };
        for outcome in self.ask_all(&[hello, write]).await {
            assert!(matches!(outcome, Outcome::Count(_)), "{outcome:?}");
        }
    }

    /// What it keeps of its engines and the other copies.
    pub(crate) async fn standing(&self) -> Standing {
        serde_json::from_str(&self.get().await.holdfast_standing).unwrap()
    }

    async fn ask(&self, request: Request) -> Outcome {
        self.ask_all(&[request]).await.remove(0)
    }

    async fn ask_all(&self, requests: &[Request]) -> Vec<Outcome> {
        let data = self.control.data();
        let mut stream = TcpStream::connect((data.host(), data.port())).await.unwrap();
        let mut buf = BytesMut::new();
        for request in requests {
            frame::encode_request(request, Limits::default()).unwrap().put(&mut buf);
        }
        stream.write_all(&buf).await.unwrap();
        buf.clear();
        let mut outcomes = Vec::new();
        while outcomes.len() < requests.len() {
            outcomes.push(Self::next(&mut stream, &mut buf).await);
        }
        outcomes
    }

    async fn next(stream: &mut TcpStream, buf: &mut BytesMut) -> Outcome {
        loop {
            if let Some(reply) = frame::decode_reply(buf, Limits::default()).unwrap() {
                let Reply::Answer(answer) = reply else { panic!("it hung up") };
                return answer.outcome;
            }
            assert_ne!(stream.read_buf(buf).await.unwrap(), 0, "it hung up");
        }
    }
}
