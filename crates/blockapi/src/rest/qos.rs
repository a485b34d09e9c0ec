//! `QoS` specs, and the types that have them. Limits of the front end are told to clients with the
//! address of a volume; nothing here keeps those of the back end.

use serde_json::{Map, Value, json};

use super::Service;
use super::fault::{Fault, listing as list_fault};
use super::input::{self, Fields, invalid};
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use crate::auth::policy::{Needs, allow};
use crate::store::Metadata;
use crate::store::qos::{CONSUMERS, DEFAULT_CONSUMER, Given, Kept, QosSpecs};

const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("qos_specs.id")),
        ("name", Field::Text("qos_specs.name")),
        ("consumer", Field::Text("qos_specs.consumer")),
        ("created_at", Field::Time("qos_specs.created_at")),
    ],
    members: &[],
    later: Later::NOTHING,
};

const RULE: &str = "volume_extension:qos_specs_manage";

fn may(request: &Request, action: &str) -> Result<(), Fault> {
    allow(&request.caller, Needs::Admin, &format!("{RULE}:{action}"))
}

fn view(it: &QosSpecs) -> Value {
    json!({"id": it.id, "name": it.name, "consumer": it.consumer, "specs": it.specs})
}

fn whole(request: &Request, it: &QosSpecs) -> Value {
    json!({"qos_specs": view(it), "links": request.links.of("qos-specs", &it.id)})
}

async fn find(service: &Service, id: &str) -> Result<QosSpecs, Fault> {
    let found = service.store.qos_of(id).await?;
    found.ok_or_else(|| Fault::not_found(format!("No such qos spec {id}.")))
}

pub(super) async fn list(service: &Service, request: &Request) -> Answer {
    may(request, "get_all")?;
    let page = RESOURCE.page(request)?;
    let (found, count) = service.store.qos_specs(&page).await.map_err(list_fault("Qos spec"))?;
    let items: Vec<Value> = found.iter().map(view).collect();
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, "qos-specs", &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("qos_specs", items, ("qos_specs_links", next), count)))
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    may(request, "get")?;
    Ok(Reply::ok(whole(request, &find(service, id).await?)))
}

/// Who keeps the limits, and the limits: all that is left of a body.
fn limits(mut fields: Map<String, Value>) -> Result<(Option<String>, Metadata), Fault> {
    let consumer = match fields.remove("consumer") {
        None => None,
        Some(Value::String(it)) if CONSUMERS.contains(&it.as_str()) => Some(it),
        Some(other) => {
            let reason = format!("It is not one of {}", CONSUMERS.join(", "));
            return Err(invalid("consumer", &other, &reason));
        }
    };
    Ok((consumer, input::metadata("qos_specs", &Value::Object(fields))?))
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    may(request, "create")?;
    let fields = Fields::of(request, "qos_specs", &[])?;
    let name = fields.text("name")?.filter(|it| !it.is_empty());
    let name = name.ok_or_else(|| Fault::bad("'name' is a required property"))?;
    let mut fields = fields.into_map();
    fields.remove("name");
    let (consumer, specs) = limits(fields)?;
    let consumer = consumer.unwrap_or_else(|| DEFAULT_CONSUMER.to_owned());
    match service.store.insert_qos(&name, &consumer, &specs).await {
        Ok(id) => Ok(Reply::ok(whole(request, &find(service, &id).await?))),
        Err(error) if error.is_duplicate() => {
            Err(Fault::conflict(format!("QoS Specs {name} already exists.")))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn update(service: &Service, request: &Request, id: &str) -> Answer {
    may(request, "update")?;
    let fields = Fields::of(request, "qos_specs", &[])?.into_map();
    let (consumer, specs) = limits(fields.clone())?;
    let mut after = find(service, id).await?.specs;
    after.extend(specs.clone());
    input::few_pairs(&after)?;
    if !service.store.change_qos(id, consumer.as_deref(), &specs).await? {
        find(service, id).await?;
    }
    Ok(Reply::ok(json!({ "qos_specs": fields })))
}

pub(super) async fn delete_keys(service: &Service, request: &Request, id: &str) -> Answer {
    may(request, "update")?;
    let body = request.json()?;
    let Some(Value::Array(keys)) = body.get("keys") else {
        return Err(Fault::bad("'keys' is a required property"));
    };
    let keys: Option<Vec<String>> = keys.iter().map(|it| it.as_str().map(str::to_owned)).collect();
    let keys = keys.ok_or_else(|| Fault::bad("'keys' must be a list of names"))?;
    find(service, id).await?;
    match service.store.remove_qos_keys(id, &keys).await? {
        None => Ok(Reply::empty(202)),
        Some(key) => Err(Fault::bad(format!("QoS spec {id} has no spec with key {key}."))),
    }
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    may(request, "delete")?;
    let force = request.param_truth("force")?;
    match service.store.delete_qos(id, force).await? {
        None => Ok(Reply::empty(202)),
        Some(Kept::Gone) => find(service, id).await.map(|_| Reply::empty(202)),
        Some(Kept::InUse) => {
            Err(Fault::bad(format!("Qos Specs {id} is still associated with entities.")))
        }
    }
}

pub(super) async fn associations(service: &Service, request: &Request, id: &str) -> Answer {
    may(request, "get")?;
    find(service, id).await?;
    let types = service.store.types_with_qos(id).await?;
    let types: Vec<Value> = types
        .iter()
        .map(|(id, name)| json!({"association_type": "volume_type", "id": id, "name": name}))
        .collect();
    Ok(Reply::ok(json!({ "qos_associations": types })))
}

fn wanted_type(request: &Request) -> Result<&str, Fault> {
    let wanted = request.param("vol_type_id").filter(|it| !it.is_empty());
    wanted.ok_or_else(|| Fault::bad("Volume Type id must not be None."))
}

pub(super) async fn associate(service: &Service, request: &Request, id: &str) -> Answer {
    may(request, "update")?;
    let kind = wanted_type(request)?;
    find(service, id).await?;
    match service.store.give_qos(id, kind).await? {
        Given::Done => Ok(Reply::empty(202)),
        Given::NoType => Err(Fault::not_found(format!("Volume type {kind} could not be found."))),
        Given::Other(other) => Err(Fault::bad(format!(
            "Type {kind} is already associated with another qos specs: {other}; disassociate it first."
        ))),
    }
}

pub(super) async fn disassociate(
    service: &Service,
    request: &Request,
    id: &str,
    all: bool,
) -> Answer {
    may(request, "update")?;
    let kind = if all { None } else { Some(wanted_type(request)?) };
    find(service, id).await?;
    if let Some(kind) = kind {
        let known = service.store.volume_type(kind, None).await?.filter(|it| it.id == kind);
        known.ok_or_else(|| Fault::not_found(format!("Volume type {kind} could not be found.")))?;
    }
    service.store.take_qos(id, kind).await?;
    Ok(Reply::empty(202))
}
