//! `QoS` specs: named sets of limits, which volume types are given. Who keeps them is their consumer:
//! `front-end` the client that uses a volume, `back-end` the place it is stored at, or `both`.

use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::{Metadata, Pairs, Store, new_id, now, rows};
use crate::sql::{DbError, Row, Tx};

pub(crate) const CONSUMERS: [&str; 3] = ["back-end", "front-end", "both"];
/// Who keeps specs that do not say.
pub(crate) const DEFAULT_CONSUMER: &str = "back-end";

#[derive(Debug, Clone)]
pub(crate) struct QosSpecs {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) consumer: String,
    pub(crate) specs: Metadata,
}

impl QosSpecs {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            name: row.text("name")?,
            consumer: row.text("consumer")?,
            specs: Metadata::new(),
        })
    }
}

/// Why specs do not go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Types have them.
    InUse,
    Gone,
}

/// What became of a type that was to be given specs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    Done,
    NoType,
    /// It has these already.
    Other(String),
}

const COLUMNS: &str = "qos_specs.id, qos_specs.name, qos_specs.consumer";

impl Store {
    pub(crate) async fn qos_specs(
        &self,
        page: &Page,
    ) -> Result<(Vec<QosSpecs>, Option<i64>), ListError> {
        let source = Source { table: "qos_specs", joins: "", columns: COLUMNS };
        let found = list::fetch(&self.db, source, page).await?;
        let mut all = found.rows.iter().map(QosSpecs::of).collect::<Result<Vec<_>, _>>()?;
        let mut specs = Pairs::Qos.get_all(self, all.iter().map(|it| it.id.as_str())).await?;
        for one in &mut all {
            one.specs = specs.remove(&one.id).unwrap_or_default();
        }
        Ok((all, found.count))
    }

    pub(crate) async fn qos_of(&self, id: &str) -> Result<Option<QosSpecs>, DbError> {
        let row = rows::find(&self.db, ("qos_specs", COLUMNS), id, None).await?;
        let Some(row) = row else { return Ok(None) };
        let specs = Pairs::Qos.get(self, id).await?;
        Ok(Some(QosSpecs { specs, ..QosSpecs::of(&row)? }))
    }

    pub(crate) async fn insert_qos(
        &self,
        name: &str,
        consumer: &str,
        specs: &Metadata,
    ) -> Result<String, DbError> {
        let id = new_id();
        let mut tx = self.db.begin().await?;
        let sql = "INSERT INTO qos_specs (id, name, consumer, created_at) VALUES ($1, $2, $3, $4)";
        tx.execute(sql, &[(&id).into(), name.into(), consumer.into(), now().into()]).await?;
        Pairs::Qos.put(&mut tx, &id, specs).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// False: there are no such specs.
    pub(crate) async fn change_qos(
        &self,
        id: &str,
        consumer: Option<&str>,
        specs: &Metadata,
    ) -> Result<bool, DbError> {
        let mut tx = self.db.begin().await?;
        let sql = "UPDATE qos_specs SET updated_at = $2, consumer = COALESCE($3, consumer) \
             WHERE id = $1 AND deleted = 0";
        if tx.execute(sql, &[id.into(), now().into(), consumer.into()]).await? == 0 {
            return Ok(false);
        }
        Pairs::Qos.put(&mut tx, id, specs).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Removes all of these keys, or none: the first that is not there.
    pub(crate) async fn remove_qos_keys(
        &self,
        id: &str,
        keys: &[String],
    ) -> Result<Option<String>, DbError> {
        let mut tx = self.db.begin().await?;
        for key in keys {
            if !Pairs::Qos.remove(&mut tx, id, key).await? {
                return Ok(Some(key.clone()));
            }
        }
        tx.commit().await?;
        Ok(None)
    }

    /// Removes specs; with force they are taken from the types that have them first.
    pub(crate) async fn delete_qos(&self, id: &str, force: bool) -> Result<Option<Kept>, DbError> {
        let mut tx = self.db.begin().await?;
        tx.lock("qos_specs", id).await?;
        if force {
            take_back(&mut tx, id, None).await?;
        }
        let sql = "SELECT id FROM volume_types WHERE qos_specs_id = $1 AND deleted = 0 LIMIT 1";
        if tx.fetch_one(sql, &[id.into()]).await?.is_some() {
            return Ok(Some(Kept::InUse));
        }
        let sql = "UPDATE qos_specs SET deleted = 1, deleted_at = $2 WHERE id = $1 AND deleted = 0";
        if tx.execute(sql, &[id.into(), now().into()]).await? == 0 {
            return Ok(Some(Kept::Gone));
        }
        tx.commit().await?;
        Ok(None)
    }

    /// Types with these specs, by id and name.
    pub(crate) async fn types_with_qos(&self, id: &str) -> Result<Vec<(String, String)>, DbError> {
        let sql = "SELECT id, name FROM volume_types WHERE qos_specs_id = $1 AND deleted = 0 \
             ORDER BY name";
        let rows = self.db.fetch(sql, &[id.into()]).await?;
        rows.iter().map(|row| Ok((row.text("id")?, row.text("name")?))).collect()
    }

    pub(crate) async fn give_qos(&self, id: &str, kind: &str) -> Result<Given, DbError> {
        let mut tx = self.db.begin().await?;
        // Whoever removes the specs waits.
        tx.lock("qos_specs", id).await?;
        let sql = "SELECT qos_specs_id FROM volume_types WHERE id = $1 AND deleted = 0";
        let Some(row) = tx.fetch_one(sql, &[kind.into()]).await? else { return Ok(Given::NoType) };
        if let Some(other) = row.opt("qos_specs_id")?.filter(|it| it != id) {
            return Ok(Given::Other(other));
        }
        let sql = "UPDATE volume_types SET qos_specs_id = $2 WHERE id = $1 AND EXISTS \
             (SELECT 1 FROM qos_specs q WHERE q.id = $2 AND q.deleted = 0)";
        let done = tx.execute(sql, &[kind.into(), id.into()]).await? != 0;
        tx.commit().await?;
        Ok(if done { Given::Done } else { Given::NoType })
    }

    /// Takes specs from one type, or from all that have them.
    pub(crate) async fn take_qos(&self, id: &str, kind: Option<&str>) -> Result<(), DbError> {
        let mut tx = self.db.begin().await?;
        take_back(&mut tx, id, kind).await?;
        tx.commit().await
    }

    /// The specs of a type that whoever uses its volumes is to keep, and whose they are.
    pub(crate) async fn front_end_qos(
        &self,
        kind: &str,
    ) -> Result<Option<(String, Metadata)>, DbError> {
        let sql = "SELECT q.id FROM volume_types t JOIN qos_specs q ON q.id = t.qos_specs_id \
             WHERE t.id = $1 AND q.deleted = 0 AND q.consumer IN ('front-end', 'both')";
        let Some(row) = self.db.fetch_one(sql, &[kind.into()]).await? else { return Ok(None) };
        let id = row.text("id")?;
        let specs = Pairs::Qos.get(self, &id).await?;
        Ok(Some((id, specs)))
    }
}

async fn take_back(tx: &mut Tx, id: &str, kind: Option<&str>) -> Result<(), DbError> {
    let mut sql =
        Statement::new("UPDATE volume_types SET qos_specs_id = NULL WHERE qos_specs_id = ");
    sql.bind(id);
    if let Some(kind) = kind {
        sql.push(" AND id = ").bind(kind);
    }
    tx.execute(&sql.text, &sql.values).await.map(drop)
}
