//! Actions on volumes: `POST /volumes/{id}/action`. Which there are and who may ask for them; what they
//! do is in the files beside this one.

mod attaching;
mod changing;
mod reset;

use serde_json::{Value, json};

use super::connections::{disconnect_hosts, initialize, terminate};
use super::fault::Fault;
use super::input::Fields;
use super::request::{Answer, Reply, Request};
use super::volumes::{find, remove};
use super::{Service, images};
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::store::guard::{Change, Set};
pub(super) use attaching::end;
use attaching::{attach, begin_detaching, detach, reserve};
use changing::{extend, migrate, readonly, retype, revert};
use reset::reset_status;

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
            let change = Change::of(id).set(Set::StatusFrom("attaching"));
            Service::own(request, change).run(&service.store).await?;
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
            Service::own(request, change).run(&service.store).await?;
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
            images::set_metadata(service, request, id, args).await
        }
        "os-show_image_metadata" => {
            may(Needs::Reader, "volume_image_metadata")?;
            let volume = find(service, request, id).await?;
            Ok(Reply::ok(json!({"metadata": volume.image_metadata})))
        }
        "os-unset_image_metadata" => {
            may(Needs::Member, "volume_image_metadata")?;
            images::unset_metadata(service, request, id, args).await
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
