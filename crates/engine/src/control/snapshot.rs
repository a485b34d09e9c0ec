//! Takes one snapshot on every replica at one point in the stream of changes.

use std::collections::HashMap;

use replica::DiskName;
use rpc::ptypes;

use crate::core::Hold;
use crate::machine::together::{Done, Order, Undone};

use super::each::{all_or_out, judge};
use super::engine::{Engine, Replica, created_now};
use super::freeze;
use super::limits::{LimitError, Usage, room_for_one};
use super::mend::NotEqual;

/// Why a snapshot was not taken. Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error(transparent)]
    Name(#[from] replica::Error),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("snapshot {0} is already existing")]
    Exists(String),
    #[error(transparent)]
    NotEqual(#[from] NotEqual),
    #[error("{0}")]
    Busy(String),
    #[error("failed to create snapshot {name}: {detail}")]
    Replicas { name: String, detail: String },
}

/// What a caller wants of a snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Empty: one is made up.
    pub(super) name: String,
    pub(super) labels: HashMap<String, String>,
    pub(super) freeze: bool,
}

impl Engine {
    /// Takes a user's snapshot and gives its name.
    pub(super) async fn snapshot(&self, wanted: Wanted) -> Result<String, SnapshotError> {
        self.await_equal().await;
        let _order = self.order.lock().await;
        let Wanted { name, labels, freeze } = wanted;
        let name = if name.is_empty() { uuid::Uuid::new_v4().to_string() } else { name };
        let disk = DiskName::of_snapshot(&name)?;
        self.equal()?;
        self.room_for_snapshot(&disk).await?;
        let request = ptypes::ReplicaSnapshotRequest {
            name: name.clone(),
            user_created: true,
            created: created_now(),
            labels,
        };
        // Before the hold: what the filesystem still has to write must get through.
        let frozen = freeze::quiesce(self.volume.frontend(), freeze).await;
        let taken = self.hold_and_snapshot(request).await;
        frozen.end().await;
        taken?;
        tracing::info!(snapshot = name, "took snapshot {name}");
        Ok(name)
    }

    async fn hold_and_snapshot(
        &self,
        request: ptypes::ReplicaSnapshotRequest,
    ) -> Result<(), SnapshotError> {
        let name = request.name.clone();
        let order = Order { hold: Hold::Changes { flush: true }, filling_too: true, size: None };
        let (limit, what) = (self.hold_limit(), format!("snapshot {name}"));
        let taken = self.together(
            &what,
            order,
            |link| {
                let request = request.clone();
                async move { link.snapshot(limit, request).await }
            },
            judge,
        );
        match taken.await {
            Ok(Done { left: _ }) => Ok(()),
            Err(Undone::Busy(why)) => Err(SnapshotError::Busy(why)),
            Err(Undone::Replicas(detail) | Undone::Size(detail) | Undone::Record(detail)) => {
                Err(SnapshotError::Replicas { name, detail })
            }
        }
    }

    /// Refuses if the limits leave no room, or one of the replicas has such a snapshot: better than
    /// to find out when some of them have taken it.
    pub(super) async fn room_for_snapshot(&self, disk: &DiskName) -> Result<(), SnapshotError> {
        let seen = self.ask_readable().await?;
        if seen.iter().any(|replica| replica.disks.contains_key(disk.as_str())) {
            return Err(SnapshotError::Exists(disk.as_str().to_owned()));
        }
        Ok(room_for_one(Usage::of(&seen), self.limits())?)
    }

    /// Has `replicas` take the snapshot; changes are on hold.
    pub(super) async fn snapshot_held(
        &self,
        replicas: &[Replica],
        request: ptypes::ReplicaSnapshotRequest,
    ) -> Result<(), String> {
        let limit = self.hold_limit();
        let what = format!("snapshot {}", request.name);
        all_or_out(self, &what, replicas, |link| {
            let request = request.clone();
            async move { link.snapshot(limit, request).await }
        })
        .await
    }
}
