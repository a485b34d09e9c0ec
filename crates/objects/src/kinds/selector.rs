//! Selector objects (`matchLabels`, `matchExpressions`): whether they take labels, and their text.

use serde_json::Value;

use crate::access::{list, members, text};

/// Whether a selector takes these labels.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    members(selector, "matchLabels").all(|(key, value)| labels.get(key) == Some(value))
        && list(selector, "matchExpressions").iter().all(|expression| {
            let label = labels.get(text(expression, "key"));
            let listed = label.is_some_and(|label| list(expression, "values").contains(label));
            match text(expression, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}

/// The labels at `path` as `k=v,k2=v2`.
pub(crate) fn labels_text(obj: &Value, path: &str) -> String {
    let pair =
        |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
    members(obj, path).map(pair).collect::<Vec<_>>().join(",")
}

/// The selector at `path` as it is written in queries.
pub fn selector_text(obj: &Value, path: &str) -> String {
    let mut terms: Vec<String> = Vec::new();
    let equal = labels_text(obj, &format!("{path}.matchLabels"));
    if !equal.is_empty() {
        terms.push(equal);
    }
    for expression in list(obj, &format!("{path}.matchExpressions")) {
        let key = text(expression, "key");
        let values: Vec<&str> =
            list(expression, "values").iter().filter_map(Value::as_str).collect();
        let values = values.join(",");
        terms.push(match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}
