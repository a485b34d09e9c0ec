//! A controller under test: the real engine and its real gRPC server on a free port.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::control::{ControlError, Engine, serve};
use engine::core::{Command, Done};
use engine::{Backend, ControllerOptions, DataProtocol, NbdOptions};
use rpc::ptypes::controller_service_client::ControllerServiceClient;
use rpc::ptypes::{self, ReplicaMode};
use rpc::volume::volume_client::VolumeClient;
use rpc::{Address, Deadline, Identity, Peer};
use tasks::Tasks;
use tokio::net::TcpListener;

pub(crate) const SIZE: usize = 4 << 20;
pub(crate) const VOLUME: &str = "vol-test";

pub(crate) fn options() -> ControllerOptions {
    ControllerOptions {
        volume: VOLUME.into(),
        instance_name: "vol-test-e-0".into(),
        listen: "127.0.0.1:0".into(),
        size_bytes: i64::try_from(SIZE).unwrap(),
        current_size_bytes: i64::try_from(SIZE).unwrap(),
        frontend: String::new(),
        backends: vec![Backend::Tcp, Backend::File],
        replicas: Vec::new(),
        upgrade: false,
        claim_generation: None,
        revision_counter: true,
        salvage: false,
        // What a replica that is well may miss of a loaded machine; tests of stalls wait for it.
        replica_timeout: Duration::from_secs(2),
        data_protocol: DataProtocol::Tcp,
        unmap_mark_snap_chain_removed: false,
        file_sync_http_client_timeout: Duration::from_secs(5),
        snapshot_max_count: 250,
        snapshot_max_size: 0,
        rebuild_sync_concurrent_limit: 1,
        rebuild_timeout: engine::REBUILD_TIMEOUT,
        nbd: NbdOptions::default(),
    }
}

pub(crate) struct Rig {
    pub(crate) engine: Arc<Engine>,
    pub(crate) address: Address,
    tasks: Tasks,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.tasks.begin_stop();
    }
}

impl Rig {
    pub(crate) async fn try_new(options: ControllerOptions) -> Result<Self, ControlError> {
        let engine = Engine::launch(options).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::new("127.0.0.1", listener.local_addr().unwrap().port());
        let tasks = Tasks::new();
        let served = Arc::clone(&engine);
        tasks.spawn("serve", async move { serve(&served, listener).await.unwrap() });
        Ok(Self { engine, address, tasks })
    }

    /// A volume with those replicas.
    pub(crate) async fn with(replicas: &[&str]) -> Self {
        Self::try_new(with_replicas(replicas)).await.unwrap()
    }

    pub(crate) fn client(&self) -> ControllerServiceClient<Peer> {
        self.client_as(Identity { volume: VOLUME.into(), instance: String::new() })
    }

    pub(crate) fn client_as(&self, identity: Identity) -> ControllerServiceClient<Peer> {
        ControllerServiceClient::new(
            rpc::connect(&self.address, identity, Deadline::Usual).unwrap(),
        )
    }

    /// For what the dialect does not have.
    pub(crate) fn beyond(&self) -> VolumeClient<Peer> {
        let identity = Identity { volume: VOLUME.into(), instance: String::new() };
        VolumeClient::new(rpc::connect(&self.address, identity, Deadline::Usual).unwrap())
    }

    pub(crate) async fn modes(&self) -> Vec<(String, ReplicaMode)> {
        let list = self.client().replica_list(()).await.unwrap().into_inner().replicas;
        list.iter().map(|one| (one.address.clone().unwrap().address, one.mode())).collect()
    }

    /// Modes alone, in the order of the replicas.
    pub(crate) async fn mode_list(&self) -> Vec<ReplicaMode> {
        self.modes().await.into_iter().map(|(_, mode)| mode).collect()
    }

    pub(crate) async fn get(&self) -> ptypes::Volume {
        self.client().volume_get(()).await.unwrap().into_inner()
    }

    pub(crate) async fn write(&self, offset: u64, data: &[u8]) {
        let data = Bytes::copy_from_slice(data);
        let done = self.engine.volume().submit(Command::Write { offset, data, durable: false });
        done.await.unwrap();
    }

    pub(crate) async fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        match self.engine.volume().submit(Command::Read { offset, len }).await.unwrap() {
            Done::Data(data) => data.to_vec(),
            other => panic!("a read gave {other:?}"),
        }
    }

    pub(crate) async fn snapshot(&self, name: &str) -> Result<String, tonic::Status> {
        let request = ptypes::VolumeSnapshotRequest { name: name.into(), ..Default::default() };
        Ok(self.client().volume_snapshot(request).await?.into_inner().name)
    }

    pub(crate) async fn revert(&self, name: &str) -> Result<(), tonic::Status> {
        let request = ptypes::VolumeRevertRequest { name: name.into() };
        self.client().volume_revert(request).await.map(|_| ())
    }

    /// Begins to grow the volume and waits until that is over.
    pub(crate) async fn expand(&self, size: i64) -> Result<ptypes::Volume, tonic::Status> {
        self.client().volume_expand(ptypes::VolumeExpandRequest { size }).await?;
        let ended = until("the expansion to end", async || {
            let volume = self.get().await;
            (!volume.is_expanding).then_some(volume)
        });
        Ok(ended.await)
    }

    pub(crate) async fn add(
        &self,
        address: &str,
        snapshot_required: bool,
    ) -> Result<ReplicaMode, tonic::Status> {
        let request = ptypes::ControllerReplicaCreateRequest {
            address: address.into(),
            snapshot_required,
            mode: ReplicaMode::Wo.into(),
        };
        Ok(self.client().controller_replica_create(request).await?.into_inner().mode())
    }

    pub(crate) async fn verify(&self, address: &str) -> Result<ReplicaMode, tonic::Status> {
        let verified = self.client().replica_verify_rebuild(place(address)).await?;
        Ok(verified.into_inner().mode())
    }
}

pub(crate) fn with_replicas(replicas: &[&str]) -> ControllerOptions {
    let replicas = replicas.iter().map(|address| (*address).to_owned()).collect();
    ControllerOptions { replicas, ..options() }
}

pub(crate) fn place(address: &str) -> ptypes::ReplicaAddress {
    ptypes::ReplicaAddress { address: address.into(), instance_name: String::new() }
}

/// What `look` sees once it sees something.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let timeout = Duration::from_mins(2);
    let watching = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let seen = tokio::time::timeout(timeout, watching).await;
    seen.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
