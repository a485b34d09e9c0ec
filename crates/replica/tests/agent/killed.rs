//! A process that is killed while its agent works, at other moments each time: whatever it was
//! doing, the next one finds the same volume and finishes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use replica::{OpenRequest, Options, Replica};
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::ptypes::{FilesSyncRequest, ReplicaOpenRequest};
use rpc::{Address, Deadline, HeadParent, Identity, Peer, purge_request};

use crate::node::{Volume, assert_equal, free_ports, read_snapshot, replica_options, spawn, until};

const SIZE: u64 = 32 << 20;
const DIR: &str = "AGENT_TEST_DIR";
const LISTEN: &str = "AGENT_TEST_LISTEN";

/// What the other tests start as a process.
#[test]
#[ignore = "a server for the other tests"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let control: Address = std::env::var(LISTEN).unwrap().parse().unwrap();
    let mut options = replica_options(dir.into(), &control, SIZE);
    options.sync_agent = true;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(replica::server::run(options)).unwrap();
    runtime.shutdown_background();
}

struct Process {
    child: Child,
    control: Address,
}

impl Process {
    /// Up, and open.
    async fn start(dir: &Path) -> Self {
        loop {
            let control = Address::new("127.0.0.1", free_ports());
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "killed::child", "--ignored"])
                .env(DIR, dir)
                .env(LISTEN, control.to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut process = Self { child, control };
            let is_open = until("the replica", || {
                let ended = process.child.try_wait().unwrap().is_some();
                let mut replica = process.replica();
                async move {
                    let opened = replica.replica_open(ReplicaOpenRequest::default()).await.is_ok();
                    (ended || opened).then_some(opened)
                }
            })
            .await;
            if is_open {
                return process;
            }
        }
    }

    fn replica(&self) -> ReplicaServiceClient<Peer> {
        let peer = rpc::connect(&self.control, Identity::default(), Deadline::Usual).unwrap();
        ReplicaServiceClient::new(peer)
    }

    fn agent(&self) -> SyncAgentServiceClient<Peer> {
        let address = self.control.sync_agent();
        let peer = rpc::connect(&address, Identity::default(), Deadline::Usual).unwrap();
        SyncAgentServiceClient::new(peer)
    }

    /// Without a word of warning.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn head(dir: &Path) -> Vec<u8> {
    let mut replica = Replica::new(dir, Options::default());
    replica.open(&OpenRequest::default()).unwrap();
    let mut contents = vec![0; SIZE as usize];
    replica.read_at(&mut contents, 0).unwrap();
    replica.close().unwrap();
    contents
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_survives_being_killed_anywhere() {
    let mut volume = Volume::in_memory(SIZE);
    for (index, name) in ["s1", "a", "s2", "s3", "b", "s4", "s5"].into_iter().enumerate() {
        let index = index as u64;
        volume.write(index as u8, 3 << 20, index << 20);
        volume.write(index as u8, 4096, (20 << 20) + index * 4096);
        if name.starts_with('s') {
            volume.system_snapshot(name);
        } else {
            volume.snapshot(name);
        }
    }
    volume.write(9, 4096, 0);
    volume.replica.close().unwrap();
    let dir = volume.replica.dir().to_owned();
    let before = (head(&dir), ["a", "b"].map(|name| read_snapshot(&dir, name)));
    for round in 0..8 {
        let process = Process::start(&dir).await;
        // Both ways, in turns.
        let head_parent = if round % 2 == 0 { HeadParent::Fold } else { HeadParent::Keep };
        process.agent().snapshot_purge(purge_request(head_parent)).await.unwrap();
        // Not a wait for anything: the moment of death.
        tokio::time::sleep(Duration::from_millis(round * 4)).await;
        process.kill();
        let after = (head(&dir), ["a", "b"].map(|name| read_snapshot(&dir, name)));
        assert!(before == after, "round {round}");
    }
    let process = Process::start(&dir).await;
    process.agent().snapshot_purge(purge_request(HeadParent::Fold)).await.unwrap();
    let status = until("the purge", || async {
        let status = process.agent().snapshot_purge_status(()).await.unwrap().into_inner();
        (!status.is_purging).then_some(status)
    })
    .await;
    assert_eq!((status.state.as_str(), status.error.as_str()), ("complete", ""));
    let replica = process.replica().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(replica.disks.len(), 3, "the head and the user's two");
    process.kill();
    let after = (head(&dir), ["a", "b"].map(|name| read_snapshot(&dir, name)));
    assert!(before == after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_whose_target_is_killed_is_run_again() {
    let mut volume = Volume::in_memory(SIZE);
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        volume.write(index as u8, 6 << 20, (index as u64) << 22);
        volume.snapshot(name);
    }
    let source = volume.serve().await;
    let target = Volume::in_memory(SIZE);
    let dir = target.replica.dir().to_owned();
    drop(target.replica);
    let request = FilesSyncRequest {
        to_host: "127.0.0.1".into(),
        sync_file_info_list: source.files().await,
        file_sync_http_client_timeout: 30,
        from_address_map: [(source.address(), true)].into(),
        ..FilesSyncRequest::default()
    };
    for round in 0..4 {
        let process = Process::start(&dir).await;
        let (mut agent, request) = (process.agent(), request.clone());
        let syncing = spawn(async move { agent.files_sync(request).await });
        tokio::time::sleep(Duration::from_millis(10 + round * 40)).await;
        process.kill();
        let _ = syncing.await.unwrap();
    }
    let process = Process::start(&dir).await;
    process.agent().files_sync(request.clone()).await.unwrap();
    process.kill();
    for file in request.sync_file_info_list {
        assert_equal(&source.file(&file.from_file_name), &dir.join(&file.to_file_name));
    }
}
