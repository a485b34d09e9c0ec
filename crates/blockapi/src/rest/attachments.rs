//! Attachments of volumes to servers, from 3.27 on.

use serde_json::{Value, json};

use super::Service;
use super::actions::{action, end, no_such_action};
use super::connections::{access_mode, connect, disconnect, put_mode};
use super::fault::{Fault, listing as list_fault};
use super::input::Fields;
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use super::views;
use super::volumes::find as find_volume;
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::sql::Tx;
use crate::store::attachments::{Attachment, NewAttachment};
use crate::store::guard::{Change, Set};
use crate::store::list::Page;
use crate::store::statement::Statement;
use crate::store::volumes::Volume;
use crate::store::{Metadata, Pairs, new_id};

pub(super) const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("volume_attachment.id")),
        ("volume_id", Field::Text("volume_attachment.volume_id")),
        ("status", Field::Text("volume_attachment.attach_status")),
        ("attach_status", Field::Text("volume_attachment.attach_status")),
        ("instance_id", Field::Text("volume_attachment.instance_uuid")),
        ("instance_uuid", Field::Text("volume_attachment.instance_uuid")),
        ("attached_host", Field::Text("volume_attachment.attached_host")),
        ("created_at", Field::Time("volume_attachment.created_at")),
    ],
    members: &["volume_id", "status", "instance_id", "attach_status"],
    later: Later::NOTHING,
};

async fn find(service: &Service, request: &Request, id: &str) -> Result<Attachment, Fault> {
    let found = service.store.attachment(id, request.scope()).await?;
    found.ok_or_else(|| no_such(id))
}

fn no_such(id: &str) -> Fault {
    Fault::not_found(format!(
        "Volume attachment could not be found with filter: attachment_id = {id}."
    ))
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:attachment_get")?;
    let attachment = find(service, request, id).await?;
    Ok(Reply::ok(json!({"attachment": views::attachment(request, &attachment)})))
}

/// The page a request asks for, of attachments that the caller may see.
pub(super) fn page(request: &Request) -> Result<Page, Fault> {
    let mut page = RESOURCE.page(request)?;
    listing::isolate(request, &mut page, "volumes.project_id")?;
    Ok(page)
}

pub(super) async fn list(service: &Service, request: &Request, detail: bool) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:attachment_get")?;
    let page = page(request)?;
    let (found, count) =
        service.store.attachments(&page).await.map_err(list_fault("Attachment"))?;
    let items: Vec<Value> =
        found
            .iter()
            .map(|it| {
                if detail { views::attachment(request, it) } else { views::attachment_summary(it) }
            })
            .collect();
    let collection = if detail { "attachments/detail" } else { "attachments" };
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, collection, &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("attachments", items, ("attachments_links", next), count)))
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Member, "volume:attachment_create")?;
    let fields = Fields::of(request, "attachment", &[])?;
    let mut known = vec!["volume_uuid", "instance_uuid", "connector"];
    known.extend(request.version.has(54).then_some("mode"));
    fields.only(&known)?;
    fields.required("volume_uuid")?;
    let volume_id = fields.uuid("volume_uuid")?;
    let volume_id = volume_id.ok_or_else(|| Fault::bad("'volume_uuid' is a required property"))?;
    let instance = fields.uuid("instance_uuid")?;
    let wanted = connector(&fields)?;
    let mode = fields.text("mode")?;
    if mode.as_deref().is_some_and(|it| !["rw", "ro"].contains(&it)) {
        return Err(Fault::bad("'mode' must be one of 'rw', 'ro'"));
    }
    let volume = find_volume(service, request, &volume_id).await?;
    refuse_error(request, &volume)?;
    let new = NewAttachment {
        id: new_id(),
        volume_id: volume_id.clone(),
        instance,
        status: "reserved",
        mode,
        ..NewAttachment::default()
    };
    reserve(service, request, &volume, &new).await?;
    if let Some(connector) = wanted {
        // As it is now that it is reserved: a restore may have put another volume in its place.
        let volume = find_volume(service, request, &volume_id).await?;
        let established = establish(service, request, &volume, &new.id, &connector).await;
        if let Err(fault) = established {
            // The client does not learn the id: nobody would ever end it.
            disconnect(service, &volume, &new.id).await;
            end(service, &volume_id, Some(&new.id)).await?;
            return Err(fault);
        }
    }
    let mut reserved = find(service, request, &new.id).await?;
    // The reply tells of the reservation, whatever came after it.
    "reserved".clone_into(&mut reserved.status);
    Ok(Reply::ok(json!({"attachment": views::attachment(request, &reserved)})))
}

fn connector(fields: &Fields<'_>) -> Result<Option<Value>, Fault> {
    match fields.get("connector") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(it)) if it.is_empty() => Ok(None),
        Some(connector) if connector.to_string().contains("\\u0000") => {
            Err(Fault::bad("A connector must not contain null characters."))
        }
        Some(connector @ Value::Object(_)) => Ok(Some(connector.clone())),
        Some(_) => Err(Fault::bad(
            "Invalid input for field/attribute connector. It is not of type 'object', 'null'",
        )),
    }
}

fn refuse_error(request: &Request, volume: &Volume) -> Result<(), Fault> {
    let seen = views::status_of(request, volume);
    // A failed backup is no failure of the volume.
    let seen = if seen == "error_backing-up" { volume.status.as_str() } else { seen };
    if seen.contains("error") {
        return Err(Fault::invalid_volume(format!(
            "Volume attachments can not be created if the volume is in an error state. The Volume {} \
             currently has a status of: {seen} ",
            volume.id
        )));
    }
    Ok(())
}

/// As it is for a transaction that holds the volume.
async fn is_readonly(tx: &mut Tx, volume: &str) -> Result<bool, Fault> {
    let declared = Pairs::VolumeAdmin.get_in(tx, volume).await?;
    Ok(declared.get("readonly").is_some_and(|it| it == "True"))
}

/// Several servers may use it: a retype can have ended that since it was looked at.
pub(super) const SHARED: &str = "volumes.multiattach = 1";

/// Reserves a volume. A second attachment for the server that has one is a live migration.
async fn reserve(
    service: &Service,
    request: &Request,
    volume: &Volume,
    new: &NewAttachment,
) -> Result<(), Fault> {
    let store = &service.store;
    let id = volume.id.as_str();
    let operation = if volume.multiattach {
        Operation::AttachmentCreateShared
    } else {
        Operation::AttachmentCreate
    };
    let mut tx = store.on_volume(id).await?;
    let mut change = service.when(request, id, operation).set(Set::Status("reserved"));
    if volume.multiattach {
        change = change.only_if(SHARED);
    }
    let mut done = change.apply(store, &mut tx).await?;
    if let (false, Some(instance)) = (done, &new.instance) {
        let mut same = Statement::new(
            "EXISTS (SELECT 1 FROM volume_attachment a WHERE a.volume_id = volumes.id AND \
             a.deleted = 0 AND a.instance_uuid = ",
        );
        same.bind(instance.as_str()).push(")");
        done = service
            .when(request, id, Operation::AttachmentSameServer)
            .only_if_with(&same)
            .set(Set::Status("reserved"))
            .apply(store, &mut tx)
            .await?;
    }
    if !done {
        drop(tx);
        let said = |volume: &Volume, seen: &str| {
            let wanted = if volume.multiattach {
                "available or in-use or downloading"
            } else {
                "available or downloading"
            };
            format!(
                "Volume {} status must be {wanted} to reserve, but the current status is {seen}.",
                volume.id
            )
        };
        return Err(service.rejection(request, id, operation, said).await);
    }
    store.insert_attachment(&mut tx, new).await?;
    Ok(tx.commit().await?)
}

/// Connects a reserved volume, and keeps what the server needs to use it.
async fn establish(
    service: &Service,
    request: &Request,
    volume: &Volume,
    id: &str,
    connector: &Value,
) -> Result<(), Fault> {
    let allowed = service.when_behind(request, volume, Operation::AttachmentUpdate);
    if !allowed.run(&service.store).await? {
        let seen = views::status_of(request, volume);
        return Err(Fault::conflict(format!(
            "Resource conflict: Volume {} has the status {seen} and cannot be connected.",
            volume.id
        )));
    }
    let mut connection = connect(service, volume, id, connector).await?;
    if let Some(map) = connection.as_object_mut() {
        map.insert("attachment_id".to_owned(), json!(id));
    }
    let store = &service.store;
    let mut tx = store.on_volume(&volume.id).await?;
    let is_readonly = is_readonly(&mut tx, &volume.id).await?;
    let asked = store.attach_mode(&mut tx, id).await?;
    let asked = [asked.as_deref(), connector.get("mode").and_then(Value::as_str)];
    let mode = access_mode(is_readonly, asked);
    put_mode(&mut connection, mode);
    let known = (connector.to_string(), connection.to_string());
    let kept = store.move_attachment(&mut tx, id, "attaching", Some((&known.0, &known.1))).await?;
    if kept && is_readonly {
        store.set_attach_mode(&mut tx, id, mode).await?;
    }
    if !kept {
        drop(tx);
        disconnect(service, volume, id).await;
        return Err(no_such(id));
    }
    // The connection took a while: what is being replaced or deleted by now must not be used.
    let still = service.when_behind(request, volume, Operation::AttachmentUpdate);
    if !still.apply(store, &mut tx).await? {
        drop(tx);
        disconnect(service, volume, id).await;
        return Err(Fault::conflict(format!(
            "Resource conflict: Volume {} changed while it was connected.",
            volume.id
        )));
    }
    if let Some(host) = connector.get("host").and_then(Value::as_str) {
        let sql = "UPDATE volume_attachment SET attached_host = $2, mountpoint = $3 WHERE id = $1";
        let mountpoint = connector.get("mountpoint").and_then(Value::as_str);
        tx.execute(sql, &[id.into(), host.into(), mountpoint.into()]).await?;
    }
    Change::of(&volume.id)
        .only_if("volumes.status IN ('reserved', 'available', 'attaching', 'in-use')")
        .set(Set::StatusByAttachments)
        .apply(store, &mut tx)
        .await?;
    Ok(tx.commit().await?)
}

pub(super) async fn update(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:attachment_update")?;
    let fields = Fields::of(request, "attachment", &[])?;
    fields.only(&["connector"])?;
    fields.required("connector")?;
    let connector = connector(&fields)?;
    let connector = connector.ok_or_else(|| {
        Fault::bad("Invalid input for field/attribute connector. It needs at least one property")
    })?;
    let attachment = find(service, request, id).await?;
    if attachment.status == "attached" {
        return Err(Fault::bad(format!(
            "Invalid volume attachment: Attachment {id} is in use already."
        )));
    }
    let volume = find_volume(service, request, &attachment.volume_id).await?;
    establish(service, request, &volume, id, &connector).await?;
    let attachment = find(service, request, id).await?;
    Ok(Reply::ok(json!({"attachment": views::attachment(request, &attachment)})))
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:attachment_delete")?;
    let attachment = find(service, request, id).await?;
    let volume = find_volume(service, request, &attachment.volume_id).await?;
    disconnect(service, &volume, id).await;
    end(service, &volume.id, Some(id)).await?;
    let left = find_volume(service, request, &volume.id).await?;
    let left: Vec<Value> = left.attachments.iter().map(views::attachment_summary).collect();
    Ok(Reply::ok(json!({"attachments": left})))
}

pub(super) async fn act(service: &Service, request: &Request, id: &str) -> Answer {
    let (name, _) = action(request)?;
    if name != "os-complete" {
        return Err(no_such_action(&name));
    }
    request.since(44)?;
    allow(&request.caller, Needs::Member, "volume:attachment_complete")?;
    let attachment = find(service, request, id).await?;
    let store = &service.store;
    let volume = attachment.volume_id.as_str();
    let mut tx = store.on_volume(volume).await?;
    if !store.move_attachment(&mut tx, id, "attached", None).await? {
        return Err(no_such(id));
    }
    let change = Change::of(volume).set(Set::StatusInUse).column("attach_status", "attached");
    change.apply(store, &mut tx).await?;
    let asked = [attachment.mode.as_deref(), None];
    let mode = access_mode(is_readonly(&mut tx, volume).await?, asked);
    let pair = Metadata::from([("attached_mode".to_owned(), mode.to_owned())]);
    Pairs::VolumeAdmin.put(&mut tx, volume, &pair).await?;
    tx.commit().await?;
    Ok(Reply::empty(204))
}
