//! Put and patch: both end in "here is the old object, here is the new one", which is admitted and
//! written with a compare-and-set. What a client did not pin to a version is tried again when
//! somebody else was faster.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use objects::cause::Cause;
use objects::{managed, patch, strategic};
use serde_json::Value;

use super::admit::{self, Author, Endpoint, Track};
use super::delete::NAMESPACE_FINALIZER;
use super::options::WriteOptions;
use super::view::{self, Left};
use super::{Call, asked, create, decode, signing};
use crate::clock;
use crate::failure::Failure;
use crate::negotiate::{self, PatchForm};
use crate::registry::Resource;
use crate::server::{Company, Server, write_failure};
use crate::store::{Change, Expected, Stored, Write, WriteError};
use crate::upkeep::namespaces;

/// How often a write without a version may be overtaken.
const RACE_TRIES: usize = 32;

/// The result of a change.
pub(crate) struct Changed {
    pub object: Left,
    pub created: bool,
}

pub(crate) async fn put(
    server: &Server,
    call: &Call,
    name: &str,
    endpoint: Endpoint,
) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let options = WriteOptions::parse("UpdateOptions", &call.query, &call.headers)?;
    let mut warnings = Vec::new();
    let body =
        decode::object(resource, &call.headers, &call.body, options.validation, &mut warnings)?;
    check_identity(call, name, &body)?;
    let changed = put_object(server, call, name, endpoint, &options, body, &mut warnings).await?;
    respond(call, &changed, &warnings)
}

fn respond(call: &Call, changed: &Changed, warnings: &[String]) -> Result<Response, Failure> {
    let code = if changed.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(view::with_warnings(changed.object.response(call, code)?, warnings))
}

fn check_identity(call: &Call, name: &str, body: &Value) -> Result<(), Failure> {
    let given = admit::metadata_text(body, "name");
    if given != name {
        return Err(create::name_mismatch(given, name));
    }
    let namespace = admit::metadata_text(body, "namespace");
    match call.namespace() {
        Some(path) if !namespace.is_empty() && namespace != path => {
            Err(create::namespace_mismatch(namespace, path))
        }
        _ => Ok(()),
    }
}

/// PUT rules of a type: must the body carry a version, may it create?
fn put_rules(resource: &Resource) -> (bool, bool) {
    match resource.built_in() {
        Some(kind) => (kind.put.requires_rv, kind.put.creates),
        None => (true, false),
    }
}

async fn put_object(
    server: &Server,
    call: &Call,
    name: &str,
    endpoint: Endpoint,
    options: &WriteOptions,
    mut body: Value,
    warnings: &mut Vec<String>,
) -> Result<Changed, Failure> {
    let resource = &*call.resource;
    let (requires_version, creates) = put_rules(resource);
    let key = resource.key(call.namespace(), name);
    for _ in 0..RACE_TRIES {
        let Some(stored) = server.store.get(&key.resource, &key.namespace, &key.name) else {
            // Who names a uid means an object that has been there.
            check_uid(resource, name, "", &body)?;
            if !creates || endpoint != Endpoint::Main {
                return Err(Failure::not_found(admit::subject(resource, name)));
            }
            server.authorize_create(call, name)?;
            admit::metadata_mut(&mut body).remove("resourceVersion");
            let object = create::create_object(server, call, options, body, Track::Update).await?;
            return Ok(Changed { object, created: true });
        };
        let version = admit::metadata_text(&body, "resourceVersion");
        let pinned = !version.is_empty() && version != "0";
        if !pinned && requires_version {
            let cause = Cause::invalid(
                "metadata.resourceVersion",
                &0.into(),
                "must be specified for an update",
            );
            return Err(admit::invalid(resource, name, &[cause]));
        }
        check_uid(resource, name, &stored.meta.uid, &body)?;
        let old = view::value(resource, &stored)?;
        let doubts = admit::doubts(resource, &body, Some(&old));
        // A pinned write gets one try only.
        let new = if pinned { body.take() } else { body.clone() };
        let attempt = Attempt { server, call, name, endpoint, options, track: Track::Update };
        match attempt.write(&stored, &old, new).await? {
            Some(object) => {
                warnings.extend(doubts);
                return Ok(Changed { object, created: false });
            }
            None if pinned => return Err(Failure::stale(admit::subject(resource, name))),
            None => {}
        }
    }
    Err(Failure::stale(admit::subject(resource, name)))
}

fn check_uid(resource: &Resource, name: &str, stored: &str, body: &Value) -> Result<(), Failure> {
    let uid = admit::metadata_text(body, "uid");
    if uid.is_empty() || uid == stored {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}");
    Err(Failure::conflict(admit::subject(resource, name), &why))
}

pub(crate) async fn patch(
    server: &Server,
    call: &Call,
    name: &str,
    endpoint: Endpoint,
) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let form = negotiate::patch_form(&call.headers, resource.built_in().is_some())?;
    let options = WriteOptions::parse("PatchOptions", &call.query, &call.headers)?;
    check_options(form, &options)?;
    let body = parse_patch(form, &call.body)?;
    let mut warnings = Vec::new();
    let changed = match form {
        PatchForm::Apply => {
            apply(server, call, name, endpoint, &options, body, &mut warnings).await?
        }
        PatchForm::Json | PatchForm::Merge | PatchForm::Strategic => {
            // The list of a JSON patch has fields of its own.
            let duplicates = if form == PatchForm::Json { Vec::new() } else { body.duplicates };
            let edit = |object: &mut Value| {
                edit(resource, form, object, &body.value)?;
                Ok(duplicates.clone())
            };
            let object =
                patch_object(server, call, name, endpoint, &options, edit, &mut warnings).await?;
            Changed { object, created: false }
        }
    };
    respond(call, &changed, &warnings)
}

fn check_options(form: PatchForm, options: &WriteOptions) -> Result<(), Failure> {
    match form {
        PatchForm::Apply if !options.manager_given => Err(super::options::invalid_options(
            "PatchOptions",
            &[Cause::required("fieldManager", "is required for apply patch")],
        )),
        PatchForm::Json | PatchForm::Merge | PatchForm::Strategic if options.force.is_some() => {
            let detail = "may not be specified for non-apply patch";
            let cause = Cause::forbidden("force", detail);
            Err(super::options::invalid_options("PatchOptions", &[cause]))
        }
        _ => Ok(()),
    }
}

fn parse_patch(form: PatchForm, body: &[u8]) -> Result<objects::json::Decoded, Failure> {
    let decoded = match form {
        // JSON is YAML, but the JSON reader is faster and its errors are clearer.
        PatchForm::Apply => {
            objects::json::decode(body).or_else(|_| objects::json::decode_yaml(body))
        }
        PatchForm::Json | PatchForm::Merge | PatchForm::Strategic => objects::json::decode(body),
    };
    let decoded = decoded
        .map_err(|error| Failure::bad_request(format!("the patch cannot be read: {error}")))?;
    match form {
        PatchForm::Merge | PatchForm::Strategic | PatchForm::Apply
            if !decoded.value.is_object() =>
        {
            Err(Failure::bad_request("the patch is not a JSON object"))
        }
        _ => Ok(decoded),
    }
}

fn edit(
    resource: &Resource,
    form: PatchForm,
    object: &mut Value,
    body: &Value,
) -> Result<(), Failure> {
    let result = match form {
        PatchForm::Json => patch::json_patch(object, body),
        PatchForm::Merge => {
            patch::merge(object, body);
            Ok(())
        }
        PatchForm::Strategic => strategic::apply(&resource.node, object, body),
        PatchForm::Apply => Ok(()),
    };
    result.map_err(|error| match error {
        patch::PatchError::NotAnArray => Failure::bad_request(error.to_string()),
        patch::PatchError::TooManyOperations(_) => Failure::too_large(crate::MAX_BODY_BYTES),
        patch::PatchError::Failed(text) => Failure::unprocessable(format!(
            "the server rejected our request due to an error in our request: {text}"
        )),
    })
}

/// Changes an object with `edit`, again and again until nobody was faster. The edit returns the
/// fields it was given twice.
pub(crate) async fn patch_object(
    server: &Server,
    call: &Call,
    name: &str,
    endpoint: Endpoint,
    options: &WriteOptions,
    edit: impl Fn(&mut Value) -> Result<Vec<String>, Failure>,
    warnings: &mut Vec<String>,
) -> Result<Left, Failure> {
    let resource = &*call.resource;
    for _ in 0..RACE_TRIES {
        let stored = super::read::find(server, resource, call.namespace(), name)?;
        let old = view::value(resource, &stored)?;
        let mut new = old.clone();
        let duplicates = edit(&mut new)?;
        warnings.clear();
        decode::check_kind(resource, &mut new)?;
        decode::shape(resource, &mut new, duplicates, options.validation, warnings)?;
        warnings.extend(admit::doubts(resource, &new, Some(&old)));
        check_patched(resource, name, &old, &new)?;
        let attempt = Attempt { server, call, name, endpoint, options, track: Track::Update };
        if let Some(object) = attempt.write(&stored, &old, new).await? {
            return Ok(object);
        }
    }
    Err(Failure::stale(admit::subject(resource, name)))
}

/// A patch may not rename, move or re-identify an object.
fn check_patched(resource: &Resource, name: &str, old: &Value, new: &Value) -> Result<(), Failure> {
    let given = admit::metadata_text(new, "name");
    if given != name {
        return Err(create::name_mismatch(given, name));
    }
    let (before, after) =
        (admit::metadata_text(old, "namespace"), admit::metadata_text(new, "namespace"));
    if resource.namespaced && before != after && !after.is_empty() {
        return Err(create::namespace_mismatch(after, before));
    }
    check_patched_uid(resource, name, old, new)
}

fn check_patched_uid(
    resource: &Resource,
    name: &str,
    old: &Value,
    new: &Value,
) -> Result<(), Failure> {
    let (before, after) = (admit::metadata_text(old, "uid"), admit::metadata_text(new, "uid"));
    if before != after && !after.is_empty() {
        let cause = Cause::invalid("metadata.uid", &after.into(), "field is immutable");
        return Err(admit::invalid(resource, name, &[cause]));
    }
    Ok(())
}

/// Server-side apply: creates what is missing, merges what is there.
async fn apply(
    server: &Server,
    call: &Call,
    name: &str,
    endpoint: Endpoint,
    options: &WriteOptions,
    body: objects::json::Decoded,
    warnings: &mut Vec<String>,
) -> Result<Changed, Failure> {
    let resource = &*call.resource;
    let mut config = body.value;
    check_config(call, name, &config)?;
    decode::shape(resource, &mut config, body.duplicates, options.validation, warnings)?;
    admit::narrow(resource, endpoint, &mut config);
    let now = clock::seconds(call.now);
    let author = Author { manager: &options.manager, now: call.now };
    let force = options.force.unwrap_or(false);
    let key = resource.key(call.namespace(), name);
    for _ in 0..RACE_TRIES {
        let writer = admit::writer(resource, author, endpoint, &now);
        let stored = server.store.get(&key.resource, &key.namespace, &key.name);
        let live = stored.as_ref().map(|stored| view::value(resource, stored)).transpose()?;
        let Some((stored, live)) = stored.zip(live) else {
            warnings.extend(admit::doubts(resource, &config, None));
            warnings.extend(server.unattended(resource));
            return apply_new(server, call, name, endpoint, options, &config, &writer).await;
        };
        check_version(resource, name, &stored, &config)?;
        check_patched_uid(resource, name, &live, &config)?;
        let mut merged = managed::apply(&resource.node, Some(&live), &config, &writer, force)
            .map_err(|error| apply_failure(&error))?;
        // The version was checked above; the merge must not carry the configuration's.
        let metadata = admit::metadata_mut(&mut merged);
        metadata.insert("resourceVersion".into(), stored.revision.to_string().into());
        let attempt = Attempt { server, call, name, endpoint, options, track: Track::Applied };
        let doubts = admit::doubts(resource, &merged, Some(&live));
        if let Some(object) = attempt.write(&stored, &live, merged).await? {
            warnings.extend(doubts);
            return Ok(Changed { object, created: false });
        }
    }
    Err(Failure::stale(admit::subject(resource, name)))
}

fn check_config(call: &Call, name: &str, config: &Value) -> Result<(), Failure> {
    let resource = &*call.resource;
    for (member, expected) in [("kind", &resource.kind), ("apiVersion", &resource.api_version)] {
        match config.get(member).and_then(Value::as_str) {
            Some(given) if given == expected => {}
            Some(given) => {
                return Err(Failure::bad_request(format!(
                    "the {member} in the configuration ({given}) does not match the one of this \
                     path ({expected})"
                )));
            }
            None => {
                return Err(Failure::bad_request(format!(
                    "the configuration has no {member}: it should be {expected:?}"
                )));
            }
        }
    }
    let given = admit::metadata_text(config, "name");
    if !given.is_empty() && given != name {
        return Err(create::name_mismatch(given, name));
    }
    let namespace = admit::metadata_text(config, "namespace");
    if let Some(path) = call.namespace()
        && !namespace.is_empty()
        && namespace != path
    {
        return Err(create::namespace_mismatch(namespace, path));
    }
    let managed = config.pointer("/metadata/managedFields");
    if managed.is_some_and(|fields| !fields.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

fn check_version(
    resource: &Resource,
    name: &str,
    stored: &Stored,
    config: &Value,
) -> Result<(), Failure> {
    let version = admit::metadata_text(config, "resourceVersion");
    if version.is_empty() || version == stored.revision.to_string() {
        return Ok(());
    }
    Err(Failure::stale(admit::subject(resource, name)))
}

async fn apply_new(
    server: &Server,
    call: &Call,
    name: &str,
    endpoint: Endpoint,
    options: &WriteOptions,
    config: &Value,
    writer: &managed::Writer<'_>,
) -> Result<Changed, Failure> {
    let resource = &*call.resource;
    if endpoint != Endpoint::Main {
        return Err(Failure::not_found(admit::subject(resource, name)));
    }
    if !admit::metadata_text(config, "uid").is_empty() {
        let why = "uid mismatch: the provided object specified uid, and no existing object was \
                   found";
        return Err(Failure::conflict(admit::subject(resource, name), why));
    }
    if !admit::metadata_text(config, "resourceVersion").is_empty() {
        return Err(Failure::stale(admit::subject(resource, name)));
    }
    server.authorize_create(call, name)?;
    let mut object = managed::apply(&resource.node, None, config, writer, false)
        .map_err(|error| apply_failure(&error))?;
    admit::metadata_mut(&mut object).insert("name".into(), name.into());
    let object = create::create_object(server, call, options, object, Track::Applied).await?;
    Ok(Changed { object, created: true })
}

fn apply_failure(error: &managed::ApplyError) -> Failure {
    match error {
        managed::ApplyError::Conflicts(conflicts) => {
            let causes: Vec<(String, String)> =
                conflicts.iter().map(|one| (one.field.clone(), one.message())).collect();
            Failure::apply_conflict(error.to_string(), &causes)
        }
        managed::ApplyError::Invalid(text) => Failure::bad_request(text.clone()),
    }
}

/// One try to write a changed object.
pub(crate) struct Attempt<'a> {
    pub server: &'a Server,
    pub call: &'a Call,
    pub name: &'a str,
    pub endpoint: Endpoint,
    pub options: &'a WriteOptions,
    pub track: Track,
}

impl Attempt<'_> {
    /// Writes `new` over `old`, which is what `stored` holds. `Ok(None)`: somebody else was faster.
    pub(crate) async fn write(
        &self,
        stored: &Arc<Stored>,
        old: &Value,
        mut new: Value,
    ) -> Result<Option<Left>, Failure> {
        let resource = &*self.call.resource;
        signing::may(self.server, self.call, self.endpoint, old)?;
        let version = admit::metadata_text(&new, "resourceVersion");
        if !version.is_empty() && version != "0" && version != stored.revision.to_string() {
            return Err(Failure::stale(admit::subject(resource, self.name)));
        }
        let author = Author { manager: &self.options.manager, now: self.call.now };
        let endpoint = self.endpoint;
        asked::keep(resource, endpoint, &self.call.user, old, &mut new);
        let _turn = self.server.one_definition_at_a_time(resource).await;
        if endpoint == Endpoint::Status {
            Server::keep(resource, &mut new, old);
        }
        if !admit::changed_object(resource, endpoint, old, &mut new, author, self.track)? {
            return Ok(Some(Left::Stored(stored.clone())));
        }
        if endpoint == Endpoint::Main {
            self.server.settle(resource, &mut new, self.call.now);
        }
        Server::guard_names(resource, &new, Some(old))?;
        self.server.guard_grants(&self.call.user, resource, &new, Some(old))?;
        self.check_emptied(stored, old, &new)?;
        let reservation = match endpoint {
            Endpoint::Main => self.server.reserve(resource, &stored.key, &mut new)?,
            Endpoint::Status | Endpoint::Scale | Endpoint::Finalize | Endpoint::Approval => None,
        };
        let written = self.store(stored, new).await;
        if let Some(reservation) = reservation {
            reservation.settle();
        }
        written
    }

    /// A namespace that is being deleted goes when it is empty, whoever says it may go: what stayed
    /// would belong to whoever gets its name next, rights included. Nothing is made in it any more, so
    /// what is empty stays so.
    fn check_emptied(&self, stored: &Stored, old: &Value, new: &Value) -> Result<(), Failure> {
        let held = |object: &Value| {
            let all = object.pointer("/spec/finalizers").and_then(Value::as_array);
            all.is_some_and(|all| all.iter().any(|one| one == NAMESPACE_FINALIZER))
        };
        let is_end =
            self.endpoint == Endpoint::Finalize && stored.meta.deleting && held(old) && !held(new);
        if !is_end {
            return Ok(());
        }
        let left = namespaces::contents(self.server, self.name);
        let Some(first) = left.first() else { return Ok(()) };
        let why = format!(
            "the namespace still has {} objects, such as {} {:?}; take the finalizers off them, and \
             it goes by itself",
            left.len(),
            first.key.resource.trim_start_matches('/'),
            first.key.name
        );
        Err(Failure::conflict(admit::subject(&self.call.resource, self.name), &why))
    }

    async fn store(&self, stored: &Arc<Stored>, new: Value) -> Result<Option<Left>, Failure> {
        let resource = &*self.call.resource;
        if self.options.dry_run {
            return Ok(Some(Left::Unstored(new)));
        }
        // The last finalizer of an object that is being deleted takes the object with it.
        let released = stored.meta.deleting && admit::is_released(resource, &new);
        let last = released.then(|| new.clone());
        let body = view::to_stored(resource, new);
        let write = Write {
            key: stored.key.clone(),
            expected: Expected::Revision(stored.revision),
            require: Vec::new(),
            change: if released { Change::Delete(body) } else { Change::Put(body) },
        };
        match self.server.commit(write, Company::Alone).await {
            Ok(written) => Ok(Some(last.map_or(Left::Stored(written), Left::Unstored))),
            Err(WriteError::Conflict { .. }) => Ok(None),
            Err(error) => Err(write_failure(resource, self.name, error)),
        }
    }
}
