//! What an administrator says a volume is.

use serde_json::Value;

use crate::model::reset::{self, Asked, NewStatus};
use crate::rest::Service;
use crate::rest::connections::{connections, disconnect};
use crate::rest::fault::Fault;
use crate::rest::input::Fields;
use crate::rest::request::{Answer, Reply, Request};
use crate::rest::volumes::find;
use crate::store::Pairs;
use crate::store::guard::{Change, Set};
use crate::store::work::IMAGE_COPY;

pub(super) async fn reset_status(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let fields = Fields::from("os-reset_status", args)?;
    let two_fields = request.version.has_backup_status();
    let known: &[&str] = if two_fields {
        &["status", "backup_status", "attach_status", "migration_status"]
    } else {
        &["status", "attach_status", "migration_status"]
    };
    fields.only(known)?;
    let asked = Asked {
        status: fields.text("status")?,
        backup_status: if fields.has("backup_status") {
            Some(fields.text("backup_status")?)
        } else {
            None
        },
        attach_status: fields.text("attach_status")?,
        migration_status: fields.text("migration_status")?,
    };
    if asked == Asked::default() {
        return Err(Fault::bad(
            "Must specify 'status', 'attach_status' or 'migration_status' for update.",
        ));
    }
    let reset = reset::decide(&asked, two_fields).map_err(Fault::bad)?;
    let volume = find(service, request, id).await?;
    let mut change = match reset.status {
        NewStatus::Keep => Change::of(id),
        NewStatus::Rest => Change::of(id).set(Set::StatusToRest),
        NewStatus::To("in-use") => Change::of(id)
            .only_if("EXISTS (SELECT 1 FROM volume_attachment a WHERE a.volume_id = volumes.id AND a.deleted = 0)")
            .set(Set::Status("in-use")),
        NewStatus::To(status) => Change::of(id).set(Set::Status(status)),
    };
    if let Some(backup) = reset.backup {
        change = change.set(Set::Backup(backup));
    }
    if let Some(attach) = reset.attach_status {
        change = change.column("attach_status", attach);
    }
    if let Some(migration) = reset.migration_status {
        change = change.column("migration_status", migration);
    }
    let store = &service.store;
    if reset.attach_status == Some("detached") {
        // Also what no row tells of any more. The copy of an image that is under way is work, and ends
        // with it.
        let copies = volume.status == "downloading";
        for name in connections(service, &volume).await? {
            if !copies || name != IMAGE_COPY {
                disconnect(service, &volume, &name).await;
            }
        }
    }
    let mut tx = store.on_volume(id).await?;
    if matches!(reset.status, NewStatus::To(_)) {
        // Whatever was being done to it is no longer wanted.
        store.cancel(&mut tx, "volume", id).await?;
    }
    if !change.apply(store, &mut tx).await? {
        return Err(Fault::bad(
            "Cannot reset-state to in-use because volume does not have any attachments.",
        ));
    }
    if reset.attach_status == Some("detached") {
        store.end_attachments(&mut tx, id).await?;
        Pairs::VolumeAdmin.remove(&mut tx, id, "attached_mode").await?;
    }
    tx.commit().await?;
    Ok(Reply::empty(202))
}
