//! What has to be sent so that one document becomes another: a JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// The patch that turns `old` into `new`; nothing if they are equal. A member that is gone is null.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in after {
        let change = match before.get(name) {
            Some(earlier) => merge_patch(earlier, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(name.clone(), change);
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_sent() {
        for (old, new, wanted) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), Some(json!({"b": 3}))),
            (json!({"a": 1}), json!({}), Some(json!({"a": null}))),
            (
                json!({"m": {"x": 1, "y": 1}}),
                json!({"m": {"x": 1}}),
                Some(json!({"m": {"y": null}})),
            ),
            (json!({"l": [1, 2]}), json!({"l": [1]}), Some(json!({"l": [1]}))),
            (json!({"m": {"x": 1}}), json!({"m": "x"}), Some(json!({"m": "x"}))),
            (json!({}), json!({"m": {"x": 1}}), Some(json!({"m": {"x": 1}}))),
        ] {
            assert_eq!(merge_patch(&old, &new), wanted, "{old} -> {new}");
        }
    }
}
