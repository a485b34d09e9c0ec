//! What projects may use.

use serde_json::{Map, Value, json};

use super::Service;
use super::fault::Fault;
use super::input::{SIZE_MAX, invalid};
use super::request::{Answer, Reply, Request};
use crate::auth::policy::{Needs, allow};
use crate::store::limits::{Counts, UNLIMITED};

/// A project's own, or any for an administrator.
fn visible(request: &Request, project: &str, needs: Needs, rule: &str) -> Result<(), Fault> {
    allow(&request.caller, needs, rule)?;
    if !request.caller.is_admin() && request.caller.project_id != project {
        return Err(Fault::forbidden(rule));
    }
    Ok(())
}

fn set(id: &str, counts: Map<String, Value>) -> Value {
    let mut counts = counts;
    counts.insert("id".to_owned(), json!(id));
    json!({ "quota_set": counts })
}

fn plain(counts: &Counts) -> Map<String, Value> {
    counts.iter().map(|(name, limit)| (name.clone(), json!(limit))).collect()
}

pub(super) async fn show(service: &Service, request: &Request, project: &str) -> Answer {
    visible(request, project, Needs::Reader, "volume_extension:quotas:show")?;
    let limits = service.store.limits(project).await?;
    if !request.param_truth("usage")? {
        return Ok(Reply::ok(set(project, plain(&limits))));
    }
    let used = service.store.usage(project).await?;
    let counts = limits
        .iter()
        .map(|(name, limit)| {
            let in_use = used.get(name).copied().unwrap_or_default();
            (name.clone(), json!({"limit": limit, "in_use": in_use, "reserved": 0}))
        })
        .collect();
    Ok(Reply::ok(set(project, counts)))
}

pub(super) async fn defaults(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Reader, "volume_extension:quotas:show")?;
    let limits = service.store.default_limits().await?;
    let project = request.path.get(1).map_or("", String::as_str);
    Ok(Reply::ok(set(project, plain(&limits))))
}

/// Limits of a body, each of a resource that has one.
fn wanted(request: &Request, name: &str, known: &Counts) -> Result<Vec<(String, i64)>, Fault> {
    let mut body = request.json()?;
    let fields = body.remove(name);
    let Some(Value::Object(fields)) = fields else {
        return Err(Fault::bad(format!("'{name}' is a required property")));
    };
    let mut limits = Vec::new();
    for (key, value) in fields {
        if ["tenant_id", "id", "class_name", "force"].contains(&key.as_str()) {
            continue;
        }
        if !known.contains_key(&key) {
            return Err(Fault::bad(format!("Bad key(s) in quota set: {key}")));
        }
        let number = match &value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(limit) if (UNLIMITED..=SIZE_MAX).contains(&limit) => limits.push((key, limit)),
            _ => return Err(invalid(&key, &value, "It must be a number from -1 on")),
        }
    }
    Ok(limits)
}

pub(super) async fn update(service: &Service, request: &Request, project: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:quotas:update")?;
    let store = &service.store;
    let limits = wanted(request, "quota_set", &store.default_limits().await?)?;
    let used = store.usage(project).await?;
    for (name, limit) in &limits {
        let in_use = used.get(name).copied().unwrap_or_default();
        if *limit != UNLIMITED && in_use > *limit {
            return Err(Fault::bad(format!(
                "Quota {name} limit must be equal or greater than existing resources. Current usage \
                 is {in_use} and the requested limit is {limit}."
            )));
        }
    }
    for (name, limit) in &limits {
        store.set_limit(project, name, *limit).await?;
    }
    Ok(Reply::ok(json!({"quota_set": plain(&store.limits(project).await?)})))
}

pub(super) async fn delete(service: &Service, request: &Request, project: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:quotas:delete")?;
    service.store.forget_limits(project).await?;
    Ok(Reply::empty(200))
}

fn class_set(class: &str, limits: &Counts) -> Value {
    let mut counts = plain(limits);
    counts.insert("id".to_owned(), json!(class));
    json!({ "quota_class_set": counts })
}

pub(super) async fn class(service: &Service, request: &Request, class: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:quota_classes:get")?;
    Ok(Reply::ok(class_set(class, &service.store.default_limits().await?)))
}

pub(super) async fn update_class(service: &Service, request: &Request, class: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:quota_classes:update")?;
    if class != "default" {
        return Err(Fault::bad("There is one quota class here: default."));
    }
    let store = &service.store;
    let limits = wanted(request, "quota_class_set", &store.default_limits().await?)?;
    for (name, limit) in &limits {
        store.set_default_limit(name, *limit).await?;
    }
    // What was changed is told without its name.
    Ok(Reply::ok(json!({"quota_class_set": plain(&store.default_limits().await?)})))
}

pub(super) async fn limits(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Reader, "limits_extension:used_limits")?;
    let other = request.param("project_id").or(request.param("tenant_id"));
    let project = match other {
        Some(other) if request.version.has(39) && request.caller.is_admin() => other,
        _ => request.caller.project_id.as_str(),
    };
    let limits = service.store.limits(project).await?;
    let used = service.store.usage(project).await?;
    let limit = |name: &str| limits.get(name).copied().unwrap_or(UNLIMITED);
    let used = |name: &str| used.get(name).copied().unwrap_or_default();
    Ok(Reply::ok(json!({"limits": {"rate": [], "absolute": {
        "maxTotalVolumes": limit("volumes"),
        "maxTotalSnapshots": limit("snapshots"),
        "maxTotalVolumeGigabytes": limit("gigabytes"),
        "maxTotalBackups": limit("backups"),
        "maxTotalBackupGigabytes": limit("backup_gigabytes"),
        "totalVolumesUsed": used("volumes"),
        "totalSnapshotsUsed": used("snapshots"),
        "totalGigabytesUsed": used("gigabytes"),
        "totalBackupsUsed": used("backups"),
        "totalBackupGigabytesUsed": used("backup_gigabytes"),
    }}})))
}
