//! Volume types and their extra specs. There is always a default one.

use std::collections::BTreeMap;

use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::{Metadata, Pairs, Store, new_id, now};
use crate::sql::{DbError, Row, Tx, Value};

/// The name of the type that is there from the beginning.
pub(crate) const DEFAULT_TYPE: &str = "__DEFAULT__";

#[derive(Debug, Clone)]
pub(crate) struct VolumeType {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) is_public: bool,
    pub(crate) extra_specs: Metadata,
    pub(crate) qos_specs_id: Option<String>,
    /// Volumes of it are to be encrypted.
    pub(crate) encrypts: bool,
}

/// How volumes of a type are to be encrypted.
#[derive(Debug, Clone)]
pub(crate) struct Encryption {
    pub(crate) id: String,
    pub(crate) provider: String,
    pub(crate) cipher: Option<String>,
    pub(crate) key_size: Option<i64>,
    pub(crate) control_location: String,
    pub(crate) created_at: String,
    pub(crate) updated_at: Option<String>,
}

impl VolumeType {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            name: row.text("name")?,
            description: row.opt("description")?,
            is_public: row.truth("is_public")?,
            extra_specs: Metadata::new(),
            qos_specs_id: row.opt("qos_specs_id")?,
            encrypts: row.int("encryptions")? > 0,
        })
    }

    /// Whether volumes of it can be attached more than once.
    pub(crate) fn is_multiattach(&self) -> bool {
        self.extra_specs.get("multiattach").is_some_and(|it| it.eq_ignore_ascii_case("<is> True"))
    }
}

const COLUMNS: &str = "volume_types.id, volume_types.name, volume_types.description, \
    volume_types.is_public, volume_types.qos_specs_id, (SELECT COUNT(*) FROM \
    volume_type_encryption e WHERE e.volume_type_id = volume_types.id) AS encryptions";
/// A type that volumes have stays as it is in what they were promised.
const UNUSED: &str =
    "NOT EXISTS (SELECT 1 FROM volumes v WHERE v.volume_type_id = $1 AND v.deleted = 0)";

/// Types a project may use.
pub(crate) fn visible_to(project: &str) -> Statement {
    let mut sql = Statement::new(
        "volume_types.is_public = 1 OR EXISTS (SELECT 1 FROM volume_type_projects p \
         WHERE p.volume_type_id = volume_types.id AND p.project_id = ",
    );
    sql.bind(project).push(")");
    sql
}

impl Store {
    /// Makes the default type if there is none; its id.
    pub(crate) async fn ensure_default_type(&self) -> Result<String, DbError> {
        if let Some(found) = self.volume_type(DEFAULT_TYPE, None).await? {
            return Ok(found.id);
        }
        let made = self
            .insert_type(DEFAULT_TYPE, Some("Default Volume Type"), true, &Metadata::new())
            .await;
        match made {
            Ok(made) => Ok(made),
            // Another process was faster.
            Err(error) if error.is_duplicate() => {
                let found = self.volume_type(DEFAULT_TYPE, None).await?;
                found.map(|it| it.id).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// By id or name.
    pub(crate) async fn volume_type(
        &self,
        wanted: &str,
        project: Option<&str>,
    ) -> Result<Option<VolumeType>, DbError> {
        let mut sql = Statement::new("SELECT ");
        sql.push(COLUMNS).push(" FROM volume_types WHERE deleted = 0 AND (id = ").bind(wanted);
        sql.push(" OR name = ").bind(wanted).push(")");
        if let Some(project) = project {
            sql.push(" AND (").splice(&visible_to(project)).push(")");
        }
        // An id wins over a name that looks like it.
        sql.push(" ORDER BY CASE WHEN id = ").bind(wanted).push(" THEN 0 ELSE 1 END LIMIT 1");
        let Some(row) = self.db.fetch_one(&sql.text, &sql.values).await? else { return Ok(None) };
        let mut types = vec![VolumeType::of(&row)?];
        self.fill_types(&mut types).await?;
        Ok(types.pop())
    }

    /// Keeps a type as it is until a volume has it: nothing if it is gone, else whether it encrypts.
    pub(crate) async fn hold_type(&self, tx: &mut Tx, id: &str) -> Result<Option<bool>, DbError> {
        tx.share("volume_types", id).await?;
        let sql = format!("SELECT {COLUMNS} FROM volume_types WHERE id = $1 AND deleted = 0");
        let row = tx.fetch_one(&sql, &[id.into()]).await?;
        Ok(row.map(|row| VolumeType::of(&row)).transpose()?.map(|it| it.encrypts))
    }

    pub(crate) async fn volume_types(
        &self,
        page: &Page,
    ) -> Result<(Vec<VolumeType>, Option<i64>), ListError> {
        let source = Source { table: "volume_types", joins: "", columns: COLUMNS };
        let found = list::fetch(&self.db, source, page).await?;
        let mut types = found.rows.iter().map(VolumeType::of).collect::<Result<Vec<_>, _>>()?;
        self.fill_types(&mut types).await?;
        Ok((types, found.count))
    }

    async fn fill_types(&self, types: &mut [VolumeType]) -> Result<(), DbError> {
        let ids = types.iter().map(|it| it.id.as_str());
        let mut specs = Pairs::Type.get_all(self, ids).await?;
        for one in types {
            one.extra_specs = specs.remove(&one.id).unwrap_or_default();
        }
        Ok(())
    }

    pub(crate) async fn insert_type(
        &self,
        name: &str,
        description: Option<&str>,
        is_public: bool,
        specs: &Metadata,
    ) -> Result<String, DbError> {
        let id = new_id();
        let mut tx = self.db.begin().await?;
        tx.execute(
            "INSERT INTO volume_types (id, name, description, is_public, created_at) \
             VALUES ($1, $2, $3, $4, $5)",
            &[(&id).into(), name.into(), description.into(), is_public.into(), now().into()],
        )
        .await?;
        Pairs::Type.put(&mut tx, &id, specs).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Limits of the type go by its name, and go with it.
    pub(crate) async fn update_type(
        &self,
        id: &str,
        changes: &[(&'static str, Value)],
    ) -> Result<bool, DbError> {
        let mut tx = self.db.begin().await?;
        tx.lock("volume_types", id).await?;
        let named = "SELECT name FROM volume_types WHERE deleted = 0 AND id = $1";
        let Some(before) = tx.fetch_one(named, &[id.into()]).await? else { return Ok(false) };
        let before = before.text("name")?;
        let mut sql = Statement::new("UPDATE volume_types SET updated_at = ");
        sql.bind(now());
        for (column, value) in changes {
            sql.push(", ").push(column).push(" = ").bind(value.clone());
        }
        sql.push(" WHERE deleted = 0 AND id = ").bind(id);
        tx.execute(&sql.text, &sql.values).await?;
        let after = tx.fetch_one(named, &[id.into()]).await?;
        let after = after.map_or(Ok(before.clone()), |row| row.text("name"))?;
        if after != before {
            for resource in ["volumes", "gigabytes", "snapshots"] {
                for table in ["quotas", "quota_classes"] {
                    // Of a type that had the name and is gone.
                    let stale = format!("DELETE FROM {table} WHERE resource = $1");
                    tx.execute(&stale, &[format!("{resource}_{after}").into()]).await?;
                    let sql = format!("UPDATE {table} SET resource = $2 WHERE resource = $1");
                    let both = [before.as_str(), &after].map(|it| format!("{resource}_{it}"));
                    tx.execute(&sql, &both.map(Value::from)).await?;
                }
            }
        }
        tx.commit().await?;
        Ok(true)
    }

    /// False: volumes or snapshots still have it.
    pub(crate) async fn delete_type(&self, id: &str) -> Result<bool, DbError> {
        let mut tx = self.db.begin().await?;
        tx.lock("volume_types", id).await?;
        let done = tx
            .execute(
                "UPDATE volume_types SET deleted = 1, deleted_at = $2 WHERE id = $1 AND deleted = 0 \
                 AND NOT EXISTS (SELECT 1 FROM volumes WHERE volume_type_id = $1 AND deleted = 0) \
                 AND NOT EXISTS (SELECT 1 FROM snapshots WHERE volume_type_id = $1 AND deleted = 0)",
                &[id.into(), now().into()],
            )
            .await?;
        if done != 0 {
            for table in ["default_volume_types", "volume_type_encryption"] {
                let sql = format!("DELETE FROM {table} WHERE volume_type_id = $1");
                tx.execute(&sql, &[id.into()]).await?;
            }
        }
        tx.commit().await?;
        Ok(done != 0)
    }

    pub(crate) async fn put_type_specs(&self, id: &str, specs: &Metadata) -> Result<(), DbError> {
        let mut tx = self.db.begin().await?;
        Pairs::Type.put(&mut tx, id, specs).await?;
        tx.commit().await
    }

    pub(crate) async fn remove_type_spec(&self, id: &str, key: &str) -> Result<bool, DbError> {
        let mut tx = self.db.begin().await?;
        let removed = Pairs::Type.remove(&mut tx, id, key).await?;
        tx.commit().await?;
        Ok(removed)
    }

    pub(crate) async fn encryption(&self, kind: &str) -> Result<Option<Encryption>, DbError> {
        let sql = "SELECT encryption_id, provider, cipher, key_size, control_location, created_at, \
             updated_at FROM volume_type_encryption WHERE volume_type_id = $1";
        let row = self.db.fetch_one(sql, &[kind.into()]).await?;
        row.map(|row| {
            Ok(Encryption {
                id: row.text("encryption_id")?,
                provider: row.text("provider")?,
                cipher: row.opt("cipher")?,
                key_size: row.opt_int("key_size")?,
                control_location: row.text("control_location")?,
                created_at: row.text("created_at")?,
                updated_at: row.opt("updated_at")?,
            })
        })
        .transpose()
    }

    /// Writes how volumes of a type are to be encrypted, or with nothing that they are not. False:
    /// there are volumes of it already.
    pub(crate) async fn set_encryption(
        &self,
        kind: &str,
        wanted: Option<&Encryption>,
    ) -> Result<bool, DbError> {
        let mut tx = self.db.begin().await?;
        tx.lock("volume_types", kind).await?;
        let unused = format!("SELECT 1 AS one WHERE {UNUSED}");
        if tx.fetch_one(&unused, &[kind.into()]).await?.is_none() {
            return Ok(false);
        }
        let sql = "DELETE FROM volume_type_encryption WHERE volume_type_id = $1";
        tx.execute(sql, &[kind.into()]).await?;
        if let Some(it) = wanted {
            let sql = "INSERT INTO volume_type_encryption (volume_type_id, encryption_id, provider, \
                 cipher, key_size, control_location, created_at, updated_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
            let values = [
                kind.into(),
                (&it.id).into(),
                (&it.provider).into(),
                it.cipher.clone().into(),
                Value::Int(it.key_size),
                (&it.control_location).into(),
                (&it.created_at).into(),
                it.updated_at.clone().into(),
            ];
            tx.execute(sql, &values).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    pub(crate) async fn type_projects(&self, id: &str) -> Result<Vec<String>, DbError> {
        let sql = "SELECT project_id FROM volume_type_projects WHERE volume_type_id = $1 ORDER BY project_id";
        let rows = self.db.fetch(sql, &[id.into()]).await?;
        rows.iter().map(|row| row.text("project_id")).collect()
    }

    /// Lets a project use a type, or no longer; false if that was so already.
    pub(crate) async fn set_type_access(
        &self,
        id: &str,
        project: &str,
        allowed: bool,
    ) -> Result<bool, DbError> {
        let sql = if allowed {
            "INSERT INTO volume_type_projects (volume_type_id, project_id) VALUES ($1, $2) \
             ON CONFLICT (volume_type_id, project_id) DO NOTHING"
        } else {
            "DELETE FROM volume_type_projects WHERE volume_type_id = $1 AND project_id = $2"
        };
        Ok(self.db.execute(sql, &[id.into(), project.into()]).await? != 0)
    }

    /// The type of volumes that name none, for one project or by it.
    pub(crate) async fn default_types(&self) -> Result<BTreeMap<String, String>, DbError> {
        let sql = "SELECT project_id, volume_type_id FROM default_volume_types ORDER BY project_id";
        let rows = self.db.fetch(sql, &[]).await?;
        rows.iter().map(|row| Ok((row.text("project_id")?, row.text("volume_type_id")?))).collect()
    }

    pub(crate) async fn set_default_type(
        &self,
        project: &str,
        id: Option<&str>,
    ) -> Result<(), DbError> {
        match id {
            None => {
                let sql = "DELETE FROM default_volume_types WHERE project_id = $1";
                self.db.execute(sql, &[project.into()]).await.map(drop)
            }
            Some(id) => {
                let sql = "INSERT INTO default_volume_types (project_id, volume_type_id) VALUES ($1, $2) \
                     ON CONFLICT (project_id) DO UPDATE SET volume_type_id = excluded.volume_type_id";
                self.db.execute(sql, &[project.into(), id.into()]).await.map(drop)
            }
        }
    }
}
