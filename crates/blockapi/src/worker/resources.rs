//! The backend of every day: `longhorn.io` resources, made real by the controllers of volumes.

use api::longhorn::{
    Backup, BackupState, BackupTarget, BackupVolume, CloneState, Condition, Engine, Node,
    Robustness, Snapshot, Volume, VolumeAttachment, VolumeState,
};
use api::scalar::Stamp;
use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::backend::{
    Backend, BackendError, BackupOrder, Capacity, Origin, Progress, Saved, Stored, Taken,
    VolumeOrder, too_small,
};

const NAMESPACE: &str = "longhorn-system";
const DEFAULT_TARGET: &str = "default";
/// A directory, for those who have not said where backups go.
const OWN_TARGET: &str = "block-storage";
const MANAGER: &str = "holdfast-block-storage";
/// How long a volume may wait for room before it is said to have none.
const SCHEDULING_SECONDS: i64 = 20;
/// The annotation that puts a volume back to one of its snapshots.
const REVERT: &str = "holdfast.io/revert-to";
const GIB: i64 = 1024 * 1024 * 1024;
/// Backups are counted in blocks of this size.
const BLOCK: i64 = 2 * 1024 * 1024;
/// How tickets of ours begin; the name of the connection follows.
const TICKET: &str = "block-";
/// What nobody has begun this many seconds after it was asked for will not be begun.
const BEGIN_SECONDS: i64 = 1800;
const NOT_RESTORED: &str = "no copy of the volume began to restore the backup";
/// A deletion that failed this often is told; it goes on being tried.
const DELETION_FAILURES: i32 = 3;
/// The extra spec of a type that says how many copies its volumes have.
const REPLICAS_SPEC: &str = "holdfast:replicas";

/// Volumes, snapshots and backups as resources of a cluster.
#[derive(Clone)]
pub struct Resources {
    client: Client,
    /// Copies of a volume whose type does not say.
    replicas: i32,
    /// Where backups go if the default target has no address.
    store: Option<std::path::PathBuf>,
    /// Before that nobody may have been there to begin anything.
    started: jiff::Timestamp,
    /// Who signed the certificates of volumes that are reached inside TLS, as PEM.
    authority: Option<String>,
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources").field("replicas", &self.replicas).finish_non_exhaustive()
    }
}

fn volume_name(name: &str) -> String {
    format!("volume-{name}")
}

fn snapshot_name(name: &str) -> String {
    format!("snapshot-{name}")
}

fn backup_name(name: &str) -> String {
    format!("backup-{name}")
}

/// What the API server said, as something to try again or not.
fn failure(error: kube::Error) -> BackendError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
            BackendError::Refused(status.message)
        }
        other => BackendError::Unreachable(telemetry::Chain(&other).to_string()),
    }
}

fn is_code(error: &kube::Error, wanted: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == wanted)
}

impl Resources {
    pub fn new(client: Client, replicas: i32) -> Self {
        Self { client, replicas, store: None, authority: None, started: jiff::Timestamp::now() }
    }

    /// With the certificate authority of volumes that are reached inside TLS, as PEM.
    #[must_use]
    pub fn with_authority(mut self, pem: String) -> Self {
        self.authority = Some(pem);
        self
    }

    /// With a folder for backups while the default target has no address.
    #[must_use]
    pub fn with_store(mut self, folder: std::path::PathBuf) -> Self {
        self.store = Some(folder);
        self
    }

    /// The target new volumes are backed up to: the default one, or a folder of ours until that has
    /// an address.
    async fn target(&self) -> Result<&'static str, BackendError> {
        let default = self.find::<BackupTarget>(DEFAULT_TARGET).await?;
        let has_address = default
            .and_then(|it| it.spec.backup_target_url)
            .is_some_and(|it| !it.trim().is_empty());
        let Some(folder) = self.store.as_ref().filter(|_| !has_address) else {
            return Ok(DEFAULT_TARGET);
        };
        if self.find::<BackupTarget>(OWN_TARGET).await?.is_none() {
            let object = json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "BackupTarget",
                "metadata": {"name": OWN_TARGET, "namespace": NAMESPACE},
                "spec": {
                    "backupTargetURL": format!("vfs://{}", folder.display()),
                    "pollInterval": "5m0s",
                },
            });
            self.make::<BackupTarget>(object).await?;
        }
        Ok(OWN_TARGET)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn find<K>(&self, name: &str) -> Result<Option<K>, BackendError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        self.api::<K>().get_opt(name).await.map_err(failure)
    }

    /// Makes an object; one that is there already is as good.
    async fn make<K>(&self, object: Value) -> Result<(), BackendError>
    where
        K: Resource<Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(object)
            .map_err(|error| BackendError::Refused(error.to_string()))?;
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match self.api::<K>().create(&params, &object).await {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 409) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }

    /// Removes an object: done when it is gone.
    async fn remove<K>(&self, name: &str) -> Result<Progress<K>, BackendError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        match self.find::<K>(name).await? {
            None => Ok(Progress::Failed(String::new())),
            Some(found) => {
                if found.meta().deletion_timestamp.is_none() {
                    let deleted = self.api::<K>().delete(name, &DeleteParams::default()).await;
                    match deleted {
                        Ok(_) => {}
                        Err(error) if is_code(&error, 404) => {}
                        Err(error) => return Err(failure(error)),
                    }
                }
                Ok(Progress::Done(found))
            }
        }
    }

    async fn patch<K>(&self, name: &str, patch: &Value) -> Result<(), BackendError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let params =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.api::<K>().patch(name, &params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(failure)
    }

    /// Whether somebody should have begun with an object by now.
    fn is_late(&self, object: &impl Resource) -> bool {
        let made = object.meta().creation_timestamp.as_ref().map_or(self.started, |it| it.0);
        self.is_past(made)
    }

    /// Whether somebody should have begun by now with what was asked for then.
    fn is_past(&self, asked: jiff::Timestamp) -> bool {
        jiff::Timestamp::now().duration_since(asked.max(self.started)).as_secs() >= BEGIN_SECONDS
    }

    /// Whether the copies of a volume should be restoring by now, and none is.
    async fn is_left(&self, volume: &Volume) -> Result<bool, BackendError> {
        if !told_to_restore(volume, self.started).is_some_and(|it| self.is_past(it)) {
            return Ok(false);
        }
        let engines = self.api::<Engine>().list(&ListParams::default()).await.map_err(failure)?;
        Ok(!is_begun(&engines.items, &volume.name_any()))
    }

    async fn engine(&self, volume: &str) -> Result<Option<Engine>, BackendError> {
        let selector = ListParams::default().labels(&format!("longhornvolume={volume}"));
        let found = self.api::<Engine>().list(&selector).await.map_err(failure)?;
        Ok(found.items.into_iter().next())
    }

    async fn create_volume(&self, order: &VolumeOrder) -> Result<(), BackendError> {
        let name = volume_name(&order.name);
        let replicas = order.specs.get(REPLICAS_SPEC).and_then(|it| it.parse::<i32>().ok());
        let target = self.target().await?;
        let mut spec = json!({
            "backupTargetName": target,
            "size": (order.gib.saturating_mul(GIB)).to_string(),
            "frontend": "blockdev",
            "numberOfReplicas": replicas.filter(|it| (1..=20).contains(it)).unwrap_or(self.replicas),
            "dataEngine": "v1",
            "accessMode": "rwo",
            "replicaSoftAntiAffinity": "enabled",
            "replicaDiskSoftAntiAffinity": "enabled",
        });
        let source = match &order.origin {
            Origin::Empty => None,
            Origin::Backup { handle } => {
                put(&mut spec, "fromBackup", json!(handle));
                let found = self.backup_of(handle).await?;
                put_size(&mut spec, found.and_then(|it| it.status?.volume_size?.parse().ok()));
                None
            }
            Origin::Volume { volume } => Some((format!("vol://{}", volume_name(volume)), volume)),
            Origin::Snapshot { volume, snapshot } => Some((
                format!("snap://{}/{}", volume_name(volume), snapshot_name(snapshot)),
                volume,
            )),
        };
        if let Some((url, volume)) = source {
            // A clone has the size of its source, and grows afterwards.
            let source = self.find::<Volume>(&volume_name(volume)).await?;
            let source = source.ok_or_else(|| {
                BackendError::Refused("the source of the volume is gone".to_owned())
            })?;
            put(&mut spec, "dataSource", json!(url));
            let size = match &order.origin {
                Origin::Snapshot { snapshot, .. } => {
                    let found = self.find::<Snapshot>(&snapshot_name(snapshot)).await?;
                    found.and_then(|it| it.status?.restore_size)
                }
                _ => None,
            };
            put_size(&mut spec, size.or(source.spec.size.map(|it| it.0)));
        }
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.make::<Volume>(object).await
    }

    /// The backup that is stored at an address.
    async fn backup_of(&self, url: &str) -> Result<Option<Backup>, BackendError> {
        let backups = self.api::<Backup>().list(&ListParams::default()).await.map_err(failure)?;
        let is_it =
            |it: &Backup| it.status.as_ref().is_some_and(|it| it.url.as_deref() == Some(url));
        Ok(backups.items.into_iter().find(is_it))
    }

    /// Where a volume is to be attached: where it is, else on the node of the client, else anywhere.
    async fn node_for(&self, volume: &Volume, host: Option<&str>) -> Result<String, BackendError> {
        let current = volume.status.as_ref().and_then(|it| it.current_node_id.clone());
        if let Some(node) = current.filter(|it| !it.is_empty()) {
            return Ok(node);
        }
        let nodes = self.api::<Node>().list(&ListParams::default()).await.map_err(failure)?;
        let is_ready = |node: &Node| {
            node.status.as_ref().is_none_or(|status| {
                let conditions = status.conditions.as_deref().unwrap_or_default();
                conditions.iter().all(|it| {
                    let said = serde_json::to_value(it).unwrap_or_default();
                    said.get("type") != Some(&json!("Ready"))
                        || said.get("status") == Some(&json!("True"))
                })
            })
        };
        let ready: Vec<String> =
            nodes.items.iter().filter(|it| is_ready(it)).map(ResourceExt::name_any).collect();
        let own = ready.iter().find(|it| Some(it.as_str()) == host);
        own.or(ready.first())
            .cloned()
            .ok_or_else(|| BackendError::Unreachable("no node is ready".to_owned()))
    }
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

fn put_size(spec: &mut Value, size: Option<i64>) {
    if let Some(size) = size {
        put(spec, "size", json!(size.to_string()));
    }
}

/// Whether there is room for a volume: what its controllers say, and a rejection only when they have
/// been saying it for a while.
fn scheduled(volume: &Volume) -> Progress<()> {
    let conditions = volume.status.as_ref().and_then(|it| it.conditions.as_deref());
    let said = conditions.unwrap_or_default().iter().find_map(|it| {
        let said = serde_json::to_value(it).ok()?;
        (said.get("type")? == "Scheduled").then_some(said)
    });
    let Some(said) = said else { return Progress::Running };
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("status") == "True" {
        return Progress::Done(());
    }
    let since = text("lastTransitionTime").parse::<jiff::Timestamp>();
    let seconds = since.map_or(0, |it| jiff::Timestamp::now().duration_since(it).as_secs());
    if seconds < SCHEDULING_SECONDS {
        return Progress::Running;
    }
    Progress::Failed(format!("no room for the volume: {}", text("message")))
}

/// Whether a backup can be restored: one that is being made or removed cannot.
fn is_kept(backup: &Backup) -> bool {
    let state = backup.status.as_ref().and_then(|it| it.state.as_ref());
    backup.metadata.deletion_timestamp.is_none() && state == Some(&BackupState::Completed)
}

/// Whether a store's record is of the volume that a backup is of, in the same store.
fn is_source(source: &BackupVolume, backup: &Backup) -> bool {
    let status = backup.status.clone().unwrap_or_default();
    let said = |it: Option<String>, label: &str| {
        it.filter(|it| !it.is_empty()).or_else(|| backup.labels().get(label).cloned())
    };
    let volume = said(status.volume_name, "backup-volume");
    let target = said(status.backup_target_name, "backup-target");
    volume.is_some()
        && source.spec.volume_name == volume
        && (target.is_none() || source.spec.backup_target_name == target)
}

/// How large a volume is that a backup is restored to, if both it and its source were read.
fn room(backup: &Backup, source: Option<&BackupVolume>) -> Option<i64> {
    let now: i64 = source?.status.as_ref()?.size.as_ref()?.parse().ok()?;
    Some(size(backup)?.max(in_gib(now)))
}

fn size(backup: &Backup) -> Option<i64> {
    Some(in_gib(backup.status.as_ref()?.volume_size.as_ref()?.parse().ok()?))
}

const fn in_gib(bytes: i64) -> i64 {
    bytes.saturating_add(GIB - 1) / GIB
}

/// Why a volume cannot come to hold the backup it is made from, if that is known.
fn hopeless(volume: &Volume, order: &VolumeOrder) -> Option<String> {
    let size = in_gib(volume.spec.size.map_or(0, |it| it.0));
    (size > order.gib).then(|| too_small(size))
}

fn restore_condition(volume: &Volume) -> Option<&Condition> {
    let all = volume.status.as_ref()?.conditions.as_deref()?;
    all.iter().find(|it| it.kind == "Restore")
}

/// Since when the copies of a volume are to restore.
fn told_to_restore(volume: &Volume, untold: jiff::Timestamp) -> Option<jiff::Timestamp> {
    let said = restore_condition(volume)?;
    let is_told = said.reason.as_deref() == Some("RestoreInProgress");
    is_told.then(|| said.last_transition_time.as_ref().and_then(Stamp::get).unwrap_or(untold))
}

/// Whether a copy of a volume restores or has restored, or waits while others have their turn.
fn is_begun(engines: &[Engine], volume: &str) -> bool {
    engines.iter().any(|engine| {
        let is_its = engine.labels().get("longhornvolume").is_some_and(|it| it == volume);
        let copies = engine.status.iter().flat_map(|it| it.restore_status.iter().flatten());
        copies.into_iter().any(|(_, it)| {
            let holds = it.last_restored.as_deref().is_some_and(|it| !it.is_empty());
            it.is_restoring == Some(true) || (is_its && holds)
        })
    })
}

/// Why a restore will come to nothing, whether or not there is room for it.
fn restore_failure(volume: &Volume, is_late: bool) -> Option<String> {
    let said = restore_condition(volume);
    let why = said.and_then(|it| it.message.clone()).unwrap_or_default();
    if said.is_some_and(|it| it.reason.as_deref() == Some("RestoreFailure")) {
        return Some(why);
    }
    let is_begun = volume.status.as_ref().is_some_and(|it| it.restore_initiated == Some(true));
    (is_late && !is_begun).then(|| format!("the restore was not begun: {why}"))
}

/// How far a volume is from holding what it was made from.
fn readiness(volume: &Volume, origin: &Origin, is_late: bool) -> Progress<()> {
    let Some(status) = &volume.status else { return Progress::Running };
    if let Origin::Backup { .. } = origin
        && let Some(why) = restore_failure(volume, is_late)
    {
        return Progress::Failed(why);
    }
    match scheduled(volume) {
        Progress::Done(()) => {}
        other => return other,
    }
    if status.robustness == Some(Robustness::Faulted) {
        return Progress::Failed("the volume has no usable copy".to_owned());
    }
    let state = status.state.clone().unwrap_or(VolumeState::Unset);
    let is_settled = matches!(state, VolumeState::Detached | VolumeState::Attached);
    match origin {
        Origin::Empty if is_settled => Progress::Done(()),
        Origin::Backup { .. } => {
            let restored =
                status.restore_initiated == Some(true) && status.restore_required != Some(true);
            if restored && is_settled { Progress::Done(()) } else { Progress::Running }
        }
        Origin::Volume { .. } | Origin::Snapshot { .. } => {
            let copy = status.clone_status.clone().unwrap_or_default();
            match copy.state {
                Some(CloneState::Completed) if is_settled => Progress::Done(()),
                // With a time for the next try it is not over.
                Some(CloneState::Failed) if copy.next_allowed_attempt_at.is_none() => {
                    let all = status.conditions.as_deref().unwrap_or_default();
                    let why = all.iter().find(|it| it.kind == "Clone");
                    let why = why.and_then(|it| it.message.clone()).unwrap_or_default();
                    Progress::Failed(format!("the copy failed: {why}"))
                }
                None | Some(CloneState::Unset) if is_late => {
                    Progress::Failed("nobody here copies volumes".to_owned())
                }
                _ => Progress::Running,
            }
        }
        Origin::Empty => Progress::Running,
    }
}

#[async_trait]
impl Backend for Resources {
    async fn ensure_volume(&self, order: &VolumeOrder) -> Result<Progress<()>, BackendError> {
        let name = volume_name(&order.name);
        let Some(volume) = self.find::<Volume>(&name).await? else {
            self.create_volume(order).await?;
            return Ok(Progress::Running);
        };
        if volume.meta().deletion_timestamp.is_some() {
            return Ok(Progress::Failed("the volume was deleted by somebody else".to_owned()));
        }
        if let Origin::Backup { .. } = &order.origin
            && let Some(why) = hopeless(&volume, order)
        {
            return Ok(Progress::Failed(why));
        }
        if matches!(order.origin, Origin::Backup { .. }) && self.is_left(&volume).await? {
            return Ok(Progress::Failed(NOT_RESTORED.to_owned()));
        }
        match readiness(&volume, &order.origin, self.is_late(&volume)) {
            Progress::Done(()) => self.extend_volume(&order.name, order.gib).await,
            other => Ok(other),
        }
    }

    async fn remove_volume(&self, name: &str) -> Result<Progress<()>, BackendError> {
        Ok(match self.remove::<Volume>(&volume_name(name)).await? {
            Progress::Failed(_) => Progress::Done(()),
            _ => Progress::Running,
        })
    }

    async fn extend_volume(&self, name: &str, gib: i64) -> Result<Progress<()>, BackendError> {
        let name = volume_name(name);
        let Some(volume) = self.find::<Volume>(&name).await? else {
            return Ok(Progress::Failed("the volume is gone".to_owned()));
        };
        let wanted = gib.saturating_mul(GIB);
        if volume.spec.size.is_none_or(|it| it.0 < wanted) {
            let patch = json!({"spec": {"size": wanted.to_string()}});
            self.patch::<Volume>(&name, &patch).await?;
            return Ok(Progress::Running);
        }
        let status = volume.status.unwrap_or_default();
        if status.expansion_required == Some(true) {
            let engine = self.engine(&name).await?.and_then(|it| it.status);
            let said = engine.and_then(|it| it.last_expansion_error).filter(|it| !it.is_empty());
            return Ok(said.map_or(Progress::Running, Progress::Failed));
        }
        let engine = self.engine(&name).await?.and_then(|it| it.status);
        let current = engine.and_then(|it| it.current_size).map_or(0, |it| it.0);
        // An engine that never ran has no size yet: it starts with the new one.
        Ok(if current == 0 || current >= wanted { Progress::Done(()) } else { Progress::Running })
    }

    async fn ensure_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<Progress<Taken>, BackendError> {
        let (volume, name) = (volume_name(volume), snapshot_name(name));
        let Some(snapshot) = self.find::<Snapshot>(&name).await? else {
            if self.find::<Volume>(&volume).await?.is_none() {
                return Ok(Progress::Failed("the volume is gone".to_owned()));
            }
            let object = json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "Snapshot",
                "metadata": {
                    "name": name, "namespace": NAMESPACE, "labels": {"longhornvolume": volume},
                },
                "spec": {"volume": volume, "createSnapshot": true},
            });
            self.make::<Snapshot>(object).await?;
            return Ok(Progress::Running);
        };
        let status = snapshot.status.unwrap_or_default();
        if status.ready_to_use == Some(true) {
            let taken = status.creation_time.map(|it| serde_json::to_value(it).unwrap_or_default());
            let taken = taken.and_then(|it| it.as_str()?.parse().ok());
            let bytes = status.restore_size.filter(|it| *it > 0);
            return Ok(Progress::Done(Taken {
                at: taken.unwrap_or_else(jiff::Timestamp::now),
                gib: bytes.map(|it| it.saturating_add(GIB - 1) / GIB),
            }));
        }
        let said = status.error.filter(|it| !it.is_empty());
        Ok(match said {
            // Errors are about the attempt; only a snapshot that was there once can be lost.
            Some(said) if status.creation_time.is_some() => Progress::Failed(said),
            _ => Progress::Running,
        })
    }

    async fn ask_revert(&self, volume: &str, snapshot: &str) -> Result<(), BackendError> {
        let patch = json!({"metadata": {"annotations": {REVERT: snapshot_name(snapshot)}}});
        self.patch::<Volume>(&volume_name(volume), &patch).await
    }

    async fn find_revert(
        &self,
        volume: &str,
        snapshot: &str,
    ) -> Result<Progress<()>, BackendError> {
        let Some(found) = self.find::<Volume>(&volume_name(volume)).await? else {
            return Ok(Progress::Failed("the volume is gone".to_owned()));
        };
        Ok(reverted(&found, &snapshot_name(snapshot)))
    }

    async fn cancel_revert(&self, volume: &str) -> Result<(), BackendError> {
        let name = volume_name(volume);
        let found = self.find::<Volume>(&name).await?;
        if found.is_none_or(|it| !it.annotations().contains_key(REVERT)) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {REVERT: null}}});
        self.patch::<Volume>(&name, &patch).await
    }

    async fn remove_snapshot(
        &self,
        _volume: &str,
        name: &str,
    ) -> Result<Progress<()>, BackendError> {
        Ok(match self.remove::<Snapshot>(&snapshot_name(name)).await? {
            Progress::Failed(_) => Progress::Done(()),
            Progress::Done(found) if found.meta().deletion_timestamp.is_some() => {
                // The newest cannot be merged while the volume is written to: marked is as good.
                let marked = found.status.and_then(|it| it.mark_removed) == Some(true);
                if marked { Progress::Done(()) } else { Progress::Running }
            }
            _ => Progress::Running,
        })
    }

    async fn start_backup(&self, order: &BackupOrder) -> Result<(), BackendError> {
        let volume = volume_name(&order.volume);
        let found = self.find::<Volume>(&volume).await?;
        let target = found.and_then(|it| it.spec.backup_target_name);
        let target =
            target.filter(|it| !it.is_empty()).unwrap_or_else(|| DEFAULT_TARGET.to_owned());
        let mode = if order.incremental { "incremental" } else { "full" };
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Backup",
            "metadata": {
                "name": backup_name(&order.name), "namespace": NAMESPACE,
                "labels": {"backup-volume": volume, "backup-target": target},
            },
            "spec": {"snapshotName": snapshot_name(&order.snapshot), "backupMode": mode},
        });
        self.make::<Backup>(object).await
    }

    async fn find_backup(&self, name: &str) -> Result<Option<Progress<Saved>>, BackendError> {
        let found = self.find::<Backup>(&backup_name(name)).await?;
        Ok(found.map(|it| saved(&it, self.is_late(&it))))
    }

    async fn find_stored(&self, handle: &str) -> Result<Option<Stored>, BackendError> {
        let Some(backup) = self.backup_of(handle).await?.filter(is_kept) else { return Ok(None) };
        let all = match self.api::<BackupVolume>().list(&ListParams::default()).await {
            Ok(all) => all.items,
            // Who may not read them goes by the backup; the volume is compared when it is made.
            Err(error) if is_code(&error, 403) => return Ok(Some(Stored { gib: size(&backup) })),
            Err(error) => return Err(failure(error)),
        };
        let source = all.iter().find(|it| is_source(it, &backup));
        Ok(Some(Stored { gib: room(&backup, source) }))
    }

    async fn remove_backup(
        &self,
        name: &str,
        handle: Option<&str>,
    ) -> Result<Progress<()>, BackendError> {
        let own = self.remove::<Backup>(&backup_name(name)).await?;
        if let Progress::Done(found) = own {
            return Ok(removal(&found));
        }
        let Some(handle) = handle else { return Ok(Progress::Done(())) };
        // One whose record was imported has the name of where it was made.
        match self.backup_of(handle).await? {
            None => Ok(Progress::Done(())),
            Some(found) => {
                self.remove::<Backup>(&found.name_any()).await?;
                Ok(removal(&found))
            }
        }
    }

    async fn connect(
        &self,
        volume: &str,
        attachment: &str,
        connector: &Value,
    ) -> Result<Progress<Value>, BackendError> {
        let name = volume_name(volume);
        let Some(found) = self.find::<Volume>(&name).await? else {
            return Ok(Progress::Failed("the volume is gone".to_owned()));
        };
        let ticket = format!("{TICKET}{attachment}");
        let Some(wishes) = self.find::<VolumeAttachment>(&name).await? else {
            return Ok(Progress::Running);
        };
        let tickets = wishes.spec.attachment_tickets.unwrap_or_default();
        if !tickets.contains_key(&ticket) {
            let host = connector.get("host").and_then(Value::as_str);
            let node = self.node_for(&found, host).await?;
            let patch = json!({"spec": {"attachmentTickets": {&ticket: {
                "id": ticket, "type": "longhorn-api", "nodeID": node,
                "parameters": {"disableFrontend": "false", "lastAttachedBy": "block-storage"},
            }}}});
            self.patch::<VolumeAttachment>(&name, &patch).await?;
            return Ok(Progress::Running);
        }
        let is_attached =
            found.status.as_ref().is_some_and(|it| it.state == Some(VolumeState::Attached));
        let engine = if is_attached { self.engine(&name).await? } else { None };
        let endpoint = engine.and_then(|it| it.status?.endpoint).filter(|it| it.starts_with("nbd"));
        Ok(endpoint.map_or(Progress::Running, |uri| {
            Progress::Done(connection(&uri, self.authority.as_deref()))
        }))
    }

    async fn disconnect(
        &self,
        volume: &str,
        attachment: &str,
    ) -> Result<Progress<()>, BackendError> {
        let name = volume_name(volume);
        let ticket = format!("{TICKET}{attachment}");
        let Some(wishes) = self.find::<VolumeAttachment>(&name).await? else {
            return Ok(Progress::Done(()));
        };
        let tickets = wishes.spec.attachment_tickets.unwrap_or_default();
        if tickets.contains_key(&ticket) {
            let patch = json!({"spec": {"attachmentTickets": {ticket: null}}});
            self.patch::<VolumeAttachment>(&name, &patch).await?;
            return Ok(Progress::Running);
        }
        let others = tickets.keys().any(|it| it.starts_with(TICKET));
        let found = if others { None } else { self.find::<Volume>(&name).await? };
        let state = found.and_then(|it| it.status?.state);
        // Sessions end with the engine.
        let is_down = matches!(state, None | Some(VolumeState::Detached | VolumeState::Creating));
        Ok(if is_down { Progress::Done(()) } else { Progress::Running })
    }

    async fn connections(&self, volume: &str) -> Result<Vec<String>, BackendError> {
        let wishes = self.find::<VolumeAttachment>(&volume_name(volume)).await?;
        let tickets = wishes.and_then(|it| it.spec.attachment_tickets).unwrap_or_default();
        Ok(tickets.keys().filter_map(|it| it.strip_prefix(TICKET)).map(str::to_owned).collect())
    }

    async fn capacity(&self) -> Result<Capacity, BackendError> {
        let nodes = self.api::<Node>().list(&ListParams::default()).await.map_err(failure)?;
        let (mut total, mut free) = (0_i64, 0_i64);
        for node in nodes.items {
            let said = serde_json::to_value(node.status).unwrap_or_default();
            let disks = said.get("diskStatus").and_then(Value::as_object);
            for disk in disks.into_iter().flat_map(|it| it.values()) {
                let bytes = |key: &str| disk.get(key).and_then(Value::as_i64).unwrap_or_default();
                total = total.saturating_add(bytes("storageMaximum"));
                free = free.saturating_add(bytes("storageAvailable"));
            }
        }
        Ok(Capacity { total_gib: Some(total / GIB), free_gib: Some(free / GIB) })
    }
}

/// How a revert went: its annotation goes at its end, and a condition tells how it was.
fn reverted(volume: &Volume, snapshot: &str) -> Progress<()> {
    if volume.annotations().contains_key(REVERT) {
        return Progress::Running;
    }
    let status = volume.status.clone().unwrap_or_default();
    let said = status.conditions.unwrap_or_default().into_iter().find(|it| it.kind == "Revert");
    let Some(said) = said else { return Progress::Running };
    let why = said.message.unwrap_or_default();
    match said.reason.as_deref() {
        Some("Reverted") if why.contains(snapshot) => Progress::Done(()),
        Some("RevertFailure") => Progress::Failed(why),
        // What is told is about another one: its end is not written yet.
        _ => Progress::Running,
    }
}

/// How far a backup is.
fn saved(backup: &Backup, is_late: bool) -> Progress<Saved> {
    let status = backup.status.clone().unwrap_or_default();
    match status.state.unwrap_or(BackupState::New) {
        BackupState::Completed => {
            let size = status.size.as_deref().and_then(|it| it.parse::<i64>().ok());
            match status.url.filter(|it| !it.is_empty()) {
                None => Progress::Running,
                Some(handle) => Progress::Done(Saved {
                    handle,
                    container: status.backup_target_name,
                    objects: size.unwrap_or_default().saturating_add(BLOCK - 1) / BLOCK,
                }),
            }
        }
        BackupState::Error | BackupState::Unknown => {
            let said = status.error.filter(|it| !it.is_empty());
            let said = said.or_else(|| status.messages.and_then(|it| it.get("error").cloned()));
            Progress::Failed(said.unwrap_or_else(|| "the backup failed".to_owned()))
        }
        BackupState::New | BackupState::Pending if is_late => {
            let said = status.messages.and_then(|it| it.into_values().next()).unwrap_or_default();
            Progress::Failed(format!("the backup was not begun. {said}"))
        }
        BackupState::New
        | BackupState::Pending
        | BackupState::InProgress
        | BackupState::Deleting
        | BackupState::Other(_) => Progress::Running,
    }
}

/// How the removal of a backup goes, while there is something of it.
fn removal(backup: &Backup) -> Progress<()> {
    let Some(status) = &backup.status else { return Progress::Running };
    let failures = status.deletion.as_ref().and_then(|it| it.failures).unwrap_or_default();
    if failures < DELETION_FAILURES {
        return Progress::Running;
    }
    let said = status.error.clone().filter(|it| !it.is_empty());
    Progress::Failed(said.unwrap_or_else(|| "the stored backup cannot be removed".to_owned()))
}

/// What a client needs to use a volume: one NBD URI, and its parts for those who do not read URIs.
/// Inside TLS, also who signed the certificate.
fn connection(uri: &str, authority: Option<&str>) -> Value {
    let mut data = json!({
        "driver_volume_type": "nbd", "uri": uri, "encrypted": false, "qos_specs": null,
        "discard": true,
    });
    if let Ok(parsed) = url::Url::parse(uri) {
        put(&mut data, "host", json!(parsed.host_str()));
        put(&mut data, "port", json!(parsed.port().unwrap_or(10809)));
        put(&mut data, "export", json!(parsed.path().trim_start_matches('/')));
        if parsed.scheme().starts_with("nbds") {
            put(&mut data, "tls", json!({"required": true, "ca_certificate": authority}));
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_inside_tls_is_told_whom_to_trust() {
        let plain = connection("nbd://192.0.2.1:10810/v1", Some("PEM"));
        assert_eq!(
            (&plain["host"], &plain["port"], &plain["export"]),
            (&json!("192.0.2.1"), &json!(10810), &json!("v1"))
        );
        assert!(plain.get("tls").is_none());
        let inside = connection("nbds://192.0.2.1/v1", Some("PEM"));
        assert_eq!(inside["port"], json!(10809));
        assert_eq!(inside["tls"], json!({"required": true, "ca_certificate": "PEM"}));
    }

    fn backup(status: &Value) -> Backup {
        serde_json::from_value(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Backup",
            "metadata": {"name": "b"}, "spec": {}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_backup_that_is_never_begun_fails() {
        let waits =
            backup(&json!({"state": "Pending", "messages": {"info": "the target is away"}}));
        assert_eq!(saved(&waits, false), Progress::Running);
        let said = "the backup was not begun. the target is away".to_owned();
        assert_eq!(saved(&waits, true), Progress::Failed(said));
        // One that runs may take its time.
        assert_eq!(saved(&backup(&json!({"state": "InProgress"})), true), Progress::Running);
    }

    #[test]
    fn a_removal_that_keeps_failing_is_told() {
        let of = |status: Value| removal(&backup(&status));
        assert_eq!(of(json!({"deletion": {"failures": 1}, "error": "busy"})), Progress::Running);
        let failed = Progress::Failed("read-only".to_owned());
        assert_eq!(of(json!({"deletion": {"failures": 3}, "error": "read-only"})), failed);
    }

    #[test]
    fn a_revert_is_told_by_the_condition_of_that_snapshot() {
        let of = |asked: &Value, reason: &str, message: &str| {
            let volume: Volume = serde_json::from_value(json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
                "metadata": {"name": "v", "annotations": asked}, "spec": {},
                "status": {"conditions": [{"type": "Revert", "status": "False", "reason": reason,
                    "message": message}]},
            }))
            .unwrap();
            reverted(&volume, "snapshot-1")
        };
        let done = "volume v is reverted to snapshot snapshot-1";
        assert_eq!(of(&json!({}), "Reverted", done), Progress::Done(()));
        assert_eq!(of(&json!({REVERT: "snapshot-1"}), "Reverted", done), Progress::Running);
        assert_eq!(of(&json!({}), "Reverted", "to snapshot snapshot-2"), Progress::Running);
        assert_eq!(of(&json!({}), "RevertPending", "in use"), Progress::Running);
        let gone = Progress::Failed("no snapshot".to_owned());
        assert_eq!(of(&json!({}), "RevertFailure", "no snapshot"), gone);
    }

    fn restoring(spec: &Value, status: &Value) -> Volume {
        let object = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
            "metadata": {"name": "v"}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn of_backup() -> Origin {
        Origin::Backup { handle: "vfs:///b?backup=b&volume=v".to_owned() }
    }

    #[test]
    fn a_backup_that_is_not_complete_or_on_its_way_out_is_not_kept() {
        let mut there = backup(&json!({"state": "Completed"}));
        assert!(is_kept(&there));
        assert!(!is_kept(&backup(&json!({"state": "InProgress"}))));
        assert!(!is_kept(&backup(&json!({"state": "Deleting"}))));
        there.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!is_kept(&there));
    }

    #[test]
    fn a_backup_is_restored_to_the_size_that_its_source_has_in_that_store() {
        let of = |target: &str, bytes: i64| -> BackupVolume {
            serde_json::from_value(json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "BackupVolume",
                "metadata": {"name": "s"},
                "spec": {"backupTargetName": target, "volumeName": "v"},
                "status": {"size": bytes.to_string()},
            }))
            .unwrap()
        };
        let then = backup(&json!({"volumeName": "v", "backupTargetName": "default",
            "volumeSize": GIB.to_string()}));
        let (now, elsewhere) = (of("default", 40 * GIB), of("other", 50 * GIB));
        assert!(is_source(&now, &then) && !is_source(&elsewhere, &then));
        assert_eq!(room(&then, Some(&now)), Some(40));
        assert_eq!(room(&then, Some(&of("default", GIB + 1))), Some(2));
        assert_eq!(room(&then, None), None, "what the store says is not read yet");
    }

    #[test]
    fn a_volume_that_turns_out_larger_than_its_row_fails() {
        let order = |gib| VolumeOrder {
            name: "v".to_owned(),
            gib,
            origin: of_backup(),
            specs: std::collections::BTreeMap::new(),
        };
        let large = restoring(&json!({"size": (40 * GIB).to_string()}), &json!({}));
        assert_eq!(hopeless(&large, &order(1)), Some(too_small(40)));
        assert_eq!(hopeless(&large, &order(40)), None);
    }

    #[test]
    fn a_restore_that_nobody_begins_fails() {
        let said = "cannot get backup b: it does not exist";
        let waits = restoring(
            &json!({}),
            &json!({"state": "creating", "conditions": [{"type": "Restore", "status": "False",
                "reason": "RestorePending", "message": said}]}),
        );
        assert_eq!(readiness(&waits, &of_backup(), false), Progress::Running);
        let late = readiness(&waits, &of_backup(), true);
        assert_eq!(late, Progress::Failed(format!("the restore was not begun: {said}")));
        // One that runs may take its time.
        let runs = restoring(
            &json!({}),
            &json!({"state": "attached", "restoreInitiated": true, "restoreRequired": true}),
        );
        assert_eq!(readiness(&runs, &of_backup(), true), Progress::Running);
    }

    #[test]
    fn a_restore_that_every_copy_failed_at_is_told_at_once() {
        let failed = restoring(
            &json!({}),
            &json!({"restoreInitiated": true, "restoreRequired": true, "conditions": [
                {"type": "Restore", "status": "False", "reason": "RestoreFailure", "message": "a: gone"},
            ]}),
        );
        let said = Progress::Failed("a: gone".to_owned());
        assert_eq!(readiness(&failed, &of_backup(), false), said);
    }

    #[test]
    fn a_restore_that_was_asked_for_is_begun_by_a_copy() {
        let told = restoring(
            &json!({}),
            &json!({"conditions": [{"type": "Restore", "status": "True",
                "reason": "RestoreInProgress", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        );
        let (then, now) = ("2026-01-01T00:00:00Z".parse().ok(), jiff::Timestamp::now());
        assert_eq!(told_to_restore(&told, now), then);
        assert_eq!(told_to_restore(&restoring(&json!({}), &json!({})), now), None);
        let engine = |volume: &str, copy: Value| -> Engine {
            serde_json::from_value(json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "Engine",
                "metadata": {"name": "e", "labels": {"longhornvolume": volume}}, "spec": {},
                "status": {"restoreStatus": {"tcp://a": copy}},
            }))
            .unwrap()
        };
        let idle = json!({"isRestoring": false, "lastRestored": ""});
        assert!(!is_begun(&[], "v") && !is_begun(&[engine("v", idle)], "v"));
        let holds = json!({"isRestoring": false, "lastRestored": "b"});
        assert!(is_begun(&[engine("v", holds.clone())], "v"));
        assert!(!is_begun(&[engine("other", holds)], "v"));
        // Its turn comes after that of others.
        assert!(is_begun(&[engine("other", json!({"isRestoring": true}))], "v"));
    }

    #[test]
    fn a_copy_that_nobody_begins_fails() {
        let volume = restoring(
            &json!({}),
            &json!({"state": "detached", "conditions": [{"type": "Scheduled", "status": "True"}]}),
        );
        let origin = Origin::Volume { volume: "x".to_owned() };
        assert_eq!(readiness(&volume, &origin, false), Progress::Running);
        let late = readiness(&volume, &origin, true);
        assert!(matches!(late, Progress::Failed(_)), "{late:?}");
    }
}
