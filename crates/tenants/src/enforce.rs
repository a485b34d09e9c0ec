//! Values that administrators enforce, compared and filled in field by field.
//!
//! Only top-level fields count, as whole values. A tenant that says nothing gets the enforced value;
//! one that says the same is heard; one that says otherwise is refused.

use api::duration::GoDuration;
use serde_json::{Map, Value};

use crate::settings::Enforced;

/// Fields that hold durations, which are equal when they mean the same.
const DURATIONS: &[&str] = &[
    "ttl",
    "csiSnapshotTimeout",
    "itemOperationTimeout",
    "backupSyncPeriod",
    "validationFrequency",
];

/// A tenant's value that differs from the enforced one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict<'a> {
    pub field: &'a str,
    pub enforced: &'a Value,
}

/// The first field, in the order of names, in which the spec departs from what is enforced.
pub fn conflict<'a>(spec: &Map<String, Value>, enforced: &'a Enforced) -> Option<Conflict<'a>> {
    let departs = |field: &str, wanted: &Value| {
        let given = spec.get(field).unwrap_or(&Value::Null);
        !is_zero(given) && !equal(field, given, wanted)
    };
    enforced
        .iter()
        .find(|(field, wanted)| !is_zero(wanted) && departs(field, wanted))
        .map(|(field, enforced)| Conflict { field, enforced })
}

/// Puts the enforced values where the spec has none, or others: the last word is theirs.
pub fn fill(spec: &mut Map<String, Value>, enforced: &Enforced) {
    for (field, wanted) in enforced {
        let given = spec.get(field).unwrap_or(&Value::Null);
        let departs = !is_zero(wanted) && !equal(field, given, wanted);
        if is_zero(given) || departs {
            spec.insert(field.clone(), wanted.clone());
        }
    }
}

/// Said, in a way that counts as nothing said. `false` counts as said, and so does an empty list.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(map) => map.values().all(is_zero),
        Value::Bool(_) | Value::Array(_) => false,
    }
}

fn equal(field: &str, given: &Value, wanted: &Value) -> bool {
    match (given, wanted) {
        (Value::String(a), Value::String(b)) if DURATIONS.contains(&field) => {
            let (a, b) = (GoDuration::from(a.as_str()), GoDuration::from(b.as_str()));
            a == b || matches!((a.get(), b.get()), (Ok(a), Ok(b)) if a == b)
        }
        _ => given == wanted,
    }
}

/// The value as messages show it: scalars bare, durations as Go writes them, the rest as JSON.
pub fn show(field: &str, value: &Value) -> String {
    match value {
        Value::String(text) if DURATIONS.contains(&field) => {
            let read = GoDuration::from(text.as_str()).get();
            read.map_or_else(|_| text.clone(), |read| GoDuration::from(read).to_string())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn only_a_different_value_is_refused() {
        let table = [
            (json!({"ttl": "36h"}), json!({}), None),
            (json!({"ttl": "36h"}), json!({"ttl": ""}), None),
            (json!({"ttl": "36h"}), json!({"ttl": "36h0m0s"}), None),
            (json!({"ttl": "36h"}), json!({"ttl": "37h"}), Some("36h0m0s")),
            (json!({"snapshotVolumes": false}), json!({"snapshotVolumes": true}), Some("false")),
            (json!({"snapshotVolumes": false}), json!({"snapshotVolumes": null}), None),
            (
                json!({"includedResources": ["a", "b"]}),
                json!({"includedResources": ["a", "b"]}),
                None,
            ),
            (
                json!({"includedResources": ["a", "b"]}),
                json!({"includedResources": ["b", "a"]}),
                Some(r#"["a","b"]"#),
            ),
            (
                json!({"includedResources": ["a"]}),
                json!({"includedResources": []}),
                Some(r#"["a"]"#),
            ),
            (json!({"hooks": {}}), json!({"hooks": {"resources": []}}), None),
        ];
        for (enforced, spec, want) in table {
            let (enforced, spec) = (map(enforced), map(spec));
            let found = conflict(&spec, &enforced).map(|it| show(it.field, it.enforced));
            assert_eq!(found.as_deref(), want, "{spec:?} under {enforced:?}");
        }
    }

    #[test]
    fn what_is_not_said_is_filled_in_and_what_departs_is_put_right() {
        let mut spec = map(json!({"ttl": "36h0m0s", "labelSelector": {}, "itemBlockGroups": 3}));
        let enforced =
            map(json!({"ttl": "36h", "snapshotVolumes": false, "labelSelector": {"a": "b"}}));
        fill(&mut spec, &enforced);
        let want = json!({"ttl": "36h0m0s", "snapshotVolumes": false, "labelSelector": {"a": "b"},
            "itemBlockGroups": 3});
        assert_eq!(spec, map(want));
        let mut spec = map(json!({"ttl": "1h", "snapshotVolumes": true}));
        fill(&mut spec, &enforced);
        assert_eq!(spec, enforced);
    }
}
