//! Engines and replicas that only pretend: they start at once, answer what a real one is asked while nothing
//! happens, and hold no data. Everything else they are asked is refused as not implemented.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, header};
use prost::Message;
use rpc::ptypes;
use tasks::Tasks;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use volumes::instances::{
    EngineLaunch, Instance, Instances, Key, Kind, Launch, Role, StartError, State as Standing,
};

/// Ports of each process: those of replicas are the first and the third.
const WIDTH: u16 = 3;
const FIRST_PORT: u16 = 10_000;

#[derive(Debug)]
pub(super) struct Pretended {
    address: IpAddr,
    tasks: Tasks,
    table: Mutex<Table>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<Key, Entry>,
    changed: BTreeSet<Key>,
    started: u16,
    /// Ports of processes that are over.
    free: Vec<u16>,
    ending: bool,
}

#[derive(Debug)]
struct Entry {
    instance: Instance,
    serving: CancellationToken,
}

impl Pretended {
    pub(super) fn at(address: IpAddr, tasks: &Tasks) -> Self {
        Self {
            address,
            tasks: tasks.child("processes"),
            table: Mutex::default(),
            notify: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut table: MutexGuard<'_, Table>, key: &Key) {
        table.changed.insert(key.clone());
        drop(table);
        self.notify.notify_one();
    }

    fn end(&self, key: &Key) {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(key).filter(|it| !it.instance.state.is_over())
        else {
            return;
        };
        entry.instance.state = Standing::Stopped;
        entry.serving.cancel();
        let first = entry.instance.ports.0;
        table.free.push(first);
        self.tell(table, key);
    }
}

#[async_trait]
impl Instances for Pretended {
    fn start(&self, launch: Launch) -> Result<(), StartError> {
        let key = launch.key.clone();
        let mut table = self.table();
        if table.ending {
            return Err(StartError::Ending(key));
        }
        if table.entries.get(&key).is_some_and(|it| !it.instance.state.is_over()) {
            return Err(StartError::Runs(key));
        }
        let first = table.free.pop().unwrap_or_else(|| {
            table.started += 1;
            FIRST_PORT + (table.started - 1) * WIDTH
        });
        let serving = CancellationToken::new();
        let part = Arc::new(Part::of(&launch, SocketAddr::new(self.address, first)));
        let ports = match key.kind {
            Kind::Engine => vec![first],
            Kind::Replica => vec![first, first + 2],
        };
        for port in ports {
            let at = SocketAddr::new(self.address, port);
            let name = format!("{key} at {at}");
            self.tasks.spawn(&name, serve(at, Arc::clone(&part), serving.clone()));
        }
        let instance = Instance {
            key: key.clone(),
            volume: launch.volume.clone(),
            image: launch.image.clone(),
            state: Standing::Running,
            ports: (first, first + WIDTH - 1),
            pid: None,
            run: format!("run-{}", uuid::Uuid::new_v4()),
            salvage: matches!(&launch.role, Role::Engine(engine) if engine.salvage),
            error: None,
            exit_code: None,
            next: None,
        };
        table.entries.insert(key.clone(), Entry { instance, serving });
        self.tell(table, &key);
        Ok(())
    }

    /// Nobody upgrades an engine that is not there.
    fn replace(&self, launch: Launch) -> Result<(), StartError> {
        Err(StartError::Idle(launch.key))
    }

    fn stop(&self, key: &Key) {
        self.end(key);
    }

    fn forget(&self, key: &Key) {
        let mut table = self.table();
        if table.entries.get(key).is_some_and(|it| it.instance.state.is_over()) {
            table.entries.remove(key);
            self.tell(table, key);
        }
    }

    fn discard(&self, key: &Key) {
        self.forget(key);
    }

    fn get(&self, key: &Key) -> Option<Instance> {
        self.table().entries.get(key).map(|it| it.instance.clone())
    }

    fn list(&self) -> Vec<Instance> {
        self.table().entries.values().map(|it| it.instance.clone()).collect()
    }

    async fn changed(&self) -> Vec<Key> {
        loop {
            let told = self.notify.notified();
            let changed = std::mem::take(&mut self.table().changed);
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            told.await;
        }
    }

    async fn shutdown(&self) {
        self.table().ending = true;
        let keys: Vec<Key> = self.table().entries.keys().cloned().collect();
        for key in keys {
            self.end(&key);
        }
    }

    fn address(&self) -> IpAddr {
        self.address
    }
}

/// What one process says of itself.
#[derive(Debug)]
enum Part {
    Engine { volume: String, at: SocketAddr, launch: EngineLaunch },
    Replica { size: i64 },
}

impl Part {
    fn of(launch: &Launch, at: SocketAddr) -> Self {
        match &launch.role {
            Role::Engine(engine) => {
                Self::Engine { volume: launch.volume.clone(), at, launch: engine.clone() }
            }
            Role::Replica(replica) => Self::Replica { size: replica.size_bytes },
        }
    }

    /// The answer to a call, if it is one of those that a monitor makes.
    fn answer(&self, call: &str) -> Option<Vec<u8>> {
        Some(match (self, call) {
            (Self::Engine { volume, at, launch }, "/ptypes.ControllerService/VolumeGet") => {
                let served = if launch.frontend { "up" } else { "down" };
                let endpoint = launch.frontend.then(|| format!("nbd://{at}/{volume}"));
                ptypes::Volume {
                    name: volume.clone(),
                    size: launch.size_bytes,
                    replica_count: i32::try_from(launch.replicas.len()).unwrap_or(0),
                    endpoint: endpoint.unwrap_or_default(),
                    frontend: "nbd".to_owned(),
                    frontend_state: served.to_owned(),
                    ..ptypes::Volume::default()
                }
                .encode_to_vec()
            }
            (Self::Engine { launch, .. }, "/ptypes.ControllerService/ReplicaList") => {
                let replica = |address: &String| ptypes::ControllerReplica {
                    address: Some(ptypes::ReplicaAddress {
                        address: format!("tcp://{address}"),
                        ..ptypes::ReplicaAddress::default()
                    }),
                    mode: ptypes::ReplicaMode::Rw.into(),
                };
                let replicas = launch.replicas.iter().map(replica).collect();
                ptypes::ReplicaListReply { replicas }.encode_to_vec()
            }
            (Self::Replica { size }, "/ptypes.ReplicaService/ReplicaGet") => {
                let head = "volume-head-000.img";
                let disk =
                    ptypes::DiskInfo { name: head.to_owned(), ..ptypes::DiskInfo::default() };
                let replica = ptypes::Replica {
                    head: head.to_owned(),
                    size: size.to_string(),
                    state: "open".to_owned(),
                    disks: [(head.to_owned(), disk)].into(),
                    ..ptypes::Replica::default()
                };
                ptypes::ReplicaGetResponse { replica: Some(replica) }.encode_to_vec()
            }
            (Self::Replica { .. }, "/ptypes.SyncAgentService/SnapshotPurgeStatus") => {
                ptypes::SnapshotPurgeStatusResponse::default().encode_to_vec()
            }
            (Self::Replica { .. }, "/ptypes.SyncAgentService/ReplicaRebuildStatus") => {
                ptypes::ReplicaRebuildStatusResponse::default().encode_to_vec()
            }
            (Self::Engine { .. } | Self::Replica { .. }, _) => return None,
        })
    }
}

async fn serve(at: SocketAddr, part: Arc<Part>, stop: CancellationToken) {
    let listener = match tokio::net::TcpListener::bind(at).await {
        Ok(listener) => listener,
        // Controllers then see an engine that does not answer, and the measurement does not end.
        Err(error) => return eprintln!("cannot listen at {at}: {error}"),
    };
    let router = Router::new().fallback(answer).with_state(part);
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    let _ = serving.await;
}

/// The status of a call without an answer.
const UNIMPLEMENTED: &str = "12";

/// A call of gRPC: one message in a frame, and the status after it.
async fn answer(State(part): State<Arc<Part>>, request: Request) -> Response {
    let message = part.answer(request.uri().path());
    let mut trailers = HeaderMap::new();
    let status = if message.is_some() { "0" } else { UNIMPLEMENTED };
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let data = message.map(|message| {
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
        frame.extend(message);
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(frame)))
    });
    let end = Ok(http_body::Frame::trailers(trailers));
    let body = http_body_util::StreamBody::new(
        futures::stream::iter(data.into_iter().chain([end])).fuse(),
    );
    let mut response = Response::new(Body::new(body));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
