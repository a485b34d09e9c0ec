//! What every written object goes through between decoding and the store: defaults, metadata,
//! status separation, generation, ownership of fields, validation. One function for new objects
//! and one for changed ones, both free of I/O.

use jiff::Timestamp;
use objects::managed::{self, Writer};
use objects::meta::FinalizerRule;
use objects::names::NameRule;
use objects::{crd, defaults, kinds, meta, validate};
use serde_json::{Map, Value, json};

use crate::clock;
use crate::failure::{Failure, Subject};
use crate::registry::{Origin, Resource};

/// Which endpoint a change came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Main,
    Status,
    /// `/scale` writes the main object on behalf of a scaler.
    Scale,
    Finalize,
    /// Decisions about a signing request.
    Approval,
}

impl Endpoint {
    /// The name field ownership is recorded under.
    pub(crate) fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Status => Some("status"),
            Self::Scale => Some("scale"),
            Self::Finalize => Some("finalize"),
            Self::Approval => Some("approval"),
        }
    }
}

pub(crate) fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was just made an object")
}

pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = object_mut(object).entry("metadata").or_insert_with(|| json!({}));
    object_mut(metadata)
}

pub(crate) fn metadata_text<'a>(object: &'a Value, member: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(member))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(crate) fn subject(resource: &Resource, name: &str) -> Subject {
    Subject::new(&resource.group, &resource.plural, name)
}

pub(crate) fn invalid(
    resource: &Resource,
    name: &str,
    causes: &[objects::cause::Cause],
) -> Failure {
    Failure::invalid(Subject::new(&resource.group, &resource.kind, name), causes)
}

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author<'a> {
    pub manager: &'a str,
    pub now: Timestamp,
}

/// Makes a decoded body the object that will be stored. The name is already final.
pub(crate) fn new_object(
    resource: &Resource,
    namespace: Option<&str>,
    object: &mut Value,
    author: Author<'_>,
    track: Track,
) -> Result<(), Failure> {
    meta::sanitize_create(object);
    let metadata = metadata_mut(object);
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), clock::seconds(author.now).into());
    metadata.remove("resourceVersion");
    match namespace {
        Some(namespace) => metadata.insert("namespace".into(), namespace.into()),
        None => metadata.remove("namespace"),
    };
    if counts_generations(resource) {
        metadata_mut(object).insert("generation".into(), 1.into());
    }
    normalise(resource, object, None);
    reset_for_main(resource, object, None);
    match track {
        Track::Update => own_new(resource, object, author),
        Track::Applied => {}
    }
    check(resource, object, None)
}

/// The creator owns all but what the server alone has put there.
fn own_new(resource: &Resource, object: &mut Value, author: Author<'_>) {
    let is_namespace = resource.kind == "Namespace" && resource.group.is_empty();
    let apart = [("status", resource.has_status()), ("spec", is_namespace)];
    let members = object_mut(object);
    let apart = apart.map(|(name, taken)| taken.then(|| members.remove_entry(name)).flatten());
    let now = clock::seconds(author.now);
    let writer = writer(resource, author, Endpoint::Main, &now);
    managed::track_update(&resource.node, None, object, &writer);
    object_mut(object).extend(apart.into_iter().flatten());
}

/// Has field ownership been settled already?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Track {
    /// An ordinary write: changed fields become the writer's.
    Update,
    /// Server-side apply has written `managedFields` itself.
    Applied,
}

/// Makes `new` the successor of `old`. Returns whether anything changed.
pub(crate) fn changed_object(
    resource: &Resource,
    endpoint: Endpoint,
    old: &Value,
    new: &mut Value,
    author: Author<'_>,
    track: Track,
) -> Result<bool, Failure> {
    meta::carry_over(old, new);
    if !resource.namespaced {
        metadata_mut(new).remove("namespace");
    }
    match endpoint {
        Endpoint::Status => {
            kinds::reset_for_status(resource.built_in(), new, old);
            if resource.kind == "CertificateSigningRequest" && resource.built_in().is_some() {
                kinds::keep_decisions(new, old);
            }
        }
        Endpoint::Approval => kinds::reset_for_approval(resource.built_in(), new, old),
        Endpoint::Main | Endpoint::Scale => reset_for_main(resource, new, Some(old)),
        Endpoint::Finalize => kinds::reset_custom(new, Some(old)),
    }
    normalise(resource, new, Some(old));
    let status = if resource.has_status() {
        kinds::StatusEndpoint::Present
    } else {
        kinds::StatusEndpoint::Absent
    };
    if counts_generations(resource) && kinds::content_changed(old, new, status) {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        metadata_mut(new).insert("generation".into(), (generation + 1).into());
    }
    if track == Track::Update {
        managed::track_update(
            &resource.node,
            Some(old),
            new,
            &writer(resource, author, endpoint, &clock::seconds(author.now)),
        );
    }
    // The store writes the new one; for comparing, both must have the same.
    let version = old.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    metadata_mut(new).insert("resourceVersion".into(), version);
    keep_times_of_same_owners(old, new);
    if old == new {
        return Ok(false);
    }
    check(resource, new, Some(old))?;
    Ok(true)
}

/// An apply that turns out to change nothing (its values were the live ones before defaults) must
/// not be a write for the sake of its time alone: a controller that applies on every change would
/// wake itself for ever. So if objects and owners are the same, the times are too.
fn keep_times_of_same_owners(old: &Value, new: &mut Value) {
    fn entries(object: &Value) -> Option<&Vec<Value>> {
        object.pointer("/metadata/managedFields")?.as_array()
    }
    fn timeless(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
        entry.as_object().into_iter().flatten().filter(|(member, _)| *member != "time")
    }
    let (Some(before), Some(after)) = (entries(old), entries(new)) else { return };
    let same_owners = before.len() == after.len()
        && before.iter().zip(after).all(|(a, b)| timeless(a).eq(timeless(b)));
    if !same_owners || before == after {
        return;
    }
    let before = Value::from(before.clone());
    let after = metadata_mut(new).insert("managedFields".into(), before);
    if old != new
        && let Some(after) = after
    {
        metadata_mut(new).insert("managedFields".into(), after);
    }
}

/// The main endpoint does not write what the status endpoint writes.
fn reset_for_main(resource: &Resource, new: &mut Value, old: Option<&Value>) {
    match &resource.origin {
        Origin::BuiltIn(kind) => kinds::reset_for_main(kind, new, old),
        Origin::Custom(custom) if custom.version.status => kinds::reset_custom(new, old),
        Origin::Custom(_) => {}
    }
}

pub(crate) fn writer<'a>(
    resource: &'a Resource,
    author: Author<'a>,
    endpoint: Endpoint,
    now: &'a str,
) -> Writer<'a> {
    Writer {
        manager: author.manager,
        api_version: &resource.api_version,
        subresource: endpoint.subresource(),
        now,
    }
}

/// Nulls out, defaults in: the same for bodies, patches and objects read under a newer schema.
pub(crate) fn normalise(resource: &Resource, object: &mut Value, old: Option<&Value>) {
    defaults::drop_nulls(&resource.node, object);
    meta::drop_empty(object);
    match &resource.origin {
        Origin::BuiltIn(kind) => {
            kinds::default(kind, object, old);
            if kind.kind == "CustomResourceDefinition" {
                crd::default(object);
            }
        }
        Origin::Custom(_) => defaults::apply(&resource.node, object),
    }
}

fn counts_generations(resource: &Resource) -> bool {
    match &resource.origin {
        Origin::BuiltIn(kind) => kind.generation,
        Origin::Custom(_) => true,
    }
}

/// What may be stored but should not be: finalizers that could be anybody's.
pub(crate) fn doubts(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    match resource.origin {
        Origin::BuiltIn(_) => Vec::new(),
        Origin::Custom(_) => meta::finalizer_warnings(object, old),
    }
}

/// Takes from an applied configuration what its endpoint does not write: nobody can come to own
/// fields there.
pub(crate) fn narrow(resource: &Resource, endpoint: Endpoint, config: &mut Value) {
    match endpoint {
        Endpoint::Status | Endpoint::Approval => {
            object_mut(config).retain(|name, _| {
                matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")
            });
            metadata_mut(config).retain(|name, _| {
                matches!(name.as_str(), "name" | "namespace" | "uid" | "resourceVersion")
                    || kinds::status_writes_metadata(resource.built_in(), name)
            });
        }
        Endpoint::Main | Endpoint::Scale | Endpoint::Finalize if resource.has_status() => {
            object_mut(config).remove("status");
        }
        Endpoint::Main | Endpoint::Scale | Endpoint::Finalize => {}
    }
}

/// Every rule about the finished object.
fn check(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<(), Failure> {
    let (name_rule, finalizers) = match &resource.origin {
        // The finalizer of definitions themselves has no domain.
        Origin::BuiltIn(kind) if kind.kind == "CustomResourceDefinition" => {
            (kind.name_rule, FinalizerRule::Any)
        }
        Origin::BuiltIn(kind) => (kind.name_rule, FinalizerRule::Qualified),
        Origin::Custom(_) => (NameRule::Subdomain, FinalizerRule::Any),
    };
    let mut causes = meta::validate(object, name_rule, finalizers, "metadata");
    if let Some(old) = old {
        causes.extend(meta::validate_update(old, object));
    }
    match &resource.origin {
        Origin::BuiltIn(kind) if kind.kind == "CustomResourceDefinition" => {
            causes.extend(crd::validate(object, old));
        }
        Origin::BuiltIn(kind) => {
            causes.extend(kinds::validate(kind, object));
            if let Some(old) = old {
                causes.extend(kinds::validate_update(kind, old, object));
            }
        }
        Origin::Custom(_) => {
            let found = validate::validate(&resource.node, object, old);
            causes.extend(found.into_iter().map(|mut cause| {
                // What clients know as the path of the whole object.
                if cause.field.is_empty() {
                    cause.field.push_str("<nil>");
                }
                cause
            }));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(invalid(resource, metadata_text(object, "name"), &causes))
}

/// Nothing holds a deleted object any more: no finalizers, no grace period still running.
pub(crate) fn is_released(resource: &Resource, object: &Value) -> bool {
    let empty =
        |pointer: &str| object.pointer(pointer).and_then(Value::as_array).is_none_or(Vec::is_empty);
    let grace =
        object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let namespace_held =
        resource.kind == "Namespace" && resource.group.is_empty() && !empty("/spec/finalizers");
    empty("/metadata/finalizers") && grace == 0 && !namespace_held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(time: &str, fields: &Value, size: i64) -> Value {
        let entry = json!({"manager": "m", "operation": "Apply", "fieldsV1": fields, "time": time});
        json!({"metadata": {"managedFields": [entry]}, "spec": {"size": size}})
    }

    #[test]
    fn only_a_write_that_changes_something_moves_the_time_of_its_owner() {
        let fields = json!({"f:spec": {}});
        let old = object("1", &fields, 1);
        let mut same = object("2", &fields, 1);
        keep_times_of_same_owners(&old, &mut same);
        assert_eq!(same, old);
        for changed in [object("2", &fields, 2), object("2", &json!({}), 1)] {
            let mut new = changed.clone();
            keep_times_of_same_owners(&old, &mut new);
            assert_eq!(new, changed);
        }
    }
}
