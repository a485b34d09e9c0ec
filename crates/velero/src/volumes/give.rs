//! The data of a claim, brought back: a volume from the backup, and a persistent volume that is kept
//! for the claim. The claim itself is made by whoever restores it, with the rights that that has.

use std::collections::BTreeMap;
use std::time::Duration;

use api::longhorn::{
    AccessMode, Backup as VolumeBackup, DataEngine, DataLocality, Frontend, Node, Setting, Volume,
    VolumeSpec,
};
use api::scalar::TextInt;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use objects::quantity::Quantity;
use serde_json::{Value, json};

use super::decide::{self, Stand};
use super::remove::remove_unclaimed;
use super::take::until;
use super::{DRIVER, NAMESPACE, OF_RESTORE_UID, Owners, Record, made, name, ours, text};
use crate::door::words;
use crate::names;
use crate::world::World;

/// Minutes, and copies, where nobody says.
const STALE_REPLICA_TIMEOUT: i32 = 2880;
const COPIES: i32 = 3;

/// Which data a claim wants back.
#[derive(Debug)]
pub(crate) struct Wanted<'w> {
    /// The Velero backup.
    pub(crate) backup: &'w str,
    /// The volume's backup, as the list of volumes says.
    pub(crate) handle: &'w str,
    /// The namespace the claim was in when it was backed up.
    pub(crate) from: &'w str,
    pub(crate) owners: &'w Owners,
    pub(crate) restore: &'w str,
    pub(crate) restore_uid: &'w str,
    /// The claim as it is to be made.
    pub(crate) claim: &'w Value,
    pub(crate) within: Duration,
}

/// The volume that holds the data.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) volume: String,
    /// How large it is.
    pub(crate) size: String,
}

impl Given {
    /// The claim with its volume. It asks for no less than it gets: quotas count what it asks for.
    pub(crate) fn bind(&self, claim: &mut Value) {
        let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.insert("volumeName".to_owned(), json!(self.volume));
        let asked = spec.get("resources").and_then(|it| text(it, "/requests/storage"));
        let is_enough = match (asked.and_then(Quantity::parse), Quantity::parse(&self.size)) {
            (Some(asked), Some(size)) => asked >= size,
            _ => false,
        };
        if !is_enough {
            let more = json!({"resources": {"requests": {"storage": shown(&self.size)}}});
            objects::patch::merge(claim.get_mut("spec").unwrap_or(&mut Value::Null), &more);
        }
    }

    /// Takes it back: the claim could not be made.
    pub(crate) async fn take_back(&self, world: &World) {
        if let Err(error) = remove_unclaimed(world, &self.volume).await {
            tracing::warn!(volume.name = self.volume, error = %words(&error), "a restored volume stays without a claim");
        }
    }
}

fn shown(bytes: &str) -> String {
    Quantity::parse(bytes).map_or_else(|| bytes.to_owned(), Quantity::shown)
}

/// The volume with the data, complete. Nothing is left behind where that does not come about.
pub(crate) async fn give(world: &World, wanted: &Wanted<'_>) -> Result<Given, String> {
    let api: Api<VolumeBackup> = ours(world);
    let found = api.get_opt(wanted.handle).await.map_err(|error| words(&error))?;
    let (url, size) = source(found.as_ref(), wanted)?;
    let own = format!(
        "{}/{}",
        text(wanted.claim, "/metadata/namespace").unwrap_or_default(),
        text(wanted.claim, "/metadata/name").unwrap_or_default()
    );
    let given = Given { volume: name("restored", &[wanted.restore_uid, &own]), size };
    let class = class(world, wanted.claim).await?;
    let done = make(world, wanted, &given, &url, class.as_ref(), found.as_ref()).await;
    if let Err(why) = done {
        given.take_back(world).await;
        return Err(why);
    }
    Ok(given)
}

/// Pure: URL and size of a backup that this restore may read.
fn source(found: Option<&VolumeBackup>, wanted: &Wanted<'_>) -> Result<(String, String), String> {
    let handle = wanted.handle;
    let lost = || {
        format!(
            "the volume's backup {handle} is in no backup target here; set up the target that \
             holds it, or restore with restorePVs: false"
        )
    };
    let found = found.ok_or_else(lost)?;
    let claim = text(wanted.claim, "/metadata/name").unwrap_or_default();
    // A foreign one looks like one that is not there.
    let record = Record::of(found).filter(|it| {
        it.is_of(wanted.backup, wanted.owners) && it.namespace == wanted.from && it.claim == claim
    });
    if record.is_none() {
        return Err(lost());
    }
    match decide::backup(Some(found)) {
        Stand::Done => {}
        Stand::Waits(why) | Stand::Failed(why) => {
            return Err(format!("the volume's backup {handle} cannot be restored: {why}"));
        }
    }
    let status = found.status.clone().unwrap_or_default();
    let set = |it: Option<String>| it.filter(|it| !it.is_empty());
    let (Some(url), Some(size)) = (set(status.url), set(status.volume_size)) else {
        return Err(format!("the volume's backup {handle} does not say where it lies"));
    };
    Ok((url, size))
}

/// The class of the claim, where it is one of ours.
async fn class(world: &World, claim: &Value) -> Result<Option<StorageClass>, String> {
    let Some(name) = text(claim, "/spec/storageClassName").filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let api: Api<StorageClass> = Api::all(world.context.client.clone());
    let found = api.get_opt(name).await.map_err(|error| words(&error))?;
    Ok(found.filter(|it| it.provisioner == DRIVER))
}

async fn make(
    world: &World,
    wanted: &Wanted<'_>,
    given: &Given,
    url: &str,
    class: Option<&StorageClass>,
    backup: Option<&VolumeBackup>,
) -> Result<(), String> {
    let parameters = class.and_then(|it| it.parameters.clone()).unwrap_or_default();
    let target = backup.and_then(|it| it.status.as_ref()?.backup_target_name.clone());
    let mut spec = spec(&parameters, wanted.claim, &given.size)?;
    spec.from_backup = Some(url.to_owned());
    spec.backup_target_name = target;
    if spec.number_of_replicas.is_none() {
        spec.number_of_replicas = Some(copies(world).await);
    }
    let mut volume = Volume::new(&given.volume, spec);
    volume.metadata.namespace = Some(NAMESPACE.to_owned());
    volume.labels_mut().extend(marks(wanted));
    let volumes: Api<Volume> = ours(world);
    made(volumes.create(&PostParams::default(), &volume).await)?;
    let api: Api<PersistentVolume> = Api::all(world.context.client.clone());
    let persistent = persistent(wanted, given, class)?;
    made(api.create(&PostParams::default(), &persistent).await)?;
    until(wanted.within, &volumes, &given.volume, decide::restored).await
}

fn marks(wanted: &Wanted<'_>) -> BTreeMap<String, String> {
    [
        (names::BACKUP_NAME, names::label_value(wanted.backup)),
        (names::RESTORE_NAME, names::label_value(wanted.restore)),
        (OF_RESTORE_UID, wanted.restore_uid.to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// As many copies as there are nodes, up to the setting.
async fn copies(world: &World) -> i32 {
    let settings: Api<Setting> = ours(world);
    let most = settings.get_opt("default-replica-count").await.ok().flatten();
    let most = most.map(|it| it.value).and_then(|it| it.parse().ok());
    let nodes: Api<Node> = ours(world);
    let nodes = nodes.list_metadata(&kube::api::ListParams::default()).await;
    let nodes = nodes.ok().and_then(|it| i32::try_from(it.items.len()).ok());
    most.unwrap_or(COPIES).min(nodes.unwrap_or(COPIES)).clamp(1, 20)
}

/// Pure: the volume as its class wants it. Its size is that of the backup.
fn spec(
    parameters: &BTreeMap<String, String>,
    claim: &Value,
    size: &str,
) -> Result<VolumeSpec, String> {
    let of = |key: &str| parameters.get(key).map(String::as_str).filter(|it| !it.is_empty());
    let number = |key: &str| match of(key).map(str::parse::<i32>) {
        Some(Err(_)) => Err(format!("parameter {key} of the class is not a number")),
        Some(Ok(number)) => Ok(Some(number)),
        None => Ok(None),
    };
    let tags = |key: &str| {
        let words = of(key).unwrap_or_default().split(',').map(str::trim);
        Some(words.filter(|it| !it.is_empty()).map(str::to_owned).collect())
    };
    let modes = claim.pointer("/spec/accessModes").and_then(Value::as_array);
    let has = |mode: &str| modes.into_iter().flatten().any(|it| it.as_str() == Some(mode));
    let access = if has("ReadWriteMany") || has("ReadOnlyMany") {
        AccessMode::ReadWriteMany
    } else if has("ReadWriteOncePod") {
        AccessMode::ReadWriteOncePod
    } else {
        AccessMode::ReadWriteOnce
    };
    let bytes: i64 = size.parse().map_err(|_| format!("{size:?} is no size of a volume"))?;
    Ok(VolumeSpec {
        size: Some(TextInt(bytes)),
        frontend: Some(Frontend::BlockDevice),
        access_mode: Some(access),
        data_engine: Some(DataEngine::V1),
        number_of_replicas: number("numberOfReplicas")?,
        stale_replica_timeout: Some(
            number("staleReplicaTimeout")?.unwrap_or(STALE_REPLICA_TIMEOUT),
        ),
        data_locality: of("dataLocality").map(DataLocality::from),
        disk_selector: tags("diskSelector"),
        node_selector: tags("nodeSelector"),
        encrypted: of("encrypted").map(|it| it == "true"),
        ..VolumeSpec::default()
    })
}

fn persistent(
    wanted: &Wanted<'_>,
    given: &Given,
    class: Option<&StorageClass>,
) -> Result<PersistentVolume, String> {
    let at = |path: &str| text(wanted.claim, path);
    let policy = class.and_then(|it| it.reclaim_policy.clone());
    let parameters = class.and_then(|it| it.parameters.clone()).unwrap_or_default();
    let made = json!({
        "metadata": {
            "name": given.volume, "labels": marks(wanted),
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
        },
        "spec": {
            "accessModes": wanted.claim.pointer("/spec/accessModes").cloned()
                .unwrap_or_else(|| json!(["ReadWriteOnce"])),
            "capacity": {"storage": shown(&given.size)},
            // Without an identity: it is kept for the claim that is about to be made.
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": at("/metadata/namespace"), "name": at("/metadata/name"),
            },
            "csi": {
                "driver": DRIVER, "volumeHandle": given.volume,
                "fsType": parameters.get("fsType").map_or("ext4", String::as_str),
                "volumeAttributes": parameters,
            },
            "persistentVolumeReclaimPolicy": policy.unwrap_or_else(|| "Delete".to_owned()),
            "storageClassName": at("/spec/storageClassName").unwrap_or_default(),
            "volumeMode": at("/spec/volumeMode").unwrap_or("Filesystem"),
        },
    });
    serde_json::from_value(made).map_err(|error| format!("the claim cannot be served: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted<'w>(claim: &'w Value, owners: &'w Owners) -> Wanted<'w> {
        Wanted {
            backup: "b",
            handle: "h",
            from: "t",
            owners,
            restore: "r",
            restore_uid: "ru",
            claim,
            within: Duration::ZERO,
        }
    }

    fn stored(namespace: &str, claim: &str, backup: &str) -> VolumeBackup {
        let record = Record {
            backup: backup.to_owned(),
            backup_uid: "u".to_owned(),
            namespace: namespace.to_owned(),
            claim: claim.to_owned(),
        };
        serde_json::from_value(json!({"spec": {"labels": record.labels()}, "status": {
            "state": "Completed", "url": "vfs:///x?backup=h", "volumeSize": "1048576"}}))
        .unwrap()
    }

    #[test]
    fn only_the_data_of_this_very_claim_is_given() {
        // In another namespace by a mapping: it is still the data of where it came from.
        let claim = json!({"metadata": {"name": "data", "namespace": "elsewhere"}});
        let owners = Owners::default();
        let wanted = wanted(&claim, &owners);
        assert!(source(Some(&stored("t", "data", "b")), &wanted).is_ok());
        let lost = source(None, &wanted).unwrap_err();
        for foreign in
            [stored("u", "data", "b"), stored("t", "other", "b"), stored("t", "data", "other")]
        {
            assert_eq!(source(Some(&foreign), &wanted).unwrap_err(), lost);
        }
        let mut unmarked = stored("t", "data", "b");
        unmarked.spec.labels = None;
        assert_eq!(source(Some(&unmarked), &wanted).unwrap_err(), lost);
    }

    #[test]
    fn a_claim_asks_for_no_less_than_it_gets() {
        let given = Given { volume: "v".to_owned(), size: (64_u64 << 20).to_string() };
        for (asked, wanted) in [("1Mi", "64Mi"), ("64Mi", "64Mi"), ("1Gi", "1Gi")] {
            let mut claim = json!({"spec": {"resources": {"requests": {"storage": asked}}}});
            given.bind(&mut claim);
            assert_eq!(claim["spec"]["resources"]["requests"]["storage"], wanted, "{asked}");
            assert_eq!(claim["spec"]["volumeName"], "v");
        }
        let mut bare = json!({"spec": {}});
        given.bind(&mut bare);
        assert_eq!(bare["spec"]["resources"]["requests"]["storage"], "64Mi");
    }

    #[test]
    fn a_class_says_how_the_volume_is() {
        let claim = json!({"spec": {"accessModes": ["ReadWriteMany"]}});
        let of = |pairs: &[(&str, &str)]| {
            let all = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            spec(&all.collect(), &claim, "2097152")
        };
        let made = of(&[("numberOfReplicas", "2"), ("diskSelector", "ssd, fast")]).unwrap();
        assert_eq!((made.number_of_replicas, made.size), (Some(2), Some(TextInt(2_097_152))));
        assert_eq!(made.disk_selector.unwrap(), ["ssd", "fast"]);
        assert_eq!(made.access_mode, Some(AccessMode::ReadWriteMany));
        assert!(of(&[("numberOfReplicas", "many")]).unwrap_err().contains("numberOfReplicas"));
        assert_eq!(of(&[]).unwrap().number_of_replicas, None);
    }
}
