//! `PersistentVolumeClaims` on the embedded server, which has no provisioner and no binder of its own:
//! claims of classes of this driver get volumes, and lose them as their policy says. In a cluster the
//! cluster does that.

mod class;
mod decide;

use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Node, Setting, Volume, VolumeState};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use reconcile::{
    Context, Controller, EVENT_RIGHTS, Failure, Grant, Key, Loop, Next, Reconciler, Severity, Store,
};
use serde_json::json;

use self::decide::{ClaimSeen, ClaimStep, DRIVER, VolumeSeen, VolumeStep};
use crate::NAMESPACE;

/// Gives claims their volumes, beside the embedded server.
pub const CONTROLLER: Controller = Controller {
    name: "volumes-claims",
    grants: &[
        Grant {
            groups: &[""],
            resources: &["persistentvolumeclaims", "persistentvolumeclaims/status"],
            verbs: &["get", "list", "watch", "patch"],
        },
        Grant {
            groups: &[""],
            resources: &["persistentvolumes", "persistentvolumes/status"],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Grant {
            groups: &["storage.k8s.io"],
            resources: &["storageclasses"],
            verbs: &["get", "list", "watch", "create"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["volumes", "volumes/status"],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["nodes", "settings"],
            verbs: &["get", "list", "watch"],
        },
        EVENT_RIGHTS,
    ],
    acts_on: &[],
    run,
};

/// The class that is there from the start.
const CLASS: &str = "longhorn";
const REFUSED_AGAIN: Duration = Duration::from_mins(1);
/// Copies of a volume, where neither class nor setting say.
const COPIES: i64 = 3;

struct Binder {
    context: Context,
    claims: Store<PersistentVolumeClaim>,
    persistent: Store<PersistentVolume>,
    classes: Store<StorageClass>,
    volumes: Store<Volume>,
    nodes: Store<Node>,
    settings: Store<Setting>,
}

fn run(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(bind(context))
}

async fn bind(context: Context) {
    let binder = Arc::new(Binder {
        claims: Store::<PersistentVolumeClaim>::everywhere().start(&context),
        persistent: Store::<PersistentVolume>::everywhere().start(&context),
        classes: Store::<StorageClass>::everywhere().start(&context),
        volumes: Store::<Volume>::within(NAMESPACE).start(&context),
        nodes: Store::<Node>::within(NAMESPACE).start(&context),
        settings: Store::<Setting>::within(NAMESPACE).start(&context),
        context: context.clone(),
    });
    binder.classes.ready().await;
    if let Err(failure) = binder.first_class().await {
        tracing::warn!(error = %telemetry::Chain(&failure), "cannot make the storage class {CLASS}");
    }
    let of_claims = Loop::new("claims", &context)
        .on(&binder.claims)
        .on_related(&binder.persistent, |volume: &PersistentVolume| {
            claim_of(volume).into_iter().collect()
        })
        .on_related(&binder.volumes, |volume: &Volume| {
            let status = volume.status.as_ref().and_then(|it| it.kubernetes_status.as_ref());
            let name =
                status.and_then(|it| Some((it.namespace.as_deref()?, it.pvc_name.as_deref()?)));
            name.map(|(namespace, name)| Key::new(namespace, name)).into_iter().collect()
        })
        .needs(&binder.classes)
        .needs(&binder.nodes)
        .needs(&binder.settings)
        .resync(&binder.claims, REFUSED_AGAIN);
    let of_volumes = Loop::new("persistent-volumes", &context)
        .on(&binder.persistent)
        .on_related(&binder.claims, |claim: &PersistentVolumeClaim| {
            let name = claim.spec.as_ref().and_then(|it| it.volume_name.clone());
            name.or_else(|| decide::volume_name(claim))
                .map(|it| Key::new("", &it))
                .into_iter()
                .collect()
        })
        .map(&binder.volumes, |key, _, _| vec![Key::new("", &key.name)])
        .needs(&binder.claims);
    tokio::join!(
        of_claims.run(Arc::new(OfClaims(Arc::clone(&binder)))),
        of_volumes.run(Arc::new(OfVolumes(binder))),
    );
}

fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let kept = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(kept.namespace.as_deref()?, kept.name.as_deref()?))
}

struct OfClaims(Arc<Binder>);

impl Reconciler for OfClaims {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let all = &self.0;
        let Some(claim) = all.claims.get(key) else { return Ok(Next::WAIT) };
        let spec = claim.spec.clone().unwrap_or_default();
        let class = spec.storage_class_name.as_deref().filter(|it| !it.is_empty());
        let class = class.and_then(|name| all.classes.get(&Key::new("", name)));
        let named = spec.volume_name.filter(|it| !it.is_empty());
        let name = named.or_else(|| decide::volume_name(&claim));
        let volume = name.as_deref().and_then(|name| all.persistent.get(&Key::new("", name)));
        let status = claim.status.as_ref().and_then(|it| it.capacity.as_ref());
        let behind = volume.as_deref().and_then(|it| all.behind(it));
        let seen = ClaimSeen {
            claim: &claim,
            class: class.as_deref(),
            volume: volume.as_deref(),
            asked_bytes: class::asked_bytes(&claim),
            has_bytes: status.and_then(|it| it.get("storage")).and_then(|it| class::bytes(&it.0)),
            behind_bytes: behind.as_deref().and_then(whole_bytes),
        };
        match (decide::claim(&seen), class, volume, name) {
            (ClaimStep::Nothing, _, volume, _) => {
                if let Some((volume, behind)) = volume.zip(behind)
                    && decide::knows(&volume, &claim)
                    && let Some(next) = class::with_jobs_of(&behind, &claim)
                {
                    all.volumes.merge(&behind, &next).await?;
                }
                Ok(Next::WAIT)
            }
            (ClaimStep::Provision, Some(class), _, Some(name)) => {
                all.provision(&claim, &class, &name).await
            }
            (ClaimStep::Bind, _, Some(volume), _) => all.bind(&claim, &volume).await,
            (ClaimStep::Show, _, Some(volume), _) => all.show_bound(&claim, &volume).await,
            (ClaimStep::Grow, _, Some(volume), _) => all.grow(&claim, &volume).await,
            (ClaimStep::Lost, ..) => {
                let text =
                    "Bound claim has lost its PersistentVolume. Any data on the volume is lost!";
                all.context.events.say(claim.as_ref(), Severity::Warning, "ClaimLost", text);
                all.show(&claim, "Lost", None).await
            }
            (ClaimStep::Provision | ClaimStep::Bind | ClaimStep::Show | ClaimStep::Grow, ..) => {
                Ok(Next::WAIT)
            }
        }
    }
}

impl Binder {
    /// The class `longhorn`, unless somebody made one already.
    async fn first_class(&self) -> Result<(), Failure> {
        if self.classes.get(&Key::new("", CLASS)).is_some() {
            return Ok(());
        }
        let class = json!({
            "metadata": {
                "name": CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": DRIVER,
            "allowVolumeExpansion": true,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
            // As many copies as there are nodes, up to the setting: two on one machine are no safer.
            "parameters": {"staleReplicaTimeout": "30"},
        });
        let class: StorageClass = serde_json::from_value(class)
            .map_err(|error| Failure::other("describe the class", error))?;
        match self.classes.create(&class).await {
            Err(Failure::Conflict { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    fn copies(&self) -> i32 {
        let setting = self.settings.get(&Key::new(NAMESPACE, "default-replica-count"));
        let most = setting.as_deref().and_then(crate::setting::number).unwrap_or(COPIES);
        let nodes = i64::try_from(self.nodes.list().len()).unwrap_or(i64::MAX);
        i32::try_from(most.min(nodes).clamp(1, 20)).unwrap_or(1)
    }

    /// The volume, and the persistent volume that stands for it and is kept for the claim.
    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        name: &str,
    ) -> Result<Next, Failure> {
        let wanted = match class::volume(name, claim, class, self.copies()) {
            Ok(wanted) => wanted,
            Err(why) => return Ok(self.refuse(claim, class, &why.to_string())),
        };
        let source = match self.copied(claim) {
            Ok(source) => source,
            Err(why) => return Ok(self.refuse(claim, class, &why.to_string())),
        };
        let key = Key::new(NAMESPACE, name);
        if self.volumes.get(&key).is_none() {
            let mut wanted = wanted;
            wanted.spec.data_source = source.map(|volume| format!("vol://{volume}"));
            wanted.metadata.namespace = Some(NAMESPACE.to_owned());
            match self.volumes.create(&wanted).await {
                Ok(_) | Err(Failure::Conflict { .. }) => {}
                Err(failure) => {
                    if let Some(why) = failure.rejection().map(str::to_owned) {
                        return Ok(self.refuse(claim, class, &why));
                    }
                    return Err(failure);
                }
            }
        }
        let volume =
            persistent(name, claim, class, &size_of(self.volumes.get(&key).as_deref(), claim));
        match self.persistent.create(&volume).await {
            Ok(_) | Err(Failure::Conflict { .. }) => {}
            Err(failure) => return Err(failure),
        }
        let text = format!("Successfully provisioned volume {name}");
        self.context.events.say(claim, Severity::Normal, "ProvisioningSucceeded", &text);
        Ok(Next::after(Duration::ZERO))
    }

    /// The volume that the claim is to be a copy of.
    fn copied(&self, claim: &PersistentVolumeClaim) -> Result<Option<String>, class::Refused> {
        let Some(name) = class::copied(claim)? else { return Ok(None) };
        let not = |why| class::Refused::SourceNotReady(name.clone(), why);
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let source = self.claims.get(&Key::new(namespace, &name));
        let source = source.ok_or_else(|| not("does not exist"))?;
        let bound = decide::bound(&source, |it| self.persistent.get(&Key::new("", it)));
        let bound = bound.ok_or_else(|| not("is not bound yet"))?;
        let volume = self.behind(&bound).ok_or_else(|| not("has no volume of this driver"))?;
        Ok(Some(volume.name_any()))
    }

    fn refuse(&self, claim: &PersistentVolumeClaim, class: &StorageClass, why: &str) -> Next {
        let class = class.name_any();
        let text = format!("failed to provision volume with StorageClass {class:?}: {why}");
        self.context.events.say(claim, Severity::Warning, "ProvisioningFailed", &text);
        Next::after(REFUSED_AGAIN)
    }

    async fn bind(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<Next, Failure> {
        let mut kept = volume.clone();
        let spec = kept.spec.get_or_insert_default();
        spec.claim_ref = Some(reference(claim));
        kept.status.get_or_insert_default().phase = Some("Bound".to_owned());
        self.persistent.update(volume, &kept).await?;
        self.tell_volume(claim, volume).await?;
        let mut named = claim.clone();
        named.spec.get_or_insert_default().volume_name = Some(volume.name_any());
        let notes = named.metadata.annotations.get_or_insert_default();
        notes.insert("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned());
        notes.insert("pv.kubernetes.io/bound-by-controller".to_owned(), "yes".to_owned());
        notes.insert("volume.kubernetes.io/storage-provisioner".to_owned(), DRIVER.to_owned());
        let named = self.claims.update(claim, &named).await?;
        self.show_bound(&named, volume).await
    }

    /// The volume shows whose it is.
    async fn tell_volume(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), Failure> {
        let Some(found) = self.behind(volume) else { return Ok(()) };
        let mut next = found.as_ref().clone();
        let status = next.status.get_or_insert_default();
        let shown = status.kubernetes_status.get_or_insert_default();
        shown.pv_name = Some(volume.name_any());
        shown.pv_status = Some("Bound".to_owned());
        shown.namespace.clone_from(&claim.metadata.namespace);
        shown.pvc_name.clone_from(&claim.metadata.name);
        self.volumes.merge(&found, &next).await.map(drop)
    }

    fn behind(&self, volume: &PersistentVolume) -> Option<Arc<Volume>> {
        let handle = &volume.spec.as_ref()?.csi.as_ref()?.volume_handle;
        self.volumes.get(&Key::new(NAMESPACE, handle))
    }

    async fn show_bound(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<Next, Failure> {
        self.show(claim, "Bound", Some(volume)).await
    }

    async fn show(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<Next, Failure> {
        let mut next = claim.clone();
        let status = next.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        if let Some(spec) = volume.and_then(|it| it.spec.as_ref()) {
            status.access_modes.clone_from(&spec.access_modes);
            status.capacity.clone_from(&spec.capacity);
        }
        self.claims.update(claim, &next).await?;
        Ok(Next::WAIT)
    }

    /// The volume grows first; what stands for it says so when it has.
    async fn grow(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<Next, Failure> {
        let Some(found) = self.behind(volume) else { return Ok(Next::WAIT) };
        let Some(asked) = class::asked_bytes(claim) else { return Ok(Next::WAIT) };
        if found.spec.size.is_none_or(|size| size.0 < asked) {
            let mut next = found.as_ref().clone();
            next.spec.size = Some(asked.into());
            self.volumes.update(&found, &next).await?;
            return Ok(Next::WAIT);
        }
        if found.status.as_ref().is_some_and(|it| it.expansion_required == Some(true)) {
            return Ok(Next::WAIT);
        }
        let mut larger = volume.clone();
        let capacity = larger.spec.get_or_insert_default().capacity.get_or_insert_default();
        capacity.insert("storage".to_owned(), quantity(asked));
        let larger = self.persistent.update(volume, &larger).await?;
        self.show_bound(claim, &larger).await
    }
}

struct OfVolumes(Arc<Binder>);

impl Reconciler for OfVolumes {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let all = &self.0;
        let Some(volume) = all.persistent.get(key) else { return Ok(Next::WAIT) };
        let claim = claim_of(&volume);
        let found = claim.as_ref().and_then(|key| all.claims.get(key));
        let behind = all.behind(&volume);
        let seen = VolumeSeen {
            volume: &volume,
            claim: found.as_deref(),
            claim_unreadable: claim.as_ref().is_some_and(|key| all.claims.is_broken(key)),
            exists: behind.is_some(),
        };
        match decide::volume(&seen) {
            VolumeStep::Nothing => {}
            VolumeStep::Show(phase) => {
                let mut next = volume.as_ref().clone();
                next.status.get_or_insert_default().phase = Some(phase.to_owned());
                all.persistent.update(&volume, &next).await?;
            }
            VolumeStep::DeleteVolume => {
                if let Some(behind) = behind.filter(|it| it.metadata.deletion_timestamp.is_none()) {
                    all.volumes.delete(&behind).await?;
                }
            }
            VolumeStep::Delete => all.persistent.delete(&volume).await?,
        }
        Ok(Next::WAIT)
    }
}

/// Its size, if that is settled: one that comes from a backup is first as large as that.
fn whole_bytes(volume: &Volume) -> Option<i64> {
    let status = volume.status.as_ref()?;
    let is_whole = matches!(status.state, Some(VolumeState::Attached | VolumeState::Detached))
        && status.restore_required != Some(true)
        && status.is_standby != Some(true);
    volume.spec.size.filter(|_| is_whole).map(|size| size.0)
}

fn size_of(volume: Option<&Volume>, claim: &PersistentVolumeClaim) -> Quantity {
    let bytes = volume.and_then(|it| it.spec.size).map(|it| it.0);
    quantity(bytes.or_else(|| class::asked_bytes(claim)).unwrap_or_default())
}

fn quantity(bytes: i64) -> Quantity {
    let text = bytes.to_string();
    let shown = objects::quantity::Quantity::parse(&text).map(objects::quantity::Quantity::shown);
    Quantity(shown.unwrap_or(text))
}

fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: claim.metadata.name.clone(),
        namespace: claim.metadata.namespace.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn persistent(
    name: &str,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    size: &Quantity,
) -> PersistentVolume {
    let asked = claim.spec.clone().unwrap_or_default();
    let parameters = class.parameters.clone().unwrap_or_default();
    let source = CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: name.to_owned(),
        fs_type: Some(parameters.get("fsType").cloned().unwrap_or_else(|| "ext4".to_owned())),
        volume_attributes: class.parameters.clone(),
        ..CSIPersistentVolumeSource::default()
    };
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let spec = PersistentVolumeSpec {
        access_modes: asked.access_modes,
        capacity: Some([("storage".to_owned(), size.clone())].into()),
        claim_ref: Some(reference(claim)),
        csi: Some(source),
        persistent_volume_reclaim_policy: Some(policy),
        storage_class_name: class.metadata.name.clone(),
        volume_mode: asked.volume_mode,
        ..PersistentVolumeSpec::default()
    };
    let mut volume = PersistentVolume { spec: Some(spec), ..PersistentVolume::default() };
    volume.metadata.name = Some(name.to_owned());
    let by = ("pv.kubernetes.io/provisioned-by".to_owned(), DRIVER.to_owned());
    volume.metadata.annotations = Some([by].into());
    volume
}
