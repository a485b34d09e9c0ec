//! Snapshots.

use serde_json::{Value, json};

use super::Service;
use super::actions::{action, no_such_action};
use super::fault::{Fault, listing as list_fault};
use super::input::{self, Fields};
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use super::views;
use super::volumes::{find as find_volume, one_pair};
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::sql::Tx;
use crate::store::limits::Demand;
use crate::store::list::Page;
use crate::store::snapshots::{NewSnapshot, Snapshot};
use crate::store::volumes::Volume;
use crate::store::work::Verb;
use crate::store::{Pairs, new_id, now};

pub(super) const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("snapshots.id")),
        ("name", Field::Text("snapshots.display_name")),
        ("display_name", Field::Text("snapshots.display_name")),
        ("description", Field::Text("snapshots.display_description")),
        ("status", Field::Text("snapshots.status")),
        ("volume_id", Field::Text("snapshots.volume_id")),
        ("project_id", Field::Text("snapshots.project_id")),
        ("user_id", Field::Text("snapshots.user_id")),
        ("volume_type_id", Field::Text("snapshots.volume_type_id")),
        (
            "availability_zone",
            Field::Text(
                "(SELECT v.availability_zone FROM volumes v WHERE v.id = snapshots.volume_id)",
            ),
        ),
        ("size", Field::Number("snapshots.volume_size")),
        ("volume_size", Field::Number("snapshots.volume_size")),
        ("consumes_quota", Field::Truth("snapshots.use_quota")),
        ("metadata", Field::Pairs("snapshot_metadata", "snapshot_id", "snapshots.id")),
        ("created_at", Field::Time("snapshots.created_at")),
        ("updated_at", Field::Time("snapshots.updated_at")),
    ],
    members: &[
        "name",
        "display_name",
        "status",
        "volume_id",
        "metadata",
        "availability_zone",
        "consumes_quota",
    ],
    later: Later {
        filters: &[("metadata", 22), ("consumes_quota", 65)],
        orders: &[("name", 30)],
        ..Later::NOTHING
    },
};

const STATUSES: &[&str] = &[
    "error",
    "available",
    "creating",
    "deleting",
    "deleted",
    "updating",
    "error_deleting",
    "unmanaging",
    "backing-up",
    "restoring",
];

pub(super) async fn find(
    service: &Service,
    request: &Request,
    id: &str,
) -> Result<Snapshot, Fault> {
    let found = service.store.snapshot(id, request.scope()).await?;
    found.ok_or_else(|| Fault::no_such("Snapshot", id))
}

/// Holds a snapshot that is still the caller's: it goes with its volume when that changes hands.
pub(super) async fn hold(
    service: &Service,
    request: &Request,
    tx: &mut Tx,
    id: &str,
) -> Result<(), Fault> {
    tx.lock("snapshots", id).await?;
    match service.store.snapshot_project(tx, id).await? {
        Some(project) if request.scope().is_none_or(|own| own == project) => Ok(()),
        _ => Err(Fault::no_such("Snapshot", id)),
    }
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_snapshot")?;
    let snapshot = find(service, request, id).await?;
    Ok(Reply::ok(json!({"snapshot": views::snapshot(request, &snapshot, true, true)})))
}

/// The page a request asks for, of snapshots that the caller may see.
pub(super) fn page(request: &Request) -> Result<Page, Fault> {
    let mut page = RESOURCE.page(request)?;
    listing::isolate(request, &mut page, "snapshots.project_id")?;
    Ok(page)
}

pub(super) async fn list(service: &Service, request: &Request, detail: bool) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_all_snapshots")?;
    let page = page(request)?;
    let (found, count) = service.store.snapshots(&page).await.map_err(list_fault("Snapshot"))?;
    let items: Vec<Value> =
        found.iter().map(|it| views::snapshot(request, it, detail, detail)).collect();
    let collection = if detail { "snapshots/detail" } else { "snapshots" };
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, collection, &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("snapshots", items, ("snapshots_links", next), count)))
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Member, "volume:create_snapshot")?;
    let fields = Fields::of(request, "snapshot", &[])?;
    fields.required("volume_id")?;
    let volume_id = fields.uuid("volume_id")?;
    // Null is taken for the name of a volume that is not there.
    let volume_id = volume_id.ok_or_else(|| Fault::no_such("Volume", "None"))?;
    let force = fields.truth("force")?;
    let operation = if request.version.has(66) {
        if force == Some(false) {
            return Err(Fault::bad(
                "Invalid input for field/attribute force. Value: False. From microversion 3.66 \
                 snapshots of in-use volumes need no force; it may only be true.",
            ));
        }
        Operation::SnapshotForced
    } else if force == Some(true) {
        Operation::SnapshotForced
    } else {
        Operation::Snapshot
    };
    let volume = find_volume(service, request, &volume_id).await?;
    let store = &service.store;
    let mut tx = store.on_volume(&volume_id).await?;
    if !service.when(request, &volume_id, operation).apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, seen: &str| refused(request, &volume_id, seen, operation);
        return Err(service.rejection(request, &volume_id, operation, said).await);
    }
    // As they are now that the volume is held.
    let sql = "SELECT size, project_id, COALESCE(name_id, id) AS behind FROM volumes WHERE id = $1";
    let row = tx.fetch_one(sql, &[volume_id.as_str().into()]).await?;
    let row = row.ok_or_else(|| Fault::no_such("Volume", &volume_id))?;
    let size = row.int("size")?;
    let new = NewSnapshot {
        id: new_id(),
        user_id: request.caller.user_id.clone(),
        project_id: row.text("project_id")?,
        volume_id: volume_id.clone(),
        provider_id: row.text("behind")?,
        volume_type_id: volume.volume_type_id.clone(),
        size,
        name: fields.text_of(["name", "display_name"])?,
        description: fields.text_of(["description", "display_description"])?,
        metadata: fields.metadata("metadata")?.unwrap_or_default(),
    };
    let demand = Demand {
        snapshots: 1,
        gigabytes: size,
        type_name: volume.volume_type.as_deref(),
        type_id: Some(&volume.volume_type_id),
        ..Demand::default()
    };
    store.afford(&mut tx, &new.project_id, demand).await??;
    store.insert_snapshot(&mut tx, &new).await?;
    store.ask(&mut tx, Verb::SnapshotCreate, &new.id, &json!({}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    let snapshot = find(service, request, &new.id).await?;
    Ok(Reply::accepted(json!({"snapshot": views::snapshot(request, &snapshot, true, false)})))
}

fn refused(request: &Request, id: &str, seen: &str, operation: Operation) -> String {
    if seen == "error" {
        return format!(
            "Volume {id}: The snapshot cannot be created when the volume is in error status."
        );
    }
    let wanted = match operation {
        _ if request.version.has(66) => "available, in-use",
        Operation::SnapshotForced => "available or in-use",
        _ => "available",
    };
    format!("Volume {id} status must be {wanted}, but current status is: {seen}.")
}

pub(super) async fn update(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:update_snapshot")?;
    let fields = Fields::of(request, "snapshot", &[])?;
    fields.only(&["name", "description", "display_name", "display_description"])?;
    if fields.is_empty() {
        return Err(input::invalid("snapshot", &json!({}), "{} does not have enough properties"));
    }
    find(service, request, id).await?;
    let mut sql = crate::store::statement::Statement::new("UPDATE snapshots SET updated_at = ");
    sql.bind(now());
    if fields.has("name") || fields.has("display_name") {
        sql.push(", display_name = ").bind(fields.text_of(["name", "display_name"])?);
    }
    if fields.has("description") || fields.has("display_description") {
        let text = fields.text_of(["description", "display_description"])?;
        sql.push(", display_description = ").bind(text);
    }
    sql.push(" WHERE deleted = 0 AND id = ").bind(id);
    let mut tx = service.store.db.begin().await?;
    hold(service, request, &mut tx, id).await?;
    tx.execute(&sql.text, &sql.values).await?;
    tx.commit().await?;
    let snapshot = find(service, request, id).await?;
    Ok(Reply::ok(json!({"snapshot": views::snapshot(request, &snapshot, true, false)})))
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:delete_snapshot")?;
    find(service, request, id).await?;
    remove(service, request, id, &["available", "error"]).await
}

async fn remove(service: &Service, request: &Request, id: &str, from: &[&str]) -> Answer {
    let store = &service.store;
    let mut tx = store.db.begin().await?;
    hold(service, request, &mut tx, id).await?;
    let busy =
        "SELECT id FROM volumes WHERE snapshot_id = $1 AND deleted = 0 AND status = 'creating'";
    let is_source = tx.fetch_one(busy, &[id.into()]).await?.is_some();
    if is_source || !store.move_snapshot(&mut tx, id, from, "deleting").await? {
        return Err(Fault::invalid_snapshot(
            "Snapshot status must be available or error and must not be part of a group.",
        ));
    }
    store.ask(&mut tx, Verb::SnapshotDelete, id, &json!({}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

pub(super) async fn act(service: &Service, request: &Request, id: &str) -> Answer {
    let (name, args) = action(request)?;
    match name.as_str() {
        "os-reset_status" => {
            allow(
                &request.caller,
                Needs::Admin,
                "volume_extension:snapshot_admin_actions:reset_status",
            )?;
            let fields = Fields::from("os-reset_status", args)?;
            fields.only(&["status"])?;
            let wanted = fields.text("status")?.unwrap_or_default().to_lowercase();
            let Some(status) = STATUSES.iter().find(|it| **it == wanted) else {
                return Err(Fault::bad(format!(
                    "Snapshot status: {wanted} is invalid, valid statuses are: {}.",
                    listed(STATUSES)
                )));
            };
            find(service, request, id).await?;
            let store = &service.store;
            let mut tx = store.db.begin().await?;
            store.move_snapshot(&mut tx, id, &[], status).await?;
            store.cancel(&mut tx, "snapshot", id).await?;
            tx.commit().await?;
            Ok(Reply::empty(202))
        }
        "os-update_snapshot_status" => {
            allow(
                &request.caller,
                Needs::Member,
                "snapshot_extension:snapshot_actions:update_snapshot_status",
            )?;
            update_status(service, request, id, args).await
        }
        "os-force_delete" => {
            allow(
                &request.caller,
                Needs::Admin,
                "volume_extension:snapshot_admin_actions:force_delete",
            )?;
            find(service, request, id).await?;
            remove(service, request, id, &[]).await
        }
        "os-unmanage" => {
            allow(&request.caller, Needs::Admin, "snapshot_extension:snapshot_unmanage")?;
            find(service, request, id).await?;
            Err(Fault::bad("Snapshots cannot be taken out of this service and kept: delete them."))
        }
        other => Err(no_such_action(other)),
    }
}

pub(super) fn listed(values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|it| format!("'{it}'")).collect();
    format!("({})", values.join(", "))
}

/// A snapshot made with the help of a compute service tells how far it is.
async fn update_status(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-update_snapshot_status", args)?;
    let wanted = fields.text("status")?;
    let wanted = wanted.ok_or_else(|| Fault::bad("'status' must be specified."))?;
    let progress = fields.text("progress")?;
    let is_percent = |it: &str| {
        let number = it.strip_suffix('%').and_then(|it| it.parse::<u8>().ok());
        number.is_some_and(|it| it <= 100)
    };
    if progress.as_deref().is_some_and(|it| !is_percent(it)) {
        return Err(Fault::bad("progress must be an integer percentage"));
    }
    let snapshot = find(service, request, id).await?;
    let allowed: &[&str] = match snapshot.status.as_str() {
        "creating" => &["creating", "available", "error"],
        "deleting" => &["deleting", "error_deleting"],
        _ => &[],
    };
    let refused = |seen: &str| {
        Fault::bad(format!(
            "Provided snapshot status {wanted} not allowed for snapshot with status {seen}."
        ))
    };
    let Some(status) = allowed.iter().find(|it| **it == wanted) else {
        return Err(refused(&snapshot.status));
    };
    if *status == "available" && !request.caller.is_admin() && !request.caller.is_service {
        // Whoever takes it says so; a member's word does not make it be there.
        return Err(Fault::forbidden("snapshot_extension:snapshot_actions:update_snapshot_status"));
    }
    let store = &service.store;
    let mut tx = store.db.begin().await?;
    hold(service, request, &mut tx, id).await?;
    if !store.move_snapshot(&mut tx, id, &[&snapshot.status], status).await? {
        // It went on meanwhile: what was told is of a time that is over.
        let sql = "SELECT status FROM snapshots WHERE id = $1";
        let row = tx.fetch_one(sql, &[id.into()]).await?;
        return Err(refused(&row.map_or(Ok("deleted".to_owned()), |row| row.text("status"))?));
    }
    if let Some(progress) = progress {
        let sql = "UPDATE snapshots SET progress = $2 WHERE id = $1 AND deleted = 0";
        tx.execute(sql, &[id.into(), progress.into()]).await?;
    }
    tx.commit().await?;
    Ok(Reply::empty(202))
}

// ---------------------------------------------------------------- metadata

pub(super) async fn metadata(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_snapshot_metadata")?;
    let snapshot = find(service, request, id).await?;
    Ok(Reply::ok(json!({"metadata": snapshot.metadata})))
}

pub(super) async fn put_metadata(
    service: &Service,
    request: &Request,
    id: &str,
    replace: bool,
) -> Answer {
    allow(&request.caller, Needs::Member, "volume:update_snapshot_metadata")?;
    let fields = Fields::of(request, "metadata", &[])?;
    let new = input::metadata("metadata", &Value::Object(fields.into_map()))?;
    find(service, request, id).await?;
    let mut tx = service.store.db.begin().await?;
    hold(service, request, &mut tx, id).await?;
    if replace {
        Pairs::Snapshot.clear(&mut tx, id).await?;
    }
    Pairs::Snapshot.put(&mut tx, id, &new).await?;
    input::few_pairs(&Pairs::Snapshot.get_in(&mut tx, id).await?)?;
    tx.commit().await?;
    let snapshot = find(service, request, id).await?;
    Ok(Reply::ok(json!({"metadata": snapshot.metadata})))
}

fn no_key(id: &str, key: &str) -> Fault {
    Fault::not_found(format!("Snapshot {id} has no metadata with key {key}."))
}

pub(super) async fn meta(service: &Service, request: &Request, id: &str, key: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_snapshot_metadata")?;
    let snapshot = find(service, request, id).await?;
    let value = snapshot.metadata.get(key).ok_or_else(|| no_key(id, key))?;
    Ok(Reply::ok(json!({"meta": {key: value}})))
}

pub(super) async fn put_meta(service: &Service, request: &Request, id: &str, key: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:update_snapshot_metadata")?;
    let new = one_pair(request, key)?;
    find(service, request, id).await?;
    let mut tx = service.store.db.begin().await?;
    hold(service, request, &mut tx, id).await?;
    Pairs::Snapshot.put(&mut tx, id, &new).await?;
    input::few_pairs(&Pairs::Snapshot.get_in(&mut tx, id).await?)?;
    tx.commit().await?;
    Ok(Reply::ok(json!({"meta": new})))
}

pub(super) async fn delete_meta(
    service: &Service,
    request: &Request,
    id: &str,
    key: &str,
) -> Answer {
    allow(&request.caller, Needs::Member, "volume:delete_snapshot_metadata")?;
    find(service, request, id).await?;
    let mut tx = service.store.db.begin().await?;
    hold(service, request, &mut tx, id).await?;
    if !Pairs::Snapshot.remove(&mut tx, id, key).await? {
        return Err(no_key(id, key));
    }
    tx.commit().await?;
    Ok(Reply::empty(200))
}
