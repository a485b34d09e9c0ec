//! The data of volumes: what of it a backup takes, how it comes back, and how it goes.
//!
//! Owns the one place where a backup of objects meets backups of volumes, which are resources of
//! `longhorn.io` in a namespace of their own. Whose a volume's backup is stands in its labels
//! ([`Record`]), which lie in the administrators' backup target: nothing that a tenant can write
//! (a claim, a tarball, a list of volumes in a bucket of its own) is believed about that.
//!
//! Start reading at [`take`], then [`give`].

mod decide;
mod give;
mod remove;
mod take;

use std::collections::BTreeMap;
use std::time::Duration;

use api::velero::{Backup, BackupStorageLocation, Restore};
use kube::Api;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) use self::decide::within;
pub(crate) use self::give::{Given, Wanted, give};
pub(crate) use self::remove::{abandon, delete, discard};
pub(crate) use self::take::{Taken, take};
use crate::door::words;
use crate::names;
use crate::world::{Opened, World};

/// Where volumes and their backups are.
const NAMESPACE: &str = "longhorn-system";
/// Who serves the volumes whose data can be taken.
const DRIVER: &str = "driver.longhorn.io";
const LOOK_EVERY: Duration = Duration::from_millis(500);

const OF_BACKUP: &str = "holdfast.io/velero-backup";
const OF_BACKUP_UID: &str = "holdfast.io/velero-backup-uid";
const OF_NAMESPACE: &str = "holdfast.io/claim-namespace";
const OF_CLAIM: &str = "holdfast.io/claim-name";
/// On volumes that a restore makes.
const OF_RESTORE_UID: &str = "holdfast.io/velero-restore-uid";

/// What a volume's backup was made for. Kept with it in the backup target, so that it is known in
/// another cluster as well.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    backup: String,
    backup_uid: String,
    namespace: String,
    claim: String,
}

impl Record {
    fn labels(&self) -> BTreeMap<String, String> {
        [
            (OF_BACKUP, &self.backup),
            (OF_BACKUP_UID, &self.backup_uid),
            (OF_NAMESPACE, &self.namespace),
            (OF_CLAIM, &self.claim),
        ]
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .into()
    }

    fn read(labels: Option<&BTreeMap<String, String>>) -> Option<Self> {
        let text = |key: &str| labels.and_then(|it| it.get(key)).cloned();
        Some(Self {
            backup: text(OF_BACKUP)?,
            backup_uid: text(OF_BACKUP_UID)?,
            namespace: text(OF_NAMESPACE)?,
            claim: text(OF_CLAIM)?,
        })
    }

    /// What it was asked to be, or, where it was found in a target, what that says.
    fn of(backup: &api::longhorn::Backup) -> Option<Self> {
        let stored = backup.status.as_ref().and_then(|it| it.labels.as_ref());
        Self::read(backup.spec.labels.as_ref()).or_else(|| Self::read(stored))
    }

    fn is_of(&self, backup: &str, owners: &Owners) -> bool {
        self.backup == backup && owners.allow(&self.namespace)
    }

    /// Whether the volume's backup `handle` is of this very backup, not of another of its name: other
    /// clusters may share the target. An object that was found in a store has lost its first
    /// identity; what is in the store beside it still names what it has.
    fn belongs(
        &self,
        handle: &str,
        (backup, uid): (&str, &str),
        stored: &Stored,
        owners: &Owners,
    ) -> bool {
        self.is_of(backup, owners) && (self.backup_uid == uid || stored.names(handle))
    }
}

/// The namespaces that all have to be that of a claim, for its data to be touched. Empty for what
/// administrators do among themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Owners(Vec<String>);

impl Owners {
    /// A location of a tenant speaks for that tenant only, whatever the objects in it say.
    pub(crate) fn of(
        backup: &Backup,
        location: &BackupStorageLocation,
        restore: Option<&Restore>,
    ) -> Self {
        let note = |notes: &Option<BTreeMap<String, String>>, key: &str| {
            notes.as_ref().and_then(|it| it.get(key)).cloned()
        };
        let of_restore =
            restore.and_then(|it| note(&it.metadata.annotations, names::TENANT_NAMESPACE));
        let of_location = note(&location.metadata.annotations, names::TENANT_LOCATION_NAMESPACE);
        let of_backup = note(&backup.metadata.annotations, names::TENANT_BACKUP_NAMESPACE);
        Self([of_restore, of_location, of_backup].into_iter().flatten().collect())
    }

    fn allow(&self, namespace: &str) -> bool {
        self.0.iter().all(|it| it == namespace)
    }
}

/// A name that is the same however often it is asked for.
fn name(prefix: &str, parts: &[&str]) -> String {
    let sum = Sha256::digest(parts.join("/").as_bytes());
    let sum = sum.iter().take(8).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    format!("{prefix}-{sum:016x}")
}

fn ours<K>(world: &World) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(world.context.client.clone(), NAMESPACE)
}

/// An object that is there already was made by an earlier try.
fn made<K>(done: Result<K, kube::Error>) -> Result<(), String> {
    match done {
        Ok(_) => Ok(()),
        Err(error) if crate::door::code(&error) == Some(409) => Ok(()),
        Err(error) => Err(words(&error)),
    }
}

/// One entry of a list of volumes, as far as it is used. The two names are always written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    pvc_name: String,
    pvc_namespace: String,
    #[serde(default)]
    pv_name: String,
    #[serde(default)]
    skipped: bool,
    #[serde(default)]
    result: String,
    native_snapshot_info: Option<NativeSnapshot>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NativeSnapshot {
    snapshot_handle: String,
    volume_type: String,
}

/// What a backup has of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data<'s> {
    /// The volume's backup of this name.
    In(&'s str),
    /// It was to be taken, and was not.
    Lost,
    /// Nobody wanted it, or it is not ours to bring back.
    None,
}

/// The volumes that a backup says it has data of. Nobody's rights follow from it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    volumes: Vec<Entry>,
}

impl Stored {
    /// Whether the data of this persistent volume is in the backup.
    pub(crate) fn has_volume(&self, name: &str) -> bool {
        self.with_data().any(|it| it.pv_name == name)
    }

    pub(crate) fn data(&self, namespace: &str, claim: &str) -> Data<'_> {
        let is_it = |it: &&Entry| it.pvc_namespace == namespace && it.pvc_name == claim;
        let Some(entry) = self.volumes.iter().find(is_it) else { return Data::None };
        let native = entry.native_snapshot_info.as_ref();
        match native {
            _ if entry.skipped => Data::None,
            // Others' snapshots are not ours to restore.
            Some(native) if native.volume_type != TYPE => Data::None,
            _ if entry.result == FAILED => Data::Lost,
            Some(native) => Data::In(&native.snapshot_handle),
            None => Data::None,
        }
    }

    /// Whether the volume's backup of this name is one of those that the list names.
    fn names(&self, handle: &str) -> bool {
        let native = self.with_data().filter_map(|it| it.native_snapshot_info.as_ref());
        native.filter(|it| it.volume_type == TYPE).any(|it| it.snapshot_handle == handle)
    }

    fn with_data(&self) -> impl Iterator<Item = &Entry> {
        self.volumes.iter().filter(|it| !it.skipped && it.result != FAILED)
    }
}

/// What kind of volume the list of volumes says it is.
const TYPE: &str = "longhorn";
/// What it says of data that could not be taken.
const FAILED: &str = "failed";

fn text<'v>(value: &'v Value, path: &str) -> Option<&'v str> {
    value.pointer(path).and_then(Value::as_str)
}

/// Why a list of volumes is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    /// It may be read another time.
    #[error("the list of volumes of the backup cannot be read: {0}")]
    Store(String),
    #[error("the list of volumes of the backup is damaged: {0}")]
    Damaged(String),
}

/// Reads the list of volumes; without one a backup has none.
pub(crate) async fn stored(
    opened: &Opened,
    location: &BackupStorageLocation,
    backup: &Backup,
) -> Result<Stored, Unknown> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let damaged =
        |error: &dyn std::error::Error| Unknown::Damaged(telemetry::Chain(error).to_string());
    let key = crate::layout::BackupFile::VolumeInfo.key(name).map_err(|error| damaged(&error))?;
    let (packed, unpacked) = limits(location);
    let blob = match blobs::get_limited(opened.store.as_ref(), &key, packed).await {
        Ok(blob) => blob,
        Err(error) if error.is_not_found() => return Ok(Stored::default()),
        Err(error) => return Err(Unknown::Store(opened.told(&error))),
    };
    let decoder = flate2::read::GzDecoder::new(blob.bytes.as_ref());
    let read = std::io::Read::take(decoder, unpacked);
    let volumes = serde_json::from_reader(read).map_err(|error| damaged(&error))?;
    Ok(Stored { volumes })
}

/// How large a list may be, packed and unpacked. One of a tenant's own store may have been written by
/// the tenant, to be as large in memory as can be.
fn limits(location: &BackupStorageLocation) -> (u64, u64) {
    if crate::world::is_tenants(location) { (1 << 20, 8 << 20) } else { (32 << 20, 256 << 20) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(namespace: &str) -> Record {
        Record {
            backup: "b".to_owned(),
            backup_uid: "u".to_owned(),
            namespace: namespace.to_owned(),
            claim: "data".to_owned(),
        }
    }

    #[test]
    fn a_record_is_read_from_the_wish_or_from_the_store_and_only_whole() {
        let mut backup = api::longhorn::Backup::default();
        assert_eq!(Record::of(&backup), None);
        backup.status.get_or_insert_default().labels = Some(record("t").labels());
        assert_eq!(Record::of(&backup), Some(record("t")));
        backup.spec.labels = Some(record("s").labels());
        assert_eq!(Record::of(&backup), Some(record("s")));
        let mut part = record("t").labels();
        part.remove(OF_NAMESPACE);
        assert_eq!(Record::read(Some(&part)), None);
    }

    fn owners(backup: &Value, location: &Value, restore: Option<Value>) -> Owners {
        let notes = |it: &Value| json!({"metadata": {"annotations": it}, "spec": {}});
        let backup: Backup = serde_json::from_value(notes(backup)).unwrap();
        let location: BackupStorageLocation = serde_json::from_value(notes(location)).unwrap();
        let restore: Option<Restore> =
            restore.map(|it| serde_json::from_value(notes(&it)).unwrap());
        Owners::of(&backup, &location, restore.as_ref())
    }

    #[test]
    fn data_is_touched_only_for_the_namespace_it_is_of() {
        let (of_backup, of_location, of_restore) = (
            "openshift.io/oadp-nab-origin-namespace",
            "openshift.io/oadp-nabsl-origin-namespace",
            "openshift.io/oadp-nar-origin-namespace",
        );
        let none = json!({});
        // Administrators among themselves.
        assert!(record("any").is_of("b", &owners(&none, &none, None)));
        assert!(!record("any").is_of("other", &owners(&none, &none, None)));
        for mine in [
            owners(&json!({of_backup: "t"}), &none, None),
            // The object in a tenant's bucket may say anything.
            owners(&none, &json!({of_location: "t"}), None),
            owners(&none, &none, Some(json!({of_restore: "t"}))),
        ] {
            assert!(record("t").is_of("b", &mine), "{mine:?}");
            assert!(!record("u").is_of("b", &mine), "{mine:?}");
        }
        let forged = owners(&json!({of_backup: "u"}), &json!({of_location: "t"}), None);
        assert!(!record("u").is_of("b", &forged) && !record("t").is_of("b", &forged));
    }

    #[test]
    fn data_of_another_backup_of_the_same_name_is_not_touched() {
        let listed = json!([{"pvcName": "data", "pvcNamespace": "t",
            "nativeSnapshotInfo": {"snapshotHandle": "mine", "volumeType": "longhorn"}}]);
        let stored = Stored { volumes: serde_json::from_value(listed).unwrap() };
        let nobody = Owners::default();
        let own =
            |handle: &str, uid: &str| record("t").belongs(handle, ("b", uid), &stored, &nobody);
        // Made here, or named by the list in the store that this very backup is in.
        assert!(own("any", "u") && own("mine", "another"));
        // Another cluster, or an earlier object, has a backup of that name in the same target.
        assert!(!own("theirs", "another"));
        assert!(!record("t").belongs("mine", ("other", "another"), &stored, &nobody));
    }

    #[test]
    fn a_list_of_volumes_names_only_what_has_data_of_ours() {
        let entry = |name: &str, more: Value| {
            let mut it = json!({"pvcName": name, "pvcNamespace": "n", "pvName": format!("pv-{name}"),
                "nativeSnapshotInfo": {"snapshotHandle": "h", "volumeType": "longhorn"}});
            let more = more.as_object().unwrap().clone();
            it.as_object_mut().unwrap().extend(more);
            it
        };
        let listed = json!([
            entry("good", json!({})),
            entry("skipped", json!({"skipped": true})),
            entry("failed", json!({"result": "failed"})),
            entry(
                "other",
                json!({"nativeSnapshotInfo": {"snapshotHandle": "h", "volumeType": "gp3"}}),
            ),
        ]);
        let stored = Stored { volumes: serde_json::from_value(listed).unwrap() };
        assert_eq!(stored.data("n", "good"), Data::In("h"));
        assert_eq!(stored.data("n", "failed"), Data::Lost);
        for name in ["skipped", "other", "none"] {
            assert_eq!(stored.data("n", name), Data::None, "{name}");
        }
        assert!(stored.names("h") && !stored.names("i"));
        assert!(stored.has_volume("pv-good") && !stored.has_volume("pv-skipped"));
    }
}
