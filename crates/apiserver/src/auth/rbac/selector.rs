//! Label selectors of aggregation rules.
//!
//! A selector that cannot be read matches nothing: it must not widen a role.

use std::collections::BTreeMap;

use serde_json::Value;

/// One `matchLabels` and `matchExpressions` block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

pub(super) type Labels = BTreeMap<String, String>;

/// Reads `metadata.labels`.
pub(super) fn labels(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

impl Selector {
    /// `None` if any part is malformed, or if it is empty: an empty selector would select all.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let mut terms = Vec::new();
        if let Some(pairs) = value.get("matchLabels").filter(|it| !it.is_null()) {
            for (key, value) in pairs.as_object()? {
                let test = Test::In(vec![value.as_str()?.to_owned()]);
                terms.push(Term { key: key.clone(), test });
            }
        }
        if let Some(expressions) = value.get("matchExpressions").filter(|it| !it.is_null()) {
            for expression in expressions.as_array()? {
                terms.push(Term::parse(expression)?);
            }
        }
        (!terms.is_empty()).then_some(Self { terms })
    }

    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            match &term.test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Term {
    fn parse(expression: &Value) -> Option<Self> {
        let key = expression.get("key")?.as_str()?.to_owned();
        let values = || -> Option<Vec<String>> {
            let values = expression.get("values")?.as_array()?;
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let test = match expression.get("operator")?.as_str()? {
            "In" => Test::In(values()?),
            "NotIn" => Test::NotIn(values()?),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            _ => return None,
        };
        Some(Self { key, test })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_as_kubernetes_has_it() {
        let cases = [
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
            (
                json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}),
                false,
            ),
        ];
        let labels = labels(&json!({"metadata": {"labels": {"a": "1"}}}));
        for (selector, wanted) in cases {
            assert_eq!(Selector::parse(&selector).unwrap().matches(&labels), wanted, "{selector}");
        }
    }

    #[test]
    fn a_malformed_or_empty_selector_is_none() {
        for selector in [
            json!({}),
            json!(null),
            json!({"matchLabels": {"a": 1}}),
            json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Near"}]}),
            json!({"matchExpressions": [{"key": "b", "operator": "In"}]}),
        ] {
            assert_eq!(Selector::parse(&selector), None, "{selector}");
        }
    }
}
