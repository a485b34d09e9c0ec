//! What tables have in common whose rows belong to a project, have a status and are kept for a while
//! after their end.

use super::now;
use super::statement::Statement;
use crate::sql::{Db, DbError, Row, Tx, Value};

/// A live row, if it is there and, with a project, that project's. Columns name their table.
pub(super) async fn find(
    db: &Db,
    (table, columns): (&str, &str),
    id: &str,
    project: Option<&str>,
) -> Result<Option<Row>, DbError> {
    let mut sql = Statement::new("SELECT ");
    sql.push(columns).push(" FROM ").push(table);
    sql.push(" WHERE ").push(table).push(".deleted = 0 AND ").push(table).push(".id = ").bind(id);
    if let Some(project) = project {
        sql.push(" AND ").push(table).push(".project_id = ").bind(project);
    }
    db.fetch_one(&sql.text, &sql.values).await
}

/// Moves a row on if its status is one of those given; whatever it is if none is.
pub(super) async fn move_on(
    tx: &mut Tx,
    table: &str,
    id: &str,
    (from, to): (&[&str], &str),
    also: &[(&'static str, Value)],
) -> Result<bool, DbError> {
    let mut sql = Statement::new("UPDATE ");
    sql.push(table).push(" SET status = ").bind(to).push(", updated_at = ").bind(now());
    for (column, value) in also {
        sql.push(", ").push(column).push(" = ").bind(value.clone());
    }
    sql.push(" WHERE deleted = 0 AND id = ").bind(id);
    if !from.is_empty() {
        sql.push(" AND status IN ").bind_list(from.iter().copied());
    }
    Ok(tx.execute(&sql.text, &sql.values).await? != 0)
}

/// The row is no longer seen.
pub(super) async fn forget(tx: &mut Tx, table: &str, id: &str) -> Result<(), DbError> {
    let time = now();
    let also = [("deleted", Value::Int(Some(1))), ("deleted_at", time.into())];
    move_on(tx, table, id, (&[], "deleted"), &also).await.map(drop)
}
