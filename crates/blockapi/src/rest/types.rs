//! Volume types.

use serde_json::{Value, json};

use super::Service;
use super::actions::{action, no_such_action};
use super::fault::{Fault, listing as list_fault};
use super::input::{self, Fields};
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request, truth};
use super::views;
use crate::auth::policy::{Needs, allow};
use crate::sql::Tx;
use crate::store::statement::Statement;
use crate::store::types::{DEFAULT_TYPE, Encryption, VolumeType, visible_to};
use crate::store::{Metadata, new_id, now};

pub(super) const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("volume_types.id")),
        ("name", Field::Text("volume_types.name")),
        ("description", Field::Text("volume_types.description")),
        (
            "extra_specs",
            Field::Pairs("volume_type_extra_specs", "volume_type_id", "volume_types.id"),
        ),
        ("created_at", Field::Time("volume_types.created_at")),
        ("updated_at", Field::Time("volume_types.updated_at")),
    ],
    members: &["extra_specs", "name"],
    later: Later::NOTHING,
};

const MANAGE: &str = "volume_extension:types_manage";

async fn find(service: &Service, request: &Request, id: &str) -> Result<VolumeType, Fault> {
    let found = service.store.volume_type(id, request.scope()).await?;
    found.filter(|it| it.id == id).ok_or_else(|| no_such(id))
}

fn no_such(id: &str) -> Fault {
    Fault::not_found(format!("Volume type {id} could not be found."))
}

pub(super) async fn list(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Reader, "volume_extension:type_get_all")?;
    let public = request.param("is_public").map(str::to_owned);
    let mut asked = Request {
        query: request.query.iter().filter(|(key, _)| key != "is_public").cloned().collect(),
        ..clone(request)
    };
    if !request.version.has(52) {
        asked.query.retain(|(key, _)| key != "extra_specs");
    }
    let mut page = RESOURCE.page(&asked)?;
    if request.caller.is_admin() {
        match public.as_deref() {
            None => page.and(Statement::new("volume_types.is_public = 1")),
            Some("None" | "none") => {}
            Some(text) => {
                let wanted = truth(text)
                    .ok_or_else(|| Fault::bad(format!("Invalid is_public filter [{text}]")))?;
                let mut sql = Statement::new("volume_types.is_public = ");
                sql.bind(wanted);
                page.and(sql);
            }
        }
    } else {
        page.scope = Some(visible_to(&request.caller.project_id));
    }
    let (found, count) =
        service.store.volume_types(&page).await.map_err(list_fault("Volume type"))?;
    let items: Vec<Value> = found.iter().map(|it| views::volume_type(request, it)).collect();
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, "types", &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("volume_types", items, ("volume_type_links", next), count)))
}

fn clone(request: &Request) -> Request {
    Request {
        method: request.method.clone(),
        path: request.path.clone(),
        query: Vec::new(),
        body: request.body.clone(),
        headers: request.headers.clone(),
        version: request.version,
        caller: request.caller.clone(),
        id: request.id.clone(),
        links: request.links.clone(),
        hides_backup_error: request.hides_backup_error,
    }
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume_extension:type_get")?;
    let found = if id == "default" {
        super::volumes::volume_type(service, request, None, None).await?
    } else {
        find(service, request, id).await?
    };
    Ok(Reply::ok(json!({"volume_type": views::volume_type(request, &found)})))
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Admin, MANAGE)?;
    let fields = Fields::of(request, "volume_type", &[])?;
    fields.required("name")?;
    let name = fields.text("name")?.filter(|it| !it.is_empty());
    let name = name.ok_or_else(|| Fault::bad("Volume type name can not be empty."))?;
    let public = fields.truth("os-volume-type-access:is_public")?.unwrap_or(true);
    let specs = fields.metadata("extra_specs")?.unwrap_or_default();
    let description = fields.text("description")?;
    let made = service.store.insert_type(&name, description.as_deref(), public, &specs).await;
    let id = match made {
        Ok(id) => id,
        Err(error) if error.is_duplicate() => {
            return Err(Fault::conflict(format!("Volume Type {name} already exists.")));
        }
        Err(error) => return Err(error.into()),
    };
    let made = find(service, request, &id).await?;
    let mut view = views::volume_type(request, &made);
    // Clients that check bodies know it of types that are looked at, not of new ones.
    if let Some(view) = view.as_object_mut() {
        view.remove("qos_specs_id");
    }
    Ok(Reply::ok(json!({ "volume_type": view })))
}

pub(super) async fn update(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Admin, MANAGE)?;
    let fields = Fields::of(request, "volume_type", &[])?;
    fields.only(&["name", "description", "is_public"])?;
    let before = find(service, request, id).await?;
    let mut changes = Vec::new();
    if let Some(name) = fields.text("name")? {
        if name.is_empty() {
            return Err(Fault::bad("Volume type name can not be empty."));
        }
        if before.name == DEFAULT_TYPE && name != DEFAULT_TYPE {
            // By this name it is found when no other type is asked for.
            return Err(Fault::bad(format!(
                "The volume type {DEFAULT_TYPE} is the default volume type and cannot be renamed."
            )));
        }
        changes.push(("name", name.into()));
    }
    if fields.has("description") {
        changes.push(("description", fields.text("description")?.into()));
    }
    if let Some(public) = fields.truth("is_public")? {
        changes.push(("is_public", public.into()));
    }
    if changes.is_empty() {
        return Err(Fault::bad(
            "Specify volume type name, description, is_public or a combination thereof.",
        ));
    }
    match service.store.update_type(id, &changes).await {
        Err(error) if error.is_duplicate() => {
            return Err(Fault::conflict("Volume Type with that name already exists."));
        }
        other => drop(other?),
    }
    let after = find(service, request, id).await?;
    let mut view = views::volume_type(request, &after);
    if let Some(view) = view.as_object_mut() {
        view.retain(|key, _| key != "qos_specs_id" && !key.starts_with("os-volume-type-access"));
    }
    Ok(Reply::ok(json!({ "volume_type": view })))
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Admin, MANAGE)?;
    let found = find(service, request, id).await?;
    if found.name == DEFAULT_TYPE {
        return Err(Fault::bad(format!(
            "The volume type {DEFAULT_TYPE} is the default volume type and cannot be deleted."
        )));
    }
    if !service.store.delete_type(id).await? {
        return Err(Fault::bad("Target volume type is still in use."));
    }
    Ok(Reply::empty(202))
}

pub(super) async fn specs(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume_extension:types_extra_specs:index")?;
    let found = find(service, request, id).await?;
    Ok(Reply::ok(json!({"extra_specs": found.extra_specs})))
}

pub(super) async fn put_specs(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:types_extra_specs:create")?;
    let fields = Fields::of(request, "extra_specs", &[])?;
    let new = input::metadata("extra_specs", &Value::Object(fields.into_map()))?;
    find(service, request, id).await?;
    service.store.put_type_specs(id, &new).await?;
    Ok(Reply::ok(json!({"extra_specs": new})))
}

fn no_spec(id: &str, key: &str) -> Fault {
    Fault::not_found(format!("Volume Type {id} has no extra specs with key {key}."))
}

pub(super) async fn spec(service: &Service, request: &Request, id: &str, key: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume_extension:types_extra_specs:show")?;
    let found = find(service, request, id).await?;
    let value = found.extra_specs.get(key).ok_or_else(|| no_spec(id, key))?;
    Ok(Reply::ok(json!({key: value})))
}

pub(super) async fn put_spec(service: &Service, request: &Request, id: &str, key: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:types_extra_specs:update")?;
    let new: Metadata = input::metadata("extra_specs", &Value::Object(request.json()?))?;
    if new.len() != 1 || !new.contains_key(key) {
        return Err(Fault::bad("Request body and URI mismatch"));
    }
    find(service, request, id).await?;
    service.store.put_type_specs(id, &new).await?;
    Ok(Reply::ok(json!(new)))
}

pub(super) async fn delete_spec(
    service: &Service,
    request: &Request,
    id: &str,
    key: &str,
) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:types_extra_specs:delete")?;
    find(service, request, id).await?;
    if !service.store.remove_type_spec(id, key).await? {
        return Err(no_spec(id, key));
    }
    Ok(Reply::empty(202))
}

pub(super) async fn access(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Admin, "volume_extension:volume_type_access")?;
    let found = find(service, request, id).await?;
    if found.is_public {
        return Err(Fault::not_found(
            "Access list not available for public volume types.".to_owned(),
        ));
    }
    let projects = service.store.type_projects(id).await?;
    let projects: Vec<Value> =
        projects.iter().map(|it| json!({"volume_type_id": id, "project_id": it})).collect();
    Ok(Reply::ok(json!({"volume_type_access": projects})))
}

pub(super) async fn act(service: &Service, request: &Request, id: &str) -> Answer {
    let (name, args) = action(request)?;
    let allowed = match name.as_str() {
        "addProjectAccess" => true,
        "removeProjectAccess" => false,
        other => return Err(no_such_action(other)),
    };
    allow(&request.caller, Needs::Admin, "volume_extension:volume_type_access")?;
    let fields = Fields::from(&name, args)?;
    fields.only(&["project"])?;
    let project = fields.text("project")?.filter(|it| !it.is_empty());
    let project = project.ok_or_else(|| Fault::bad("'project' is a required property"))?;
    let found = find(service, request, id).await?;
    if found.is_public {
        return Err(Fault::conflict(
            "Type access modification is not applicable to public volume type.",
        ));
    }
    let changed = service.store.set_type_access(id, &project, allowed).await?;
    match (changed, allowed) {
        (true, _) => Ok(Reply::empty(202)),
        (false, true) => Err(Fault::conflict(format!(
            "Volume type access for {id} / {project} combination already exists."
        ))),
        (false, false) => Err(Fault::not_found(format!(
            "Volume type access not found for {id} / {project} combination."
        ))),
    }
}

// ---------------------------------------------------------------- encryption

const ENCRYPTION: &str = "volume_extension:volume_type_encryption";
const ENCRYPTION_KEYS: [&str; 4] = ["provider", "cipher", "key_size", "control_location"];
const LOCATIONS: [&str; 2] = ["front-end", "back-end"];

/// There is nobody here who keeps keys: a type may say how its volumes are to be encrypted, and then
/// no volume of it can be made.
pub(super) fn refuse_encryption(kind: &VolumeType) -> Result<(), Fault> {
    if !kind.encrypts {
        return Ok(());
    }
    Err(Fault::bad(format!(
        "Volumes of the type {} are to be encrypted, and there is no key service here; use a type \
         without encryption.",
        kind.name
    )))
}

/// Holds the type that a volume is about to have: it may have gone, or ask for encryption by now.
pub(super) async fn hold(service: &Service, tx: &mut Tx, kind: &VolumeType) -> Result<(), Fault> {
    let encrypts = service.store.hold_type(tx, &kind.id).await?;
    let encrypts = encrypts.ok_or_else(|| no_such(&kind.id))?;
    refuse_encryption(&VolumeType { encrypts, ..kind.clone() })
}

async fn find_encryption(service: &Service, kind: &str, id: &str) -> Result<Encryption, Fault> {
    let found = service.store.encryption(kind).await?.filter(|it| it.id == id);
    found.ok_or_else(|| {
        Fault::not_found(format!("Volume type encryption for type {kind} does not exist."))
    })
}

fn encryption_view(it: &Encryption) -> Value {
    json!({
        "provider": it.provider, "cipher": it.cipher, "key_size": it.key_size,
        "control_location": it.control_location,
    })
}

pub(super) async fn encryption(
    service: &Service,
    request: &Request,
    id: &str,
    key: Option<&str>,
) -> Answer {
    allow(&request.caller, Needs::Admin, &format!("{ENCRYPTION}:get"))?;
    find(service, request, id).await?;
    let found = service.store.encryption(id).await?;
    let Some(it) = found else {
        return match key {
            None => Ok(Reply::ok(json!({}))),
            Some(_) => Err(Fault::not_yet()),
        };
    };
    let mut view = encryption_view(&it);
    if let Some(view) = view.as_object_mut() {
        view.insert("volume_type_id".to_owned(), json!(id));
        view.insert("encryption_id".to_owned(), json!(it.id));
        view.insert("created_at".to_owned(), json!(it.created_at));
        view.insert("updated_at".to_owned(), json!(it.updated_at));
        view.insert("deleted_at".to_owned(), Value::Null);
        view.insert("deleted".to_owned(), json!(false));
    }
    match key {
        None => Ok(Reply::ok(view)),
        Some(key) => match view.get(key) {
            Some(value) => Ok(Reply::ok(json!({ key: value }))),
            None => Err(Fault::not_yet()),
        },
    }
}

/// What a body says over what there is.
fn encryption_of(fields: &Fields<'_>, mut it: Encryption) -> Result<Encryption, Fault> {
    if fields.has("provider") {
        let provider = fields.text("provider")?.filter(|it| !it.is_empty());
        it.provider = provider.ok_or_else(|| Fault::bad("'provider' must not be empty."))?;
    }
    if fields.has("cipher") {
        it.cipher = fields.text("cipher")?;
    }
    if fields.has("key_size") {
        it.key_size = fields.number("key_size", 0)?;
    }
    if let Some(place) = fields.get("control_location") {
        let known = place.as_str().filter(|it| LOCATIONS.contains(it));
        let known = known.ok_or_else(|| {
            input::invalid("control_location", place, "It is not one of front-end, back-end")
        })?;
        known.clone_into(&mut it.control_location);
    }
    Ok(it)
}

async fn keep_encryption(
    service: &Service,
    id: &str,
    wanted: Option<&Encryption>,
) -> Result<(), Fault> {
    if service.store.set_encryption(id, wanted).await? {
        return Ok(());
    }
    Err(Fault::bad("Cannot change encryption specs. Volume type in use."))
}

pub(super) async fn create_encryption(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Admin, &format!("{ENCRYPTION}:create"))?;
    let fields = Fields::of(request, "encryption", &[])?;
    fields.only(&ENCRYPTION_KEYS)?;
    let blank = Encryption {
        id: new_id(),
        provider: String::new(),
        cipher: None,
        key_size: None,
        control_location: "front-end".to_owned(),
        created_at: now(),
        updated_at: None,
    };
    let new = encryption_of(&fields, blank)?;
    fields.required("provider")?;
    if find(service, request, id).await?.encrypts {
        return Err(Fault::bad(format!("Volume type encryption for type {id} already exists.")));
    }
    keep_encryption(service, id, Some(&new)).await?;
    let mut view = encryption_view(&new);
    if let Some(view) = view.as_object_mut() {
        view.insert("volume_type_id".to_owned(), json!(id));
        view.insert("encryption_id".to_owned(), json!(new.id));
    }
    Ok(Reply::ok(json!({ "encryption": view })))
}

pub(super) async fn update_encryption(
    service: &Service,
    request: &Request,
    (id, encryption): (&str, &str),
) -> Answer {
    allow(&request.caller, Needs::Admin, &format!("{ENCRYPTION}:update"))?;
    let fields = Fields::of(request, "encryption", &[])?;
    fields.only(&ENCRYPTION_KEYS)?;
    find(service, request, id).await?;
    let mut new = encryption_of(&fields, find_encryption(service, id, encryption).await?)?;
    new.updated_at = Some(now());
    keep_encryption(service, id, Some(&new)).await?;
    Ok(Reply::ok(json!({ "encryption": fields.into_map() })))
}

pub(super) async fn delete_encryption(
    service: &Service,
    request: &Request,
    (id, encryption): (&str, &str),
) -> Answer {
    allow(&request.caller, Needs::Admin, &format!("{ENCRYPTION}:delete"))?;
    find(service, request, id).await?;
    find_encryption(service, id, encryption).await?;
    keep_encryption(service, id, None).await?;
    Ok(Reply::empty(202))
}

// ---------------------------------------------------------------- defaults of projects, from 3.62

const DEFAULTS: &str = "volume_extension:default_get";

pub(super) async fn defaults(service: &Service, request: &Request) -> Answer {
    request.since(62)?;
    allow(&request.caller, Needs::Admin, DEFAULTS)?;
    let all = service.store.default_types().await?;
    let all: Vec<Value> = all
        .iter()
        .map(|(project, id)| json!({"project_id": project, "volume_type_id": id}))
        .collect();
    Ok(Reply::ok(json!({"default_types": all})))
}

pub(super) async fn default_of(service: &Service, request: &Request, project: &str) -> Answer {
    request.since(62)?;
    allow(&request.caller, Needs::Admin, DEFAULTS)?;
    let mut all = service.store.default_types().await?;
    let id = all.remove(project).ok_or_else(|| {
        Fault::not_found(format!("Default type for project {project} could not be found."))
    })?;
    Ok(Reply::ok(json!({"default_type": {"project_id": project, "volume_type_id": id}})))
}

pub(super) async fn set_default(service: &Service, request: &Request, project: &str) -> Answer {
    request.since(62)?;
    allow(&request.caller, Needs::Admin, "volume_extension:default_set_or_update")?;
    let fields = Fields::of(request, "default_type", &[])?;
    let wanted = fields.text("volume_type")?;
    let wanted = wanted.ok_or_else(|| Fault::bad("'volume_type' is a required property"))?;
    let found = service.store.volume_type(&wanted, None).await?;
    let found = found.ok_or_else(|| no_such(&wanted))?;
    service.store.set_default_type(project, Some(&found.id)).await?;
    Ok(Reply::ok(json!({"default_type": {"project_id": project, "volume_type_id": found.id}})))
}

pub(super) async fn unset_default(service: &Service, request: &Request, project: &str) -> Answer {
    request.since(62)?;
    allow(&request.caller, Needs::Admin, "volume_extension:default_unset")?;
    service.store.set_default_type(project, None).await?;
    Ok(Reply::empty(204))
}
