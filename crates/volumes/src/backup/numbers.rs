//! What is counted of backups, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Backup, BackupState};
use reconcile::Metrics;

use super::state_of;
use super::world::World;

/// How often objects are counted.
const EVERY: Duration = Duration::from_secs(10);

/// The handles of this process.
#[derive(Debug)]
pub(crate) struct Numbers(pub(super) Metrics);

impl Numbers {
    pub(super) fn completed(&self, bytes: u64) {
        self.0.work("backup", "completed", 1);
        self.0.work("backup_uploaded_bytes", "completed", bytes);
    }

    pub(super) fn upload_failed(&self) {
        self.0.work("backup", "failed", 1);
    }

    pub(super) fn deletion_started(&self) {
        self.0.work("backup_deletion", "started", 1);
    }

    pub(super) fn deletion_failed(&self) {
        self.0.work("backup_deletion", "failed", 1);
    }

    pub(super) fn deleted(&self) {
        self.0.work("backup_deletion", "completed", 1);
    }
}

/// Counts objects by their states, until it is dropped.
pub(super) async fn keep(world: Arc<World>) {
    loop {
        let backups = world.backups.list();
        for (state, count) in by_state(&backups) {
            world.numbers.0.objects("Backup", state, count);
        }
        let targets = world.targets.list();
        let is_available = |it: &&Arc<api::longhorn::BackupTarget>| {
            it.status.as_ref().and_then(|it| it.available) == Some(true)
        };
        let available = targets.iter().filter(is_available).count();
        world.numbers.0.objects("BackupTarget", "available", available);
        world.numbers.0.objects("BackupTarget", "unavailable", targets.len() - available);
        tokio::time::sleep(EVERY).await;
    }
}

/// Every state is counted, also those that no backup is in.
fn by_state(backups: &[Arc<Backup>]) -> BTreeMap<&'static str, usize> {
    let name = |state: &BackupState| match state {
        BackupState::New => "New",
        BackupState::Pending => "Pending",
        BackupState::InProgress => "InProgress",
        BackupState::Completed => "Completed",
        BackupState::Error => "Error",
        BackupState::Unknown | BackupState::Other(_) => "Unknown",
        BackupState::Deleting => "Deleting",
    };
    let all = ["New", "Pending", "InProgress", "Completed", "Error", "Unknown", "Deleting"];
    let mut counts: BTreeMap<&str, usize> = all.into_iter().map(|it| (it, 0)).collect();
    for backup in backups {
        *counts.entry(name(&state_of(backup))).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_counted() {
        let counts = by_state(&[Arc::new(Backup::default())]);
        assert_eq!((counts.len(), counts["New"], counts["Deleting"]), (7, 1, 0));
    }
}
