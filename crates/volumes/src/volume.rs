//! Volumes: where one is between detached and attached, and how many of its copies it has.
//!
//! A pass looks at everything that belongs to one volume ([`observe`]), decides ([`decide`], pure),
//! and writes what differs ([`apply`]): copies, then the engine, then the volume, so that a volume
//! that has moved on is proof that the others were told.

mod apply;
mod clone;
pub(crate) mod decide;
mod draft;
mod health;
mod locality;
mod machine;
mod make;
mod observe;
mod original;
mod restore;
pub mod revert;
pub(crate) mod starting;
mod steps;
mod tickets;
mod upgrade;
mod usage;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    Backup, BackupTarget, BackupVolume, Engine, EngineImage, Node, Replica, Setting, Snapshot,
    Volume, VolumeAttachment, VolumeState,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use reconcile::{Context, Controller, EVENT_RIGHTS, Grant, Key, Loop, Store};

pub(crate) use self::observe::is_ready;
use crate::engine::monitor::Monitors;
use crate::setting::Settings;
use crate::{NAMESPACE, engine, figures, image, label, setting, snapshot};

/// On a volume that follows another: since when it is to be activated.
pub const ACTIVATION: &str = "holdfast.io/activation-requested-at";
/// On a volume that is to be activated and whose store does not answer any more: the backup it is to
/// be activated with, which is the one it holds.
pub const ACTIVATE_WITH: &str = "holdfast.io/activate-with";

const LONGHORN: &[&str] = &["longhorn.io"];

/// Volumes and what they consist of.
pub(crate) const CONTROLLERS: &[Controller] = &[Controller {
    name: "volumes",
    grants: &[
        Grant {
            groups: LONGHORN,
            resources: &[
                "volumes",
                "volumeattachments",
                "engines",
                "replicas",
                "snapshots",
                "settings",
                "engineimages",
            ],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Grant {
            groups: LONGHORN,
            resources: &[
                "volumes/status",
                "volumeattachments/status",
                "engines/status",
                "replicas/status",
                "snapshots/status",
                "settings/status",
                "engineimages/status",
            ],
            verbs: &["patch"],
        },
        Grant {
            groups: LONGHORN,
            resources: &["backupvolumes", "backups", "backuptargets", "nodes"],
            verbs: &["get", "list", "watch"],
        },
        // The store is read anew before a volume that follows it is activated.
        Grant {
            groups: LONGHORN,
            resources: &["backupvolumes", "backuptargets"],
            verbs: &["patch"],
        },
        // What to restore from may need a key.
        Grant { groups: &[""], resources: &["secrets"], verbs: &["get"] },
        Grant { groups: &[""], resources: &["namespaces"], verbs: &["create"] },
        EVENT_RIGHTS,
    ],
    acts_on: &[
        "volumes.longhorn.io",
        "volumeattachments.longhorn.io",
        "engines.longhorn.io",
        "replicas.longhorn.io",
        "snapshots.longhorn.io",
        "settings.longhorn.io",
        "engineimages.longhorn.io",
    ],
    run: |context| Box::pin(run(context)),
}];

/// How often everything is looked at though nothing changed.
const RESYNC: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(2);

/// What the controllers of volumes share: everything they read, and the way to write it.
pub(crate) struct World {
    pub(crate) context: Context,
    pub(crate) volumes: Store<Volume>,
    pub(crate) attachments: Store<VolumeAttachment>,
    pub(crate) engines: Store<Engine>,
    pub(crate) replicas: Store<Replica>,
    pub(crate) snapshots: Store<Snapshot>,
    pub(crate) settings: Store<Setting>,
    pub(crate) images: Store<EngineImage>,
    pub(crate) nodes: Store<Node>,
    pub(crate) backup_volumes: Store<BackupVolume>,
    pub(crate) targets: Store<BackupTarget>,
}

impl fmt::Debug for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    fn start(context: &Context) -> Self {
        Self {
            context: context.clone(),
            volumes: Store::<Volume>::within(NAMESPACE)
                .index("source", |it: &Volume| {
                    it.metadata
                        .labels
                        .iter()
                        .flatten()
                        .filter(|(name, _)| *name == label::BACKUP_VOLUME)
                        .map(|(_, value)| value.clone())
                        .collect()
                })
                .index(original::BY_ORIGINAL, original::of)
                .start(context),
            attachments: Store::within(NAMESPACE)
                .index(snapshot::HELD_FOR, snapshot::held_for)
                .start(context),
            engines: Store::<Engine>::within(NAMESPACE)
                .index(engine::BY_VOLUME, engine::volume_of)
                .index(snapshot::BY_SNAPSHOT, snapshot::snapshots_of)
                .start(context),
            replicas: Store::<Replica>::within(NAMESPACE)
                .index("volume", |it: &Replica| {
                    it.spec.instance.volume_name.clone().into_iter().collect()
                })
                .index(observe::FILLING, observe::filling)
                .start(context),
            snapshots: Store::<Snapshot>::within(NAMESPACE)
                .index("volume", |it: &Snapshot| it.spec.volume.clone().into_iter().collect())
                .start(context),
            settings: Store::within(NAMESPACE).start(context),
            images: Store::within(NAMESPACE).start(context),
            nodes: Store::within(NAMESPACE).start(context),
            backup_volumes: Store::<BackupVolume>::within(NAMESPACE)
                .index("volume", |it: &BackupVolume| {
                    it.spec.volume_name.clone().into_iter().collect()
                })
                .start(context),
            targets: Store::within(NAMESPACE).start(context),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::of(&self.settings)
    }

    /// A backup, asked for by name: there are too many of them to keep them all.
    pub(crate) async fn backup(&self, name: &str) -> Result<Option<Backup>, kube::Error> {
        let api: Api<Backup> = Api::namespaced(self.context.client.clone(), NAMESPACE);
        api.get_opt(name).await
    }
}

fn named(name: Option<String>) -> Vec<Key> {
    name.map(|name| Key::new(NAMESPACE, &name)).into_iter().collect()
}

async fn run(context: Context) {
    make_namespace(&context).await;
    let world = Arc::new(World::start(&context));
    let own = Arc::clone(&world);
    let of_backups = Arc::clone(&world);
    let of_nodes = Arc::clone(&world);
    let of_settings = Arc::clone(&world);
    let of_images = Arc::clone(&world);
    let (by_volume, by_engine, by_snapshot) =
        (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
    let volumes = Loop::new("volumes", &context)
        .on(&world.volumes)
        .map(&world.volumes, move |key, _, _| original::copies(&by_volume, &key.name))
        .map(&world.engines, move |_, before, now| {
            let volume = now.or(before).and_then(|it| it.spec.instance.volume_name.clone());
            original::copies(&by_engine, volume.as_deref().unwrap_or_default())
        })
        .map(&world.snapshots, move |_, before, now| {
            let volume = now.or(before).and_then(|it| it.spec.volume.clone());
            original::copies(&by_snapshot, volume.as_deref().unwrap_or_default())
        })
        .on(&world.attachments)
        .on_related(&world.engines, |it: &Engine| named(it.spec.instance.volume_name.clone()))
        .on_related(&world.replicas, |it: &Replica| named(it.spec.instance.volume_name.clone()))
        .on_related(&world.snapshots, move |it: &Snapshot| {
            // Only one that is going waits for its snapshots.
            let volume = named(it.spec.volume.clone());
            volume.into_iter().filter(|key| is_leaving(&own, key)).collect()
        })
        .map(&world.backup_volumes, move |_, before, now| {
            let source = now.or(before).and_then(|it| it.spec.volume_name.clone());
            let Some(source) = source else { return Vec::new() };
            let followers = of_backups.volumes.by("source", &source);
            let mut keys: Vec<Key> = followers.iter().map(|it| Key::of(it.as_ref())).collect();
            keys.push(Key::new(NAMESPACE, &source));
            keys
        })
        .map(&world.nodes, move |_, before, now| {
            // Nodes report themselves all the time; what matters is whether they are there.
            let matters = match (before, now) {
                (Some(before), Some(now)) => observe::standing(before) != observe::standing(now),
                _ => true,
            };
            let all = if matters { of_nodes.volumes.list() } else { Vec::new() };
            all.iter().map(|it| Key::of(it.as_ref())).collect()
        })
        .map(&world.settings, move |_, before, now| {
            // What is set matters to all of them, at once.
            let changed = before.map(|it| &it.value) != now.map(|it| &it.value);
            let all = if changed { of_settings.volumes.list() } else { Vec::new() };
            all.iter().map(|it| Key::of(it.as_ref())).collect()
        })
        .needs(&world.targets)
        .map(&world.images, move |_, before, now| {
            // Volumes of it, and those that are to be.
            let standing = |it: Option<&EngineImage>| it.and_then(observe::image).map(|it| it.1);
            let name = now.or(before).and_then(|it| it.spec.image.clone());
            let matters = standing(before) != standing(now);
            let all = if matters { of_images.volumes.list() } else { Vec::new() };
            let is_of = |it: &Volume| {
                it.spec.image == name
                    || it.status.as_ref().is_some_and(|it| it.current_image == name)
            };
            all.iter().filter(|it| is_of(it)).map(|it| Key::of(it.as_ref())).collect()
        })
        .workers(8)
        .resync(&world.volumes, RESYNC);
    let monitors = Arc::new(Monitors::new(Arc::clone(&world)));
    Monitors::look_when_copies_go(&monitors);
    let engines = Loop::new("engines", &context)
        .on(&world.engines)
        .needs(&world.volumes)
        .needs(&world.replicas)
        .needs(&world.backup_volumes)
        .needs(&world.targets)
        .needs(&world.settings);
    let snapshots = snapshot::plan(&world);
    tokio::join!(
        keep_defaults(Arc::clone(&world)),
        volumes.run(Arc::new(apply::Volumes(Arc::clone(&world)))),
        engines.run(Arc::clone(&monitors)),
        snapshots.run(Arc::new(snapshot::Snapshots::new(Arc::clone(&world), monitors))),
        figures::tell_of_volumes(&context, (&world.volumes, &world.engines), &world.nodes),
    );
}

/// It is to be a copy of another, and is none yet.
pub(crate) fn is_unfinished_clone(volume: &Volume) -> bool {
    use api::longhorn::CloneState;
    let state = volume.status.as_ref().and_then(|it| it.clone_status.as_ref()?.state.clone());
    matches!(
        state,
        Some(CloneState::Initiated | CloneState::CopyCompletedAwaitingHealthy | CloneState::Failed)
    )
}

/// It is being made: nobody has ever attached it.
pub(crate) fn is_new(state: &VolumeState) -> bool {
    matches!(state, VolumeState::Unset | VolumeState::Creating)
}

fn is_leaving(world: &World, key: &Key) -> bool {
    world.volumes.get(key).is_some_and(|it| it.metadata.deletion_timestamp.is_some())
}

/// Everything of this dialect lives in one namespace.
async fn make_namespace(context: &Context) {
    let api: Api<Namespace> = Api::all(context.client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    loop {
        match api.create(&PostParams::default(), &namespace).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => return,
            Err(error) => {
                tracing::warn!(error = %telemetry::Chain(&error), "cannot make the namespace {NAMESPACE}, will try again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Settings and the image of this build are there, whatever becomes of them.
async fn keep_defaults(world: Arc<World>) {
    world.settings.ready().await;
    world.images.ready().await;
    world.nodes.ready().await;
    world.volumes.ready().await;
    loop {
        let settings = setting::create_missing(&world.settings, &world.context.events).await;
        let images = image::keep(&world.images, &world.nodes, &world.volumes).await;
        let mut pause = Duration::from_secs(10);
        for failure in [settings.err(), images.err()].into_iter().flatten() {
            tracing::debug!(error = %telemetry::Chain(&failure), "settings or images are not as they should be yet");
            pause = RETRY;
        }
        tokio::time::sleep(pause).await;
    }
}
