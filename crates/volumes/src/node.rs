//! A node: the machine that holds copies and runs processes, as this dialect shows it.
//!
//! Owns: `Node` with its disks, `InstanceManager`, the node's lease, orphans, and of `Engine` and
//! `Replica` the part of the status that is about their process. Never: the rest of those objects,
//! nor whether a copy is any good. What to do about a process is decided in [`decide`]; who says that
//! a node is gone is [`watch`], which runs with the controllers.

mod decide;
mod deploy;
mod directory;
mod disk;
mod fence;
mod launch;
mod lease;
mod manager;
mod orphan;
mod process;
mod register;
mod rests;
pub mod watch;

pub(crate) use self::decide::{failed_creation, failed_upgrade, has_lost_data};
#[cfg(test)]
pub(crate) use self::decide::{say_creation, say_upgrade};
pub(crate) use self::launch::has_disk;
pub use self::lease::Taken;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Engine, EngineImage, InstanceManager, Node, Orphan, Replica, Setting};
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use reconcile::{Context, EVENT_RIGHTS, Grant, Key, Loop, Queue, Store};
use tokio::sync::oneshot;

use crate::NAMESPACE;
use crate::instances::{Instances, Kind};

/// What a node may do beside the embedded server.
pub const GRANTS: &[Grant] = &[
    Grant {
        groups: &["longhorn.io"],
        resources: &["nodes", "instancemanagers", "orphans"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Grant {
        groups: &["longhorn.io"],
        resources: &[
            "engines",
            "replicas",
            "engines/status",
            "replicas/status",
            "nodes/status",
            "instancemanagers/status",
            "orphans/status",
        ],
        verbs: &["get", "list", "watch", "patch"],
    },
    Grant {
        groups: &["longhorn.io"],
        resources: &["settings", "engineimages"],
        verbs: &["get", "list", "watch"],
    },
    Grant { groups: &["longhorn.io"], resources: &["engineimages/status"], verbs: &["patch"] },
    Grant {
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        verbs: &["get", "create", "patch"],
    },
    Grant { groups: &[""], resources: &["namespaces"], verbs: &["create"] },
    EVENT_RIGHTS,
];

/// The definitions whose objects a node acts on.
pub const ACTS_ON: &[&str] = &[
    "nodes.longhorn.io",
    "instancemanagers.longhorn.io",
    "orphans.longhorn.io",
    "engines.longhorn.io",
    "replicas.longhorn.io",
    "engineimages.longhorn.io",
];

/// How long a node may be silent before it counts as gone: longer than an engine may be silent
/// before its replicas let another in.
pub const LEASE: Duration = Duration::from_secs(16);

/// Before another machine of this name is looked at again.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
const MAX_IDENTITY_BYTES: usize = 256;

/// What a node is told.
#[derive(Debug, Clone)]
pub struct Options {
    pub name: String,
    /// Tells machines of one name apart: see [`machine`].
    pub machine: String,
    /// Its first disk: a directory that is made if it is not there.
    pub disk: PathBuf,
    /// Where programs of other engine images are looked for.
    pub programs: PathBuf,
}

/// What the parts of a node share.
#[derive(Debug)]
struct Agent {
    options: Options,
    /// Name of its instance manager.
    manager: String,
    context: Context,
    host: Arc<dyn Instances>,
    nodes: Store<Node>,
    managers: Store<InstanceManager>,
    engines: Store<Engine>,
    replicas: Store<Replica>,
    settings: Store<Setting>,
    orphans: Store<Orphan>,
    images: Store<EngineImage>,
    lease: lease::Held,
    rests: rests::Rests,
    timeouts: rests::Timeouts,
}

impl Agent {
    fn key(&self) -> Key {
        Key::new(NAMESPACE, &self.options.name)
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.nodes.get(&self.key())
    }
}

/// Name of the instance manager of a node.
pub fn manager_name(node: &str) -> String {
    format!("instance-manager-{node}")
}

/// The identity of the machine that has this directory, which is given one if it has none.
///
/// # Errors
/// If it cannot be read or written.
pub fn machine(data_dir: &Path) -> Result<String, durable::Error> {
    let file = data_dir.join("machine-id");
    match durable::read_limited(&file, MAX_IDENTITY_BYTES) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
        Err(error) if error.is_not_found() => {
            let made = uuid::Uuid::new_v4().to_string();
            durable::replace(&file, made.as_bytes()).map(|()| made)
        }
        Err(error) => Err(error),
    }
}

/// Runs a node until it is dropped. Processes go on: see [`leave`]. While another machine is the node
/// of this name nothing is done, and that is told.
pub fn run(
    context: Context,
    options: Options,
    host: Arc<dyn Instances>,
    refused: oneshot::Sender<Taken>,
) -> BoxFuture<'static, ()> {
    Box::pin(attend(context, options, host, refused))
}

async fn attend(
    context: Context,
    options: Options,
    host: Arc<dyn Instances>,
    refused: oneshot::Sender<Taken>,
) {
    let agent = Arc::new(Agent {
        manager: manager_name(&options.name),
        nodes: Store::<Node>::within(NAMESPACE).start(&context),
        managers: Store::<InstanceManager>::within(NAMESPACE).start(&context),
        engines: Store::<Engine>::within(NAMESPACE).start(&context),
        replicas: Store::<Replica>::within(NAMESPACE)
            .index(process::BY_DISK, process::disk_of)
            .start(&context),
        settings: Store::<Setting>::within(NAMESPACE).start(&context),
        orphans: Store::<Orphan>::within(NAMESPACE).start(&context),
        images: Store::<EngineImage>::within(NAMESPACE).start(&context),
        lease: lease::Held::default(),
        rests: rests::Rests::default(),
        timeouts: rests::Timeouts::default(),
        options,
        host,
        context: context.clone(),
    });
    let mut refused = Some(refused);
    while let Err(taken) = lease::claim(&agent).await {
        tracing::error!("{taken}");
        if let Some(listener) = refused.take() {
            // Who does not listen any more has read the log.
            let _ = listener.send(taken);
        }
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
    drop(refused);
    let engines = Loop::new("node-engines", &context)
        .on(&agent.engines)
        // An engine waits for its replicas to be where it is told they are.
        .on_related(&agent.replicas, process::engines_of)
        .needs(&agent.settings)
        .workers(process::WORKERS);
    let replicas = Loop::new("node-replicas", &context)
        .on(&agent.replicas)
        .needs(&agent.nodes)
        .needs(&agent.settings)
        .workers(process::WORKERS);
    process::follow_disks(&agent, replicas.queue());
    let node = register::plan(&agent);
    let manager = manager::plan(&agent);
    let images = Loop::new("node-images", &context)
        .on(&agent.images)
        .resync(&agent.images, deploy::LOOK_EVERY);
    let changes = changes(Arc::clone(&agent), engines.queue(), replicas.queue(), manager.queue());
    tokio::join!(
        lease::keep(Arc::clone(&agent), node.queue()),
        node.run(Arc::new(register::Registrar(Arc::clone(&agent)))),
        manager.run(Arc::new(manager::Manager(Arc::clone(&agent)))),
        engines.run(Arc::new(process::Engines(Arc::clone(&agent)))),
        replicas.run(Arc::new(process::Replicas(Arc::clone(&agent)))),
        orphan::run(Arc::clone(&agent)),
        fence::keep(Arc::clone(&agent)),
        images.run(Arc::new(deploy::Images::new(Arc::clone(&agent)))),
        changes,
    );
}

/// What the host tells of processes asks for a pass of their objects.
async fn changes(
    agent: Arc<Agent>,
    engines: Arc<Queue>,
    replicas: Arc<Queue>,
    manager: Arc<Queue>,
) {
    loop {
        for changed in agent.host.changed().await {
            let key = Key::new(NAMESPACE, &changed.name);
            match changed.kind {
                Kind::Engine => engines.add(&key),
                Kind::Replica => replicas.add(&key),
            }
        }
        manager.add_after(&Key::new(NAMESPACE, &agent.manager), manager::PAUSE);
    }
}

/// The node goes on purpose: its processes end, engines first, and everybody is told.
pub fn leave<'a>(
    client: kube::Client,
    options: &'a Options,
    host: &'a dyn Instances,
) -> BoxFuture<'a, ()> {
    Box::pin(depart(client, options, host))
}

async fn depart(client: kube::Client, options: &Options, host: &dyn Instances) {
    host.shutdown().await;
    register::say_left(client, &options.name).await;
}

/// The lease of a node.
fn lease_name(node: &str) -> String {
    format!("node-{node}")
}

type LeaseStore = Store<Lease>;
