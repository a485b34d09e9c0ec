//! Create: a body, a name, a namespace that exists, then the store.

use axum::response::Response;
use http::StatusCode;
use objects::names;
use rand::Rng;
use serde_json::Value;

use super::admit::{self, Author, Track};
use super::options::WriteOptions;
use super::view::{self, Left};
use super::{Call, asked, decode, signing};
use crate::admission;
use crate::definitions;
use crate::failure::Failure;
use crate::registry::Resource;
use crate::server::{Company, Server, write_failure};
use crate::store::{Change, Expected, Key, Require, Write, WriteError};

/// How often a generated name may collide before the caller hears of it.
const NAME_TRIES: usize = 8;
/// How often a create may be overtaken by changes of its namespace.
const RACE_TRIES: usize = 16;

pub(crate) async fn create(server: &Server, call: &Call) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let options = WriteOptions::parse("CreateOptions", &call.query, &call.headers)?;
    let mut warnings = Vec::new();
    let object =
        decode::object(resource, &call.headers, &call.body, options.validation, &mut warnings)?;
    if let Some(name) = &call.path.name {
        let given = admit::metadata_text(&object, "name");
        if !given.is_empty() && given != name {
            return Err(name_mismatch(given, name));
        }
    }
    warnings.extend(admit::doubts(resource, &object, None));
    warnings.extend(server.unattended(resource));
    let made = create_object(server, call, &options, object, Track::Update).await?;
    let response = made.response(call, StatusCode::CREATED)?;
    let mut response = view::with_warnings(response, &warnings);
    response.extensions_mut().insert(CreatedName(made.name().to_owned()));
    Ok(response)
}

/// For the audit log: what a request to a collection made.
#[derive(Debug, Clone)]
pub(crate) struct CreatedName(pub String);

pub(crate) fn name_mismatch(body: &str, path: &str) -> Failure {
    Failure::bad_request(format!(
        "the name of the object ({body}) does not match the name on the URL ({path})"
    ))
}

pub(crate) fn namespace_mismatch(body: &str, path: &str) -> Failure {
    Failure::bad_request(format!(
        "the namespace of the provided object does not match the namespace sent on the request \
         ({body}, {path})"
    ))
}

/// Stores a new object.
pub(crate) async fn create_object(
    server: &Server,
    call: &Call,
    options: &WriteOptions,
    mut object: Value,
    track: Track,
) -> Result<Left, Failure> {
    let resource = &*call.resource;
    check_placement(call, &object)?;
    let mut name = admit::metadata_text(&object, "name").to_owned();
    let base = admit::metadata_text(&object, "generateName").to_owned();
    let generated = name.is_empty() && !base.is_empty();
    for _ in 0..NAME_TRIES {
        // Only a generated name gets another try.
        let mut candidate = if generated { object.clone() } else { object.take() };
        if generated {
            name = generate(&base);
            admit::metadata_mut(&mut candidate).insert("name".into(), name.as_str().into());
        }
        signing::stamp(resource, &call.user, &mut candidate)?;
        asked::stamp(resource, &call.user, &mut candidate);
        let author = Author { manager: &options.manager, now: call.now };
        admission::complete(server, resource, call.namespace(), &mut candidate)?;
        let _turn = server.one_definition_at_a_time(resource).await;
        admit::new_object(resource, call.namespace(), &mut candidate, author, track)?;
        server.settle(resource, &mut candidate, call.now);
        Server::guard_names(resource, &candidate, None)?;
        server.guard_grants(&call.user, resource, &candidate, None)?;
        let key = resource.key(call.namespace(), &name);
        let reservation = server.reserve(resource, &key, &mut candidate)?;
        let made = insert(server, call, options, candidate, &name).await;
        if let Some(reservation) = reservation {
            reservation.settle();
        }
        match made {
            Err(failure) if generated && failure.is_already_exists() => {}
            result => return result,
        }
    }
    Err(Failure::already_exists(admit::subject(resource, &name), false))
}

/// The body may say where it belongs, but not otherwise than the URL.
fn check_placement(call: &Call, object: &Value) -> Result<(), Failure> {
    let version = admit::metadata_text(object, "resourceVersion");
    // `0` is no version, as clients of others write it.
    if !matches!(version, "" | "0") {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let namespace = admit::metadata_text(object, "namespace");
    match call.namespace() {
        Some(path) if !namespace.is_empty() && namespace != path => {
            Err(namespace_mismatch(namespace, path))
        }
        _ => Ok(()),
    }
}

fn generate(base: &str) -> String {
    let mut random = rand::rng();
    let alphabet = names::SUFFIX_ALPHABET;
    let letter = |_| alphabet.get(random.random_range(0..alphabet.len())).copied().map(char::from);
    let suffix: String = (0..names::SUFFIX_LEN).filter_map(letter).collect();
    names::generated(base, &suffix)
}

async fn insert(
    server: &Server,
    call: &Call,
    options: &WriteOptions,
    object: Value,
    name: &str,
) -> Result<Left, Failure> {
    let resource = &*call.resource;
    let key = resource.key(call.namespace(), name);
    let mut require = free_place(server, resource, call.namespace(), &key)?;
    if options.dry_run {
        return Ok(Left::Unstored(object));
    }
    let change = Change::Put(view::to_stored(resource, object));
    let mut write = Write { key, expected: Expected::Absent, require: Vec::new(), change };
    for _ in 0..RACE_TRIES {
        write.require = require;
        match server.commit(&write, Company::Alone).await {
            Ok(stored) => return Ok(Left::Stored(stored)),
            Err(WriteError::RequirementChanged) => {}
            Err(error) => return Err(write_failure(resource, name, error)),
        }
        require = free_place(server, resource, call.namespace(), &write.key)?;
    }
    Err(Failure::stale(admit::subject(resource, name)))
}

/// [`pins`] of what does not exist yet.
fn free_place(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    key: &Key,
) -> Result<Vec<Require>, Failure> {
    let pins = pins(server, resource, namespace, &key.name)?;
    match server.store.get(&key.resource, &key.namespace, &key.name) {
        None => Ok(pins),
        Some(found) => {
            let subject = admit::subject(resource, &key.name);
            Err(Failure::already_exists(subject, found.meta.deleting))
        }
    }
}

/// What must still be as it is at the moment of the commit: the namespace exists and stays, and
/// so does the definition of the type.
pub(crate) fn pins(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Vec<Require>, Failure> {
    let mut pins = Vec::new();
    if let Some(namespace) = namespace {
        let subject = crate::failure::Subject::new("", "namespaces", namespace);
        let found = server
            .store
            .get("/namespaces", "", namespace)
            .ok_or_else(|| Failure::not_found(subject))?;
        if found.meta.deleting {
            let subject = admit::subject(resource, name);
            return Err(Failure::namespace_terminating(subject, namespace));
        }
        pins.push(Require { key: found.key.clone(), revision: found.revision });
    }
    if resource.custom().is_some() {
        let definition = format!("{}.{}", resource.plural, resource.group);
        let found =
            server.store.get(definitions::ID, "", &definition).ok_or_else(Failure::no_such_path)?;
        if found.meta.deleting {
            return Err(Failure::forbidden(
                "create not allowed while custom resource definition is terminating",
            )
            .about(admit::subject(resource, name)));
        }
        pins.push(Require { key: found.key.clone(), revision: found.revision });
    }
    Ok(pins)
}
