//! What tenants may ask for, and what the executor is asked for in their name.
//!
//! Owns the rules on specs that do not depend on which kind they are in: the kinds that are never
//! taken or brought back, and durations that can be read.

use api::duration::GoDuration;
use serde_json::{Map, Value};

/// What validation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Valid,
    /// Wrong until the spec is edited.
    Invalid(String),
    /// Wrong now; it may become right by itself, so it is looked at again.
    NotYet(String),
}

/// Kinds of tenants' requests: a copy of a request would be a request.
pub const REQUEST_KINDS: [&str; 5] = [
    "nonadminbackups",
    "nonadminrestores",
    "nonadminbackupstoragelocations",
    "nonadmindownloadrequests",
    "nonadminschedules",
];

/// Kinds without a namespace that give rights or change the cluster for others.
pub const CLUSTER_KINDS: [&str; 7] = [
    "securitycontextconstraints",
    "clusterroles",
    "clusterrolebindings",
    "priorityclasses",
    "customresourcedefinitions",
    "virtualmachineclusterinstancetypes",
    "virtualmachineclusterpreferences",
];

/// How much a tenant may ask for in one spec, as it is written. It is copied to the executor and from there
/// into the status, and its lists are looked through for every kind: others wait for that.
pub const SPEC_MAX_BYTES: usize = 64 << 10;

/// Says so, if a spec is longer than others can wait for.
pub fn too_long(path: &str, spec: &Map<String, Value>) -> Option<String> {
    let bytes = serde_json::to_vec(spec).map_or(usize::MAX, |written| written.len());
    (bytes > SPEC_MAX_BYTES).then(|| {
        format!(
            "{path} is too long, {bytes} bytes where {SPEC_MAX_BYTES} are allowed; name fewer things in its \
             lists, or use patterns and labels"
        )
    })
}

/// The first duration in the spec that is none. Timeouts of hooks stand deeper in it.
pub fn bad_duration(path: &str, spec: &Map<String, Value>) -> Option<String> {
    const KEYS: &[&str] = &[
        "ttl",
        "csiSnapshotTimeout",
        "itemOperationTimeout",
        "backupSyncPeriod",
        "validationFrequency",
        "timeout",
        "execTimeout",
        "waitTimeout",
    ];
    spec.iter().find_map(|(key, value)| match value {
        Value::String(text) if KEYS.contains(&key.as_str()) && !text.is_empty() => {
            GoDuration::from(text.as_str())
                .get()
                .err()
                .map(|error| format!("{path}.{key}: {error}"))
        }
        Value::Object(inner) => bad_duration(&format!("{path}.{key}"), inner),
        Value::Array(list) => list.iter().enumerate().find_map(|(at, entry)| {
            bad_duration(&format!("{path}.{key}[{at}]"), entry.as_object()?)
        }),
        _ => None,
    })
}

/// The spec of a backup in words that each field has one of. Yes by the former name of a field is yes to a
/// Velero, whatever stands at the present one.
pub fn present(backup: &Map<String, Value>) -> Map<String, Value> {
    let mut present = backup.clone();
    match (present.remove("defaultVolumesToRestic"), present.get(FILES)) {
        (Some(Value::Bool(true)), _) => {
            present.insert(FILES.to_owned(), Value::Bool(true));
        }
        (Some(said), None | Some(Value::Null)) => {
            present.insert(FILES.to_owned(), said);
        }
        (None | Some(_), _) => {}
    }
    present
}

/// Whether volumes are copied file by file.
const FILES: &str = "defaultVolumesToFsBackup";

/// Appends to a list of words in the spec what is not in it yet.
pub fn append(
    spec: &mut Map<String, Value>,
    key: &str,
    words: impl IntoIterator<Item = impl Into<String>>,
) {
    let list = spec.entry(key).or_insert(Value::Null);
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { return };
    for word in words {
        let word = Value::String(word.into());
        if !list.contains(&word) {
            list.push(word);
        }
    }
}

/// The object at this key of a document, or an empty one.
pub fn object(document: &Value, pointer: &str) -> Map<String, Value> {
    document.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Whether the spec says something at this key: `null` is nothing, an empty list is something.
pub fn says(spec: &Map<String, Value>, key: &str) -> bool {
    spec.get(key).is_some_and(|value| !value.is_null())
}

/// Whether the spec has hooks: an object with nothing in it has none.
pub fn has_hooks(spec: &Map<String, Value>) -> bool {
    let hooks = spec.get("hooks").and_then(|hooks| hooks.get("resources"));
    hooks.and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_that_is_no_duration_is_found_wherever_it_stands() {
        let spec = json!({"ttl": "1h", "hooks": {"resources": [
            {"name": "x", "pre": [{"exec": {"command": ["a"], "timeout": "30d"}}]}]}});
        let found = bad_duration("spec.backupSpec", spec.as_object().unwrap()).unwrap();
        assert!(
            found.starts_with("spec.backupSpec.hooks.resources[0].pre[0].exec.timeout:"),
            "{found}"
        );
        assert!(found.contains("\"30d\" is not a duration"), "{found}");
        let good = json!({"ttl": "720h0m0s", "csiSnapshotTimeout": ""});
        assert_eq!(bad_duration("spec", good.as_object().unwrap()), None);
    }

    #[test]
    fn a_spec_that_others_would_wait_for_is_told_from_a_long_one() {
        let names = |count: usize| -> Map<String, Value> {
            let list: Vec<String> = (0..count).map(|number| format!("kind-{number:07}")).collect();
            [("excludedResources".to_owned(), json!(list))].into_iter().collect()
        };
        assert_eq!(too_long("spec", &names(4000)), None);
        let found = too_long("spec", &names(100_000)).unwrap();
        assert!(found.starts_with("spec is too long, 15000"), "{found}");
    }

    #[test]
    fn a_field_has_one_word() {
        let of = |spec: Value| Value::Object(present(spec.as_object().unwrap()));
        for (said, wanted) in [
            (json!({"ttl": "1h"}), json!({"ttl": "1h"})),
            (
                json!({"defaultVolumesToRestic": true, "defaultVolumesToFsBackup": false}),
                json!({"defaultVolumesToFsBackup": true}),
            ),
            (
                json!({"defaultVolumesToRestic": false, "defaultVolumesToFsBackup": true}),
                json!({"defaultVolumesToFsBackup": true}),
            ),
            (json!({"defaultVolumesToRestic": false}), json!({"defaultVolumesToFsBackup": false})),
            (json!({"defaultVolumesToRestic": null}), json!({"defaultVolumesToFsBackup": null})),
        ] {
            assert_eq!(of(said.clone()), wanted, "{said}");
        }
    }

    #[test]
    fn words_are_appended_once() {
        let mut spec = json!({"a": ["x"], "b": null}).as_object().unwrap().clone();
        append(&mut spec, "a", ["x", "y"]);
        append(&mut spec, "b", ["z"]);
        append(&mut spec, "c", ["z"]);
        assert_eq!(Value::Object(spec), json!({"a": ["x", "y"], "b": ["z"], "c": ["z"]}));
    }
}
