//! Snapshots of volumes.

use std::collections::BTreeMap;

use api::longhorn::{Snapshot, SnapshotSpec};
use jiff::Timestamp;

pub fn taken(snapshot: &Snapshot) -> Option<Timestamp> {
    snapshot.status.as_ref()?.creation_time.as_ref()?.get()
}

pub fn ready(snapshot: &Snapshot) -> bool {
    snapshot.status.as_ref().is_some_and(|it| it.ready_to_use == Some(true))
}

/// A name that says of what and when.
pub fn named(of: &str, now: Timestamp) -> String {
    format!("{of}-{}", now.strftime("%Y%m%d-%H%M%S"))
}

/// A snapshot that is to be taken.
pub fn asked(volume: &str, name: &str) -> Snapshot {
    let mut snapshot = Snapshot::new(
        name,
        SnapshotSpec { volume: Some(volume.to_owned()), create_snapshot: Some(true), labels: None },
    );
    let labels = BTreeMap::from([("longhornvolume".to_owned(), volume.to_owned())]);
    snapshot.metadata.labels = Some(labels);
    snapshot
}
