//! The built-in kinds: what is served under which name, and the rules of each.
//!
//! Owns: the registry and the entry points that dispatch on a kind. Never: the shape of a kind
//! (which members it has), nor whether a request may be made.
//!
//! The order of a write: name and namespace are filled in, then [`reset_for_main`] (or
//! [`reset_for_status`]) and [`default`], then [`decode_errors`] (400), then [`validate`], and for an
//! update [`validate_update`] as well (422).
//! Objects come in the form of the kind they are handled as: an Event written through
//! `events.k8s.io` is checked in that form and converted for the store afterwards. Metadata has its own
//! rules in [`crate::meta`]; reviews have none to check.

mod cluster;
mod config;
mod container;
mod controlled;
mod cron;
mod event;
mod limits;
mod normal;
mod pod;
mod priority;
mod rbac;
mod registry;
mod selector;
mod separate;
mod service;
mod shown;
mod storage;
mod workload;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::access::{at, integer, list, members, object_mut, set, set_default, text};
use crate::admission;
use crate::cause::Cause;
use crate::meta::CAUSES_MAX;
use crate::names::{self, NameRule};
use crate::quantity::Quantity;

pub use controlled::{keep_decisions, reset_for_approval};
pub use registry::all;
pub(crate) use selector::labels_text;
pub use selector::selector_text;
pub use separate::{
    StatusEndpoint, content_changed, reset_custom, reset_for_status, status_writes_metadata,
};

/// What a PUT does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutRule {
    /// A body without a resourceVersion is refused instead of overwriting.
    pub requires_rv: bool,
    /// A PUT of a missing object creates it.
    pub creates: bool,
}

/// A path below an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// Kind, group and version of its bodies.
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub verbs: &'static [&'static str],
}

/// One built-in kind in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a row of a table of independent traits")]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    /// Empty for kinds that are never stored.
    pub list_kind: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    pub name_rule: NameRule,
    pub put: PutRule,
    /// An immediate DELETE answers with the object, not a Status.
    pub delete_returns_object: bool,
    /// `metadata.generation` counts changes outside metadata and status.
    pub generation: bool,
    /// Has a status endpoint.
    pub status: bool,
    pub description: &'static str,
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether objects of this kind exist beyond the request that carries them.
    pub fn is_stored(&self) -> bool {
        self.verbs.contains(&"list")
    }

    /// The shape of its objects.
    fn node(&self) -> Option<std::sync::Arc<crate::node::Node>> {
        crate::builtin::node(self.group, self.version, self.kind)
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

/// The kind served at a path.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    all().iter().find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// The kind with this `apiVersion` and `kind`.
pub fn named(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    all().iter().find(|k| k.group == group && k.version == version && k.kind == kind)
}

/// Takes from a body for the main endpoint what that endpoint cannot change: the status of kinds with
/// a status endpoint, the finalizers in the spec of a Namespace. A new object begins with the status
/// its kind begins with, whether or not [`default`] came before.
pub fn reset_for_main(kind: &Kind, new: &mut Value, old: Option<&Value>) {
    // A node registers itself together with its status.
    let registers = kind.kind == "Node" && old.is_none();
    if kind.status && !registers {
        reset_custom(new, old);
        if old.is_none() {
            default(kind, new, None);
        }
    }
    match (kind.group, kind.kind, old) {
        ("", "Namespace", Some(old)) => crate::access::keep(old, new, "spec.finalizers"),
        // Who asks, and for what, is settled once it was asked.
        ("certificates.k8s.io", _, Some(old)) => crate::access::keep(old, new, "spec"),
        _ => {}
    }
}

/// Fills in what the body left open and brings values to their normal form. Doing it twice changes
/// nothing more.
pub fn default(kind: &Kind, obj: &mut Value, old: Option<&Value>) {
    if let Some(node) = kind.node() {
        normal::values(&node, obj);
    }
    match (kind.group, kind.kind) {
        ("", "Namespace") => namespace_defaults(obj, old),
        ("", "Secret") => config::secret_defaults(obj),
        ("", "ConfigMap") => config::config_map_defaults(obj),
        ("", "PersistentVolumeClaim") => {
            storage::claim_defaults(obj);
            protect(obj, admission::CLAIM_PROTECTION);
        }
        ("", "PersistentVolume") => {
            storage::volume_defaults(obj);
            protect(obj, admission::VOLUME_PROTECTION);
        }
        ("storage.k8s.io", "StorageClass") => storage::class_defaults(obj),
        ("", "Service") => service::defaults(obj, old),
        ("", "Pod") => pod::defaults(obj, old),
        ("", "LimitRange") => limits::defaults(obj),
        ("scheduling.k8s.io", "PriorityClass") => {
            set_default(obj, "preemptionPolicy", "PreemptLowerPriority");
        }
        ("apps", "ControllerRevision") => {}
        ("apps" | "batch", _) => workload::defaults(kind.kind, obj),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            rbac::binding_defaults(obj);
        }
        _ => controlled::defaults(kind, obj),
    }
    if (kind.group, kind.kind) == ("batch", "Job") && old.is_none() {
        workload::job_identity(obj);
    }
    shown::fill(kind, obj);
}

/// Puts an empty value where a map of a body has a null; to be done before nulls are dropped.
pub fn fill_map_nulls(kind: &Kind, obj: &mut Value) {
    if let Some(node) = kind.node() {
        normal::fill_map_nulls(&node, obj);
    }
}

/// What cannot be decoded at all, as the message of a 400: bad base64, timestamps and quantities of
/// another form.
pub fn decode_errors(kind: &Kind, obj: &Value) -> Option<String> {
    let detail = match (kind.group, kind.kind) {
        ("", "Secret") => config::bad_base64(obj, "data"),
        ("", "ConfigMap") => config::bad_base64(obj, "binaryData"),
        _ => None,
    };
    let detail = detail.or_else(|| normal::unreadable(&*kind.node()?, obj))?;
    Some(format!(
        "{} in version {:?} cannot be handled as a {}: {detail}",
        kind.kind, kind.version, kind.kind
    ))
}

/// Everything wrong with an object by itself, metadata aside.
pub fn validate(kind: &Kind, obj: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(kind, obj, &mut causes);
    if (kind.group, kind.kind) == ("events.k8s.io", "Event") {
        event::check_new(obj, &mut causes);
    }
    causes.truncate(CAUSES_MAX);
    causes
}

/// What an update changes and may not, metadata aside. What is wrong with `new` by itself is found by
/// [`validate`].
pub fn validate_update(kind: &Kind, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match (kind.group, kind.kind) {
        ("", "ConfigMap") => config::check_config_map_update(old, new, &mut causes),
        ("", "Secret") => config::check_secret_update(old, new, &mut causes),
        ("", "PersistentVolumeClaim") => storage::check_claim_update(old, new, &mut causes),
        ("", "PersistentVolume") => storage::check_volume_update(old, new, &mut causes),
        ("storage.k8s.io", "StorageClass") => storage::check_class_update(old, new, &mut causes),
        ("", "Pod") => pod::check_update(old, new, &mut causes),
        ("", "Service") => service::check_update(old, new, &mut causes),
        ("scheduling.k8s.io", "PriorityClass") => priority::check_update(old, new, &mut causes),
        ("apps", "ControllerRevision") => controlled::check_update(kind, old, new, &mut causes),
        ("apps" | "batch", _) => workload::check_update(kind.kind, old, new, &mut causes),
        ("events.k8s.io", "Event") => event::check_update(old, new, &mut causes),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            rbac::check_binding_update(old, new, &mut causes);
        }
        _ => controlled::check_update(kind, old, new, &mut causes),
    }
    causes.truncate(CAUSES_MAX);
    causes
}

/// Rules that hold for every write of a kind.
fn check(kind: &Kind, obj: &Value, causes: &mut Vec<Cause>) {
    match (kind.group, kind.kind) {
        ("", "Namespace") => check_namespace(obj, causes),
        ("", "ConfigMap") => config::check_config_map(obj, causes),
        ("", "Secret") => config::check_secret(obj, causes),
        ("", "PersistentVolumeClaim") => storage::check_claim(obj, causes),
        ("", "PersistentVolume") => storage::check_volume(obj, causes),
        ("storage.k8s.io", "StorageClass") => storage::check_class(obj, causes),
        ("", "Service") => service::check(obj, causes),
        ("", "Pod") => pod::check(obj.get("spec"), "spec", causes),
        ("", "ResourceQuota") => check_quantities(obj, "spec.hard", causes),
        ("", "LimitRange") => limits::check(obj, causes),
        ("scheduling.k8s.io", "PriorityClass") => priority::check(obj, causes),
        ("" | "events.k8s.io", "Event") => event::check(kind, obj, causes),
        ("apps", "ControllerRevision") => {}
        ("apps" | "batch", _) => workload::check(kind.kind, obj, causes),
        ("coordination.k8s.io", "Lease") => check_lease(obj, causes),
        ("rbac.authorization.k8s.io", _) => rbac::check(kind.kind, obj, causes),
        _ if cluster::KINDS.contains(kind) => controlled::check(kind, obj, causes),
        _ => {}
    }
}

/// Storage is held while it may be in use; only once it is going can anybody let it go.
fn protect(obj: &mut Value, finalizer: &str) {
    if obj.is_object() && text(obj, "metadata.deletionTimestamp").is_empty() {
        admission::protect(obj, finalizer);
    }
}

fn namespace_defaults(obj: &mut Value, old: Option<&Value>) {
    let name = text(obj, "metadata.name").to_owned();
    if !name.is_empty()
        && let Some(labels) = object_mut(obj, "metadata.labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    // Only a new namespace gets the finalizer: an update may be the one that has taken it off.
    if old.is_none() && !list(obj, "spec.finalizers").contains(&json!("kubernetes")) {
        let mut finalizers = list(obj, "spec.finalizers").to_vec();
        finalizers.push("kubernetes".into());
        set(obj, "spec.finalizers", finalizers);
    }
    set_default(obj, "status.phase", "Active");
}

/// A namespace is `Active` until its deletion is asked for and `Terminating` from then on.
fn check_namespace(obj: &Value, causes: &mut Vec<Cause>) {
    let going = !text(obj, "metadata.deletionTimestamp").is_empty();
    let (only, when) = if going { ("Terminating", "has") } else { ("Active", "has no") };
    let phase = text(obj, "status.phase");
    if phase != only {
        let detail = format!("may only be '{only}' while the namespace {when} `deletionTimestamp`");
        causes.push(Cause::invalid("status.Phase", &phase.into(), &detail));
    }
    for finalizer in list(obj, "spec.finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        let detail = match names::qualified_name(name) {
            Err(detail) => detail,
            Ok(()) if name.contains('/') || name == "kubernetes" => continue,
            Ok(()) => "must be fully qualified (domain/name) or 'kubernetes'".to_owned(),
        };
        causes.push(Cause::invalid("spec.finalizers", finalizer, &detail));
    }
}

fn check_lease(obj: &Value, causes: &mut Vec<Cause>) {
    if let Some(duration) = integer(obj, "spec.leaseDurationSeconds")
        && duration <= 0
    {
        let detail = "must be greater than 0";
        causes.push(Cause::invalid("spec.leaseDurationSeconds", &duration.into(), detail));
    }
    if let Some(transitions) = integer(obj, "spec.leaseTransitions")
        && transitions < 0
    {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &transitions.into(), detail));
    }
}

fn check_quantities(obj: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (resource, amount) in members(obj, path) {
        check_quantity(amount, &format!("{path}[{resource}]"), causes);
    }
}

/// Refuses what is no quantity, and negative amounts.
fn check_quantity(amount: &Value, field: &str, causes: &mut Vec<Cause>) {
    match quantity(amount) {
        None => {
            causes.push(Cause::invalid(field, amount, "must be a quantity such as 10Gi or 500m"));
        }
        Some(parsed) if parsed < Quantity::ZERO => {
            causes.push(Cause::invalid(field, amount, "must be greater than or equal to 0"));
        }
        Some(_) => {}
    }
}

/// A quantity written as a string or a plain number.
fn quantity(amount: &Value) -> Option<Quantity> {
    match amount {
        Value::String(amount) => Quantity::parse(amount),
        Value::Number(amount) => Quantity::parse(&amount.to_string()),
        _ => None,
    }
}

/// Refuses a change of the value at `path`.
fn check_immutable(old: &Value, new: &Value, path: &str, causes: &mut Vec<Cause>) {
    if at(old, path) != at(new, path) {
        let value = at(new, path).unwrap_or(&Value::Null);
        causes.push(Cause::invalid(path, value, "field is immutable"));
    }
}

/// Refuses a string at `path` of `value` that is present and not in `all`.
fn check_one_of(value: &Value, path: &str, field: &str, all: &[&str], causes: &mut Vec<Cause>) {
    let given = text(value, path);
    if !given.is_empty() && !all.contains(&given) {
        causes.push(Cause::not_supported(field, &given.into(), all));
    }
}
