//! The conditional update: all that an operation asks of a volume, and all it writes, in one
//! statement. Understands rows of the release before, which keep both fields in `status`, and leaves
//! them in the new form.

use super::statement::Statement;
use super::{Store, now};
use crate::model::operation::{Bears, Operation, Precondition, Wants};
use crate::model::status::BackupStatus;
use crate::sql::{DbError, Tx, Value};

/// The status by live attachments alone ([`crate::model::status::from_attachments`] in SQL).
pub(crate) const BY_ATTACHMENTS: &str = "CASE (SELECT MIN(va.attach_status) FROM volume_attachment va \
     WHERE va.volume_id = volumes.id AND va.deleted = 0 AND substr(va.attach_status, 1, 6) <> 'error_') \
     WHEN 'attached' THEN 'in-use' WHEN 'attaching' THEN 'attaching' \
     WHEN 'detaching' THEN 'detaching' WHEN 'reserved' THEN 'reserved' ELSE 'available' END";

/// Rows of the release before with a backup's state.
pub(crate) const OLD_FORM: &str =
    "volumes.status IN ('backing-up', 'error_backing-up', 'restoring-backup', 'error_restoring')";

/// The `status` of a row of either form.
pub(crate) fn status_sql() -> String {
    format!("(CASE WHEN {OLD_FORM} THEN {BY_ATTACHMENTS} ELSE volumes.status END)")
}

/// The `backup_status` of a row of either form. The old form is the later word: whoever writes the
/// new one leaves none of these in `status`. There is an index by this very expression.
pub(crate) fn backup_sql() -> String {
    format!("(CASE WHEN {OLD_FORM} THEN volumes.status ELSE volumes.backup_status END)")
}

/// The same where a failed backup is not to be seen.
pub(crate) fn backup_without_error_sql() -> String {
    let backup = backup_sql();
    format!("(CASE WHEN {backup} <> 'error_backing-up' THEN {backup} END)")
}

/// The one status of older clients, by what they see of a backup.
pub(crate) fn legacy_sql(backup: &str) -> String {
    let status = status_sql();
    format!(
        "(CASE WHEN {backup} IS NOT NULL AND {status} IN ('available', 'in-use') \
         THEN {backup} ELSE {status} END)"
    )
}

/// Not in the middle of a migration.
const SETTLED: &str = "(volumes.migration_status IS NULL OR \
     volumes.migration_status IN ('deleting', 'error', 'success'))";

/// What is written to one field.
#[derive(Debug, Clone)]
pub(crate) enum Set {
    Status(&'static str),
    /// Told from the live attachments.
    StatusByAttachments,
    /// Back to what was remembered.
    StatusToPrevious,
    /// Kept if it is a resting one, else told from the attachments.
    StatusToRest,
    /// Status told from attachments if it is this one, else kept.
    StatusFrom(&'static str),
    /// Maintenance if it was available, else kept.
    StatusMaintenance,
    /// In use; what is being extended, retyped or filled stays so, and is found in use at its end.
    StatusInUse,
    /// Available if it was being created, else kept.
    StatusCreated,
    /// A failure if it was being created, else kept.
    StatusNotCreated,
    /// What status was, for the way back.
    RememberStatus,
    Backup(Option<BackupStatus>),
    Column(&'static str, Value),
}

/// One conditional update of a volume.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    id: String,
    wants: Statement,
    backup: Bears,
    sets: Vec<Set>,
}

impl Change {
    /// Without a condition beyond being there.
    pub(crate) fn of(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            wants: Statement::new("TRUE"),
            backup: Bears::Any,
            sets: Vec::new(),
        }
    }

    /// With the conditions of an operation.
    pub(crate) fn when(id: &str, operation: Operation) -> Self {
        let Precondition { status, backup, not_migrating, not_attached, no_group, also: _ } =
            operation.precondition();
        let mut change = Self::of(id);
        change.backup = backup;
        let effective = status_sql();
        match status {
            Wants::OneOf(values) => {
                change.wants.push(" AND ").push(&effective).push(" IN ");
                change.wants.bind_list(values.iter().copied());
            }
            Wants::NoneOf(values) => {
                change.wants.push(" AND ").push(&effective).push(" NOT IN ");
                change.wants.bind_list(values.iter().copied());
            }
            Wants::Any => {}
        }
        if not_migrating {
            change.wants.push(" AND ").push(SETTLED);
        }
        if not_attached {
            change.wants.push(
                " AND (volumes.attach_status IS NULL OR volumes.attach_status <> 'attached')",
            );
        }
        if no_group {
            change
                .wants
                .push(" AND volumes.group_id IS NULL AND volumes.consistencygroup_id IS NULL");
        }
        change
    }

    pub(crate) fn only_if(mut self, condition: &str) -> Self {
        self.wants.push(" AND (").push(condition).push(")");
        self
    }

    pub(crate) fn only_if_with(mut self, condition: &Statement) -> Self {
        self.wants.push(" AND (").splice(condition).push(")");
        self
    }

    /// Only while `backup_status` is this.
    pub(crate) fn while_backup(mut self, status: BackupStatus) -> Self {
        let backup = backup_sql();
        self.wants.push(" AND ").push(&backup).push(" = ").bind(status.as_str());
        self
    }

    /// Only while `status` is this.
    pub(crate) fn while_status(mut self, status: &str) -> Self {
        let effective = status_sql();
        self.wants.push(" AND ").push(&effective).push(" = ").bind(status);
        self
    }

    pub(crate) fn set(mut self, set: Set) -> Self {
        self.sets.push(set);
        self
    }

    pub(crate) fn column(self, name: &'static str, value: impl Into<Value>) -> Self {
        self.set(Set::Column(name, value.into()))
    }

    /// Whether the volume was as asked, and is now as written.
    pub(crate) async fn apply(&self, store: &Store, tx: &mut Tx) -> Result<bool, DbError> {
        let statement = self.statement(store.is_pinned());
        Ok(tx.execute(&statement.text, &statement.values).await? != 0)
    }

    /// The same as a transaction of its own.
    pub(crate) async fn run(&self, store: &Store) -> Result<bool, DbError> {
        let mut tx = store.on_volume(&self.id).await?;
        let changed = self.apply(store, &mut tx).await?;
        tx.commit().await?;
        Ok(changed)
    }

    fn statement(&self, pinned: bool) -> Statement {
        let status = status_sql();
        let backup = backup_sql();
        let mut sql = Statement::new("UPDATE volumes SET updated_at = ");
        if self.sets.is_empty() {
            // Only asked whether it may; nothing of it changes.
            sql.push("volumes.updated_at");
        } else {
            sql.bind(now());
        }
        let (mut new_status, mut new_backup) = (status.clone(), backup.clone());
        for set in &self.sets {
            match set {
                Set::Status(value) => new_status = format!("'{value}'"),
                Set::StatusByAttachments => BY_ATTACHMENTS.clone_into(&mut new_status),
                Set::StatusToPrevious => {
                    "CASE WHEN volumes.previous_status IN ('available', 'in-use', 'error') \
                         THEN volumes.previous_status ELSE 'available' END"
                        .clone_into(&mut new_status);
                }
                Set::StatusToRest => {
                    new_status = format!(
                        "CASE WHEN {status} IN ('available', 'in-use') THEN {status} ELSE {BY_ATTACHMENTS} END"
                    );
                }
                Set::StatusFrom(from) => {
                    new_status = format!(
                        "CASE WHEN {status} = '{from}' THEN {BY_ATTACHMENTS} ELSE {status} END"
                    );
                }
                Set::StatusMaintenance => {
                    new_status = format!(
                        "CASE WHEN {status} = 'available' THEN 'maintenance' ELSE {status} END"
                    );
                }
                Set::StatusInUse => {
                    new_status = format!(
                        "CASE WHEN {status} IN ('extending', 'retyping', 'uploading', 'downloading', \
                         'reverting', 'deleting', 'maintenance', 'creating', 'awaiting-transfer', \
                         'error_deleting') THEN {status} ELSE 'in-use' END"
                    );
                }
                Set::StatusCreated | Set::StatusNotCreated => {
                    let end = if matches!(set, Set::StatusCreated) { "available" } else { "error" };
                    new_status =
                        format!("CASE WHEN {status} = 'creating' THEN '{end}' ELSE {status} END");
                }
                Set::RememberStatus => {
                    sql.push(", previous_status = ").push(&status);
                }
                Set::Backup(value) => {
                    new_backup = value.map_or("NULL".to_owned(), |it| format!("'{}'", it.as_str()));
                }
                Set::Column(name, value) => {
                    sql.push(", ").push(name).push(" = ").bind(value.clone());
                }
            }
        }
        if pinned {
            // What the release before understands: one field, and where to return to. While that one
            // field says something else, the new column keeps what it cannot say; and a failed backup
            // always, as in that field it would keep its services from everything.
            let fits = format!(
                "{new_backup} IS NOT NULL AND {new_backup} <> 'error_backing-up' \
                 AND {new_status} IN ('available', 'in-use')"
            );
            let remembers = self.sets.iter().any(|it| matches!(it, Set::RememberStatus));
            if !remembers {
                sql.push(&format!(
                    ", previous_status = CASE WHEN {new_backup} IS NULL \
                     OR {new_backup} = 'error_backing-up' THEN volumes.previous_status \
                     ELSE {new_status} END"
                ));
            }
            sql.push(&format!(
                ", status = CASE WHEN {fits} THEN {new_backup} ELSE {new_status} END, \
                 backup_status = CASE WHEN {fits} THEN NULL ELSE {new_backup} END"
            ));
        } else {
            sql.push(", status = ").push(&new_status);
            sql.push(", backup_status = ").push(&new_backup);
        }
        sql.push(" WHERE id = ").bind(self.id.as_str());
        sql.push(" AND deleted = 0 AND ").splice(&self.wants);
        let bears = if pinned { self.backup.pinned() } else { self.backup };
        if bears != Bears::Any {
            let values: Vec<&str> = bears.values().iter().flatten().map(|it| it.as_str()).collect();
            sql.push(" AND (").push(&backup).push(" IS NULL OR ").push(&backup).push(" IN ");
            sql.bind_list(values).push(")");
        }
        sql
    }
}
