//! Actions that reserve, attach and detach.

use serde_json::Value;

use crate::model::operation::Operation;
use crate::rest::Service;
use crate::rest::attachments::SHARED;
use crate::rest::connections::disconnect;
use crate::rest::fault::Fault;
use crate::rest::input::Fields;
use crate::rest::request::{Answer, Reply, Request};
use crate::rest::volumes::find;
use crate::store::attachments::NewAttachment;
use crate::store::guard::{Change, Set};
use crate::store::volumes::Volume;
use crate::store::{Metadata, Pairs, new_id};

/// Nobody has declared it read-only.
const WRITABLE: &str = "NOT EXISTS (SELECT 1 FROM volume_admin_metadata m \
     WHERE m.volume_id = volumes.id AND m.key = 'readonly' AND m.value = 'True')";

pub(super) async fn reserve(service: &Service, request: &Request, id: &str) -> Answer {
    let volume = find(service, request, id).await?;
    let operation = if volume.multiattach { Operation::ReserveShared } else { Operation::Reserve };
    let mut change = service.when(request, id, operation).set(Set::Status("attaching"));
    if volume.multiattach {
        change = change.only_if(SHARED);
    }
    if !change.run(&service.store).await? {
        let said = |volume: &Volume, seen: &str| {
            let wanted = if volume.multiattach { "available or in-use" } else { "available" };
            format!("Volume status must be {wanted} to reserve, but the status is {seen}.")
        };
        return Err(service.rejection(request, id, operation, said).await);
    }
    Ok(Reply::empty(202))
}

pub(super) async fn begin_detaching(service: &Service, request: &Request, id: &str) -> Answer {
    let volume = find(service, request, id).await?;
    let change = service
        .when(request, id, Operation::BeginDetaching)
        .only_if("volumes.attach_status = 'attached'")
        .set(Set::Status("detaching"));
    if change.run(&service.store).await? {
        return Ok(Reply::empty(202));
    }
    let settled = [None, Some("deleting"), Some("error"), Some("success")];
    if !settled.contains(&volume.migration_status.as_deref()) {
        return Ok(Reply::empty(202));
    }
    Err(Fault::invalid_volume(
        "Unable to detach volume. Volume status must be 'in-use' and attach_status must be \
         'attached' to detach.",
    ))
}

pub(super) async fn attach(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-attach", args)?;
    let mountpoint = fields.text("mountpoint")?;
    let mountpoint = mountpoint
        .filter(|it| !it.is_empty())
        .ok_or_else(|| Fault::bad("'mountpoint' is a required property"))?;
    let instance = fields.uuid("instance_uuid")?;
    let host = fields.text("host_name")?;
    if instance.is_none() && host.is_none() {
        return Err(Fault::bad("Invalid request to attach volume to an invalid target"));
    }
    let mode = fields.text("mode")?.unwrap_or_else(|| "rw".to_owned());
    if !["rw", "ro"].contains(&mode.as_str()) {
        return Err(Fault::bad(
            "Invalid request to attach volume with an invalid mode. Attaching mode should be 'rw' \
             or 'ro'",
        ));
    }
    let volume = find(service, request, id).await?;
    if volume.status == "maintenance" {
        return Err(Fault::invalid_volume("The volume cannot be attached in maintenance mode."));
    }
    let writes = mode != "ro";
    let refused = || Fault::bad(format!("Invalid attaching mode '{mode}' for volume {id}."));
    if writes && volume.is_readonly() {
        return Err(refused());
    }
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    let mut change = service
        .when(request, id, Operation::Attach)
        .only_if(
            "volumes.multiattach = 1 OR volumes.migration_status IS NOT NULL OR NOT EXISTS \
             (SELECT 1 FROM volume_attachment a WHERE a.volume_id = volumes.id AND a.deleted = 0 \
             AND a.attach_status = 'attached')",
        )
        .set(Set::StatusInUse)
        .column("attach_status", "attached");
    if writes {
        change = change.only_if(WRITABLE);
    }
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        if writes && find(service, request, id).await?.is_readonly() {
            return Err(refused());
        }
        let said = |_: &Volume, _: &str| {
            "volume is already attached and multiple attachments are not enabled".to_owned()
        };
        return Err(service.rejection(request, id, Operation::Attach, said).await);
    }
    // What was reserved for the same server becomes this attachment.
    let reserved = volume.attachments.iter().find(|it| {
        it.instance == instance && ["reserved", "attaching"].contains(&it.status.as_str())
    });
    let taken = match reserved {
        Some(it) => store.move_attachment(&mut tx, &it.id, "attached", None).await?,
        None => false,
    };
    if !taken {
        let new = NewAttachment {
            id: new_id(),
            volume_id: id.to_owned(),
            instance,
            host,
            mountpoint: Some(mountpoint),
            status: "attached",
            mode: Some(mode.clone()),
        };
        store.insert_attachment(&mut tx, &new).await?;
    }
    let mode = Metadata::from([("attached_mode".to_owned(), mode)]);
    Pairs::VolumeAdmin.put(&mut tx, id, &mode).await?;
    tx.commit().await?;
    Ok(Reply::empty(202))
}

pub(super) async fn detach(
    service: &Service,
    request: &Request,
    volume: &Volume,
    args: Value,
) -> Answer {
    let id = volume.id.as_str();
    let wanted = match args {
        Value::Null => None,
        args => Fields::from("os-detach", args)?.uuid("attachment_id")?,
    };
    if !service.when(request, id, Operation::Detach).run(&service.store).await? {
        return Err(Fault::invalid_volume("The volume cannot be detached in maintenance mode."));
    }
    let ended = match (wanted, volume.attachments.as_slice()) {
        (Some(wanted), _) => {
            let known = volume.attachments.iter().any(|it| it.id == wanted);
            if !known {
                return Err(Fault::not_found(format!(
                    "Volume attachment could not be found with filter: attachment_id = {wanted}."
                )));
            }
            Some(wanted)
        }
        (None, [_, _, ..]) => {
            return Err(Fault::invalid_volume(
                "Detach volume failed: More than one attachment, but no attachment_id provided.",
            ));
        }
        (None, [one]) => Some(one.id.clone()),
        (None, []) => None,
    };
    if let Some(attachment) = &ended {
        disconnect(service, volume, attachment).await;
    }
    end(service, id, ended.as_deref()).await?;
    Ok(Reply::empty(202))
}

/// Ends an attachment; the status follows those that are left, and backups do not notice.
pub(in crate::rest) async fn end(
    service: &Service,
    id: &str,
    attachment: Option<&str>,
) -> Result<(), Fault> {
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    if let Some(attachment) = attachment {
        store.end_attachment(&mut tx, attachment).await?;
    }
    let live = "SELECT COUNT(*) AS n FROM volume_attachment WHERE volume_id = $1 AND deleted = 0 \
         AND attach_status = 'attached'";
    let row = tx.fetch_one(live, &[id.into()]).await?;
    let is_attached = row.map(|row| row.int("n")).transpose()?.unwrap_or_default() > 0;
    // What is being extended, retyped or deleted keeps its status.
    let resting = "volumes.status IN ('available', 'in-use', 'attaching', 'detaching', 'reserved', \
         'backing-up', 'error_backing-up', 'restoring-backup', 'error_restoring')";
    let attach_status = if is_attached { "attached" } else { "detached" };
    let change = Change::of(id).only_if(resting).set(Set::StatusByAttachments);
    if !change.column("attach_status", attach_status).apply(store, &mut tx).await? {
        Change::of(id).column("attach_status", attach_status).apply(store, &mut tx).await?;
    }
    if !is_attached {
        Pairs::VolumeAdmin.remove(&mut tx, id, "attached_mode").await?;
    }
    Ok(tx.commit().await?)
}
