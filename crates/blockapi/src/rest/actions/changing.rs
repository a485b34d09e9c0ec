//! Actions that change what a volume is: its size, its type, its place, its content.

use serde_json::{Value, json};

use super::flag;
use crate::model::operation::Operation;
use crate::rest::Service;
use crate::rest::connections::connections;
use crate::rest::fault::Fault;
use crate::rest::input::Fields;
use crate::rest::request::{Answer, Reply, Request};
use crate::rest::types::{hold as hold_type, refuse_encryption};
use crate::rest::volumes::{NO_CLONES, find, volume_type};
use crate::store::guard::Set;
use crate::store::limits::Demand;
use crate::store::snapshots::Snapshot;
use crate::store::statement::Statement;
use crate::store::volumes::Volume;
use crate::store::work::Verb;
use crate::store::{Metadata, Pairs};

pub(super) async fn extend(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-extend", args)?;
    fields.only(&["new_size"])?;
    fields.required("new_size")?;
    let new_size = fields.number("new_size", 1)?.unwrap_or_default();
    let volume = find(service, request, id).await?;
    let operation =
        if request.version.has(42) { Operation::Extend } else { Operation::ExtendDetached };
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    // Not larger is told first, as long as nothing else is wrong.
    let change = service.when(request, id, operation);
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, seen: &str| {
            format!(
                "Volume {id} status must be '{{'status': 'available'}}' to extend, currently {seen}."
            )
        };
        return Err(service.rejection(request, id, operation, said).await);
    }
    let sql = "SELECT size, project_id FROM volumes WHERE id = $1 AND deleted = 0";
    let row = tx.fetch_one(sql, &[id.into()]).await?;
    let row = row.ok_or_else(|| Fault::no_such("Volume", id))?;
    let size = row.int("size")?;
    if new_size <= size {
        return Err(Fault::invalid_input(format!(
            "New size for extend must be greater than current size. (current: {size}, extended: \
             {new_size})."
        )));
    }
    let demand = Demand {
        gigabytes: new_size - size,
        per_volume: Some(new_size),
        type_name: volume.volume_type.as_deref(),
        type_id: Some(&volume.volume_type_id),
        ..Demand::default()
    };
    store.afford(&mut tx, &row.text("project_id")?, demand).await??;
    let change =
        service.when(request, id, operation).set(Set::RememberStatus).set(Set::Status("extending"));
    if !change.apply(store, &mut tx).await? {
        return Err(Fault::invalid_volume(format!("Volume {id} cannot be extended now.")));
    }
    let detail = json!({"new_size": new_size});
    store.ask(&mut tx, Verb::VolumeExtend, id, &detail, &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

pub(super) async fn readonly(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let readonly = flag(args, "os-update_readonly_flag", "readonly")?;
    find(service, request, id).await?;
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    if !service.when(request, id, Operation::Readonly).apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, seen: &str| {
            format!(
                "Volume {id} status must be available to update readonly flag, but current status \
                 is: {seen}."
            )
        };
        return Err(service.rejection(request, id, Operation::Readonly, said).await);
    }
    let value = if readonly { "True" } else { "False" };
    let pair = Metadata::from([("readonly".to_owned(), value.to_owned())]);
    Pairs::VolumeAdmin.put(&mut tx, id, &pair).await?;
    tx.commit().await?;
    Ok(Reply::empty(202))
}

pub(super) async fn retype(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-retype", args)?;
    let wanted = fields.text("new_type")?;
    let wanted = wanted.ok_or_else(|| Fault::bad("'new_type' is a required property"))?;
    match fields.text("migration_policy")?.as_deref() {
        None | Some("never" | "on-demand") => {}
        Some(other) => {
            return Err(Fault::bad(format!(
                "migration_policy {other} is neither 'on-demand' nor 'never'"
            )));
        }
    }
    let volume = find(service, request, id).await?;
    let kind = volume_type(service, request, Some(&wanted), None).await?;
    refuse_encryption(&kind)?;
    let store = &service.store;
    let limits = (
        store.front_end_qos(&volume.volume_type_id).await?.map(|it| it.0),
        store.front_end_qos(&kind.id).await?.map(|it| it.0),
    );
    let mut tx = store.on_volume(id).await?;
    let mut differs = Statement::new("volumes.volume_type_id <> ");
    differs.bind(kind.id.as_str());
    let mut change = service
        .when(request, id, Operation::Retype)
        .only_if_with(&differs)
        .set(Set::RememberStatus)
        .set(Set::Status("retyping"));
    let is_shared = kind.is_multiattach();
    let is_told = limits.0 != limits.1 || is_shared != volume.multiattach;
    if is_told {
        // Whoever uses it was told other limits, or that others use it, too.
        change = change.while_status("available");
    }
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, _: &str| {
            "Retype needs volume to be in available or in-use state, not be part of an active \
             migration or a consistency group, requested type has to be different that the one from \
             the volume, and for in-use volumes front-end qos specs cannot change."
                .to_owned()
        };
        if is_shared != volume.multiattach && volume.status != "available" {
            return Err(Fault::invalid_volume(
                "Whether several servers may use a volume cannot change while one does.",
            ));
        }
        let is_other = kind.id == volume.volume_type_id || is_told;
        if request.version.has_backup_status() && is_other {
            return Err(Fault::invalid_volume(said(&volume, "")));
        }
        return Err(service.rejection(request, id, Operation::Retype, said).await);
    }
    hold_type(service, &mut tx, &kind).await?;
    let demand = Demand {
        volumes: 1,
        gigabytes: volume.size,
        type_name: Some(&kind.name),
        type_id: Some(&kind.id),
        is_of_project: true,
        ..Demand::default()
    };
    store.afford(&mut tx, &volume.project_id, demand).await??;
    let detail = json!({"type": kind.id});
    store.ask(&mut tx, Verb::VolumeRetype, id, &detail, &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

pub(super) async fn migrate(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-migrate_volume", args)?;
    let host = fields.text("host")?;
    let host = host.ok_or_else(|| Fault::bad("'host' is a required property"))?;
    let lock = fields.truth("lock_volume")?.unwrap_or(false);
    find(service, request, id).await?;
    let store = &service.store;
    let mut differs = Statement::new("volumes.host IS NULL OR volumes.host <> ");
    differs.bind(host.as_str());
    let no_snapshots =
        "NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.volume_id = volumes.id AND s.deleted = 0)";
    let mut change = service
        .when(request, id, Operation::Migrate)
        .only_if("volumes.replication_status IS NULL OR volumes.replication_status IN ('disabled', 'not-capable')")
        .only_if(no_snapshots)
        .only_if_with(&differs)
        .set(Set::RememberStatus)
        .column("migration_status", "starting");
    if lock {
        change = change.set(Set::StatusMaintenance);
    }
    let place = host.split('#').next().unwrap_or(&host);
    let known = store.services().await?.into_iter().any(|it| {
        it.binary == "cinder-volume" && (it.host == place || it.host == host) && it.is_up()
    });
    let mut tx = store.on_volume(id).await?;
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, _: &str| {
            format!(
                "Volume {id} status must be available or in-use, must not be migrating, have \
                 snapshots, be replicated, be part of a group and destination host/cluster must be \
                 different than the current one"
            )
        };
        return Err(service.rejection(request, id, Operation::Migrate, said).await);
    }
    if !known {
        return Err(Fault::bad(format!("Invalid host: No available service named '{host}'")));
    }
    store.ask(&mut tx, Verb::VolumeMigrate, id, &json!({"host": host}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

/// As a condition on a volume: a snapshot is still its newest, and of its size.
fn is_newest(snapshot: &Snapshot) -> Statement {
    let mut sql = Statement::new("volumes.size = ");
    sql.bind(snapshot.size);
    sql.push(
        " AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.volume_id = volumes.id AND s.deleted = 0 \
         AND (s.created_at > ",
    );
    sql.bind(snapshot.created_at.as_str()).push(" OR (s.created_at = ");
    sql.bind(snapshot.created_at.as_str()).push(" AND s.id > ").bind(snapshot.id.as_str());
    sql.push(")))");
    sql
}

pub(super) async fn revert(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("revert", args)?;
    fields.required("snapshot_id")?;
    let wanted = fields.uuid("snapshot_id")?.unwrap_or_default();
    let volume = find(service, request, id).await?;
    let latest = service.store.latest_snapshot(id).await?;
    let latest =
        latest.ok_or_else(|| Fault::bad(format!("Volume {id} doesn't have any snapshots.")))?;
    // A project that gave the volume away may have kept its snapshots.
    let is_own = request.caller.is_admin() || latest.project_id == volume.project_id;
    if latest.id != wanted || !is_own {
        return Err(Fault::bad(format!(
            "Specified snapshot {wanted} is None or not the latest one of volume {id}."
        )));
    }
    if latest.size != volume.size {
        return Err(Fault::bad(format!(
            "Can't revert volume {id} to its latest snapshot {wanted}. The volume size must be equal \
             to the snapshot size."
        )));
    }
    let store = &service.store;
    let conflict = |said: String| Fault::conflict(format!("Invalid volume: {said}"));
    if let Some(client) = connections(service, &volume).await?.into_iter().next() {
        return Err(conflict(format!(
            "Can't revert volume {id}: it is connected ({client}). Terminate the connection first."
        )));
    }
    let mut tx = store.on_volume(id).await?;
    let change = service
        .when_behind(request, &volume, Operation::Revert)
        .only_if(NO_CLONES)
        .only_if_with(&is_newest(&latest))
        .set(Set::Status("reverting"));
    if !change.apply(store, &mut tx).await? {
        return Err(conflict(format!(
            "Can't revert volume {id} to its latest snapshot {wanted}. Volume's status must be \
             'available', the snapshot its newest and of its size, and no volume must be in the \
             making from it."
        )));
    }
    if !store.move_snapshot(&mut tx, &wanted, &["available"], "restoring").await? {
        return Err(Fault::conflict(format!(
            "Invalid snapshot: Can't revert volume {id} to its latest snapshot {wanted}. Snapshot's \
             status must be 'available'."
        )));
    }
    let detail = json!({"snapshot": wanted});
    store.ask(&mut tx, Verb::VolumeRevert, id, &detail, &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}
