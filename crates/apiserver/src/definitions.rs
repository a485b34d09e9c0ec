//! Custom resource definitions: the conditions the server sets on them and the types they make.
//!
//! Everything is decided in the write itself, so a definition is established, discoverable and
//! usable at the moment its creator hears back.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use objects::cause::Cause;
use objects::crd::Definition;
use serde_json::{Value, json};

use crate::clock;
use crate::registry::{CustomTypes, Which, custom_resources};
use crate::rest::admit;
use crate::store::Stored;

/// Where the store keeps definitions.
pub(crate) const ID: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The names definitions of one group hold: no other definition there can have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Plurals, singulars and short names share one space: all of them stand in paths or are typed.
    resources: HashSet<String>,
    /// Kinds and kinds of lists.
    kinds: HashSet<String>,
}

impl Names {
    pub fn add(&mut self, more: &Self) {
        self.resources.extend(more.resources.iter().cloned());
        self.kinds.extend(more.kinds.iter().cloned());
    }

    /// The names that the server's own types have in a group.
    pub fn built_in(group: &str) -> Self {
        let mut names = Self::default();
        for kind in objects::kinds::all().iter().filter(|kind| kind.group == group) {
            let words = [kind.plural, kind.singular].into_iter();
            names
                .resources
                .extend(words.chain(kind.short_names.iter().copied()).map(str::to_owned));
            names.kinds.extend([kind.kind, kind.list_kind].map(str::to_owned));
        }
        names.resources.remove("");
        names.kinds.remove("");
        names
    }

    fn overlaps(&self, other: &Self) -> bool {
        !self.resources.is_disjoint(&other.resources) || !self.kinds.is_disjoint(&other.kinds)
    }

    /// The names in `spec.names` or `status.acceptedNames`.
    fn read(names: &Value) -> Self {
        let one = |member: &str| names.get(member).and_then(Value::as_str).map(str::to_owned);
        let short = short_names(names).map(str::to_owned);
        let filled = |name: &String| !name.is_empty();
        Self {
            resources: short.chain(one("plural")).chain(one("singular")).filter(filled).collect(),
            kinds: one("kind").into_iter().chain(one("listKind")).filter(filled).collect(),
        }
    }
}

fn short_names(names: &Value) -> impl Iterator<Item = &str> {
    let all = names.get("shortNames").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str)
}

/// Which of the wanted names belong to a type of the server's own. Such a definition would replace
/// the type, and its deletion would delete the type's objects.
pub(crate) fn collisions(object: &Value) -> Vec<Cause> {
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let names = object.pointer("/spec/names").cloned().unwrap_or_default();
    let taken = Names::built_in(group);
    let one =
        |member: &'static str| names.get(member).and_then(Value::as_str).map(|it| (member, it));
    let short = short_names(&names).map(|it| ("shortNames", it));
    let words = short.chain(one("plural")).chain(one("singular"));
    let words = words.filter(|(_, name)| taken.resources.contains(*name));
    let kinds = one("kind").into_iter().chain(one("listKind"));
    let kinds = kinds.filter(|(_, name)| taken.kinds.contains(*name));
    words
        .chain(kinds)
        .map(|(member, name)| {
            let detail = "a built-in type of this group has this name";
            Cause::invalid(format!("spec.names.{member}"), &name.into(), detail)
        })
        .collect()
}

/// What a stored definition holds and serves; it serves nothing while it is not established.
pub(crate) fn types(stored: &Stored, before: Option<&CustomTypes>) -> Option<CustomTypes> {
    let mut object = stored.value().ok()?;
    let accepted = object.pointer("/status/acceptedNames").cloned().unwrap_or_default();
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let mut types = CustomTypes {
        revision: stored.revision,
        group: group.to_owned(),
        names: Names::read(&accepted),
        waits_for_names: has_condition(&object, "NamesAccepted", "False"),
        resources: Vec::new(),
        hidden: None,
    };
    // An older version let definitions take the place of built-in types; these are not served.
    if types.names.overlaps(&Names::built_in(&types.group)) {
        tracing::error!(
            definition = %stored.key.name,
            "a stored definition has the names of a built-in type and is not served; delete it, \
             which leaves the objects of the built-in type alone"
        );
    } else if has_condition(&object, "Established", "True") {
        // What is asked for but taken by another definition is not served.
        if let Some(names) = object.pointer_mut("/spec/names") {
            *names = accepted;
        }
        resources(stored, &object, before, &mut types);
    }
    Some(types)
}

fn resources(
    stored: &Stored,
    object: &Value,
    before: Option<&CustomTypes>,
    types: &mut CustomTypes,
) {
    let definition = match Definition::parse(object) {
        Ok(definition) => Arc::new(definition),
        Err(causes) => {
            let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
            tracing::error!(
                definition = %stored.key.name,
                causes = causes.join("; "),
                "a stored definition cannot be served"
            );
            return;
        }
    };
    // A definition that was never changed has no objects older than its schema.
    let schema_since = match (stored.meta.generation, before) {
        (None | Some(..=1), _) => 0,
        (Some(_), Some(before)) if same_schemas(before, &definition) => schema_since(before),
        (Some(_), _) => stored.revision,
    };
    let of = |which| custom_resources(&definition, which, schema_since, stored.meta.deleting);
    types.resources = of(Which::Served);
    if types.resources.is_empty() {
        types.hidden = of(Which::Stored).pop();
    }
}

fn schema_since(types: &CustomTypes) -> u64 {
    let customs = types.resources.iter().filter_map(|resource| resource.custom());
    customs.map(|custom| custom.schema_since).max().unwrap_or(0)
}

fn same_schemas(before: &CustomTypes, now: &Definition) -> bool {
    let Some(custom) = before.resources.first().and_then(|resource| resource.custom()) else {
        return false;
    };
    let old = &custom.definition.versions;
    old.len() == now.versions.len()
        && old.iter().zip(&now.versions).all(|(old, new)| {
            (&old.name, old.storage, &old.raw_schema) == (&new.name, new.storage, &new.raw_schema)
        })
}

pub(crate) fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    conditions(object).any(|condition| condition["type"] == kind && condition["status"] == status)
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// Sets a condition; its time moves only when its status does.
pub(crate) fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let since = conditions(object)
        .find(|condition| condition["type"] == kind && condition["status"] == status)
        .and_then(|condition| condition["lastTransitionTime"].as_str())
        .map_or_else(|| clock::seconds(now), str::to_owned);
    let condition = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    });
    let body = admit::object_mut(object).entry("status").or_insert_with(|| json!({}));
    let list = admit::object_mut(body).entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        match list.iter_mut().find(|one| one["type"] == kind) {
            Some(one) => *one = condition,
            None => list.push(condition),
        }
    }
}

/// The status of a definition that was just written; `taken` are the names of the others in its
/// group.
pub(crate) fn settle(object: &mut Value, taken: &Names, now: Timestamp) {
    let deleting = !admit::metadata_text(object, "deletionTimestamp").is_empty();
    if let Some(storage) = storage_version(object) {
        let status = admit::object_mut(object).entry("status").or_insert_with(|| json!({}));
        let stored = admit::object_mut(status).entry("storedVersions").or_insert_with(|| json!([]));
        match stored.as_array_mut() {
            Some(all) if all.iter().any(|one| one == &storage) => {}
            Some(all) => all.push(storage.into()),
            None => *stored = json!([storage]),
        }
    }
    set_approval(object, now);
    if let Some((reason, message)) = accept_names(object, taken) {
        set_condition(object, "NamesAccepted", "False", reason, &message, now);
        let established = has_condition(object, "Established", "True");
        if !established {
            let text = "not all names are accepted";
            set_condition(object, "Established", "False", "NotAccepted", text, now);
        }
    } else {
        let text = "no conflicts found";
        set_condition(object, "NamesAccepted", "True", "NoConflicts", text, now);
        if !deleting {
            let text = "the initial names have been accepted";
            set_condition(object, "Established", "True", "InitialNamesAccepted", text, now);
        }
    }
}

/// Groups of Kubernetes itself carry the approval of their API, or say that there is none.
fn set_approval(object: &mut Value, now: Timestamp) {
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    if !objects::crd::is_protected(group) {
        return;
    }
    let annotations = object.pointer("/metadata/annotations");
    let approval = annotations
        .and_then(|all| all.get(objects::crd::APPROVAL))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let (status, reason, text) = if approval.contains("://") {
        ("True", "ApprovedAnnotation", format!("approved in {approval}"))
    } else {
        ("False", "UnapprovedAnnotation", format!("not approved: {approval:?}"))
    };
    set_condition(object, "KubernetesAPIApprovalPolicyConformant", status, reason, &text, now);
}

fn storage_version(object: &Value) -> Option<String> {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array)?;
    let storage = versions.iter().find(|version| version["storage"] == true)?;
    storage["name"].as_str().map(str::to_owned)
}

/// Accepts each wanted name that is free; the last conflict found is the one reported.
fn accept_names(object: &mut Value, taken: &Names) -> Option<(&'static str, String)> {
    let wanted = object.pointer("/spec/names").cloned().unwrap_or_default();
    let status = admit::object_mut(object).entry("status").or_insert_with(|| json!({}));
    let accepted = admit::object_mut(status)
        .entry("acceptedNames")
        .or_insert_with(|| json!({"plural": "", "kind": ""}));
    let text = |name: &str| format!("{name:?} is already in use");
    let mut conflict = None;
    for (member, reason, pool) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
        ("categories", "", &HashSet::new()),
    ] {
        let value = wanted.get(member);
        let names: Vec<&str> = match (member, value) {
            ("categories", _) => Vec::new(),
            ("shortNames", _) => short_names(&wanted).collect(),
            (_, value) => value.and_then(Value::as_str).into_iter().collect(),
        };
        let used: Vec<String> =
            names.into_iter().filter(|name| pool.contains(*name)).map(text).collect();
        match used.as_slice() {
            [] => {
                let accepted = admit::object_mut(accepted);
                match value {
                    Some(value) => accepted.insert(member.into(), value.clone()),
                    None => accepted.remove(member),
                };
            }
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    conflict
}

/// Which names a definition has is for the server to say: a status that is written from outside
/// keeps them. They might be another definition's, and its objects would be had under them.
pub(crate) fn keep_names(object: &mut Value, old: &Value) {
    let status = admit::object_mut(object).entry("status").or_insert_with(|| json!({}));
    let status = admit::object_mut(status);
    match old.pointer("/status/acceptedNames") {
        Some(names) => status.insert("acceptedNames".into(), names.clone()),
        None => status.remove("acceptedNames"),
    };
}

/// A definition whose deletion was asked for.
pub(crate) fn terminating(mut object: Value, now: Timestamp) -> Value {
    let text = "CustomResource deletion is in progress";
    set_condition(&mut object, "Terminating", "True", "InstanceDeletionInProgress", text, now);
    object
}

/// A definition whose objects are all gone.
pub(crate) fn emptied(object: &mut Value, now: Timestamp) {
    let text = "removed all instances";
    set_condition(object, "Terminating", "False", "InstanceDeletionCompleted", text, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn definition(names: &Value) -> Value {
        json!({"metadata": {"name": "a.x.io"}, "spec": {"group": "x.io", "names": names}})
    }

    fn reason(object: &Value) -> &str {
        conditions(object)
            .find(|one| one["type"] == "NamesAccepted")
            .and_then(|one| one["reason"].as_str())
            .unwrap()
    }

    #[test]
    fn each_free_name_is_accepted_and_a_taken_one_keeps_the_definition_from_being_served() {
        let taken = Names::read(&json!({"plural": "bs", "shortNames": ["b"], "kind": "B"}));
        let table = [
            (json!({"plural": "as", "kind": "A"}), "NoConflicts"),
            (json!({"plural": "bs", "kind": "A"}), "PluralConflict"),
            (json!({"plural": "as", "singular": "b", "kind": "A"}), "SingularConflict"),
            (json!({"plural": "as", "kind": "A", "shortNames": ["x", "bs"]}), "ShortNamesConflict"),
            (json!({"plural": "as", "kind": "B"}), "KindConflict"),
            (json!({"plural": "as", "kind": "A", "listKind": "B"}), "ListKindConflict"),
        ];
        for (names, wanted) in table {
            let mut object = definition(&names);
            settle(&mut object, &taken, now());
            assert_eq!(reason(&object), wanted, "{names}");
            let established = has_condition(&object, "Established", "True");
            assert_eq!(established, wanted == "NoConflicts", "{names}");
            if wanted == "NoConflicts" {
                assert_eq!(object["status"]["acceptedNames"], names);
            }
            settle(&mut object, &Names::default(), now());
            assert_eq!(object["status"]["acceptedNames"], names, "when the others are gone");
            assert!(has_condition(&object, "Established", "True"), "{names}");
        }
    }

    #[test]
    fn names_of_built_in_types_are_taken_in_their_group_only() {
        let object = |group: &str, names: Value| json!({"metadata": {"name": "x"}, "spec": {"group": group, "names": names}});
        let rbac = "rbac.authorization.k8s.io";
        let fields = |object: &Value| -> Vec<String> {
            collisions(object).into_iter().map(|cause| cause.field).collect()
        };
        let table = [
            (rbac, json!({"plural": "clusterroles", "kind": "Mine"}), &["spec.names.plural"][..]),
            (rbac, json!({"plural": "mines", "kind": "RoleBinding"}), &["spec.names.kind"][..]),
            (
                rbac,
                json!({"plural": "m", "kind": "M", "listKind": "RoleList"}),
                &["spec.names.listKind"],
            ),
            ("events.k8s.io", json!({"plural": "events", "kind": "E"}), &["spec.names.plural"]),
            (
                "apps",
                json!({"plural": "m", "kind": "M", "shortNames": ["deploy"]}),
                &["spec.names.shortNames"],
            ),
            ("x.io", json!({"plural": "clusterroles", "kind": "ClusterRole"}), &[]),
            (rbac, json!({"plural": "mines", "kind": "Mine"}), &[]),
        ];
        for (group, names, wanted) in table {
            assert_eq!(fields(&object(group, names.clone())), wanted, "{group} {names}");
        }
    }

    #[test]
    fn an_established_definition_stays_so_when_a_new_name_is_taken() {
        let mut object = definition(&json!({"plural": "as", "kind": "A"}));
        settle(&mut object, &Names::default(), now());
        object["spec"]["names"]["shortNames"] = json!(["b"]);
        settle(&mut object, &Names::read(&json!({"shortNames": ["b"]})), now());
        assert!(has_condition(&object, "NamesAccepted", "False"));
        assert!(has_condition(&object, "Established", "True"));
        assert_eq!(object["status"]["acceptedNames"], json!({"plural": "as", "kind": "A"}));
    }
}
