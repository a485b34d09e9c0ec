//! Backups: making, restoring, removing, and carrying their records elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Service;
use super::actions::{action, no_such_action};
use super::connections::connections;
use super::fault::{Fault, listing as list_fault};
use super::input::{self, Fields};
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use super::snapshots::find as find_snapshot;
use super::types::{hold as hold_type, refuse_encryption};
use super::views;
use super::volumes::{NO_CLONES, find as find_volume, inherit_by_backup, volume_type};
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::model::status::BackupStatus;
use crate::sql::Tx;
use crate::store::backups::{Backup, NewBackup, is_last};
use crate::store::guard::{Change, Set};
use crate::store::limits::Demand;
use crate::store::list::Page;
use crate::store::messages::{Action, NewMessage};
use crate::store::snapshots::Snapshot;
use crate::store::volumes::{NewVolume, Volume};
use crate::store::work::Verb;
use crate::store::{Pairs, new_id, now};
use crate::worker::backend::too_small;

pub(super) const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("backups.id")),
        ("name", Field::Text("backups.display_name")),
        ("display_name", Field::Text("backups.display_name")),
        ("description", Field::Text("backups.display_description")),
        ("status", Field::Text("backups.status")),
        ("volume_id", Field::Text("backups.volume_id")),
        ("snapshot_id", Field::Text("backups.snapshot_id")),
        ("parent_id", Field::Text("backups.parent_id")),
        ("container", Field::Text("backups.container")),
        ("availability_zone", Field::Text("backups.availability_zone")),
        ("project_id", Field::Text("backups.project_id")),
        ("user_id", Field::Text("backups.user_id")),
        ("size", Field::Number("backups.size")),
        ("object_count", Field::Number("backups.object_count")),
        ("metadata", Field::Pairs("backup_metadata", "backup_id", "backups.id")),
        ("data_timestamp", Field::Time("backups.data_timestamp")),
        ("created_at", Field::Time("backups.created_at")),
        ("updated_at", Field::Time("backups.updated_at")),
    ],
    members: &["name", "display_name", "status", "volume_id"],
    later: Later { orders: &[("name", 37)], ..Later::NOTHING },
};

/// Of a backup that nobody is there to make.
const NO_SERVICE: &str = "Service not found for creating backup.";
const NO_PARENT: &str = "No backups available to do an incremental backup.";
/// The name of this service in exported records.
const SERVICE: &str = "cinder.backup.drivers.holdfast";
/// The longest name of a stored backup that an index takes.
const HANDLE_BYTES: usize = 1024;
/// As records of before name it.
const SERVICE_BEFORE: &str = "holdfast";

async fn find(service: &Service, request: &Request, id: &str) -> Result<Backup, Fault> {
    let found = service.store.backup(id, request.scope()).await?;
    found.ok_or_else(|| Fault::no_such("Backup", id))
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "backup:get")?;
    let backup = find(service, request, id).await?;
    Ok(Reply::ok(json!({"backup": views::backup(request, &backup)})))
}

/// The page a request asks for, of backups that the caller may see.
pub(super) fn page(request: &Request) -> Result<Page, Fault> {
    let mut page = RESOURCE.page(request)?;
    listing::isolate(request, &mut page, "backups.project_id")?;
    Ok(page)
}

pub(super) async fn list(service: &Service, request: &Request, detail: bool) -> Answer {
    allow(&request.caller, Needs::Reader, "backup:get_all")?;
    let page = page(request)?;
    let (found, count) = service.store.backups(&page).await.map_err(list_fault("Backup"))?;
    let items: Vec<Value> = found
        .iter()
        .map(|it| {
            if detail {
                views::backup(request, it)
            } else {
                views::backup_summary(request, &it.id, it.name.as_deref())
            }
        })
        .collect();
    let collection = if detail { "backups/detail" } else { "backups" };
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, collection, &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("backups", items, ("backups_links", next), count)))
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Member, "backup:create")?;
    let fields = Fields::of(request, "backup", &[])?;
    let mut known = vec![
        "volume_id",
        "name",
        "description",
        "container",
        "incremental",
        "force",
        "snapshot_id",
    ];
    known.extend(request.version.has(43).then_some("metadata"));
    known.extend(request.version.has(51).then_some("availability_zone"));
    fields.only(&known)?;
    fields.required("volume_id")?;
    let volume_id = fields.uuid("volume_id")?;
    let volume_id = volume_id.ok_or_else(|| Fault::bad("'volume_id' is a required property"))?;
    let force = fields.truth("force")?.unwrap_or(false);
    let incremental = fields.truth("incremental")?.unwrap_or(false);
    let snapshot_id = fields.uuid("snapshot_id")?;
    let mut new = NewBackup {
        id: new_id(),
        user_id: request.caller.user_id.clone(),
        project_id: request.caller.project_id.clone(),
        volume_id: volume_id.clone(),
        name: fields.text("name")?,
        description: fields.text("description")?,
        container: fields.text("container")?,
        availability_zone: fields.text("availability_zone")?,
        metadata: fields.metadata("metadata")?.unwrap_or_default(),
        status: "creating",
        ..NewBackup::default()
    };
    let volume = find_volume(service, request, &volume_id).await?;
    let store = &service.store;
    let snapshot = match &snapshot_id {
        Some(id) => Some(find_snapshot(service, request, id).await?),
        None => None,
    };
    let mut tx = store.on_volume(&volume_id).await?;
    let is_made = store.makes_backups(&mut tx).await?;
    let mark = if is_made { BackupStatus::BackingUp } else { BackupStatus::ErrorBackingUp };
    if let Some(snapshot) = snapshot {
        mark_snapshot(service, request, &mut tx, snapshot, &mut new).await?;
    } else {
        if !mark_volume(service, request, &mut tx, (&volume_id, force), mark).await? {
            drop(tx);
            return Err(not_backed_up(service, request, &volume_id, force).await);
        }
        let sql = "SELECT size FROM volumes WHERE id = $1";
        let row = tx.fetch_one(sql, &[volume_id.as_str().into()]).await?;
        new.size = row.map_or(Ok(volume.size), |row| row.int("size"))?;
    }
    let demand = Demand { backups: 1, backup_gigabytes: new.size, ..Demand::default() };
    store.afford(&mut tx, &new.project_id, demand).await??;
    if incremental {
        let before = new.data_timestamp.as_deref();
        let project = request.caller.project_id.as_str();
        let parent = store.incremental_parent(&mut tx, &volume_id, project, before).await?;
        new.parent_id = Some(parent.ok_or_else(|| Fault::invalid_backup(NO_PARENT))?);
    }
    if is_made {
        store.insert_backup(&mut tx, &new).await?;
        let verb = Verb::BackupCreate;
        store.ask_in_turn(&mut tx, verb, (&new.id, &volume_id), &json!({}), &request.id).await?;
    } else {
        (new.status, new.fail_reason) = ("error", Some(NO_SERVICE));
        store.insert_backup(&mut tx, &new).await?;
        if let Some(snapshot) = &new.snapshot_id {
            store.move_snapshot(&mut tx, snapshot, &["backing-up"], "available").await?;
        }
        let message = NewMessage {
            project_id: &new.project_id,
            request_id: Some(&request.id),
            resource_type: "VOLUME_BACKUP",
            resource_id: &new.id,
            action: Action::CreateBackup,
            detail: "024",
        };
        store.tell(&mut tx, message).await?;
    }
    tx.commit().await?;
    store.wake();
    let view = views::backup_summary(request, &new.id, new.name.as_deref());
    Ok(Reply::accepted(json!({"backup": view})))
}

/// Refuses what only a backup service can do while an operator has taken all of them out of use.
pub(super) async fn served(service: &Service, tx: &mut Tx) -> Result<(), Fault> {
    if service.store.makes_backups(tx).await? {
        return Ok(());
    }
    Err(Fault::not_found("Service cinder-backup could not be found."))
}

/// One conditional update: all that must be so, and the mark that keeps others away.
async fn mark_volume(
    service: &Service,
    request: &Request,
    tx: &mut Tx,
    (id, force): (&str, bool),
    mark: BackupStatus,
) -> Result<bool, Fault> {
    let operation = if force { Operation::BackupForced } else { Operation::Backup };
    let change = service.when(request, id, operation);
    let change = change.set(Set::Backup(Some(mark)));
    Ok(change.apply(&service.store, tx).await?)
}

/// Whether what a backup left behind is in nobody's way.
fn is_idle(volume: &Volume) -> bool {
    let left = volume.backup_status.as_deref();
    left.is_none() || left == Some(BackupStatus::ErrorBackingUp.as_str())
}

async fn not_backed_up(service: &Service, request: &Request, id: &str, force: bool) -> Fault {
    let operation = if force { Operation::BackupForced } else { Operation::Backup };
    match find_volume(service, request, id).await {
        Err(fault) => fault,
        Ok(volume) if !force && volume.status == "in-use" && is_idle(&volume) => {
            Fault::invalid_volume("Backing up an in-use volume must use the force flag.")
        }
        Ok(_) => {
            let said = |_: &Volume, seen: &str| {
                format!(
                    "Volume to be backed up must be available or in-use, but the current status is \
                     \"{seen}\"."
                )
            };
            service.rejection(request, id, operation, said).await
        }
    }
}

/// A backup of a snapshot marks the snapshot, not the volume.
async fn mark_snapshot(
    service: &Service,
    request: &Request,
    tx: &mut Tx,
    snapshot: Snapshot,
    new: &mut NewBackup,
) -> Result<(), Fault> {
    let store = &service.store;
    let id = snapshot.id.as_str();
    if snapshot.volume_id != new.volume_id {
        return Err(Fault::invalid_volume(format!(
            "Volume {} does not match with snapshot.volume_id {}.",
            new.volume_id, snapshot.volume_id
        )));
    }
    let free = service.when(request, &new.volume_id, Operation::BackupOfSnapshot);
    if !free.apply(store, tx).await? {
        return Err(Fault::invalid_volume(format!(
            "Volume {} is being restored from a backup; its snapshots can be backed up afterwards.",
            new.volume_id
        )));
    }
    tx.lock("snapshots", id).await?;
    if !store.move_snapshot(tx, id, &["available"], "backing-up").await? {
        let sql = "SELECT status FROM snapshots WHERE id = $1 AND deleted = 0";
        let row = tx.fetch_one(sql, &[id.into()]).await?;
        let seen = row.map_or(Ok("deleted".to_owned()), |row| row.text("status"))?;
        return Err(Fault::invalid_snapshot(format!(
            "Snapshot to be backed up must be available, but the current status is \"{seen}\"."
        )));
    }
    new.size = snapshot.size;
    new.data_timestamp = Some(snapshot.created_at);
    new.snapshot_id = Some(snapshot.id);
    Ok(())
}

pub(super) async fn update(service: &Service, request: &Request, id: &str) -> Answer {
    request.since(9)?;
    allow(&request.caller, Needs::Member, "backup:update")?;
    let fields = Fields::of(request, "backup", &[])?;
    let known: &[&str] = if request.version.has(43) {
        &["name", "description", "metadata"]
    } else {
        &["name", "description"]
    };
    fields.only(known)?;
    if fields.is_empty() {
        return Err(input::invalid("backup", &json!({}), "{} does not have enough properties"));
    }
    find(service, request, id).await?;
    let mut sql = crate::store::statement::Statement::new("UPDATE backups SET updated_at = ");
    sql.bind(now());
    if fields.has("name") {
        sql.push(", display_name = ").bind(fields.text("name")?);
    }
    if fields.has("description") {
        sql.push(", display_description = ").bind(fields.text("description")?);
    }
    sql.push(" WHERE deleted = 0 AND id = ").bind(id);
    let mut tx = service.store.db.begin().await?;
    tx.execute(&sql.text, &sql.values).await?;
    if let Some(metadata) = fields.metadata("metadata")? {
        Pairs::Backup.clear(&mut tx, id).await?;
        Pairs::Backup.put(&mut tx, id, &metadata).await?;
    }
    tx.commit().await?;
    let backup = find(service, request, id).await?;
    let view = views::backup_summary(request, &backup.id, backup.name.as_deref());
    Ok(Reply::ok(json!({"backup": view})))
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "backup:delete")?;
    remove(service, request, id, &["available", "error"]).await
}

/// A backup, held together with the volume it is of or is restored to: neither begins nor ends
/// anything meanwhile.
async fn hold(service: &Service, request: &Request, id: &str) -> Result<(Tx, Backup), Fault> {
    let store = &service.store;
    let volume_of = |it: &Backup| {
        let target = it.restore_volume_id.as_ref().filter(|_| it.status == "restoring");
        target.unwrap_or(&it.volume_id).clone()
    };
    let mut volume = volume_of(&find(service, request, id).await?);
    loop {
        // Volumes before their backups, as everybody does.
        let mut tx = store.on_volume(&volume).await?;
        tx.lock("backups", id).await?;
        let held = store.held_backup(&mut tx, id).await?;
        let held = held.ok_or_else(|| Fault::no_such("Backup", id))?;
        let now = volume_of(&held);
        if now == volume {
            return Ok((tx, held));
        }
        // A restore began before it was held.
        drop(tx);
        volume = now;
    }
}

async fn remove(service: &Service, request: &Request, id: &str, from: &[&str]) -> Answer {
    let store = &service.store;
    let (mut tx, backup) = hold(service, request, id).await?;
    let child = "SELECT id FROM backups WHERE parent_id = $1 AND deleted = 0";
    if tx.fetch_one(child, &[id.into()]).await?.is_some() {
        return Err(Fault::invalid_backup("Incremental backups exist for this backup."));
    }
    served(service, &mut tx).await?;
    if !store.move_backup(&mut tx, id, from, "deleting", &[]).await? {
        return Err(Fault::invalid_backup("Backup status must be available or error"));
    }
    release(service, &mut tx, &backup).await?;
    store.ask(&mut tx, Verb::BackupDelete, id, &json!({}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

/// A backup that ends while it ran lets go of what it held.
async fn release(service: &Service, tx: &mut Tx, backup: &Backup) -> Result<(), Fault> {
    let store = &service.store;
    let sql = "SELECT created_at, status FROM workers WHERE resource_type = 'backup' \
         AND resource_id = $1";
    let (begun, word) = match tx.fetch_one(sql, &[backup.id.as_str().into()]).await? {
        Some(row) => (row.text("created_at")?, row.text("status")?),
        None => (String::new(), String::new()),
    };
    if word == Verb::BackupImport.words().1 {
        // A record that is looked for holds nothing.
        return Ok(());
    }
    match (backup.status.as_str(), &backup.snapshot_id, &backup.restore_volume_id) {
        ("creating", Some(snapshot), _) => {
            store.move_snapshot(tx, snapshot, &["backing-up"], "available").await?;
        }
        ("creating", None, _) => {
            let change = Change::of(&backup.volume_id)
                .while_backup(BackupStatus::BackingUp)
                .only_if_with(&is_last(Verb::BackupCreate, &begun))
                .set(Set::Backup(None));
            change.apply(store, tx).await?;
        }
        ("restoring", _, Some(volume)) => {
            let change = Change::of(volume)
                .while_backup(BackupStatus::RestoringBackup)
                .only_if_with(&is_last(Verb::BackupRestore, &begun))
                .set(Set::Backup(Some(BackupStatus::ErrorRestoring)))
                .set(Set::StatusNotCreated);
            change.apply(store, tx).await?;
        }
        _ => {}
    }
    Ok(())
}

pub(super) async fn restore(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "backup:restore")?;
    let fields = Fields::of(request, "restore", &[])?;
    fields.only(&["volume_id", "name"])?;
    let backup = find(service, request, id).await?;
    let name = fields.text("name")?;
    let (volume_id, volume_name) = match fields.uuid("volume_id")? {
        Some(target) => restore_into(service, request, &backup, &target).await?,
        None => restore_new(service, request, &backup, name).await?,
    };
    service.store.wake();
    Ok(Reply::accepted(json!({"restore": {
        "backup_id": id, "volume_id": volume_id, "volume_name": volume_name,
    }})))
}

/// How large a volume has to be for a backup, where that is more than the volume had when it was made:
/// a store keeps one size of a volume, that of its newest backup. Whoever carries the restore out asks
/// again, so one whose size cannot be told now is accepted.
pub(super) async fn grown(service: &Service, backup: &Backup) -> Option<i64> {
    let handle = backup.service_metadata.as_deref()?;
    let stored = service.backend.find_stored(handle).await;
    let stored = stored.unwrap_or_else(|error| {
        tracing::warn!(backup = backup.id, %error, "a stored backup cannot be looked up");
        None
    });
    stored?.gib.filter(|it| *it > backup.size)
}

const NOT_RESTORABLE: &str = "Backup status must be available";

async fn begin_restore(
    service: &Service,
    request: &Request,
    tx: &mut Tx,
    backup: &Backup,
    volume: &str,
    is_new: bool,
) -> Result<(), Fault> {
    let store = &service.store;
    served(service, tx).await?;
    let also = [("restore_volume_id", volume.into())];
    if !store.move_backup(tx, &backup.id, &["available"], "restoring", &also).await? {
        return Err(Fault::invalid_backup(NOT_RESTORABLE));
    }
    let detail = json!({"volume": volume, "creates": false, "new": is_new});
    let which = (backup.id.as_str(), volume);
    Ok(store.ask_in_turn(tx, Verb::BackupRestore, which, &detail, &request.id).await?)
}

async fn restore_into(
    service: &Service,
    request: &Request,
    backup: &Backup,
    target: &str,
) -> Result<(String, Option<String>), Fault> {
    let volume = find_volume(service, request, target).await?;
    if backup.status != "available" {
        return Err(Fault::invalid_backup(NOT_RESTORABLE));
    }
    if volume.size < backup.size {
        return Err(Fault::invalid_volume(format!(
            "volume size {} is too small to restore backup of size {}.",
            volume.size, backup.size
        )));
    }
    if let Some(gib) = grown(service, backup).await.filter(|it| volume.size < *it) {
        return Err(Fault::invalid_volume(format!(
            "volume size {} is too small to restore backup of size {}: {}.",
            volume.size,
            backup.size,
            too_small(gib)
        )));
    }
    if let Some(client) = connections(service, &volume).await?.into_iter().next() {
        return Err(Fault::invalid_volume(format!(
            "Volume {target} is connected ({client}); what a client uses is not replaced. Terminate \
             the connection first."
        )));
    }
    let store = &service.store;
    let mut tx = store.on_volume(target).await?;
    let change = service
        .when(request, target, Operation::RestoreInto)
        .only_if(NO_CLONES)
        .set(Set::Backup(Some(BackupStatus::RestoringBackup)));
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, _: &str| "Volume to be restored to must be available".to_owned();
        return Err(service.rejection(request, target, Operation::RestoreInto, said).await);
    }
    begin_restore(service, request, &mut tx, backup, target, false).await?;
    tx.commit().await?;
    Ok((volume.id, volume.name))
}

async fn restore_new(
    service: &Service,
    request: &Request,
    backup: &Backup,
    name: Option<String>,
) -> Result<(String, Option<String>), Fault> {
    let kind = volume_type(service, request, None, None).await?;
    refuse_encryption(&kind)?;
    let mut new = NewVolume {
        id: new_id(),
        user_id: request.caller.user_id.clone(),
        project_id: request.caller.project_id.clone(),
        size: grown(service, backup).await.unwrap_or(backup.size),
        availability_zone: service.behaviour.zone.clone(),
        host: service.behaviour.host.clone(),
        name: Some(name.unwrap_or_else(|| format!("restore_backup_{}", backup.id))),
        description: Some("auto-created_from_restore_from_backup".to_owned()),
        volume_type_id: kind.id.clone(),
        multiattach: kind.is_multiattach(),
        backup_status: Some(BackupStatus::RestoringBackup.as_str()),
        ..NewVolume::default()
    };
    inherit_by_backup(service, backup, &mut new).await?;
    let store = &service.store;
    let mut tx = store.db.begin().await?;
    hold_type(service, &mut tx, &kind).await?;
    let demand = Demand {
        volumes: 1,
        gigabytes: new.size,
        per_volume: Some(new.size),
        type_name: Some(&kind.name),
        type_id: Some(&kind.id),
        ..Demand::default()
    };
    store.afford(&mut tx, &new.project_id, demand).await??;
    store.insert_volume(&mut tx, &new).await?;
    begin_restore(service, request, &mut tx, backup, &new.id, true).await?;
    tx.commit().await?;
    Ok((new.id, new.name))
}

pub(super) async fn act(service: &Service, request: &Request, id: &str) -> Answer {
    let (name, args) = action(request)?;
    match name.as_str() {
        "os-reset_status" => {
            allow(
                &request.caller,
                Needs::Admin,
                "volume_extension:backup_admin_actions:reset_status",
            )?;
            let fields = Fields::from("os-reset_status", args)?;
            fields.only(&["status"])?;
            let status = fields.text("status")?.unwrap_or_default().to_lowercase();
            if !["available", "error"].contains(&status.as_str()) {
                return Err(Fault::bad(format!(
                    "Backup status: {status} is invalid, valid statuses are: ['available', 'error']."
                )));
            }
            reset(service, request, id, &status).await
        }
        "os-force_delete" => {
            allow(
                &request.caller,
                Needs::Admin,
                "volume_extension:backup_admin_actions:force_delete",
            )?;
            remove(service, request, id, &[]).await
        }
        other => Err(no_such_action(other)),
    }
}

async fn reset(service: &Service, request: &Request, id: &str, status: &str) -> Answer {
    let store = &service.store;
    let (mut tx, backup) = hold(service, request, id).await?;
    store.move_backup(&mut tx, id, &[], status, &[]).await?;
    release(service, &mut tx, &backup).await?;
    store.cancel(&mut tx, "backup", id).await?;
    tx.commit().await?;
    Ok(Reply::empty(202))
}

// ---------------------------------------------------------------- records

pub(super) async fn export(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "backup:export-import")?;
    let it = find(service, request, id).await?;
    if it.status != "available" {
        return Err(Fault::invalid_backup(format!(
            "Backup status must be available and not {}.",
            it.status
        )));
    }
    served(service, &mut service.store.db.begin().await?).await?;
    let record = json!({
        "id": it.id,
        "user_id": it.user_id,
        "project_id": it.project_id,
        "volume_id": it.volume_id,
        "size": it.size,
        "object_count": it.object_count,
        "container": it.container,
        "display_name": it.name,
        "display_description": it.description,
        "availability_zone": it.availability_zone,
        "data_timestamp": it.data_timestamp,
        "created_at": it.created_at,
        "service": it.service.unwrap_or_else(|| SERVICE.to_owned()),
        "service_metadata": it.service_metadata,
        "status": it.status,
        "backup_metadata": it.metadata,
    });
    Ok(Reply::ok(json!({"backup-record": {
        "backup_service": SERVICE,
        "backup_url": STANDARD.encode(record.to_string()),
    }})))
}

pub(super) async fn import(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Admin, "backup:export-import")?;
    let fields = Fields::of(request, "backup-record", &[])?;
    fields.only(&["backup_service", "backup_url"])?;
    let unreadable = || Fault::invalid_input("Can't parse backup record.");
    let (Some(Value::String(from)), Some(Value::String(url))) =
        (fields.get("backup_service"), fields.get("backup_url"))
    else {
        return Err(Fault::bad("'backup_service' and 'backup_url' are required properties"));
    };
    let store = &service.store;
    if !store.makes_backups(&mut store.db.begin().await?).await? {
        return Err(Fault::unavailable("There is no backup service that could look for it now."));
    }
    let bytes = STANDARD.decode(url.trim()).map_err(|_| unreadable())?;
    let record: Value = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
    let record = Fields::from("backup-record", record)?;
    let text = |key: &str| record.text(key);
    let id = text("id")?.and_then(|it| uuid::Uuid::parse_str(&it).ok()).ok_or_else(unreadable)?;
    let size =
        record.get("size").and_then(Value::as_i64).filter(|it| (1..=input::SIZE_MAX).contains(it));
    let handle = match record.get("service_metadata") {
        Some(Value::String(handle)) if !handle.contains('\0') && handle.len() <= HANDLE_BYTES => {
            handle.clone()
        }
        _ => return Err(unreadable()),
    };
    if from != SERVICE && from != SERVICE_BEFORE {
        return Err(Fault::unavailable(format!(
            "There is no service here that reads backups of {from}."
        )));
    }
    let metadata = record.metadata("backup_metadata")?.unwrap_or_default();
    let new = NewBackup {
        id: id.to_string(),
        user_id: request.caller.user_id.clone(),
        project_id: request.caller.project_id.clone(),
        volume_id: text("volume_id")?
            .filter(|it| uuid::Uuid::parse_str(it).is_ok())
            .unwrap_or_else(|| uuid::Uuid::nil().to_string()),
        name: text("display_name")?,
        description: text("display_description")?,
        container: text("container")?,
        availability_zone: text("availability_zone")?,
        size: size.ok_or_else(unreadable)?,
        object_count: record.get("object_count").and_then(Value::as_i64).unwrap_or_default(),
        data_timestamp: match text("data_timestamp")? {
            Some(time) => Some(listing::moment(&time).ok_or_else(unreadable)?),
            None => None,
        },
        service: Some(SERVICE.to_owned()),
        service_metadata: Some(handle),
        metadata,
        status: "creating",
        ..NewBackup::default()
    };
    let mut tx = store.db.begin().await?;
    tx.lock_name(&new.id).await?;
    if let Some(handle) = &new.service_metadata {
        // Whoever removes what it is of has seen this record, or is seen by it.
        tx.lock_name(handle).await?;
    }
    let there = "SELECT deleted FROM backups WHERE id = $1";
    match tx.fetch_one(there, &[new.id.as_str().into()]).await? {
        Some(row) if row.int("deleted")? == 0 => {
            return Err(Fault::invalid_backup("Backup already exists in database."));
        }
        Some(_) => {
            // One that was deleted here comes back.
            Pairs::Backup.clear(&mut tx, &new.id).await?;
            tx.execute("DELETE FROM backups WHERE id = $1", &[new.id.as_str().into()]).await?;
        }
        None => {}
    }
    // Under two ids, too: the data goes with the last of them.
    let demand = Demand { backups: 1, backup_gigabytes: new.size, ..Demand::default() };
    store.afford(&mut tx, &new.project_id, demand).await??;
    store.insert_backup(&mut tx, &new).await?;
    store.ask(&mut tx, Verb::BackupImport, &new.id, &json!({}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    let view = views::backup_summary(request, &new.id, new.name.as_deref());
    Ok(Reply::new(201, &json!({"backup": view})))
}
