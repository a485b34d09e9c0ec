//! Requests to delete a backup: everything in the store, its restores, and last the object.

use std::sync::Arc;
use std::time::Duration;

use api::velero::{
    AccessMode, Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest,
    DeleteBackupRequestStatus, DeletePhase,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Failure, Key, Loop, Next, Reconciler};

use crate::backup::decide::is_available;
use crate::backup::queue::KIND as BACKUP;
use crate::layout;
use crate::names;
use crate::volumes::{self, Owners};
use crate::world::{
    Opened, Running, STORE_WORKERS, Work, World, in_time, tenant_of, turn, turn_of,
};

/// A request that was carried out is kept this long.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
const RESTORES_WITHIN: Duration = Duration::from_mins(1);
/// For all that is asked of a tenant's own store, which may have ever more to remove.
pub(crate) const STORE_WITHIN: Duration = Duration::from_mins(10);
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Deletions {
    world: Arc<World>,
}

pub(crate) async fn run(world: Arc<World>) {
    Loop::new("velero-deletions", &world.context)
        .workers(STORE_WORKERS)
        .on(&world.deletions)
        .needs(&world.backups)
        .needs(&world.restores)
        .needs(&world.locations)
        .run(Arc::new(Deletions { world }))
        .await;
}

/// What a request meets.
#[derive(Debug, PartialEq)]
enum Verdict<'v> {
    /// It ends here, with this error.
    Refuse(String),
    Delete {
        backup: &'v Backup,
        location: &'v BackupStorageLocation,
    },
}

/// Pure: the words are those that users know.
fn judge<'v>(
    name: &str,
    meant: Option<&str>,
    backup: Option<&'v Backup>,
    location: Option<&'v BackupStorageLocation>,
    is_running: bool,
) -> Verdict<'v> {
    if name.is_empty() {
        return Verdict::Refuse("spec.backupName is required".to_owned());
    }
    // Another backup that has the name by now is not the one that was meant.
    let meant = |it: &&Backup| meant.is_none_or(|uid| it.metadata.uid.as_deref() == Some(uid));
    let Some(backup) = backup.filter(meant) else {
        return Verdict::Refuse("backup not found".to_owned());
    };
    let is_begun = matches!(
        backup.status.as_ref().and_then(|it| it.phase.as_ref()),
        Some(BackupPhase::InProgress | BackupPhase::ReadyToStart)
    );
    if is_running || is_begun {
        return Verdict::Refuse("backup is still in progress".to_owned());
    }
    let wanted = backup.spec.storage_location.as_deref().unwrap_or_default();
    let Some(location) = location else {
        return Verdict::Refuse(format!("backup storage location {wanted} not found"));
    };
    if location.spec.access_mode == Some(AccessMode::ReadOnly) {
        return Verdict::Refuse(format!(
            "cannot delete backup because backup storage location {wanted} is currently in \
             read-only mode"
        ));
    }
    if !is_available(location) {
        return Verdict::Refuse(format!(
            "cannot delete backup because backup storage location {wanted} is currently in \
             Unavailable state"
        ));
    }
    Verdict::Delete { backup, location }
}

impl Reconciler for Deletions {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(request) = world.deletions.get(key) else { return Ok(Next::WAIT) };
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(Next::WAIT);
        }
        let phase = request.status.as_ref().and_then(|it| it.phase.clone());
        if phase == Some(DeletePhase::Processed) {
            return self.expire(&request).await;
        }
        let name = request.spec.backup_name.clone().unwrap_or_default();
        let backup = world.backups.get(&world.key(&name));
        let location = backup
            .as_ref()
            .and_then(|it| world.location(it.spec.storage_location.as_deref().unwrap_or_default()));
        let is_running = world.running.has(BACKUP, &name);
        let meant = request.metadata.labels.as_ref().and_then(|it| it.get(names::BACKUP_UID));
        let meant = meant.map(String::as_str).filter(|it| !it.is_empty());
        let is_there = backup
            .as_ref()
            .is_some_and(|it| meant.is_none_or(|uid| it.metadata.uid.as_deref() == Some(uid)));
        match judge(&name, meant, backup.as_deref(), location.as_deref(), is_running) {
            // Begun before a restart, and the object went last: that is the end of it.
            Verdict::Refuse(_) if phase == Some(DeletePhase::InProgress) && !is_there => {
                self.clear(&name, meant, &request).await?;
                Ok(Next::WAIT)
            }
            Verdict::Refuse(error) => {
                self.processed(&request, vec![error]).await?;
                Ok(Next::WAIT)
            }
            Verdict::Delete { backup, location } => {
                let _turn = match its_turn(&world.running, backup, location) {
                    Ok(turn) => turn,
                    Err(later) => return Ok(later),
                };
                self.delete(&request, &name, backup, location).await?;
                Ok(Next::WAIT)
            }
        }
    }
}

impl Deletions {
    async fn expire(&self, request: &DeleteBackupRequest) -> Result<Next, Failure> {
        let created = request.metadata.creation_timestamp.as_ref().map(|it| it.0);
        let left = created
            .and_then(|it| it.checked_add(KEPT).ok())
            .map(|end| Timestamp::now().duration_until(end));
        match left.map(Duration::try_from) {
            Some(Ok(left)) if !left.is_zero() => Ok(Next::after(left)),
            _ => {
                self.world.deletions.delete(request).await?;
                Ok(Next::WAIT)
            }
        }
    }

    async fn processed(
        &self,
        request: &DeleteBackupRequest,
        errors: Vec<String>,
    ) -> Result<(), Failure> {
        let mut next = request.clone();
        next.status = Some(DeleteBackupRequestStatus {
            phase: Some(DeletePhase::Processed),
            errors: (!errors.is_empty()).then_some(errors),
        });
        self.world.deletions.update(request, &next).await.map(drop)
    }

    async fn delete(
        &self,
        request: &DeleteBackupRequest,
        name: &str,
        backup: &Backup,
        location: &BackupStorageLocation,
    ) -> Result<(), Failure> {
        let world = &self.world;
        // Two requests for one backup at a time would report each other's work as errors.
        let Some(_work) = world.running.begin(BACKUP, name) else {
            return Err(Failure::other(format!("delete backup {name}"), "it is being worked on"));
        };
        let request = self.begin(request, name, backup).await?;
        let mut deleting = backup.clone();
        deleting.status.get_or_insert_default().phase = Some(BackupPhase::Deleting);
        let backup = world.backups.update(backup, &deleting).await?;
        let mut errors = Vec::new();
        match world.open(location).await {
            Err(error) => errors.push(error),
            Ok(opened) => {
                let owners = Owners::of(&backup, location, None);
                let stored = match volumes::stored(&opened, location, &backup).await {
                    // What is damaged names nothing any more, and must not keep the rest for ever.
                    Err(why @ volumes::Unknown::Damaged(_)) => {
                        tracing::warn!(backup.name = name, %why, "data of volumes may stay");
                        Ok(volumes::Stored::default())
                    }
                    read => read,
                };
                match stored {
                    Ok(stored) => {
                        errors.extend(volumes::delete(world, &backup, &stored, &owners).await);
                    }
                    Err(why) => errors.push(why.to_string()),
                }
                if errors.is_empty() {
                    errors.extend(bounded(location, remove(&opened, name)).await);
                }
            }
        }
        if errors.is_empty() {
            errors.extend(self.delete_restores(name).await);
        }
        if errors.is_empty() {
            world.backups.delete(&backup).await?;
            return self.clear(name, backup.metadata.uid.as_deref(), &request).await;
        }
        tracing::warn!(backup.name = name, ?errors, "a backup is not deleted");
        self.processed(&request, errors).await
    }

    async fn begin(
        &self,
        request: &DeleteBackupRequest,
        name: &str,
        backup: &Backup,
    ) -> Result<Arc<DeleteBackupRequest>, Failure> {
        let own = &request.metadata.name;
        for other in self.world.deletions.list() {
            if other.spec.backup_name.as_deref() == Some(name) && other.metadata.name != *own {
                self.world.deletions.delete(&other).await?;
            }
        }
        let mut next = request.clone();
        let labels = next.metadata.labels.get_or_insert_default();
        labels.insert(names::BACKUP_NAME.to_owned(), names::label_value(name));
        if let Some(uid) = &backup.metadata.uid {
            labels.insert(names::BACKUP_UID.to_owned(), uid.clone());
        }
        let phase = Some(DeletePhase::InProgress);
        next.status = Some(DeleteBackupRequestStatus { phase, errors: None });
        self.world.deletions.update(request, &next).await
    }

    /// All is gone: so are the requests for it, and not those for another of its name.
    async fn clear(
        &self,
        name: &str,
        uid: Option<&str>,
        request: &DeleteBackupRequest,
    ) -> Result<(), Failure> {
        self.processed(request, Vec::new()).await?;
        for other in self.world.deletions.list() {
            let meant = other.metadata.labels.as_ref().and_then(|it| it.get(names::BACKUP_UID));
            let is_same = meant.is_none_or(|it| uid.is_none_or(|uid| it == uid));
            if other.spec.backup_name.as_deref() == Some(name) && is_same {
                self.world.deletions.delete(&other).await?;
            }
        }
        Ok(())
    }

    async fn delete_restores(&self, name: &str) -> Option<String> {
        let of_backup = || {
            let all = self.world.restores.list();
            let of_this =
                |it: &Arc<api::velero::Restore>| it.spec.backup_name.as_deref() == Some(name);
            all.into_iter().filter(of_this).collect::<Vec<_>>()
        };
        for restore in of_backup() {
            if let Err(failure) = self.world.restores.delete(&restore).await {
                return Some(telemetry::Chain(&failure).to_string());
            }
        }
        let began = tokio::time::Instant::now();
        while !of_backup().is_empty() {
            if began.elapsed() > RESTORES_WITHIN {
                return Some(format!("restores of backup {name} are still there"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        None
    }
}

/// A tenant's backups are deleted one after the other, wherever they lie: its restores and volumes are
/// waited for, and it may have any number of them.
fn its_turn(
    running: &Running,
    backup: &Backup,
    location: &BackupStorageLocation,
) -> Result<Option<Work>, Next> {
    let notes = backup.metadata.annotations.as_ref();
    let owner = notes.and_then(|it| it.get(names::TENANT_BACKUP_NAMESPACE));
    match (tenant_of(location), owner) {
        (None, Some(owner)) => turn_of(running, "deletion", owner).map(Some),
        _ => turn(running, "deletion", location),
    }
}

/// What went wrong, if something did.
async fn bounded(
    location: &BackupStorageLocation,
    removing: impl Future<Output = Option<String>>,
) -> Option<String> {
    in_time(location, STORE_WITHIN, removing).await.unwrap_or_else(Some)
}

/// The object first: what is left without it is no backup to anybody.
async fn remove(opened: &Opened, name: &str) -> Option<String> {
    let store = opened.store.as_ref();
    let told = |error: blobs::Error| {
        format!("error deleting backup from backup storage: {}", opened.told(&error))
    };
    let object = match layout::BackupFile::Object.key(name) {
        Ok(key) => key,
        Err(error) => return Some(error.to_string()),
    };
    if let Err(error) = store.delete(&object).await {
        return Some(told(error));
    }
    match layout::backup_folder(name) {
        Ok(folder) => blobs::delete_all(store, &folder).await.err().map(told),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn backup(phase: &str) -> Backup {
        serde_json::from_value(json!({"metadata": {"name": "b", "uid": "2"},
            "spec": {"storageLocation": "l"}, "status": {"phase": phase}}))
        .unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn location(spec: Value, phase: &str) -> BackupStorageLocation {
        let value = json!({"metadata": {"name": "l"}, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value(value).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenants_store_that_never_has_all_removed_keeps_nobody_elses_waiting() {
        let mut tenants = location(json!({}), "Available");
        tenants.metadata.annotations =
            Some([(names::TENANT_LOCATION_NAMESPACE.to_owned(), "team".to_owned())].into());
        let patience = STORE_WITHIN * 2;
        let never = bounded(&tenants, std::future::pending());
        let told = tokio::time::timeout(patience, never).await;
        assert_eq!(told, Ok(Some("it took longer than 600 s".to_owned())));
        let slow = async {
            tokio::time::sleep(patience).await;
            None
        };
        let ours = location(json!({}), "Available");
        assert_eq!(bounded(&ours, slow).await, None, "ours may be slow");
    }

    #[test]
    fn deletions_of_one_tenant_keep_nobody_else_waiting() {
        let of = |tenant: &str| {
            let mut backup = backup("Completed");
            let note = (names::TENANT_BACKUP_NAMESPACE.to_owned(), tenant.to_owned());
            backup.metadata.annotations = Some([note].into());
            backup
        };
        let ours = location(json!({}), "Available");
        let mut theirs = ours.clone();
        theirs.metadata.annotations =
            Some([(names::TENANT_LOCATION_NAMESPACE.to_owned(), "a".to_owned())].into());
        let running = Running::default();
        let first = its_turn(&running, &of("a"), &ours);
        assert!(matches!(first, Ok(Some(_))));
        assert!(its_turn(&running, &of("a"), &ours).is_err(), "its next one waits");
        assert!(its_turn(&running, &of("a"), &theirs).is_err(), "in its own store as well");
        assert!(matches!(its_turn(&running, &of("b"), &ours), Ok(Some(_))));
        assert!(matches!(its_turn(&running, &backup("Completed"), &ours), Ok(None)), "no tenant's");
        drop(first);
        assert!(its_turn(&running, &of("a"), &ours).is_ok());
    }

    #[test]
    fn what_cannot_be_deleted_is_told_in_known_words() {
        let good = location(json!({}), "Available");
        let (done, running) = (backup("Completed"), backup("InProgress"));
        let read_only = location(json!({"accessMode": "ReadOnly"}), "Available");
        let down = location(json!({}), "Unavailable");
        let refused = |verdict: Verdict<'_>| match verdict {
            Verdict::Refuse(text) => text,
            Verdict::Delete { .. } => "deleted".to_owned(),
        };
        for (name, backup, location, is_running, text) in [
            ("", None, None, false, "spec.backupName is required"),
            ("b", None, None, false, "backup not found"),
            ("b", Some(&running), Some(&good), false, "backup is still in progress"),
            ("b", Some(&done), Some(&good), true, "backup is still in progress"),
            ("b", Some(&done), None, false, "backup storage location l not found"),
            (
                "b",
                Some(&done),
                Some(&read_only),
                false,
                "cannot delete backup because backup storage location l is currently in read-only \
                 mode",
            ),
            (
                "b",
                Some(&done),
                Some(&down),
                false,
                "cannot delete backup because backup storage location l is currently in \
                 Unavailable state",
            ),
            ("b", Some(&done), Some(&good), false, "deleted"),
        ] {
            assert_eq!(refused(judge(name, None, backup, location, is_running)), text);
        }
        let meaning = |uid| refused(judge("b", Some(uid), Some(&done), Some(&good), false));
        assert_eq!(meaning("1"), "backup not found", "it was made anew since");
        assert_eq!(meaning("2"), "deleted");
    }
}
