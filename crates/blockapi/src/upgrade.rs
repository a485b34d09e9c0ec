//! From one status field to two, while services run: rows of the release before are split a batch
//! at a time, and joined again for the way back.

use crate::model::status::BackupStatus;
use crate::sql::DbError;
use crate::store::Store;
use crate::store::guard::BY_ATTACHMENTS;

const BATCH: i64 = 50;
const FOUR: &str = "('backing-up', 'error_backing-up', 'restoring-backup', 'error_restoring')";

/// The name of the migration, as operators see it.
pub(crate) const SPLIT: &str = "volume_backup_status_online_data_migration";

/// Why rows are not migrated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(
        "{count} services of the release before are known ({names}); upgrade and restart them first, or forget those that are gone: `holdfast block-api db remove-service HOST BINARY`"
    )]
    OldServices { count: usize, names: String },
}

/// Volumes that still keep a backup's state in `status`.
pub(crate) async fn old_rows(store: &Store) -> Result<i64, DbError> {
    let sql = format!("SELECT COUNT(*) AS n FROM volumes WHERE deleted = 0 AND status IN {FOUR}");
    let row = store.db.fetch_one(&sql, &[]).await?;
    row.map_or(Ok(0), |row| row.int("n"))
}

/// Services that do not understand two fields; silent ones too, as they may come back.
pub(crate) async fn old_services(store: &Store) -> Result<Vec<String>, DbError> {
    let services = store.services().await?;
    let old = services.iter().filter(|it| it.is_old());
    Ok(old.map(|it| format!("{}@{}", it.binary, it.host)).collect())
}

/// Splits up to `max` rows: how many there were, and how many are done.
pub(crate) async fn split(store: &Store, max: i64) -> Result<(i64, i64), UpgradeError> {
    store.db.require_schema().await?;
    let old = old_services(store).await?;
    if !old.is_empty() {
        return Err(UpgradeError::OldServices { count: old.len(), names: old.join(", ") });
    }
    let found = old_rows(store).await?;
    let mut done = 0;
    while done < max {
        let batch = (max - done).min(BATCH);
        let migrated = split_batch(store, batch).await?;
        done += migrated;
        if migrated == 0 {
            break;
        }
    }
    Ok((found, done))
}

/// One statement, which takes the rows as they are now: writers of either release may be at work.
async fn split_batch(store: &Store, batch: i64) -> Result<i64, DbError> {
    let four = BackupStatus::ALL.map(|it| format!("'{}'", it.as_str())).join(", ");
    // What was remembered is stale or of a backup; the attachments are right.
    let sql = format!(
        "UPDATE volumes SET status = {BY_ATTACHMENTS}, \
         backup_status = status, \
         previous_status = CASE WHEN previous_status IN ({four}) THEN NULL ELSE previous_status END \
         WHERE deleted = 0 AND status IN {FOUR} AND id IN \
         (SELECT id FROM volumes WHERE deleted = 0 AND status IN {FOUR} ORDER BY id LIMIT $1)"
    );
    let mut tx = store.db.begin().await?;
    if store.db.is_postgres() {
        let sql = format!(
            "SELECT id FROM volumes WHERE deleted = 0 AND status IN {FOUR} ORDER BY id LIMIT $1 FOR UPDATE"
        );
        tx.fetch(&sql, &[batch.into()]).await?;
    }
    let done = tx.execute(&sql, &[batch.into()]).await?;
    tx.commit().await?;
    Ok(i64::try_from(done).unwrap_or(i64::MAX))
}

/// Everything, for a database that nobody else uses.
pub(crate) async fn migrate_all(store: &Store) -> Result<(), DbError> {
    while split_batch(store, BATCH).await? > 0 {}
    Ok(())
}

/// For a way back to the release before: two fields into one. A failed backup it remembers where it
/// did itself: in its one field it would keep everybody from the volume.
pub(crate) async fn join(store: &Store) -> Result<u64, DbError> {
    let sql = "UPDATE volumes SET \
         previous_status = CASE WHEN status NOT IN ('available', 'in-use') THEN previous_status \
         WHEN backup_status = 'error_backing-up' THEN backup_status ELSE status END, \
         status = CASE WHEN status IN ('available', 'in-use') AND backup_status <> 'error_backing-up' \
         THEN backup_status ELSE status END, \
         backup_status = NULL WHERE deleted = 0 AND backup_status IS NOT NULL";
    store.db.execute(sql, &[]).await
}

/// Rows deleted before a time go for good.
pub(crate) async fn purge(store: &Store, before: &str) -> Result<u64, DbError> {
    let mut purged = 0;
    let mut tx = store.db.begin().await?;
    for (table, owner, parent) in [
        ("volume_metadata", "volume_id", "volumes"),
        ("volume_admin_metadata", "volume_id", "volumes"),
        ("volume_glance_metadata", "volume_id", "volumes"),
        ("snapshot_metadata", "snapshot_id", "snapshots"),
        ("backup_metadata", "backup_id", "backups"),
    ] {
        let sql = format!(
            "DELETE FROM {table} WHERE {owner} IN (SELECT id FROM {parent} WHERE deleted = 1 AND deleted_at < $1)"
        );
        tx.execute(&sql, &[before.into()]).await?;
    }
    for table in ["messages", "transfers", "backups", "volume_attachment", "snapshots"] {
        let sql = format!("DELETE FROM {table} WHERE deleted = 1 AND deleted_at < $1");
        purged += tx.execute(&sql, &[before.into()]).await?;
    }
    // Only those that nothing refers to any more.
    let sql = "DELETE FROM volumes WHERE deleted = 1 AND deleted_at < $1 \
         AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.volume_id = volumes.id) \
         AND NOT EXISTS (SELECT 1 FROM volume_attachment a WHERE a.volume_id = volumes.id) \
         AND NOT EXISTS (SELECT 1 FROM transfers t WHERE t.volume_id = volumes.id)";
    purged += tx.execute(sql, &[before.into()]).await?;
    tx.commit().await?;
    Ok(purged)
}
