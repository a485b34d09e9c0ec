//! A replica that does what a test tells it to: refuses calls, never answers, lies about itself.
//!
//! Its control server, data server and sync agent are real sockets in this process; its volume is a
//! `Vec<u8>`.

use std::collections::HashMap;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use rpc::ptypes::replica_service_server::{ReplicaService, ReplicaServiceServer};
use rpc::ptypes::sync_agent_service_server::{SyncAgentService, SyncAgentServiceServer};
use rpc::ptypes::{self, DiskInfo};
use tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use wire::frame::{self, Answer, Limits, Outcome, Reply};

/// What a call meets instead of the usual.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    Refuse(Status),
    Stall,
    /// Nothing, until this is true.
    Until(watch::Receiver<bool>),
}

#[derive(Debug)]
struct Shared {
    replica: Mutex<ptypes::Replica>,
    manners: Mutex<HashMap<&'static str, Manner>>,
    calls: Mutex<Vec<String>>,
    data: Mutex<Vec<u8>>,
    /// What its agent says of backups and purges; none: it knows of neither.
    agent: Mutex<Option<Agent>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    pub(crate) restore: ptypes::RestoreStatusResponse,
    pub(crate) purge: ptypes::SnapshotPurgeStatusResponse,
}

/// Serves until dropped.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) address: String,
    shared: Arc<Shared>,
    tasks: Tasks,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.tasks.begin_stop();
    }
}

const HEAD: &str = "volume-head-000.img";

fn three_ports() -> [StdListener; 3] {
    loop {
        let first = StdListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let next = |step| StdListener::bind(("127.0.0.1", port.checked_add(step)?)).ok();
        if let (true, Some(second), Some(third)) = (port < 65_000, next(1), next(2)) {
            return [first, second, third];
        }
    }
}

fn listener(listener: StdListener) -> TcpListener {
    listener.set_nonblocking(true).unwrap();
    TcpListener::from_std(listener).unwrap()
}

impl Fake {
    /// A closed replica of `size` bytes.
    pub(crate) fn new(size: usize) -> Self {
        let [control, data, agent] = three_ports();
        let address = format!("tcp://{}", control.local_addr().unwrap());
        let replica = ptypes::Replica {
            head: HEAD.into(),
            size: size.to_string(),
            sector_size: 512,
            state: "closed".into(),
            chain: vec![HEAD.into()],
            disks: [(HEAD.to_owned(), DiskInfo { name: HEAD.into(), ..Default::default() })].into(),
            revision_counter: 1,
            snapshot_count_total: 1,
            ..Default::default()
        };
        let shared = Arc::new(Shared {
            replica: Mutex::new(replica),
            manners: Mutex::default(),
            calls: Mutex::default(),
            data: Mutex::new(vec![0; size]),
            agent: Mutex::default(),
        });
        let tasks = Tasks::new();
        let services = Service(Arc::clone(&shared));
        let control = TcpIncoming::from(listener(control));
        let served = Server::builder()
            .add_service(ReplicaServiceServer::new(services.clone()))
            .serve_with_incoming(control);
        tasks.spawn("control", async move { served.await.unwrap() });
        let served = Server::builder()
            .add_service(SyncAgentServiceServer::new(services))
            .serve_with_incoming(TcpIncoming::from(listener(agent)));
        tasks.spawn("agent", async move { served.await.unwrap() });
        let (data, scope, volume) = (listener(data), tasks.clone(), Arc::clone(&shared));
        tasks.spawn("data", async move {
            loop {
                let (stream, _) = data.accept().await.unwrap();
                let volume = Arc::clone(&volume);
                scope.spawn("connection", async move { serve_data(stream, &volume).await });
            }
        });
        Self { address, shared, tasks }
    }

    /// From now on `method` does this; `data` is every request on a data connection.
    pub(crate) fn behave(&self, method: &'static str, manner: Manner) {
        self.shared.manners.lock().unwrap().insert(method, manner);
    }

    pub(crate) fn refuse(&self, method: &'static str, text: &str) {
        self.behave(method, Manner::Refuse(Status::unknown(text)));
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ptypes::Replica)) {
        change(&mut self.shared.replica.lock().unwrap());
    }

    /// From now on its agent restores and purges, and never comes to an end with it.
    pub(crate) fn has_agent(&self, agent: Agent) {
        *self.shared.agent.lock().unwrap() = Some(agent);
    }

    pub(crate) fn replica(&self) -> ptypes::Replica {
        self.shared.replica.lock().unwrap().clone()
    }

    pub(crate) fn state(&self) -> String {
        self.replica().state
    }

    pub(crate) fn calls(&self, method: &str) -> usize {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|call| call.split(' ').next() == Some(method)).count()
    }

    pub(crate) fn all_calls(&self) -> Vec<String> {
        self.shared.calls.lock().unwrap().clone()
    }

    pub(crate) fn called(&self, call: &str) -> bool {
        self.shared.calls.lock().unwrap().iter().any(|known| known == call)
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.shared.data.lock().unwrap()[offset..offset + len].to_vec()
    }
}

async fn serve_data(mut stream: TcpStream, shared: &Shared) {
    let mut buf = BytesMut::new();
    let limits = Limits::default();
    loop {
        while let Ok(Some(request)) = frame::decode_request(&mut buf, limits) {
            if shared.enter("data", "").await.is_err() {
                return;
            }
            let Some(reply) = shared.answer(request) else { return };
            let mut out = BytesMut::new();
            frame::encode_reply(&reply, limits).unwrap().put(&mut out);
            if stream.write_all(&out).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut buf).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

impl Shared {
    fn answer(&self, request: frame::Request) -> Option<Reply> {
        use frame::Request as R;
        let mut data = self.data.lock().unwrap();
        let at = |offset: i64, len: usize| {
            let start = usize::try_from(offset).unwrap();
            start..start + len
        };
        let (sequence, outcome) = match request {
            R::Read { sequence, offset, size } => {
                let bytes = Bytes::copy_from_slice(&data[at(offset, size as usize)]);
                (sequence, Outcome::Data(bytes))
            }
            R::Write { sequence, offset, data: bytes } => {
                data[at(offset, bytes.len())].copy_from_slice(&bytes);
                self.replica.lock().unwrap().revision_counter += 1;
                (sequence, Outcome::Count(u32::try_from(bytes.len()).unwrap()))
            }
            R::Unmap { sequence, .. }
            | R::Discard { sequence, .. }
            | R::Ping { sequence }
            | R::Hello { sequence, .. }
            | R::Record { sequence, .. }
            | R::Flush { sequence } => (sequence, Outcome::Count(0)),
            R::Zero { sequence, offset, size } => {
                data[at(offset, size as usize)].fill(0);
                (sequence, Outcome::Count(size))
            }
            R::Status { sequence, .. } => (sequence, Outcome::Error("no".into())),
            R::Close => return None,
        };
        Some(Reply::Answer(Answer { sequence, offset: 0, outcome }))
    }

    fn agent<T>(&self, act: impl FnOnce(&mut Agent) -> T) -> Result<T, Status> {
        let mut agent = self.agent.lock().unwrap();
        agent.as_mut().map(act).ok_or_else(|| Status::unimplemented("agent"))
    }

    async fn enter(&self, method: &'static str, detail: &str) -> Result<(), Status> {
        let call = if detail.is_empty() { method.to_owned() } else { format!("{method} {detail}") };
        self.calls.lock().unwrap().push(call);
        let manner = self.manners.lock().unwrap().get(method).cloned();
        match manner {
            None => Ok(()),
            Some(Manner::Refuse(status)) => Err(status),
            Some(Manner::Stall) => std::future::pending().await,
            Some(Manner::Until(mut goes)) => {
                let _ = goes.wait_for(|goes| *goes).await;
                Ok(())
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Service(Arc<Shared>);

fn snapshot(replica: &mut ptypes::Replica, name: &str) {
    let disk = format!("volume-snap-{name}.img");
    let info = DiskInfo { name: disk.clone(), size: "4096".into(), ..Default::default() };
    replica.disks.insert(disk.clone(), info);
    replica.chain.insert(1, disk);
    replica.snapshot_count_usage += 1;
    replica.snapshot_count_total += 1;
    replica.state = "dirty".into();
}

macro_rules! replica_methods {
    ($($method:ident($request:ident: $type:ty) -> $reply:ident, $detail:expr, $effect:expr;)*) => {
        #[tonic::async_trait]
        impl ReplicaService for Service {
            $(async fn $method(
                &self,
                request: Request<$type>,
            ) -> Result<Response<ptypes::$reply>, Status> {
                let $request = request.into_inner();
                let detail: String = $detail;
                self.0.enter(stringify!($method), &detail).await?;
                let mut replica = self.0.replica.lock().unwrap();
                let effect: fn(&mut ptypes::Replica, $type) = $effect;
                effect(&mut replica, $request);
                Ok(Response::new(ptypes::$reply { replica: Some(replica.clone()) }))
            })*

            async fn replica_delete(&self, _: Request<()>) -> Result<Response<()>, Status> {
                Ok(Response::new(()))
            }

            async fn disk_prepare_remove(
                &self,
                _: Request<ptypes::DiskPrepareRemoveRequest>,
            ) -> Result<Response<ptypes::DiskPrepareRemoveResponse>, Status> {
                Ok(Response::new(ptypes::DiskPrepareRemoveResponse::default()))
            }
        }
    };
}

replica_methods! {
    replica_create(r: ptypes::ReplicaCreateRequest) -> ReplicaCreateResponse, r.size.clone(), |_, _| {};
    replica_get(r: ()) -> ReplicaGetResponse, format!("{r:?}"), |_, ()| {};
    replica_open(r: ptypes::ReplicaOpenRequest) -> ReplicaOpenResponse,
        format!("{} {}", r.is_upgrade, r.expected_backend_size), |replica, _| {
            replica.state = if replica.rebuilding { "rebuilding" } else { "open" }.into();
        };
    replica_close(r: ()) -> ReplicaCloseResponse, format!("{r:?}"), |replica, ()| replica.state = "closed".into();
    replica_reload(r: ()) -> ReplicaReloadResponse, format!("{r:?}"), |_, ()| {};
    replica_revert(r: ptypes::ReplicaRevertRequest) -> ReplicaRevertResponse, r.name.clone(), |_, _| {};
    replica_snapshot(r: ptypes::ReplicaSnapshotRequest) -> ReplicaSnapshotResponse,
        format!("{} {} {}", r.name, r.user_created, r.created),
        |replica, r| snapshot(replica, &r.name);
    replica_expand(r: ptypes::ReplicaExpandRequest) -> ReplicaExpandResponse, r.size.to_string(),
        |replica, r| replica.size = r.size.to_string();
    disk_remove(r: ptypes::DiskRemoveRequest) -> DiskRemoveResponse, format!("{} {}", r.name, r.force),
        |replica, r| { replica.disks.remove(&r.name); };
    disk_replace(r: ptypes::DiskReplaceRequest) -> DiskReplaceResponse, r.target.clone(), |_, _| {};
    disk_mark_as_removed(r: ptypes::DiskMarkAsRemovedRequest) -> DiskMarkAsRemovedResponse, r.name.clone(), |_, _| {};
    rebuilding_set(r: ptypes::RebuildingSetRequest) -> RebuildingSetResponse, r.rebuilding.to_string(),
        |replica, r| {
            replica.rebuilding = r.rebuilding;
            replica.state = if r.rebuilding { "rebuilding" } else { "open" }.into();
        };
    revision_counter_set(r: ptypes::RevisionCounterSetRequest) -> RevisionCounterSetResponse,
        r.counter.to_string(), |replica, r| replica.revision_counter = r.counter;
    unmap_mark_disk_chain_removed_set(r: ptypes::UnmapMarkDiskChainRemovedSetRequest) -> UnmapMarkDiskChainRemovedSetResponse,
        r.enabled.to_string(), |replica, r| replica.unmap_mark_disk_chain_removed = r.enabled;
    snapshot_max_count_set(r: ptypes::SnapshotMaxCountSetRequest) -> SnapshotMaxCountSetResponse, r.count.to_string(), |_, _| {};
    snapshot_max_size_set(r: ptypes::SnapshotMaxSizeSetRequest) -> SnapshotMaxSizeSetResponse, r.size.to_string(), |_, _| {};
}

macro_rules! agent_methods {
    ($($method:ident: $request:ty => $reply:ty;)*) => {
        #[tonic::async_trait]
        impl SyncAgentService for Service {
            async fn receiver_launch(
                &self,
                request: Request<ptypes::ReceiverLaunchRequest>,
            ) -> Result<Response<ptypes::ReceiverLaunchResponse>, Status> {
                self.0.enter("receiver_launch", &request.get_ref().to_file_name).await?;
                Ok(Response::new(ptypes::ReceiverLaunchResponse { port: 4711 }))
            }

            async fn file_send(
                &self,
                request: Request<ptypes::FileSendRequest>,
            ) -> Result<Response<()>, Status> {
                let sent = request.get_ref();
                let detail = format!("{} {}:{}", sent.from_file_name, sent.host, sent.port);
                self.0.enter("file_send", &detail).await?;
                Ok(Response::new(()))
            }

            /// It can only copy where a test says when.
            async fn files_sync(
                &self,
                _: Request<ptypes::FilesSyncRequest>,
            ) -> Result<Response<()>, Status> {
                self.0.enter("files_sync", "").await?;
                match self.0.manners.lock().unwrap().get("files_sync") {
                    Some(Manner::Until(_)) => Ok(Response::new(())),
                    Some(Manner::Refuse(_) | Manner::Stall) | None => {
                        Err(Status::unimplemented("files_sync"))
                    }
                }
            }

            async fn restore_status(
                &self,
                _: Request<()>,
            ) -> Result<Response<ptypes::RestoreStatusResponse>, Status> {
                self.0.enter("restore_status", "").await?;
                Ok(Response::new(self.0.agent(|agent| agent.restore.clone())?))
            }

            async fn backup_restore(
                &self,
                request: Request<ptypes::BackupRestoreRequest>,
            ) -> Result<Response<()>, Status> {
                let asked = request.into_inner();
                let detail = format!("{} {}", asked.snapshot_disk_name, asked.holdfast_own_index);
                self.0.enter("backup_restore", &detail).await?;
                self.0.agent(|agent| {
                    agent.restore.is_restoring = true;
                    agent.restore.current_restoring_backup = "b1".to_owned();
                    agent.restore.dest_file_name = asked.snapshot_disk_name;
                })?;
                Ok(Response::new(()))
            }

            async fn snapshot_purge(&self, _: Request<()>) -> Result<Response<()>, Status> {
                self.0.enter("snapshot_purge", "").await?;
                self.0.agent(|agent| agent.purge.is_purging = true)?;
                Ok(Response::new(()))
            }

            async fn snapshot_purge_status(
                &self,
                _: Request<()>,
            ) -> Result<Response<ptypes::SnapshotPurgeStatusResponse>, Status> {
                self.0.enter("snapshot_purge_status", "").await?;
                Ok(Response::new(self.0.agent(|agent| agent.purge.clone())?))
            }

            $(async fn $method(&self, _: Request<$request>) -> Result<Response<$reply>, Status> {
                self.0.enter(stringify!($method), "").await?;
                Err(Status::unimplemented(stringify!($method)))
            })*
        }
    };
}

agent_methods! {
    file_remove: ptypes::FileRemoveRequest => ();
    file_rename: ptypes::FileRenameRequest => ();
    snapshot_clone: ptypes::SnapshotCloneRequest => ();
    volume_export: ptypes::VolumeExportRequest => ();
    backup_create: ptypes::BackupCreateRequest => ptypes::BackupCreateResponse;
    backup_remove: ptypes::BackupRemoveRequest => ();
    backup_status: ptypes::BackupStatusRequest => ptypes::BackupStatusResponse;
    reset: () => ();
    replica_rebuild_status: () => ptypes::ReplicaRebuildStatusResponse;
    snapshot_clone_status: () => ptypes::SnapshotCloneStatusResponse;
    snapshot_hash: ptypes::SnapshotHashRequest => ();
    snapshot_hash_status: ptypes::SnapshotHashStatusRequest => ptypes::SnapshotHashStatusResponse;
    snapshot_hash_cancel: ptypes::SnapshotHashCancelRequest => ();
    snapshot_hash_lock_state: () => ptypes::SnapshotHashLockStateResponse;
}
