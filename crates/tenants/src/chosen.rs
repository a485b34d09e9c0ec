//! Which namespaces have tenants that are served: a selector over their labels, as Kubernetes writes
//! one. Nothing that it does not know is passed over: a selector that is misspelt would choose all.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Namespaces by their labels; all of its requirements must hold. An empty one chooses all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NamespaceSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl NamespaceSelector {
    /// What is wrong with it, if anything.
    pub fn fault(&self) -> Option<String> {
        self.match_expressions.iter().find_map(|it| {
            let needs_values = matches!(it.operator, Operator::In | Operator::NotIn);
            let key = &it.key;
            match (needs_values, it.values.is_empty()) {
                _ if key.is_empty() => Some("an expression has no key".to_owned()),
                (true, true) => Some(format!("the expression for {key} needs values")),
                (false, false) => Some(format!("the expression for {key} takes no values")),
                _ => None,
            }
        })
    }

    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let value = |key: &str| labels.and_then(|all| all.get(key));
        self.match_labels.iter().all(|(key, wanted)| value(key) == Some(wanted))
            && self.match_expressions.iter().all(|it| it.holds(value(&it.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&String>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|it| self.values.contains(it)),
            Operator::NotIn => value.is_none_or(|it| !self.values.contains(it)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chooses(selector: Value, labels: &[(&str, &str)]) -> bool {
        let selector: NamespaceSelector = serde_json::from_value(selector).unwrap();
        assert_eq!(selector.fault(), None);
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        selector.matches(Some(&labels.collect()))
    }

    #[test]
    fn all_requirements_must_hold() {
        assert!(chooses(json!({}), &[]));
        let gold = json!({"matchLabels": {"tier": "gold"}});
        assert!(chooses(gold.clone(), &[("tier", "gold"), ("a", "b")]));
        assert!(!chooses(gold.clone(), &[("tier", "silver")]) && !chooses(gold, &[]));
        let table = [("In", true, false), ("NotIn", false, true)];
        for (operator, listed, absent) in table {
            let it = json!({"matchExpressions": [
                {"key": "tier", "operator": operator, "values": ["gold", "silver"]}]});
            assert_eq!(chooses(it.clone(), &[("tier", "silver")]), listed, "{operator}");
            assert_eq!(chooses(it, &[]), absent, "{operator}");
        }
        let both = json!({"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "off", "operator": "DoesNotExist"}]});
        assert!(chooses(both.clone(), &[("a", "b")]));
        assert!(!chooses(both, &[("a", "b"), ("off", "")]));
        let exists = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        assert!(chooses(exists.clone(), &[("a", "")]) && !chooses(exists, &[]));
    }

    #[test]
    fn a_namespace_without_labels_matches_what_asks_for_none() {
        let selector: NamespaceSelector =
            serde_json::from_value(json!({"matchLabels": {"a": "b"}})).unwrap();
        assert!(!selector.matches(None) && NamespaceSelector::default().matches(None));
    }
}
