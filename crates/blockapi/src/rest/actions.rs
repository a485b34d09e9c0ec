//! Actions on volumes: `POST /volumes/{id}/action`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fault::Fault;
use super::input::Fields;
use super::request::{Answer, Reply, Request};
use super::types::refuse_encryption;
use super::volumes::{NO_CLONES, find, remove, volume_type};
use super::{Service, images};
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::model::reset::{self, Asked, NewStatus};
use crate::store::attachments::NewAttachment;
use crate::store::guard::{Change, Set};
use crate::store::limits::Demand;
use crate::store::volumes::Volume;
use crate::store::work::Verb;
use crate::store::{Metadata, Pairs, new_id};
use crate::worker::backend::{BackendError, Progress};

/// How long a connection may take to be made while a client waits.
const CONNECT_PATIENCE: Duration = Duration::from_secs(50);
const CONNECT_POLL: Duration = Duration::from_millis(200);

/// The one action of a body, and its arguments.
pub(super) fn action(request: &Request) -> Result<(String, Value), Fault> {
    let mut body = request.json()?.into_iter();
    match (body.next(), body.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(Fault::malformed()),
    }
}

pub(super) fn no_such_action(name: &str) -> Fault {
    Fault::bad(format!(
        "There is no such action: {name}. Verify the request body and Content-Type header and try \
         again."
    ))
}

#[expect(clippy::too_many_lines, reason = "one arm for each action of the dialect")]
pub(super) async fn act(service: &Service, request: &Request, id: &str) -> Answer {
    let (name, args) = action(request)?;
    let rule = |rule: &str| format!("volume_extension:{rule}");
    let may = |needs: Needs, name: &str| allow(&request.caller, needs, &rule(name));
    match name.as_str() {
        "os-extend" => {
            allow(&request.caller, Needs::Member, "volume:extend")?;
            extend(service, request, id, args).await
        }
        "os-reset_status" => {
            may(Needs::Admin, "volume_admin_actions:reset_status")?;
            reset_status(service, request, id, args).await
        }
        "os-force_delete" => {
            may(Needs::Admin, "volume_admin_actions:force_delete")?;
            find(service, request, id).await?;
            remove(service, request, id, Operation::ForceDelete, false).await?;
            Ok(Reply::empty(202))
        }
        "os-reserve" => {
            may(Needs::Member, "volume_actions:reserve")?;
            reserve(service, request, id).await
        }
        "os-unreserve" => {
            may(Needs::Member, "volume_actions:unreserve")?;
            find(service, request, id).await?;
            Change::of(id).set(Set::StatusFrom("attaching")).run(&service.store).await?;
            Ok(Reply::empty(202))
        }
        "os-begin_detaching" => {
            may(Needs::Member, "volume_actions:begin_detaching")?;
            begin_detaching(service, request, id).await
        }
        "os-roll_detaching" => {
            may(Needs::Member, "volume_actions:roll_detaching")?;
            find(service, request, id).await?;
            let change = Change::of(id).while_status("detaching").set(Set::Status("in-use"));
            change.run(&service.store).await?;
            Ok(Reply::empty(202))
        }
        "os-attach" => {
            may(Needs::Member, "volume_actions:attach")?;
            attach(service, request, id, args).await
        }
        "os-detach" => {
            may(Needs::Member, "volume_actions:detach")?;
            let volume = find(service, request, id).await?;
            detach(service, request, &volume, args).await
        }
        "os-force_detach" => {
            may(Needs::Admin, "volume_admin_actions:force_detach")?;
            let volume = find(service, request, id).await?;
            disconnect_hosts(service, &volume, args.get("connector")).await?;
            detach(service, request, &volume, args).await
        }
        "os-initialize_connection" => {
            may(Needs::Member, "volume_actions:initialize_connection")?;
            initialize(service, request, id, args).await
        }
        "os-terminate_connection" => {
            may(Needs::Member, "volume_actions:terminate_connection")?;
            terminate(service, request, id, args).await
        }
        "os-set_bootable" => {
            may(Needs::Member, "volume_actions:set_bootable")?;
            let bootable = flag(args, "os-set_bootable", "bootable")?;
            find(service, request, id).await?;
            let change = service.when(request, id, Operation::Update).column("bootable", bootable);
            settle(
                change.run(&service.store).await?,
                "The volume cannot be updated in maintenance mode.",
            )?;
            Ok(Reply::empty(200))
        }
        "os-update_readonly_flag" => {
            allow(&request.caller, Needs::Member, "volume:update_readonly_flag")?;
            readonly(service, request, id, args).await
        }
        "os-retype" => {
            allow(&request.caller, Needs::Member, "volume:retype")?;
            retype(service, request, id, args).await
        }
        "os-migrate_volume" => {
            may(Needs::Admin, "volume_admin_actions:migrate_volume")?;
            migrate(service, request, id, args).await
        }
        "os-migrate_volume_completion" => {
            may(Needs::Admin, "volume_admin_actions:migrate_volume_completion")?;
            find(service, request, id).await?;
            // Data never has to move here: there is no second volume to complete with.
            Err(Fault::invalid_volume(format!("Volume {id} is not migrating to another volume.")))
        }
        "os-extend_volume_completion" => {
            may(Needs::Admin, "volume_admin_actions:extend_volume_complete")?;
            find(service, request, id).await?;
            Err(Fault::invalid_volume(format!(
                "Volume {id} is not waiting for the end of an extension elsewhere."
            )))
        }
        "revert" => {
            request.since(40)?;
            allow(&request.caller, Needs::Member, "volume:revert_to_snapshot")?;
            revert(service, request, id, args).await
        }
        "os-volume_upload_image" => {
            may(Needs::Member, "volume_actions:upload_image")?;
            images::upload(service, request, id, args).await
        }
        "os-reimage" => {
            request.since(68)?;
            allow(&request.caller, Needs::Member, "volume:reimage")?;
            images::reimage(service, request, id, args).await
        }
        "os-set_image_metadata" => {
            may(Needs::Member, "volume_image_metadata")?;
            set_image_metadata(service, request, id, args).await
        }
        "os-show_image_metadata" => {
            may(Needs::Reader, "volume_image_metadata")?;
            let volume = find(service, request, id).await?;
            Ok(Reply::ok(json!({"metadata": volume.image_metadata})))
        }
        "os-unset_image_metadata" => {
            may(Needs::Member, "volume_image_metadata")?;
            unset_image_metadata(service, request, id, args).await
        }
        "os-unmanage" => {
            may(Needs::Admin, "volume_unmanage")?;
            find(service, request, id).await?;
            Err(Fault::bad("Volumes cannot be taken out of this service and kept: delete them."))
        }
        other => Err(no_such_action(other)),
    }
}

fn settle(done: bool, otherwise: &str) -> Result<(), Fault> {
    if done { Ok(()) } else { Err(Fault::invalid_volume(otherwise)) }
}

fn flag(args: Value, action: &str, key: &str) -> Result<bool, Fault> {
    let fields = Fields::from(action, args)?;
    fields.required(key)?;
    fields.truth(key)?.ok_or_else(|| Fault::bad(format!("'{key}' is a required property")))
}

async fn extend(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
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
        return Err(service.refusal(request, id, operation, said).await);
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

async fn reset_status(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
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
        disconnect_hosts(service, &volume, None).await?;
        for attachment in &volume.attachments {
            disconnect(service, &volume, &attachment.id).await;
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

async fn reserve(service: &Service, request: &Request, id: &str) -> Answer {
    let volume = find(service, request, id).await?;
    let operation = if volume.multiattach { Operation::ReserveShared } else { Operation::Reserve };
    let change = service.when(request, id, operation).set(Set::Status("attaching"));
    if !change.run(&service.store).await? {
        let said = |volume: &Volume, seen: &str| {
            let wanted = if volume.multiattach { "available or in-use" } else { "available" };
            format!("Volume status must be {wanted} to reserve, but the status is {seen}.")
        };
        return Err(service.refusal(request, id, operation, said).await);
    }
    Ok(Reply::empty(202))
}

async fn begin_detaching(service: &Service, request: &Request, id: &str) -> Answer {
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

async fn attach(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
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
    let is_readonly = volume.admin_metadata.get("readonly").is_some_and(|it| it == "True");
    if is_readonly && mode != "ro" {
        return Err(Fault::invalid_volume(format!(
            "Volume {id} is read-only and can be attached with mode 'ro' only."
        )));
    }
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    let change = service
        .when(request, id, Operation::Attach)
        .only_if(
            "volumes.multiattach = 1 OR volumes.migration_status IS NOT NULL OR NOT EXISTS \
             (SELECT 1 FROM volume_attachment a WHERE a.volume_id = volumes.id AND a.deleted = 0 \
             AND a.attach_status = 'attached')",
        )
        .set(Set::StatusInUse)
        .column("attach_status", "attached");
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, _: &str| {
            "volume is already attached and multiple attachments are not enabled".to_owned()
        };
        return Err(service.refusal(request, id, Operation::Attach, said).await);
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

async fn detach(service: &Service, request: &Request, volume: &Volume, args: Value) -> Answer {
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
pub(super) async fn end(
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

/// Takes a connection down, now or, if that cannot be, later.
pub(super) async fn disconnect(service: &Service, volume: &Volume, attachment: &str) {
    let Err(error) = service.backend.disconnect(volume.backend_name(), attachment).await else {
        return;
    };
    tracing::warn!(volume = volume.id, attachment, %error, "a connection is not taken down yet");
    let detail = json!({"volume": volume.backend_name(), "name": attachment});
    // Of one host there may be connections to many volumes.
    let key = format!("{}/{attachment}", volume.backend_name());
    let asked = async {
        let mut tx = service.store.db.begin().await?;
        service.store.ask(&mut tx, Verb::Disconnect, &key, &detail, "").await?;
        tx.commit().await
    };
    if let Err(error) = asked.await {
        tracing::warn!(attachment, error = %telemetry::Chain(&error), "nor remembered");
    }
}

/// A client that is connected to a volume, as far as can be told now; the worker looks again.
pub(super) async fn connected(service: &Service, volume: &Volume) -> Option<String> {
    let known = service.backend.connections(volume.backend_name()).await;
    known.unwrap_or_default().into_iter().next()
}

/// Who is connected to a volume, for those who must know.
pub(super) async fn connections(service: &Service, volume: &Volume) -> Result<Vec<String>, Fault> {
    let known = service.backend.connections(volume.backend_name()).await;
    known.map_err(|error| {
        tracing::warn!(volume = volume.id, %error, "connections cannot be looked up");
        Fault::unavailable("The volume service does not answer now; nothing was changed.")
    })
}

/// Takes down what hosts have without an attachment: one host's, or all.
async fn disconnect_hosts(
    service: &Service,
    volume: &Volume,
    connector: Option<&Value>,
) -> Result<(), Fault> {
    let names = if let Some(connector @ Value::Object(_)) = connector {
        vec![connection_name(connector)]
    } else {
        connections(service, volume).await?
    };
    for name in names.iter().filter(|it| it.starts_with(HOST)) {
        disconnect(service, volume, name).await;
    }
    Ok(())
}

/// What a client needs to use a volume, within the time it can be made to wait.
pub(super) async fn connect(
    service: &Service,
    volume: &Volume,
    attachment: &str,
    connector: &Value,
) -> Result<Value, Fault> {
    let began = Instant::now();
    loop {
        let outcome = service.backend.connect(volume.backend_name(), attachment, connector).await;
        match outcome {
            Ok(Progress::Done(connection)) => {
                return with_limits(service, volume, connection).await;
            }
            Ok(Progress::Failed(why)) | Err(BackendError::Refused(why)) => {
                return Err(Fault::invalid_volume(format!(
                    "Volume {} cannot be connected: {why}",
                    volume.id
                )));
            }
            Ok(Progress::Running) | Err(BackendError::Unreachable(_))
                if began.elapsed() < CONNECT_PATIENCE =>
            {
                tokio::time::sleep(CONNECT_POLL).await;
            }
            Ok(Progress::Running) => {
                return Err(Fault::unavailable(format!(
                    "Volume {} is not ready to be connected yet; try again.",
                    volume.id
                )));
            }
            Err(BackendError::Unreachable(why)) => {
                tracing::warn!(volume = volume.id, why, "a volume cannot be connected");
                return Err(Fault::unavailable(
                    "The volume service does not answer now; try again in a few seconds.",
                ));
            }
        }
    }
}

/// The limits that whoever uses a volume is to keep go with its address.
async fn with_limits(
    service: &Service,
    volume: &Volume,
    mut connection: Value,
) -> Result<Value, Fault> {
    let limits = service.store.front_end_qos(&volume.volume_type_id).await?;
    if let (Some((_, specs)), Some(connection)) = (limits, connection.as_object_mut()) {
        connection.insert("qos_specs".to_owned(), json!(specs));
    }
    Ok(connection)
}

async fn initialize(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-initialize_connection", args)?;
    let connector = fields.required("connector")?.clone();
    if !connector.is_object() {
        return Err(Fault::bad("Must specify 'connector' as an object."));
    }
    let volume = find(service, request, id).await?;
    if !service.when(request, id, Operation::InitializeConnection).run(&service.store).await? {
        let said = |_: &Volume, _: &str| {
            "The volume connection cannot be initialized in maintenance mode.".to_owned()
        };
        return Err(service.refusal(request, id, Operation::InitializeConnection, said).await);
    }
    let name = connection_name(&connector);
    let connection = connect(service, &volume, &name, &connector).await?;
    // That took a while: what is being replaced by now must not be used.
    if !service.when(request, id, Operation::InitializeConnection).run(&service.store).await? {
        disconnect(service, &volume, &name).await;
        let said = |_: &Volume, seen: &str| format!("Volume {id} became {seen} meanwhile.");
        return Err(service.refusal(request, id, Operation::InitializeConnection, said).await);
    }
    let kind = connection.get("driver_volume_type").cloned().unwrap_or_else(|| json!("nbd"));
    Ok(Reply::ok(json!({"connection_info": {
        "driver_volume_type": kind, "data": connection, "enforce_multipath": false,
    }})))
}

const HOST: &str = "host-";

/// A connection without an attachment is told apart by the host that asked for it.
fn connection_name(connector: &Value) -> String {
    let host = connector.get("host").and_then(Value::as_str).unwrap_or("unknown");
    let clean = |it: char| if it.is_ascii_alphanumeric() || it == '-' { it } else { '-' };
    let host: String = host.chars().take(60).map(clean).collect();
    format!("{HOST}{}", host.to_lowercase())
}

async fn terminate(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-terminate_connection", args)?;
    let connector = fields.required("connector")?.clone();
    let volume = find(service, request, id).await?;
    disconnect(service, &volume, &connection_name(&connector)).await;
    Change::of(id).set(Set::StatusFrom("attaching")).run(&service.store).await?;
    Ok(Reply::empty(202))
}

async fn readonly(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
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
        return Err(service.refusal(request, id, Operation::Readonly, said).await);
    }
    let value = if readonly { "True" } else { "False" };
    let pair = Metadata::from([("readonly".to_owned(), value.to_owned())]);
    Pairs::VolumeAdmin.put(&mut tx, id, &pair).await?;
    tx.commit().await?;
    Ok(Reply::empty(202))
}

async fn retype(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
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
    let mut differs = crate::store::statement::Statement::new("volumes.volume_type_id <> ");
    differs.bind(kind.id.as_str());
    let mut change = service
        .when(request, id, Operation::Retype)
        .only_if_with(&differs)
        .set(Set::RememberStatus)
        .set(Set::Status("retyping"));
    if limits.0 != limits.1 {
        // Whoever uses it was told other limits.
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
        let is_other = kind.id == volume.volume_type_id || limits.0 != limits.1;
        if request.version.has_backup_status() && is_other {
            return Err(Fault::invalid_volume(said(&volume, "")));
        }
        return Err(service.refusal(request, id, Operation::Retype, said).await);
    }
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

async fn migrate(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-migrate_volume", args)?;
    let host = fields.text("host")?;
    let host = host.ok_or_else(|| Fault::bad("'host' is a required property"))?;
    let lock = fields.truth("lock_volume")?.unwrap_or(false);
    find(service, request, id).await?;
    let store = &service.store;
    let mut differs =
        crate::store::statement::Statement::new("volumes.host IS NULL OR volumes.host <> ");
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
        return Err(service.refusal(request, id, Operation::Migrate, said).await);
    }
    if !known {
        return Err(Fault::bad(format!("Invalid host: No available service named '{host}'")));
    }
    store.ask(&mut tx, Verb::VolumeMigrate, id, &json!({"host": host}), &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

async fn revert(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
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
    if let Some(client) = connected(service, &volume).await {
        return Err(conflict(format!(
            "Can't revert volume {id}: it is connected ({client}). Terminate the connection first."
        )));
    }
    let mut tx = store.on_volume(id).await?;
    let change = service
        .when(request, id, Operation::Revert)
        .only_if(NO_CLONES)
        .set(Set::Status("reverting"));
    if !change.apply(store, &mut tx).await? {
        return Err(conflict(format!(
            "Can't revert volume {id} to its latest snapshot {wanted}. Volume's status must be \
             'available', and no volume must be in the making from it."
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

async fn set_image_metadata(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-set_image_metadata", args)?;
    fields.required("metadata")?;
    let new = fields.metadata("metadata")?.unwrap_or_default();
    find(service, request, id).await?;
    let mut tx = service.store.on_volume(id).await?;
    Pairs::VolumeImage.put(&mut tx, id, &new).await?;
    tx.commit().await?;
    let volume = find(service, request, id).await?;
    Ok(Reply::ok(json!({"metadata": volume.image_metadata})))
}

async fn unset_image_metadata(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let fields = Fields::from("os-unset_image_metadata", args)?;
    let key = fields.text("key")?.ok_or_else(|| Fault::bad("'key' is a required property"))?;
    find(service, request, id).await?;
    let mut tx = service.store.on_volume(id).await?;
    if !Pairs::VolumeImage.remove(&mut tx, id, &key).await? {
        return Err(Fault::not_found(format!("Metadata property {key} of volume {id} not found.")));
    }
    tx.commit().await?;
    Ok(Reply::empty(200))
}
