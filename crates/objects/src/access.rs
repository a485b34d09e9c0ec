//! Reading and writing members of JSON values by dotted path (`spec.template.spec`).
//!
//! Owns: the walk. Never: panics or replaces a value of an unexpected type; a scalar in the way of
//! a write leaves the object as it was, because the schema reports wrong types and this must not
//! hide them. Paths here are constants of this crate, so member names never hold dots.

use serde_json::{Map, Value};

/// The value at `path`; `None` if any member is absent. JSON null counts as absent.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, member| value.get(member)).filter(|v| !v.is_null())
}

/// The string at `path`, or "".
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The list at `path`, or an empty one.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The members of the object at `path`; none if there is no object.
pub(crate) fn members<'a>(
    value: &'a Value,
    path: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    at(value, path).and_then(Value::as_object).into_iter().flatten()
}

/// The integer at `path`.
pub(crate) fn integer(value: &Value, path: &str) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Whether `path` holds `true`.
pub(crate) fn is_true(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The object at `path`, made where it is absent. `None` if something else is in the way.
pub(crate) fn object_mut<'a>(
    value: &'a mut Value,
    path: &str,
) -> Option<&'a mut Map<String, Value>> {
    let mut value = value;
    for member in path.split('.').filter(|member| !member.is_empty()) {
        let slot = value.as_object_mut()?.entry(member).or_insert(Value::Null);
        if slot.is_null() {
            *slot = Value::Object(Map::new());
        }
        value = slot;
    }
    value.as_object_mut()
}

/// The list at `path`; empty if there is none. Never makes one.
pub(crate) fn list_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    path.split('.')
        .try_fold(value, |value, member| value.get_mut(member))
        .and_then(Value::as_array_mut)
        .map(Vec::as_mut_slice)
        .unwrap_or_default()
}

/// Writes `new` at `path`, making parents.
pub(crate) fn set(value: &mut Value, path: &str, new: impl Into<Value>) {
    let (parent, member) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(parent) = object_mut(value, parent) {
        parent.insert(member.to_owned(), new.into());
    }
}

/// Writes `new` at `path` if nothing is there yet. An empty string is nothing, too: clients with typed
/// objects cannot tell one from the other.
pub(crate) fn set_default(value: &mut Value, path: &str, new: impl Into<Value>) {
    if at(value, path).is_none_or(|there| there == "") {
        set(value, path, new);
    }
}

/// Takes the value at `path` out.
pub(crate) fn remove(value: &mut Value, path: &str) -> Option<Value> {
    let (parent, member) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = parent
        .split('.')
        .filter(|member| !member.is_empty())
        .try_fold(value, |value, member| value.get_mut(member))?;
    parent.as_object_mut()?.remove(member)
}

/// Gives `new` what `old` has at `path`, also when that is nothing.
pub(crate) fn keep(old: &Value, new: &mut Value, path: &str) {
    match at(old, path) {
        Some(value) => set(new, path, value.clone()),
        None => drop(remove(new, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_scalar_in_the_way_is_left_alone() {
        let mut value = json!({"spec": 7});
        set_default(&mut value, "spec.replicas", 1);
        assert_eq!(value, json!({"spec": 7}));
    }

    #[test]
    fn null_counts_as_absent() {
        let mut value = json!({"spec": null});
        assert!(at(&value, "spec").is_none());
        set_default(&mut value, "spec.replicas", 1);
        assert_eq!(value, json!({"spec": {"replicas": 1}}));
    }

    #[test]
    fn keep_also_keeps_absence() {
        let mut new = json!({"metadata": {"generation": 9}});
        keep(&json!({"metadata": {}}), &mut new, "metadata.generation");
        assert_eq!(new, json!({"metadata": {}}));
        keep(&json!({"metadata": {"generation": 2}}), &mut new, "metadata.generation");
        assert_eq!(new, json!({"metadata": {"generation": 2}}));
    }
}
