//! Small resources: zones, services, pools, messages, extensions, filters; and what is not offered.

use serde_json::{Value, json};

use super::Service;
use super::fault::{Fault, listing as list_fault};
use super::input::Fields;
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use super::views;
use super::{attachments, backups, snapshots, volumes};
use crate::auth::policy::{Needs, allow};
use crate::store::list::Page;
use crate::store::services::Held;

pub(super) fn zones(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:availability_zone_list")?;
    let zone = json!({"zoneName": service.behaviour.zone, "zoneState": {"available": true}});
    Ok(Reply::ok(json!({"availabilityZoneInfo": [zone]})))
}

pub(super) async fn services(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:services:index")?;
    let matches = |wanted: Option<&str>, value: &str| wanted.is_none_or(|it| it == value);
    let version = request.version;
    let mut items = Vec::new();
    for one in service.store.services().await? {
        let binary = request.param("binary").or(request.param("service"));
        // A machine is asked for by its name, too.
        let machine = one.host.split('@').next().unwrap_or_default();
        let host = request.param("host");
        let is_there = matches(host, &one.host) || matches(host, machine);
        if !is_there || !matches(binary, &one.binary) {
            continue;
        }
        let is_up = one.is_up();
        let mut view = json!({
            "binary": one.binary,
            "host": one.host,
            "zone": one.zone,
            "status": if one.disabled { "disabled" } else { "enabled" },
            "state": if is_up { "up" } else { "down" },
            "updated_at": one.updated_at,
            "disabled_reason": one.disabled_reason,
        });
        if let Some(view) = view.as_object_mut() {
            if version.has(7) {
                view.insert("cluster".to_owned(), Value::Null);
            }
            if one.binary == "cinder-volume" {
                view.insert("replication_status".to_owned(), json!("disabled"));
                view.insert("active_backend_id".to_owned(), Value::Null);
                view.insert("frozen".to_owned(), json!(false));
                if version.has(49) {
                    let state = if is_up { "up" } else { "down" };
                    view.insert("backend_state".to_owned(), json!(state));
                }
            }
        }
        items.push(view);
    }
    Ok(Reply::ok(json!({"services": items})))
}

pub(super) async fn set_service(service: &Service, request: &Request, verb: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:services:update")?;
    if ["freeze", "thaw"].contains(&verb) {
        return freeze(service, request).await;
    }
    let (disabled, with_reason) = match verb {
        "enable" => (false, false),
        "disable" => (true, false),
        "disable-log-reason" => (true, true),
        _ => return Err(Fault::not_found("Unknown action")),
    };
    let fields = Fields::from("service", Value::Object(request.json()?))?;
    let host = fields.text("host")?.ok_or_else(|| Fault::bad("'host' is a required property"))?;
    let binary = fields.text("binary")?.or(fields.text("service")?);
    let binary = binary.ok_or_else(|| Fault::bad("'binary' is a required property"))?;
    let reason = fields.text("disabled_reason")?;
    if with_reason && reason.as_deref().is_none_or(str::is_empty) {
        return Err(Fault::bad("'disabled_reason' is a required property"));
    }
    let reason = reason.filter(|_| with_reason);
    if !service.store.enable_service(&host, &binary, disabled, reason.as_deref()).await? {
        return Err(Fault::not_found(format!(
            "Service {binary} could not be found on host {host}."
        )));
    }
    let status = if disabled { "disabled" } else { "enabled" };
    let mut view = json!({"host": host, "service": binary, "binary": binary, "disabled": disabled, "status": status});
    if let (Some(view), Some(reason)) = (view.as_object_mut(), reason) {
        view.insert("disabled_reason".to_owned(), json!(reason));
    }
    Ok(Reply::ok(view))
}

/// There is no other place that a frozen host could be read from: it is said what to do instead.
async fn freeze(service: &Service, request: &Request) -> Answer {
    let fields = Fields::from("service", Value::Object(request.json()?))?;
    let host = fields.text("host")?.ok_or_else(|| Fault::bad("'host' is a required property"))?;
    if service.store.services().await?.iter().all(|it| it.host != host) {
        return Err(Fault::invalid_input(format!("Host {host} is not known.")));
    }
    Err(Fault::invalid_input(format!(
        "Host {host} is not replicated and cannot be frozen; disable its service instead."
    )))
}

pub(super) async fn pools(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Admin, "scheduler_extension:scheduler_stats:get_pools")?;
    let name = service.behaviour.host.clone();
    let mut view = json!({"name": name});
    if request.param("detail").is_some() && request.param_truth("detail")? {
        let known = service.backend.capacity().await.unwrap_or_default();
        let size = |it: Option<i64>| it.map_or_else(|| json!("unknown"), |it| json!(it));
        let capabilities = json!({
            "volume_backend_name": "holdfast",
            "vendor_name": "Holdfast",
            "driver_version": env!("CARGO_PKG_VERSION"),
            "storage_protocol": "nbd",
            "pool_name": name.rsplit('#').next(),
            "total_capacity_gb": size(known.total_gib),
            "free_capacity_gb": size(known.free_gib),
            "reserved_percentage": 0,
            "thin_provisioning_support": true,
            "thick_provisioning_support": false,
            "multiattach": true,
            "QoS_support": false,
            "timestamp": crate::store::now(),
        });
        if let Some(view) = view.as_object_mut() {
            view.insert("capabilities".to_owned(), capabilities);
        }
    }
    Ok(Reply::ok(json!({"pools": [view]})))
}

pub(super) async fn hosts(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:hosts")?;
    let hosts: Vec<Value> = service
        .store
        .services()
        .await?
        .iter()
        .map(|one| {
            json!({
                "host_name": one.host,
                "service": one.binary,
                "service-status": if one.is_up() { "available" } else { "unavailable" },
                "service-state": if one.disabled { "disabled" } else { "enabled" },
                "zone": one.zone,
                "last-update": one.updated_at,
            })
        })
        .collect();
    Ok(Reply::ok(json!({"hosts": hosts})))
}

/// What a host holds: in all, and by project.
pub(super) async fn host(service: &Service, request: &Request, host: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:hosts")?;
    let known = service.store.services().await?;
    if known.iter().all(|it| it.host != host) {
        return Err(Fault::not_found(format!("Host {host} could not be found.")));
    }
    let held = service.store.held_by(host).await?;
    let view = |project: &str, volumes: (i64, i64), snapshots: (i64, i64)| {
        json!({"resource": {
            "host": host,
            "project": project,
            "volume_count": volumes.0.to_string(),
            "total_volume_gb": volumes.1.to_string(),
            "snapshot_count": snapshots.0.to_string(),
            "total_snapshot_gb": snapshots.1.to_string(),
        }})
    };
    let sum = |of: fn(&Held) -> (i64, i64)| {
        held.iter().map(of).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    };
    let mut items = vec![view("(total)", sum(|it| it.volumes), sum(|it| it.snapshots))];
    items.extend(held.iter().map(|it| view(&it.project, it.volumes, it.snapshots)));
    Ok(Reply::ok(json!({ "host": items })))
}

pub(super) fn capabilities(service: &Service, request: &Request, host: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:capabilities")?;
    let own = service.behaviour.host.as_str();
    let place = own.split('#').next().unwrap_or(own);
    if host != own && host != place {
        return Err(Fault::not_found(format!(
            "Service cinder-volume could not be found on host {host}."
        )));
    }
    Ok(Reply::ok(json!({
        "namespace": format!("OS::Storage::Capabilities::{place}"),
        "vendor_name": "Holdfast",
        "volume_backend_name": "holdfast",
        "pool_name": own.rsplit('#').next(),
        "driver_version": env!("CARGO_PKG_VERSION"),
        "storage_protocol": "nbd",
        "display_name": "Replicated volumes",
        "description": "Volumes of Holdfast, reached over NBD",
        "visibility": null,
        "replication_targets": [],
        "properties": {},
    })))
}

/// Clients look for these before they use what they stand for.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("backups", "Backups", "Backups of volumes and snapshots."),
    ("os-admin-actions", "AdminActions", "Reset, force delete and migrate."),
    ("os-availability-zone", "AvailabilityZones", "Availability zones."),
    ("os-extended-snapshot-attributes", "ExtendedSnapshotAttributes", "Progress of snapshots."),
    ("os-hosts", "Hosts", "Hosts of services."),
    ("os-quota-sets", "Quotas", "Limits of projects."),
    ("qos-specs", "Qos_specs_manage", "QoS specs and the types that have them."),
    ("os-quota-class-sets", "QuotaClasses", "Default limits."),
    ("os-services", "Services", "Services and their states."),
    ("os-snapshot-actions", "SnapshotActions", "Actions on snapshots."),
    ("os-types-extra-specs", "TypesExtraSpecs", "Extra specs of types."),
    ("os-types-manage", "TypesManage", "Making and removing types."),
    ("os-used-limits", "UsedLimits", "What a project uses."),
    ("os-vol-host-attr", "VolumeHostAttribute", "The host of a volume."),
    ("os-vol-mig-status-attr", "VolumeMigStatusAttribute", "The migration of a volume."),
    ("os-vol-tenant-attr", "VolumeTenantAttribute", "The project of a volume."),
    ("os-volume-actions", "VolumeActions", "Actions on volumes."),
    ("os-volume-transfer", "VolumeTransfer", "Volumes from one project to another."),
    ("os-volume-type-access", "VolumeTypeAccess", "Who may use a type."),
    ("encryption", "VolumeTypeEncryption", "How volumes of a type are to be encrypted."),
    ("scheduler-stats", "Scheduler_stats", "Pools and their capacity."),
];

fn extension_view((alias, name, description): &(&str, &str, &str)) -> Value {
    json!({
        "alias": alias, "name": name, "description": description,
        "updated": "2026-11-16T00:00:00+00:00", "links": [],
    })
}

pub(super) fn extensions() -> Reply {
    let all: Vec<Value> = EXTENSIONS.iter().map(extension_view).collect();
    Reply::ok(json!({"extensions": all}))
}

pub(super) fn extension(alias: &str) -> Answer {
    let found = EXTENSIONS.iter().find(|(known, _, _)| *known == alias);
    match found {
        Some(found) => Ok(Reply::ok(json!({"extension": extension_view(found)}))),
        None => Err(Fault::not_yet()),
    }
}

pub(super) fn resource_filters(request: &Request) -> Answer {
    request.since(33)?;
    let two_fields = request.version.has_backup_status();
    let all = [
        ("volume", volumes::RESOURCE.members),
        ("backup", backups::RESOURCE.members),
        ("snapshot", snapshots::RESOURCE.members),
        ("attachment", attachments::RESOURCE.members),
        ("message", MESSAGES.members),
        ("volume_type", &["is_public", "extra_specs"]),
    ];
    let wanted = request.param("resource");
    let views: Vec<Value> = all
        .iter()
        .filter(|(name, _)| wanted.is_none_or(|it| it == *name))
        .map(|(name, filters)| {
            let filters: Vec<&&str> = filters
                .iter()
                .filter(|it| !it.starts_with("display_") && **it != "glance_metadata")
                .filter(|it| two_fields || **it != "backup_status")
                .collect();
            json!({"resource": name, "filters": filters})
        })
        .collect();
    Ok(Reply::ok(json!({"resource_filters": views})))
}

// ---------------------------------------------------------------- messages, from 3.3

const MESSAGES: Resource = Resource {
    fields: &[
        ("id", Field::Text("messages.id")),
        ("resource_uuid", Field::Text("messages.resource_uuid")),
        ("resource_type", Field::Text("messages.resource_type")),
        ("event_id", Field::Text("messages.event_id")),
        ("request_id", Field::Text("messages.request_id")),
        ("message_level", Field::Text("messages.message_level")),
        ("created_at", Field::Time("messages.created_at")),
        ("guaranteed_until", Field::Time("messages.expires_at")),
    ],
    members: &["resource_uuid", "resource_type", "event_id", "request_id", "message_level"],
    later: Later { pages: 5, ..Later::NOTHING },
};

/// The page a request asks for, of messages that the caller may see.
pub(super) fn page_of_messages(request: &Request) -> Result<Page, Fault> {
    let mut page = MESSAGES.page(request)?;
    listing::isolate(request, &mut page, "messages.project_id")?;
    Ok(page)
}

pub(super) async fn messages(service: &Service, request: &Request) -> Answer {
    request.since(3)?;
    allow(&request.caller, Needs::Reader, "message:get_all")?;
    let page = page_of_messages(request)?;
    let (found, count) = service.store.messages(&page).await.map_err(list_fault("Message"))?;
    let items: Vec<Value> = found.iter().map(|it| views::message(request, it)).collect();
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, "messages", &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("messages", items, ("messages_links", next), count)))
}

pub(super) async fn message(service: &Service, request: &Request, id: &str) -> Answer {
    request.since(3)?;
    allow(&request.caller, Needs::Reader, "message:get")?;
    let found = service.store.message(id, request.scope()).await?;
    let found = found.ok_or_else(|| Fault::no_such("Message", id))?;
    Ok(Reply::ok(json!({"message": views::message(request, &found)})))
}

pub(super) async fn delete_message(service: &Service, request: &Request, id: &str) -> Answer {
    request.since(3)?;
    allow(&request.caller, Needs::Member, "message:delete")?;
    let found = service.store.message(id, request.scope()).await?;
    found.ok_or_else(|| Fault::no_such("Message", id))?;
    service.store.delete_message(id).await?;
    Ok(Reply::empty(204))
}

// ---------------------------------------------------------------- what is not offered

/// There are none, and there will be none.
pub(super) fn none_of(request: &Request, collection: &str, rest: &[&str]) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_all")?;
    match rest {
        [] | ["detail"] => Ok(Reply::ok(json!({ collection: [] }))),
        _ => Err(Fault::not_yet()),
    }
}

pub(super) fn not_offered(request: &Request, collection: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:create")?;
    Err(Fault::bad(format!(
        "{collection} are not offered by this service. Volumes, snapshots and backups are handled \
         one by one."
    )))
}
