//! Which handler answers which request.

use super::fault::Fault;
use super::request::{Answer, Request};
use super::{
    Service, actions, attachments, backups, qos, quotas, small, snapshots, transfers, types,
    volumes,
};

pub(super) async fn route(service: &Service, request: &Request) -> Answer {
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    let method = request.method.as_str();
    match (path.first().copied().unwrap_or_default(), method, path.get(1..).unwrap_or_default()) {
        ("volumes", method, rest) => of_volumes(service, request, method, rest).await,
        ("snapshots", method, rest) => of_snapshots(service, request, method, rest).await,
        ("backups", method, rest) => of_backups(service, request, method, rest).await,
        ("attachments", method, rest) => of_attachments(service, request, method, rest).await,
        ("types", method, rest) => of_types(service, request, method, rest).await,
        ("qos-specs", method, rest) => of_qos(service, request, method, rest).await,
        ("volume-transfers" | "os-volume-transfer", method, rest) => {
            of_transfers(service, request, method, rest).await
        }
        (_, method, _) => of_the_rest(service, request, method, &path).await,
    }
}

async fn of_volumes(service: &Service, request: &Request, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("POST", []) => volumes::create(service, request).await,
        ("GET", []) => volumes::list(service, request, false).await,
        ("GET", ["detail"]) => volumes::list(service, request, true).await,
        ("GET", ["summary"]) => volumes::summary(service, request).await,
        ("GET", [id]) => volumes::show(service, request, id).await,
        ("PUT", [id]) => volumes::update(service, request, id).await,
        ("DELETE", [id]) => volumes::delete(service, request, id).await,
        ("POST", [id, "action"]) => actions::act(service, request, id).await,
        ("GET", [id, "metadata"]) => volumes::metadata(service, request, id).await,
        ("POST", [id, "metadata"]) => volumes::put_metadata(service, request, id, false).await,
        ("PUT", [id, "metadata"]) => volumes::put_metadata(service, request, id, true).await,
        ("GET", [id, "metadata", key]) => volumes::meta(service, request, id, key).await,
        ("PUT", [id, "metadata", key]) => volumes::put_meta(service, request, id, key).await,
        ("DELETE", [id, "metadata", key]) => volumes::delete_meta(service, request, id, key).await,
        ("GET", [id, "encryption"]) => volumes::encryption(service, request, id, None).await,
        ("GET", [id, "encryption", key]) => {
            volumes::encryption(service, request, id, Some(key)).await
        }
        _ => Err(Fault::no_route()),
    }
}

async fn of_snapshots(service: &Service, request: &Request, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("POST", []) => snapshots::create(service, request).await,
        ("GET", []) => snapshots::list(service, request, false).await,
        ("GET", ["detail"]) => snapshots::list(service, request, true).await,
        ("GET", [id]) => snapshots::show(service, request, id).await,
        ("PUT", [id]) => snapshots::update(service, request, id).await,
        ("DELETE", [id]) => snapshots::delete(service, request, id).await,
        ("POST", [id, "action"]) => snapshots::act(service, request, id).await,
        ("GET", [id, "metadata"]) => snapshots::metadata(service, request, id).await,
        ("POST", [id, "metadata"]) => snapshots::put_metadata(service, request, id, false).await,
        ("PUT", [id, "metadata"]) => snapshots::put_metadata(service, request, id, true).await,
        ("GET", [id, "metadata", key]) => snapshots::meta(service, request, id, key).await,
        ("PUT", [id, "metadata", key]) => snapshots::put_meta(service, request, id, key).await,
        ("DELETE", [id, "metadata", key]) => {
            snapshots::delete_meta(service, request, id, key).await
        }
        _ => Err(Fault::no_route()),
    }
}

async fn of_backups(service: &Service, request: &Request, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("POST", []) => backups::create(service, request).await,
        ("GET", []) => backups::list(service, request, false).await,
        ("GET", ["detail"]) => backups::list(service, request, true).await,
        ("POST", ["import_record"]) => backups::import(service, request).await,
        ("GET", [id]) => backups::show(service, request, id).await,
        ("PUT", [id]) => backups::update(service, request, id).await,
        ("DELETE", [id]) => backups::delete(service, request, id).await,
        ("POST", [id, "restore"]) => backups::restore(service, request, id).await,
        ("GET", [id, "export_record"]) => backups::export(service, request, id).await,
        ("POST", [id, "action"]) => backups::act(service, request, id).await,
        _ => Err(Fault::no_route()),
    }
}

async fn of_attachments(
    service: &Service,
    request: &Request,
    method: &str,
    rest: &[&str],
) -> Answer {
    request.since(27)?;
    match (method, rest) {
        ("POST", []) => attachments::create(service, request).await,
        ("GET", []) => attachments::list(service, request, false).await,
        ("GET", ["detail"]) => attachments::list(service, request, true).await,
        ("GET", [id]) => attachments::show(service, request, id).await,
        ("PUT", [id]) => attachments::update(service, request, id).await,
        ("DELETE", [id]) => attachments::delete(service, request, id).await,
        ("POST", [id, "action"]) => attachments::act(service, request, id).await,
        _ => Err(Fault::no_route()),
    }
}

async fn of_types(service: &Service, request: &Request, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("GET", []) => types::list(service, request).await,
        ("POST", []) => types::create(service, request).await,
        ("GET", [id]) => types::show(service, request, id).await,
        ("PUT", [id]) => types::update(service, request, id).await,
        ("DELETE", [id]) => types::delete(service, request, id).await,
        ("GET", [id, "extra_specs"]) => types::specs(service, request, id).await,
        ("POST", [id, "extra_specs"]) => types::put_specs(service, request, id).await,
        ("GET", [id, "extra_specs", key]) => types::spec(service, request, id, key).await,
        ("PUT", [id, "extra_specs", key]) => types::put_spec(service, request, id, key).await,
        ("DELETE", [id, "extra_specs", key]) => types::delete_spec(service, request, id, key).await,
        ("GET", [id, "os-volume-type-access"]) => types::access(service, request, id).await,
        ("POST", [id, "action"]) => types::act(service, request, id).await,
        ("GET", [id, "encryption"]) => types::encryption(service, request, id, None).await,
        ("POST", [id, "encryption"]) => types::create_encryption(service, request, id).await,
        ("GET", [id, "encryption", key]) => {
            types::encryption(service, request, id, Some(key)).await
        }
        ("PUT", [id, "encryption", one]) => {
            types::update_encryption(service, request, (id, one)).await
        }
        ("DELETE", [id, "encryption", one]) => {
            types::delete_encryption(service, request, (id, one)).await
        }
        _ => Err(Fault::no_route()),
    }
}

async fn of_qos(service: &Service, request: &Request, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("GET", []) => qos::list(service, request).await,
        ("POST", []) => qos::create(service, request).await,
        ("GET", [id]) => qos::show(service, request, id).await,
        ("PUT", [id]) => qos::update(service, request, id).await,
        ("DELETE", [id]) => qos::delete(service, request, id).await,
        ("PUT", [id, "delete_keys"]) => qos::delete_keys(service, request, id).await,
        ("GET", [id, "associations"]) => qos::associations(service, request, id).await,
        ("GET", [id, "associate"]) => qos::associate(service, request, id).await,
        ("GET", [id, "disassociate"]) => qos::disassociate(service, request, id, false).await,
        ("GET", [id, "disassociate_all"]) => qos::disassociate(service, request, id, true).await,
        _ => Err(Fault::no_route()),
    }
}

async fn of_transfers(service: &Service, request: &Request, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("POST", []) => transfers::create(service, request).await,
        ("GET", []) => transfers::list(service, request, false).await,
        ("GET", ["detail"]) => transfers::list(service, request, true).await,
        ("GET", [id]) => transfers::show(service, request, id).await,
        ("DELETE", [id]) => transfers::delete(service, request, id).await,
        ("POST", [id, "accept"]) => transfers::accept(service, request, id).await,
        _ => Err(Fault::no_route()),
    }
}

/// From which version on collections are there that are not offered.
fn since(collection: &str) -> u32 {
    match collection {
        "clusters" => 7,
        "manageable_volumes" | "manageable_snapshots" => 8,
        "group_types" => 11,
        "groups" => 13,
        "group_snapshots" => 14,
        "workers" => 24,
        "default-types" => 62,
        _ => 0,
    }
}

async fn of_the_rest(service: &Service, request: &Request, method: &str, path: &[&str]) -> Answer {
    request.since(since(path.first().copied().unwrap_or_default()))?;
    match (method, path) {
        ("GET", ["os-quota-sets", project]) => quotas::show(service, request, project).await,
        ("GET", ["os-quota-sets", _, "defaults"]) => quotas::defaults(service, request).await,
        ("PUT", ["os-quota-sets", project]) => quotas::update(service, request, project).await,
        ("DELETE", ["os-quota-sets", project]) => quotas::delete(service, request, project).await,
        ("GET", ["os-quota-class-sets", class]) => quotas::class(service, request, class).await,
        ("PUT", ["os-quota-class-sets", class]) => {
            quotas::update_class(service, request, class).await
        }
        ("GET", ["limits"]) => quotas::limits(service, request).await,
        ("GET", ["os-availability-zone"]) => small::zones(service, request),
        ("GET", ["os-services"]) => small::services(service, request).await,
        ("PUT", ["os-services", verb]) => small::set_service(service, request, verb).await,
        ("GET", ["scheduler-stats", "get_pools"]) => small::pools(service, request).await,
        ("GET", ["os-hosts"]) => small::hosts(service, request).await,
        ("GET", ["os-hosts", host]) => small::host(service, request, host).await,
        ("GET", ["capabilities", host]) => small::capabilities(service, request, host),
        ("GET", ["extensions"]) => Ok(small::extensions()),
        ("GET", ["extensions", alias]) => small::extension(alias),
        ("GET", ["resource_filters"]) => small::resource_filters(request),
        ("GET", ["messages"]) => small::messages(service, request).await,
        ("GET", ["messages", id]) => small::message(service, request, id).await,
        ("DELETE", ["messages", id]) => small::delete_message(service, request, id).await,
        ("GET", ["default-types"]) => types::defaults(service, request).await,
        ("GET", ["default-types", project]) => types::default_of(service, request, project).await,
        ("PUT", ["default-types", project]) => types::set_default(service, request, project).await,
        ("DELETE", ["default-types", project]) => {
            types::unset_default(service, request, project).await
        }
        (
            "GET",
            [
                "groups" | "group_snapshots" | "group_types" | "consistencygroups" | "cgsnapshots"
                | "clusters",
                rest @ ..,
            ],
        ) => small::none_of(request, path.first().copied().unwrap_or_default(), rest),
        (
            _,
            [
                "groups"
                | "group_snapshots"
                | "group_types"
                | "consistencygroups"
                | "cgsnapshots"
                | "clusters"
                | "manageable_volumes"
                | "manageable_snapshots"
                | "workers"
                | "os-volume-manage"
                | "os-snapshot-manage",
                ..,
            ],
        ) => small::not_offered(request, path.first().copied().unwrap_or_default()),
        _ => Err(Fault::no_route()),
    }
}
