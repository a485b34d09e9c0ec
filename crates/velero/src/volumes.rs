//! The data of volumes: what of it a backup takes, and how it comes back.
//!
//! Owns the one place where a backup of objects meets backups of volumes. What is not done here is
//! said: in the list of volumes that is kept with a backup, and in its warnings.

use api::velero::Backup;
use serde_json::{Value, json};

use crate::backup::collect::{name_of, namespace_of};
use crate::journal::{Journal, Place, about};
use crate::world::Opened;

const SOURCE: &str = "velero/volumes";

/// Says of each claim what becomes of its data.
pub(crate) fn back_up(backup: &Backup, claims: &[Value], journal: &mut Journal) -> Vec<Value> {
    let wanted = backup.spec.snapshot_volumes != Some(false);
    let mut volumes = Vec::new();
    for claim in claims {
        let (name, namespace) = (name_of(claim).unwrap_or(""), namespace_of(claim).unwrap_or(""));
        let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str).unwrap_or("");
        let why = if wanted {
            "no way to take the data of this volume"
        } else {
            "snapshotVolumes is false"
        };
        if wanted && !volume.is_empty() {
            let message = about("persistentvolumeclaims", name, why, None);
            journal.warn(Place::Namespace(namespace), SOURCE, &message);
        }
        volumes.push(json!({"pvcName": name, "pvcNamespace": namespace, "pvName": volume,
            "skipped": true, "skippedReason": why}));
    }
    volumes
}

/// The volumes that a backup has data of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    volumes: Vec<Value>,
}

impl Stored {
    /// Whether the data of this volume is in the backup.
    pub(crate) fn has_volume(&self, name: &str) -> bool {
        self.volumes.iter().any(|it| {
            it.get("pvName").and_then(Value::as_str) == Some(name)
                && it.get("skipped").and_then(Value::as_bool) != Some(true)
        })
    }
}

/// Reads the list of volumes; one that is missing or cannot be read is empty.
pub(crate) async fn stored(opened: &Opened, backup: &Backup) -> Stored {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let Ok(key) = crate::layout::BackupFile::VolumeInfo.key(name) else { return Stored::default() };
    let Ok(blob) = blobs::get_limited(opened.store.as_ref(), &key, LIST_MAX_BYTES).await else {
        return Stored::default();
    };
    let decoder = flate2::read::GzDecoder::new(blob.bytes.as_ref());
    let read = std::io::Read::take(decoder, LIST_UNPACKED_MAX_BYTES);
    Stored { volumes: serde_json::from_reader(read).unwrap_or_default() }
}

const LIST_MAX_BYTES: u64 = 16 << 20;
const LIST_UNPACKED_MAX_BYTES: u64 = 256 << 20;
