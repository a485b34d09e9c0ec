//! Volumes: reading, creating, describing.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use super::attachments::Attachment;
use super::guard::{backup_sql, status_sql};
use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::{Metadata, Pairs, Store, now};
use crate::sql::{Bound, DbError, Row, Tx};

/// A volume with all that is shown of it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "the dialect's names")]
pub(crate) struct Volume {
    pub(crate) id: String,
    /// Name of the volume behind it, if it is not the id: a restore puts a new one in its place.
    pub(crate) name_id: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) project_id: String,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) size: i64,
    pub(crate) availability_zone: Option<String>,
    pub(crate) status: String,
    pub(crate) backup_status: Option<String>,
    pub(crate) migration_status: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) volume_type_id: String,
    pub(crate) volume_type: Option<String>,
    pub(crate) source_volid: Option<String>,
    pub(crate) group_id: Option<String>,
    pub(crate) consistencygroup_id: Option<String>,
    pub(crate) provider_id: Option<String>,
    pub(crate) service_uuid: Option<String>,
    pub(crate) cluster_name: Option<String>,
    pub(crate) replication_status: Option<String>,
    pub(crate) bootable: bool,
    pub(crate) multiattach: bool,
    pub(crate) shared_targets: Option<i64>,
    pub(crate) consumes_quota: bool,
    pub(crate) created_at: String,
    pub(crate) updated_at: Option<String>,
    pub(crate) metadata: Metadata,
    pub(crate) admin_metadata: Metadata,
    pub(crate) image_metadata: Metadata,
    /// Live ones.
    pub(crate) attachments: Vec<Attachment>,
}

impl Volume {
    /// The name of the volume behind it.
    pub(crate) fn backend_name(&self) -> &str {
        self.name_id.as_deref().unwrap_or(&self.id)
    }

    /// Declared so: nobody is to write to it.
    pub(crate) fn is_readonly(&self) -> bool {
        self.admin_metadata.get("readonly").is_some_and(|it| it == "True")
    }
}

/// What a new volume is.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewVolume {
    pub(crate) id: String,
    pub(crate) user_id: String,
    pub(crate) project_id: String,
    pub(crate) size: i64,
    pub(crate) availability_zone: String,
    pub(crate) host: String,
    pub(crate) service_uuid: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) volume_type_id: String,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) source_volid: Option<String>,
    pub(crate) multiattach: bool,
    pub(crate) backup_status: Option<&'static str>,
    pub(crate) metadata: Metadata,
    pub(crate) bootable: bool,
    pub(crate) image_metadata: Metadata,
}

const COLUMNS: &str = "volumes.id, volumes.name_id, volumes.user_id, volumes.project_id, \
    volumes.snapshot_id, volumes.host, volumes.size, volumes.availability_zone, \
    volumes.attach_status, volumes.migration_status, volumes.display_name, \
    volumes.display_description, volumes.volume_type_id, volumes.source_volid, volumes.group_id, \
    volumes.consistencygroup_id, volumes.provider_id, volumes.service_uuid, volumes.cluster_name, \
    volumes.replication_status, volumes.bootable, volumes.multiattach, volumes.shared_targets, \
    volumes.use_quota, volumes.created_at, volumes.updated_at, vt.name AS volume_type";
const JOINS: &str = " LEFT JOIN volume_types vt ON vt.id = volumes.volume_type_id";

fn columns() -> String {
    format!("{COLUMNS}, {} AS status, {} AS backup_status", status_sql(), backup_sql())
}

impl Volume {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            name_id: row.opt("name_id")?,
            user_id: row.opt("user_id")?,
            project_id: row.text("project_id")?,
            snapshot_id: row.opt("snapshot_id")?,
            host: row.opt("host")?,
            size: row.int("size")?,
            availability_zone: row.opt("availability_zone")?,
            status: row.text("status")?,
            backup_status: row.opt("backup_status")?,
            migration_status: row.opt("migration_status")?,
            name: row.opt("display_name")?,
            description: row.opt("display_description")?,
            volume_type_id: row.text("volume_type_id")?,
            volume_type: row.opt("volume_type")?,
            source_volid: row.opt("source_volid")?,
            group_id: row.opt("group_id")?,
            consistencygroup_id: row.opt("consistencygroup_id")?,
            provider_id: row.opt("provider_id")?,
            service_uuid: row.opt("service_uuid")?,
            cluster_name: row.opt("cluster_name")?,
            replication_status: row.opt("replication_status")?,
            bootable: row.truth("bootable")?,
            multiattach: row.truth("multiattach")?,
            shared_targets: row.opt_int("shared_targets")?,
            consumes_quota: row.truth("use_quota")?,
            created_at: row.text("created_at")?,
            updated_at: row.opt("updated_at")?,
            metadata: Metadata::new(),
            admin_metadata: Metadata::new(),
            image_metadata: Metadata::new(),
            attachments: Vec::new(),
        })
    }

    /// One row of [`belongings`]; attachments are not yet in their order.
    fn take(&mut self, row: &Row, attached: &mut Attached) -> Result<(), DbError> {
        let metadata = match row.opt_str("of_kind")?.unwrap_or_default() {
            "user" => &mut self.metadata,
            "admin" => &mut self.admin_metadata,
            "image" => &mut self.image_metadata,
            "attachment" => {
                attached.push((row.text("since")?, Attachment::of_volume(row)?));
                return Ok(());
            }
            // The volume itself.
            _ => return Ok(()),
        };
        metadata.insert(row.text("key")?, row.text("value")?);
        Ok(())
    }
}

/// Attachments with the times they were made at.
type Attached = Vec<(String, Attachment)>;

/// The oldest first.
fn in_order(mut attached: Attached) -> impl Iterator<Item = Attachment> {
    attached.sort_unstable_by(|(one, it), (other, that)| (one, &it.id).cmp(&(other, &that.id)));
    attached.into_iter().map(|(_, it)| it)
}

/// Metadata and attachments of volumes in the columns of both, `of_kind` telling which it is, and as many
/// empty ones after them.
fn belongings(of_volumes: &str, empty: usize) -> String {
    let empty = ", NULL".repeat(empty);
    let pairs = METADATA.map(|(kind, table)| {
        format!(
            "SELECT '{kind}' AS of_kind, volume_id AS of_volume, key, value, {NO_ATTACHMENT}{empty} \
             FROM {table} WHERE volume_id {of_volumes} UNION ALL "
        )
    });
    format!(
        "{}SELECT 'attachment', volume_id, NULL, NULL, id, instance_uuid, attached_host, mountpoint, \
         attach_time, detach_time, attach_mode, connection_info, attach_status, created_at{empty} \
         FROM volume_attachment WHERE deleted = 0 AND volume_id {of_volumes}",
        pairs.concat()
    )
}

const METADATA: [(&str, &str); 3] = [
    ("user", "volume_metadata"),
    ("admin", "volume_admin_metadata"),
    ("image", "volume_glance_metadata"),
];
const NO_ATTACHMENT: &str = "NULL AS attachment_id, NULL AS instance_uuid, NULL AS attached_host, \
    NULL AS mountpoint, NULL AS attach_time, NULL AS detach_time, NULL AS attach_mode, \
    NULL AS connection_info, NULL AS attached_as, NULL AS since";
/// How many there are in [`columns`].
const COLUMN_COUNT: usize = 29;

/// A volume, and all that is shown of it, as one statement: it is seen as it was at one moment. Whose
/// volume it must be, if anybody's, is the second parameter.
static ONE: LazyLock<[String; 2]> = LazyLock::new(|| {
    ["", " AND volumes.project_id = $2"].map(|whose| {
        format!(
            "SELECT 'volume' AS of_kind, NULL AS of_volume, NULL AS key, NULL AS value, \
             {NO_ATTACHMENT}, {} FROM volumes{JOINS} WHERE volumes.id = $1 AND volumes.deleted = 0{whose} \
             UNION ALL {}",
            columns(),
            belongings("= $1", COLUMN_COUNT)
        )
    })
});

/// Volumes of a page, and of how many.
#[derive(Debug)]
pub(crate) struct Volumes {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) count: Option<i64>,
}

/// Metadata and attachments of all volumes of a page.
fn of_page(rows: &[Row]) -> Result<Option<Bound>, DbError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let mut ids = Statement::new("IN ");
    ids.bind_list(rows.iter().map(|row| row.text("id")).collect::<Result<Vec<_>, _>>()?);
    Ok(Some((belongings(&ids.text, 0), ids.values)))
}

fn fill(volumes: &mut [Volume], rows: &[Row]) -> Result<(), DbError> {
    let mut by_id: HashMap<String, (&mut Volume, Attached)> =
        volumes.iter_mut().map(|it| (it.id.clone(), (it, Vec::new()))).collect();
    for row in rows {
        let of = row.opt_str("of_volume")?.unwrap_or_default();
        if let Some((volume, attached)) = by_id.get_mut(of) {
            volume.take(row, attached)?;
        }
    }
    for (volume, attached) in by_id.into_values() {
        volume.attachments.extend(in_order(attached));
    }
    Ok(())
}

impl Store {
    /// A volume, if it is there and, with a project, that project's.
    pub(crate) async fn volume(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Volume>, DbError> {
        let [any, of_project] = &*ONE;
        let rows = match project {
            None => self.db.fetch(any, &[id.into()]).await?,
            Some(project) => self.db.fetch(of_project, &[id.into(), project.into()]).await?,
        };
        // What belongs to a volume that is not there, or another's, is nothing.
        let mut found = None;
        for row in &rows {
            if row.opt_str("of_kind")? == Some("volume") {
                found = Some(Volume::of(row)?);
            }
        }
        let Some(mut volume) = found else { return Ok(None) };
        let mut attached = Attached::new();
        for row in &rows {
            volume.take(row, &mut attached)?;
        }
        volume.attachments.extend(in_order(attached));
        Ok(Some(volume))
    }

    pub(crate) async fn volumes(&self, page: &Page, whole: bool) -> Result<Volumes, ListError> {
        let source = Source { table: "volumes", joins: JOINS, columns: &columns() };
        let then = whole.then_some(of_page as list::Then);
        let found = list::fetch_with(&self.db, source, page, then).await?;
        let mut volumes = found.rows.iter().map(Volume::of).collect::<Result<Vec<_>, _>>()?;
        fill(&mut volumes, &found.more)?;
        Ok(Volumes { volumes, count: found.count })
    }

    /// How the database finds a page, line by line.
    #[cfg(test)]
    pub(crate) async fn plan(
        &self,
        source: Option<Source<'_>>,
        page: &Page,
    ) -> Result<Vec<String>, ListError> {
        let columns = columns();
        let volumes = Source { table: "volumes", joins: JOINS, columns: &columns };
        let name = if self.db.is_postgres() { "QUERY PLAN" } else { "detail" };
        let rows = list::explain(&self.db, source.unwrap_or(volumes), page).await?;
        Ok(rows.iter().map(|row| row.text(name)).collect::<Result<_, _>>()?)
    }

    /// How many volumes there are and their gibibytes, and what their metadata says.
    pub(crate) async fn summary(
        &self,
        project: Option<&str>,
    ) -> Result<(i64, i64, BTreeMap<String, Vec<String>>), DbError> {
        let mut filter = Statement::new("volumes.deleted = 0");
        if let Some(project) = project {
            filter.push(" AND volumes.project_id = ").bind(project);
        }
        let mut sql = Statement::new(
            "SELECT COUNT(*) AS n, CAST(SUM(size) AS BIGINT) AS gib FROM volumes WHERE ",
        );
        sql.splice(&filter);
        let row = self.db.fetch_one(&sql.text, &sql.values).await?;
        let (count, size) = match row {
            Some(row) => (row.int("n")?, row.int("gib")?),
            None => (0, 0),
        };
        let mut sql = Statement::new(
            "SELECT DISTINCT m.key, m.value FROM volume_metadata m JOIN volumes ON volumes.id = m.volume_id WHERE ",
        );
        sql.splice(&filter).push(" ORDER BY m.key, m.value");
        let mut metadata: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in self.db.fetch(&sql.text, &sql.values).await? {
            metadata.entry(row.text("key")?).or_default().push(row.text("value")?);
        }
        Ok((count, size, metadata))
    }

    /// Makes the row of a new volume.
    pub(crate) async fn insert_volume(&self, tx: &mut Tx, new: &NewVolume) -> Result<(), DbError> {
        tx.execute(
            "INSERT INTO volumes (id, user_id, project_id, size, availability_zone, host, \
             service_uuid, display_name, display_description, volume_type_id, snapshot_id, \
             source_volid, multiattach, backup_status, status, attach_status, shared_targets, \
             created_at, bootable) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
             $14, 'creating', 'detached', 0, $15, $16)",
            &[
                (&new.id).into(),
                (&new.user_id).into(),
                (&new.project_id).into(),
                new.size.into(),
                (&new.availability_zone).into(),
                (&new.host).into(),
                new.service_uuid.clone().into(),
                new.name.clone().into(),
                new.description.clone().into(),
                (&new.volume_type_id).into(),
                new.snapshot_id.clone().into(),
                new.source_volid.clone().into(),
                new.multiattach.into(),
                new.backup_status.into(),
                now().into(),
                new.bootable.into(),
            ],
        )
        .await?;
        Pairs::VolumeImage.put(tx, &new.id, &new.image_metadata).await?;
        Pairs::Volume.put(tx, &new.id, &new.metadata).await
    }

    /// The row goes; its metadata with it.
    pub(crate) async fn forget_volume(&self, tx: &mut Tx, id: &str) -> Result<(), DbError> {
        let time = now();
        tx.execute(
            "UPDATE volumes SET deleted = 1, status = 'deleted', backup_status = NULL, \
             deleted_at = $2, terminated_at = $2, updated_at = $2 WHERE id = $1 AND deleted = 0",
            &[id.into(), time.as_str().into()],
        )
        .await?;
        tx.execute(
            "UPDATE volume_attachment SET deleted = 1, deleted_at = $2, attach_status = 'detached' \
             WHERE volume_id = $1 AND deleted = 0",
            &[id.into(), time.into()],
        )
        .await?;
        self.end_transfers_of(tx, id).await
    }
}
