//! Volumes: making, finding, describing and removing them.

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::backups::{grown, served};
use super::fault::{Fault, listing as list_fault};
use super::input::{self, Fields};
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use super::snapshots::hold as hold_snapshot;
use super::types::{hold as hold_type, refuse_encryption};
use super::views::{self, Extent, VolumeView};
use super::{Service, fault, images};
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::model::status::BackupStatus;
use crate::store::backups::Backup;
use crate::store::guard::{Change, Set};
use crate::store::limits::Demand;
use crate::store::list::Page;
use crate::store::statement::Statement;
use crate::store::types::{DEFAULT_TYPE, VolumeType};
use crate::store::volumes::{NewVolume, Volume};
use crate::store::work::Verb;
use crate::store::{Metadata, Pairs, new_id};
use crate::worker::backend::too_small;

pub(super) const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("volumes.id")),
        ("name", Field::Text("volumes.display_name")),
        ("display_name", Field::Text("volumes.display_name")),
        ("description", Field::Text("volumes.display_description")),
        ("display_description", Field::Text("volumes.display_description")),
        ("status", Field::Status),
        ("backup_status", Field::BackupStatus),
        ("size", Field::Number("volumes.size")),
        ("bootable", Field::Truth("volumes.bootable")),
        ("multiattach", Field::Truth("volumes.multiattach")),
        ("consumes_quota", Field::Truth("volumes.use_quota")),
        ("metadata", Field::Pairs("volume_metadata", "volume_id", "volumes.id")),
        ("glance_metadata", Field::Pairs("volume_glance_metadata", "volume_id", "volumes.id")),
        ("availability_zone", Field::Text("volumes.availability_zone")),
        ("migration_status", Field::Text("volumes.migration_status")),
        ("attach_status", Field::Text("volumes.attach_status")),
        ("previous_status", Field::Text("volumes.previous_status")),
        ("group_id", Field::Text("volumes.group_id")),
        ("project_id", Field::Text("volumes.project_id")),
        ("user_id", Field::Text("volumes.user_id")),
        ("host", Field::Text("volumes.host")),
        ("snapshot_id", Field::Text("volumes.snapshot_id")),
        ("source_volid", Field::Text("volumes.source_volid")),
        ("volume_type_id", Field::Text("volumes.volume_type_id")),
        ("volume_type", Field::Text("vt.name")),
        ("replication_status", Field::Text("volumes.replication_status")),
        ("created_at", Field::Time("volumes.created_at")),
        ("updated_at", Field::Time("volumes.updated_at")),
    ],
    members: &[
        "name",
        "display_name",
        "status",
        "backup_status",
        "metadata",
        "bootable",
        "migration_status",
        "availability_zone",
        "group_id",
        "size",
        "created_at",
        "updated_at",
        "consumes_quota",
        "glance_metadata",
    ],
    later: Later {
        filters: &[
            ("glance_metadata", 4),
            ("group_id", 10),
            ("created_at", 60),
            ("updated_at", 60),
            ("consumes_quota", 65),
        ],
        members: &[("size", 31), ("migration_status", 31)],
        ..Later::NOTHING
    },
};

const CREATE_KEYS: &[&str] = &[
    "size",
    "name",
    "description",
    "display_name",
    "display_description",
    "volume_type",
    "metadata",
    "snapshot_id",
    "source_volid",
    "imageRef",
    "image_id",
    "availability_zone",
    "consistencygroup_id",
    "multiattach",
    "group_id",
    "backup_id",
    "project_id",
    "user_id",
];
const UPDATE_KEYS: &[&str] =
    &["name", "description", "display_name", "display_description", "metadata"];

/// A volume the caller may see.
pub(super) async fn find(service: &Service, request: &Request, id: &str) -> Result<Volume, Fault> {
    let found = service.store.volume(id, request.scope()).await?;
    let mut volume = found.ok_or_else(|| Fault::no_such("Volume", id))?;
    Service::hide(request, &mut volume);
    Ok(volume)
}

impl Service {
    /// What an operator chose not to show to older clients.
    fn hide(request: &Request, volume: &mut Volume) {
        if request.hides_backup_error
            && volume.backup_status.as_deref() == Some(BackupStatus::ErrorBackingUp.as_str())
        {
            volume.backup_status = None;
        }
    }

    /// The conditions of an operation, as this request meets them.
    pub(super) fn when(&self, request: &Request, id: &str, operation: Operation) -> Change {
        let mut change = Self::own(request, Change::when(id, operation));
        if operation.connects() {
            change = change.only_if(NOT_FILLING);
        }
        let blocks = self.behaviour.legacy_backup_serialization
            && !request.version.has_backup_status()
            && operation.precondition().backup != crate::model::operation::Bears::Any;
        if blocks {
            let backup = crate::store::guard::backup_sql();
            return change.only_if(&format!("{backup} IS NULL OR {backup} <> 'backing-up'"));
        }
        change
    }

    /// The same, while the volume behind the row is the one that was looked at: a restore puts another
    /// in its place.
    pub(super) fn when_behind(
        &self,
        request: &Request,
        volume: &Volume,
        operation: Operation,
    ) -> Change {
        let mut behind = Statement::new("COALESCE(volumes.name_id, volumes.id) = ");
        behind.bind(volume.backend_name());
        self.when(request, &volume.id, operation).only_if_with(&behind)
    }

    /// Only while the volume is the caller's: it may change hands between a look at it and a change.
    pub(super) fn own(request: &Request, change: Change) -> Change {
        let Some(project) = request.scope() else { return change };
        let mut own = Statement::new("volumes.project_id = ");
        own.bind(project);
        change.only_if_with(&own)
    }

    /// Why an operation was refused: the volume is gone, or not as it must be.
    pub(super) async fn rejection(
        &self,
        request: &Request,
        id: &str,
        operation: Operation,
        legacy: impl FnOnce(&Volume, &str) -> String,
    ) -> Fault {
        match find(self, request, id).await {
            Err(fault) => fault,
            Ok(volume) if request.version.has_backup_status() => {
                let backup = volume.backup_status.as_deref();
                let seen = views::status_of(request, &volume);
                let said = operation.precondition().describe(id, seen, backup);
                Fault::invalid_volume(said)
            }
            Ok(volume) => {
                let seen = views::status_of(request, &volume).to_owned();
                Fault::invalid_volume(legacy(&volume, &seen))
            }
        }
    }
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get")?;
    let volume = find(service, request, id).await?;
    one(200, request, &volume, Extent::Whole)
}

/// A reply that holds a volume.
fn one(code: u16, request: &Request, volume: &Volume, extent: Extent) -> Answer {
    #[derive(Serialize)]
    struct One<'a> {
        volume: VolumeView<'a>,
    }
    Reply::written(code, &One { volume: VolumeView::of(request, volume, extent) })
}

/// The page a request asks for, of volumes that the caller may see.
pub(super) fn page(request: &Request) -> Result<Page, Fault> {
    let mut page = RESOURCE.page(request)?;
    listing::isolate(request, &mut page, "volumes.project_id")?;
    if !request.caller.is_admin() {
        page.and(Statement::new(
            "volumes.migration_status IS NULL OR substr(volumes.migration_status, 1, 7) <> 'target:'",
        ));
    }
    Ok(page)
}

pub(super) async fn list(service: &Service, request: &Request, detail: bool) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_all")?;
    let page = page(request)?;
    let mut found = service.store.volumes(&page, detail).await.map_err(list_fault("Volume"))?;
    found.volumes.iter_mut().for_each(|it| Service::hide(request, it));
    let collection = if detail { "volumes/detail" } else { "volumes" };
    let last = found.volumes.last().map(|it| it.id.as_str());
    let shown = found.volumes.len();
    let volumes_links = listing::next_link(request, collection, &page, shown, found.count, last);
    let count = found.count;
    if detail {
        let whole = |it| VolumeView::of(request, it, Extent::Whole);
        let volumes = found.volumes.iter().map(whole).collect();
        return Reply::written(200, &DetailPage { volumes, volumes_links, count });
    }
    let items = found.volumes.iter().map(|it| views::volume_summary(request, it)).collect();
    Ok(Reply::ok(listing::body("volumes", items, ("volumes_links", volumes_links), count)))
}

/// A list in detail.
#[derive(Serialize)]
struct DetailPage<'a> {
    volumes: Vec<VolumeView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes_links: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
}

pub(super) async fn summary(service: &Service, request: &Request) -> Answer {
    request.since(12)?;
    allow(&request.caller, Needs::Reader, "volume:get_all")?;
    let all = listing::all_projects(request)?;
    let project = (!all).then_some(request.caller.project_id.as_str());
    let (count, size, metadata) = service.store.summary(project).await?;
    let mut body = json!({"total_count": count, "total_size": size});
    if let (true, Some(body)) = (request.version.has(36), body.as_object_mut()) {
        body.insert("metadata".to_owned(), json!(metadata));
    }
    Ok(Reply::ok(json!({"volume-summary": body})))
}

/// Where a new volume comes from, found and checked.
enum From {
    Nothing,
    Snapshot { id: String },
    Volume { id: String },
    Backup { id: String },
    Image { reference: String },
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Member, "volume:create")?;
    let fields = Fields::of(request, "volume", &["OS-SCH-HNT:scheduler_hints"])?;
    if request.version.has(53) {
        fields.only(CREATE_KEYS)?;
    }
    let mut new = NewVolume {
        id: new_id(),
        user_id: request.caller.user_id.clone(),
        project_id: request.caller.project_id.clone(),
        name: fields.text_of(["name", "display_name"])?,
        description: fields.text_of(["description", "display_description"])?,
        metadata: fields.metadata("metadata")?.unwrap_or_default(),
        availability_zone: service.behaviour.zone.clone(),
        host: service.behaviour.host.clone(),
        ..NewVolume::default()
    };
    refuse_what_is_not_offered(service, request, &fields)?;
    let size = fields.number("size", 1)?;
    let origin = origin(request, &fields)?;
    let mut order = json!({});
    let type_of_source = match &origin {
        From::Nothing => {
            new.size = size.ok_or_else(|| {
                Fault::bad("A size is required when a volume is created from nothing.")
            })?;
            None
        }
        From::Snapshot { id } => Some(from_snapshot(service, request, id, size, &mut new).await?),
        From::Volume { id } => Some(from_volume(service, request, id, size, &mut new).await?),
        From::Backup { id } => {
            from_backup(service, request, id, size, &mut new).await?;
            None
        }
        From::Image { reference } => {
            new.size = size.ok_or_else(|| {
                Fault::bad("A size is required when a volume is created from an image.")
            })?;
            let image = images::source(service, request, reference, new.size).await?;
            order = images::order(&image, &new.id, true);
            None
        }
    };
    let wanted = fields.text("volume_type")?;
    let kind = volume_type(service, request, wanted.as_deref(), type_of_source.as_deref()).await?;
    new.volume_type_id.clone_from(&kind.id);
    refuse_encryption(&kind)?;
    new.multiattach = kind.is_multiattach();
    insert(service, request, &new, &kind, (&origin, &order)).await?;
    service.store.wake();
    let volume = find(service, request, &new.id).await?;
    one(202, request, &volume, Extent::Reply)
}

fn refuse_what_is_not_offered(
    service: &Service,
    request: &Request,
    fields: &Fields<'_>,
) -> Result<(), Fault> {
    if fields.truth("multiattach")? == Some(true) {
        return Err(Fault::invalid_input(
            "multiattach is no longer a parameter; create the volume with a type whose extra spec \
             multiattach is \"<is> True\"",
        ));
    }
    for (key, since) in [("group_id", 13), ("consistencygroup_id", 0)] {
        if request.version.has(since) && fields.uuid(key)?.is_some() {
            return Err(Fault::bad(format!("{key}: groups of volumes are not offered here.")));
        }
    }
    match fields.text("availability_zone")? {
        Some(zone) if !zone.is_empty() && zone != service.behaviour.zone => {
            Err(Fault::bad(format!("Availability zone '{zone}' is invalid.")))
        }
        _ => Ok(()),
    }
}

fn origin(request: &Request, fields: &Fields<'_>) -> Result<From, Fault> {
    let snapshot = fields.uuid("snapshot_id")?.map(|id| From::Snapshot { id });
    let volume = fields.uuid("source_volid")?.map(|id| From::Volume { id });
    let backup = match fields.uuid("backup_id")? {
        Some(id) if request.version.has(47) => Some(From::Backup { id }),
        _ => None,
    };
    // Some clients send it empty for a volume without an image.
    let image = fields.text_of(["imageRef", "image_id"])?.filter(|it| !it.is_empty());
    let image = image.map(|reference| From::Image { reference });
    let mut given = [snapshot, volume, backup, image].into_iter().flatten();
    match (given.next(), given.next()) {
        (None, _) => Ok(From::Nothing),
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Fault::bad(
            "Only one of snapshot_id, source_volid, backup_id and imageRef may say what the volume is \
             made from.",
        )),
    }
}

async fn from_snapshot(
    service: &Service,
    request: &Request,
    id: &str,
    size: Option<i64>,
    new: &mut NewVolume,
) -> Result<String, Fault> {
    let snapshot = service.store.snapshot(id, request.scope()).await?;
    let snapshot = snapshot.ok_or_else(|| Fault::no_such("Snapshot", id))?;
    if snapshot.status != "available" {
        return Err(Fault::invalid_snapshot(
            "Originating snapshot status must be one of 'available' values",
        ));
    }
    new.size = size.unwrap_or(snapshot.size);
    if new.size < snapshot.size {
        return Err(Fault::invalid_input(format!(
            "Volume size '{}'GB cannot be smaller than the snapshot size {}GB. They must be >= \
             original snapshot size.",
            new.size, snapshot.size
        )));
    }
    inherit(service, (&snapshot.volume_id, &snapshot.project_id), new).await?;
    new.snapshot_id = Some(snapshot.id);
    Ok(snapshot.volume_type_id.unwrap_or_default())
}

async fn from_volume(
    service: &Service,
    request: &Request,
    id: &str,
    size: Option<i64>,
    new: &mut NewVolume,
) -> Result<String, Fault> {
    let source = find(service, request, id).await?;
    new.size = size.unwrap_or(source.size);
    if new.size < source.size {
        return Err(Fault::invalid_input(format!(
            "Volume size '{}'GB cannot be smaller than original volume size  {}GB. They must be >= \
             original volume size.",
            new.size, source.size
        )));
    }
    new.bootable = source.bootable;
    new.image_metadata = source.image_metadata;
    new.source_volid = Some(source.id);
    Ok(source.volume_type_id)
}

/// What was made from an image, and can be booted from, stays so in copies of it, as long as it is
/// still the same project's.
async fn inherit(
    service: &Service,
    (source, project): (&str, &str),
    new: &mut NewVolume,
) -> Result<(), Fault> {
    let sql = "SELECT bootable FROM volumes WHERE id = $1 AND project_id = $2";
    let row = service.store.db.fetch_one(sql, &[source.into(), project.into()]).await?;
    if let Some(row) = row {
        new.bootable = row.truth("bootable")?;
        new.image_metadata = Pairs::VolumeImage.get(&service.store, source).await?;
    }
    Ok(())
}

/// What a volume that is made from a backup has of the one that was backed up: the same, and its
/// metadata, where the request does not say otherwise.
pub(super) async fn inherit_by_backup(
    service: &Service,
    backup: &Backup,
    new: &mut NewVolume,
) -> Result<(), Fault> {
    let (source, project) = (backup.volume_id.as_str(), backup.project_id.as_str());
    inherit(service, (source, project), new).await?;
    let sql = "SELECT m.key, m.value FROM volume_metadata m JOIN volumes v ON v.id = m.volume_id \
         WHERE v.id = $1 AND v.project_id = $2";
    for row in service.store.db.fetch(sql, &[source.into(), project.into()]).await? {
        new.metadata.entry(row.text("key")?).or_insert(row.text("value")?);
    }
    Ok(())
}

async fn from_backup(
    service: &Service,
    request: &Request,
    id: &str,
    size: Option<i64>,
    new: &mut NewVolume,
) -> Result<(), Fault> {
    let backup = service.store.backup(id, request.scope()).await?;
    let backup = backup.ok_or_else(|| Fault::no_such("Backup", id))?;
    let grown = grown(service, &backup).await;
    new.size = size.or(grown).unwrap_or(backup.size);
    if new.size < backup.size {
        return Err(Fault::invalid_input(format!(
            "Volume size {}GB cannot be smaller than the backup size {}GB. It must be >= backup size.",
            new.size, backup.size
        )));
    }
    if let Some(gib) = grown.filter(|it| new.size < *it) {
        return Err(Fault::invalid_input(format!(
            "Volume size {}GB cannot be smaller than the backup size: {}.",
            new.size,
            too_small(gib)
        )));
    }
    inherit_by_backup(service, &backup, new).await?;
    new.backup_status = Some(BackupStatus::RestoringBackup.as_str());
    Ok(())
}

/// The type asked for, else the source's, else the project's own, else the default one.
pub(super) async fn volume_type(
    service: &Service,
    request: &Request,
    wanted: Option<&str>,
    source: Option<&str>,
) -> Result<VolumeType, Fault> {
    if let Some(wanted) = wanted.filter(|it| !it.is_empty()) {
        let found = service.store.volume_type(wanted, request.scope()).await?;
        return found.ok_or_else(|| {
            Fault::not_found(format!("Volume type with name {wanted} could not be found."))
        });
    }
    let own = match source.filter(|it| !it.is_empty()) {
        Some(source) => Some(source.to_owned()),
        None => service.store.default_types().await?.remove(&request.caller.project_id),
    };
    for candidate in [own.as_deref(), Some(DEFAULT_TYPE)].into_iter().flatten() {
        if let Some(found) = service.store.volume_type(candidate, None).await? {
            return Ok(found);
        }
    }
    Err(fault::Fault::internal())
}

async fn insert(
    service: &Service,
    request: &Request,
    new: &NewVolume,
    kind: &VolumeType,
    (origin, order): (&From, &Value),
) -> Result<(), Fault> {
    let store = &service.store;
    let mut tx = match origin {
        From::Volume { id } => store.on_volume(id).await?,
        _ => store.db.begin().await?,
    };
    if let From::Snapshot { id } = origin {
        // Before what the project may use, as everybody does.
        hold_snapshot(service, request, &mut tx, id).await?;
    }
    hold_type(service, &mut tx, kind).await?;
    let demand = Demand {
        volumes: 1,
        gigabytes: new.size,
        per_volume: Some(new.size),
        type_name: Some(&kind.name),
        type_id: Some(&kind.id),
        ..Demand::default()
    };
    store.afford(&mut tx, &new.project_id, demand).await??;
    store.insert_volume(&mut tx, new).await?;
    match origin {
        From::Volume { id } => {
            let sql = "SELECT size FROM volumes WHERE id = $1 AND deleted = 0";
            let row = tx.fetch_one(sql, &[id.as_str().into()]).await?;
            if row.is_some_and(|row| row.int("size").is_ok_and(|size| size > new.size)) {
                return Err(Fault::invalid_input("The original volume has grown meanwhile."));
            }
            if !service.when(request, id, Operation::Clone).apply(store, &mut tx).await? {
                drop(tx);
                let said = |_: &Volume, _: &str| {
                    "Originating source volume status must be one of 'available, in-use' values"
                        .to_owned()
                };
                return Err(service.rejection(request, id, Operation::Clone, said).await);
            }
        }
        From::Snapshot { id } => {
            let sql =
                "SELECT id FROM snapshots WHERE id = $1 AND deleted = 0 AND status = 'available'";
            if tx.fetch_one(sql, &[id.as_str().into()]).await?.is_none() {
                return Err(Fault::invalid_snapshot(
                    "Originating snapshot status must be one of 'available' values",
                ));
            }
        }
        From::Backup { id } => {
            served(service, &mut tx).await?;
            let also = [("restore_volume_id", new.id.as_str().into())];
            if !store.move_backup(&mut tx, id, &["available"], "restoring", &also).await? {
                return Err(Fault::invalid_backup(
                    "Originating backup status must be one of 'available' values",
                ));
            }
            let detail = json!({"volume": new.id, "creates": true});
            let which = (id.as_str(), new.id.as_str());
            store.ask_in_turn(&mut tx, Verb::BackupRestore, which, &detail, &request.id).await?;
            tx.commit().await?;
            return Ok(());
        }
        From::Nothing | From::Image { .. } => {}
    }
    store.ask(&mut tx, Verb::VolumeCreate, &new.id, order, &request.id).await?;
    Ok(tx.commit().await?)
}

pub(super) async fn update(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:update")?;
    let fields = Fields::of(request, "volume", &[])?;
    fields.only(UPDATE_KEYS)?;
    if fields.is_empty() && request.version.has(53) {
        return Err(input::invalid("volume", &json!({}), "{} does not have enough properties"));
    }
    let name = fields.text_of(["name", "display_name"])?;
    let description = fields.text_of(["description", "display_description"])?;
    let metadata = fields.metadata("metadata")?;
    find(service, request, id).await?;
    let mut change = service.when(request, id, Operation::Update);
    if fields.has("name") || fields.has("display_name") {
        change = change.column("display_name", name);
    }
    if fields.has("description") || fields.has("display_description") {
        change = change.column("display_description", description);
    }
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    if !change.apply(store, &mut tx).await? {
        return Err(Fault::invalid_volume("The volume cannot be updated during maintenance."));
    }
    if let Some(metadata) = metadata {
        Pairs::Volume.clear(&mut tx, id).await?;
        Pairs::Volume.put(&mut tx, id, &metadata).await?;
    }
    tx.commit().await?;
    let volume = find(service, request, id).await?;
    one(200, request, &volume, Extent::Reply)
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    let cascade = request.param_truth("cascade")?;
    let force = request.version.has(23) && request.param_truth("force")?;
    if force {
        allow(&request.caller, Needs::Admin, "volume:force_delete")?;
    }
    allow(&request.caller, Needs::Member, "volume:delete")?;
    find(service, request, id).await?;
    let operation = if force { Operation::ForceDelete } else { Operation::Delete };
    remove(service, request, id, operation, cascade).await?;
    Ok(Reply::empty(202))
}

/// Nobody has a volume while an image is written to it, nor before a copy that was cancelled is cut off.
const NOT_FILLING: &str = "NOT EXISTS (SELECT 1 FROM workers w WHERE (w.resource_type = 'volume' \
     AND w.resource_id = volumes.id AND w.status = 'downloading') OR (w.resource_type = 'connection' \
     AND w.resource_id = COALESCE(volumes.name_id, volumes.id) || '/image-copy'))";
/// Nothing of a volume may go while a new one is being made from it.
pub(super) const NO_CLONES: &str = "NOT EXISTS (SELECT 1 FROM volumes c WHERE c.source_volid = volumes.id \
     AND c.deleted = 0 AND c.status = 'creating')";
/// Snapshots that were asked for are of what is there now.
pub(super) const NO_SNAPSHOTS_UNDER_WAY: &str = "NOT EXISTS (SELECT 1 FROM snapshots s \
     WHERE s.volume_id = volumes.id AND s.deleted = 0 AND s.status = 'creating')";
const NO_CLONES_OF_SNAPSHOTS: &str = "NOT EXISTS (SELECT 1 FROM volumes c JOIN snapshots s \
     ON s.id = c.snapshot_id WHERE s.volume_id = volumes.id AND c.deleted = 0 \
     AND c.status = 'creating')";
const NO_SNAPSHOTS: &str =
    "NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.volume_id = volumes.id AND s.deleted = 0)";
/// A project that gave the volume away may have kept its snapshots.
const SNAPSHOTS_OWN: &str = "NOT EXISTS (SELECT 1 FROM snapshots s WHERE \
     s.volume_id = volumes.id AND s.deleted = 0 AND s.project_id <> volumes.project_id)";
const SNAPSHOTS_AT_REST: &str = "NOT EXISTS (SELECT 1 FROM snapshots s WHERE \
     s.volume_id = volumes.id AND s.deleted = 0 AND (s.status NOT IN ('available', 'error') \
     OR s.group_snapshot_id IS NOT NULL))";

pub(super) async fn remove(
    service: &Service,
    request: &Request,
    id: &str,
    operation: Operation,
    cascade: bool,
) -> Result<(), Fault> {
    let store = &service.store;
    let snapshots = if cascade { SNAPSHOTS_AT_REST } else { NO_SNAPSHOTS };
    let mut change = service
        .when(request, id, operation)
        .only_if(snapshots)
        .only_if(NO_CLONES)
        .only_if(NO_CLONES_OF_SNAPSHOTS)
        .set(Set::Status("deleting"));
    if !request.caller.is_admin() {
        change = change.only_if(SNAPSHOTS_OWN);
    }
    let mut tx = store.on_volume(id).await?;
    let doomed = if cascade { store.snapshots_of(&mut tx, id).await? } else { Vec::new() };
    for snapshot in &doomed {
        // Whoever makes a volume from one holds it.
        tx.lock("snapshots", &snapshot.id).await?;
    }
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        return Err(service
            .rejection(request, id, operation, |_, _| not_deletable(operation))
            .await);
    }
    if cascade {
        for snapshot in doomed {
            store.move_snapshot(&mut tx, &snapshot.id, &[], "deleting").await?;
        }
    }
    store.ask(&mut tx, Verb::VolumeDelete, id, &json!({"cascade": cascade}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(())
}

fn not_deletable(operation: Operation) -> String {
    let statuses = match operation {
        Operation::ForceDelete => "",
        _ => {
            "status must be available or error or error_restoring or error_extending or \
             error_managing and"
        }
    };
    format!(
        "Volume {statuses} must not be migrating, attached, belong to a group, have snapshots, \
         awaiting a transfer, or be disassociated from snapshots after volume transfer."
    )
}

// ---------------------------------------------------------------- metadata

pub(super) async fn metadata(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_volume_metadata")?;
    let volume = find(service, request, id).await?;
    Ok(with_etag(request, &volume.metadata))
}

fn etag(metadata: &Metadata) -> String {
    let text = json!({"metadata": metadata}).to_string();
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    crate::store::hex(hash.get(..16).unwrap_or_default())
}

fn with_etag(request: &Request, metadata: &Metadata) -> Reply {
    let mut reply = Reply::ok(json!({"metadata": metadata}));
    reply.etag = request.version.has(15).then(|| etag(metadata));
    reply
}

/// Refuses what others changed in between.
fn unchanged(request: &Request, metadata: &Metadata) -> Result<(), Fault> {
    let wanted = request.headers.get("if-match").and_then(|it| it.to_str().ok());
    match wanted {
        Some(wanted) if request.version.has(15) => {
            let wanted = wanted.trim().trim_matches('"');
            if wanted == "*" || wanted == etag(metadata) {
                return Ok(());
            }
            Err(Fault::new(412, "The metadata has changed since it was read."))
        }
        _ => Ok(()),
    }
}

async fn writable(service: &Service, request: &Request, id: &str) -> Result<(), Fault> {
    allow(&request.caller, Needs::Member, "volume:update_volume_metadata")?;
    let volume = find(service, request, id).await?;
    if ["maintenance", "uploading"].contains(&volume.status.as_str()) {
        return Err(Fault::invalid_volume(format!(
            "Updating volume metadata is not allowed for volumes in {} status.",
            volume.status
        )));
    }
    Ok(())
}

pub(super) async fn put_metadata(
    service: &Service,
    request: &Request,
    id: &str,
    replace: bool,
) -> Answer {
    let fields = Fields::of(request, "metadata", &[])?;
    let new = input::metadata("metadata", &Value::Object(fields.into_map()))?;
    writable(service, request, id).await?;
    write_metadata(service, request, id, |pairs| {
        if replace {
            pairs.clear();
        }
        pairs.extend(new.clone());
        Ok(())
    })
    .await?;
    let volume = find(service, request, id).await?;
    Ok(with_etag(request, &volume.metadata))
}

/// Reads and writes the pairs of a volume while it is held.
async fn write_metadata(
    service: &Service,
    request: &Request,
    id: &str,
    change: impl FnOnce(&mut Metadata) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    if !service.when(request, id, Operation::WriteMetadata).apply(store, &mut tx).await? {
        return Err(Fault::invalid_volume(
            "Updating volume metadata is not allowed for volumes in maintenance or uploading status.",
        ));
    }
    let sql = "SELECT volume_id, key, value FROM volume_metadata WHERE volume_id = $1";
    let rows = tx.fetch(sql, &[id.into()]).await?;
    let mut pairs = crate::store::by_owner(&rows, "volume_id")?.remove(id).unwrap_or_default();
    unchanged(request, &pairs)?;
    change(&mut pairs)?;
    input::few_pairs(&pairs)?;
    Pairs::Volume.clear(&mut tx, id).await?;
    Pairs::Volume.put(&mut tx, id, &pairs).await?;
    Ok(tx.commit().await?)
}

fn no_key(id: &str, key: &str) -> Fault {
    Fault::not_found(format!("Volume {id} has no metadata with key {key}."))
}

pub(super) async fn meta(service: &Service, request: &Request, id: &str, key: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_volume_metadata")?;
    let volume = find(service, request, id).await?;
    let value = volume.metadata.get(key).ok_or_else(|| no_key(id, key))?;
    Ok(Reply::ok(json!({"meta": {key: value}})))
}

/// `{"meta": {key: value}}` with the key of the address.
pub(super) fn one_pair(request: &Request, key: &str) -> Result<Metadata, Fault> {
    let fields = Fields::of(request, "meta", &[])?;
    let pairs = input::metadata("meta", &Value::Object(fields.into_map()))?;
    if pairs.len() != 1 || !pairs.contains_key(key) {
        return Err(Fault::bad("Request body and URI mismatch"));
    }
    Ok(pairs)
}

pub(super) async fn put_meta(service: &Service, request: &Request, id: &str, key: &str) -> Answer {
    let new = one_pair(request, key)?;
    writable(service, request, id).await?;
    let pairs = new.clone();
    write_metadata(service, request, id, move |all| {
        all.extend(pairs);
        Ok(())
    })
    .await?;
    Ok(Reply::ok(json!({"meta": new})))
}

pub(super) async fn delete_meta(
    service: &Service,
    request: &Request,
    id: &str,
    key: &str,
) -> Answer {
    allow(&request.caller, Needs::Member, "volume:delete_volume_metadata")?;
    writable(service, request, id).await?;
    let fault = no_key(id, key);
    write_metadata(service, request, id, |all| all.remove(key).map(drop).ok_or(fault)).await?;
    Ok(Reply::empty(200))
}

pub(super) async fn encryption(
    service: &Service,
    request: &Request,
    id: &str,
    key: Option<&str>,
) -> Answer {
    allow(&request.caller, Needs::Reader, "volume_extension:volume_encryption_metadata")?;
    find(service, request, id).await?;
    let known = json!({"encryption_key_id": null});
    match key {
        None => Ok(Reply::ok(known)),
        Some(key) => Ok(Reply::ok(known.get(key).cloned().unwrap_or(Value::Null))),
    }
}
