//! One rule of a role, and what it matches.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Attributes;

/// A set of permissions: every verb on every resource (or path) it names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Empty: every name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

impl PolicyRule {
    /// Reads `rules` of a role. What is not readable grants nothing.
    pub fn list(rules: Option<&Value>) -> Vec<Self> {
        let rules = rules.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        rules.iter().map(Self::from_value).collect()
    }

    fn from_value(rule: &Value) -> Self {
        let texts = |key| {
            let list = rule.get(key).and_then(Value::as_array).map(Vec::as_slice);
            let texts = list.unwrap_or_default().iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            resource_names: texts("resourceNames"),
            non_resource_urls: texts("nonResourceURLs"),
        }
    }

    /// Everything on every resource.
    pub fn all_resources() -> Self {
        let all = || vec!["*".to_owned()];
        Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() }
    }

    /// Everything on every path.
    pub fn all_paths() -> Self {
        let all = || vec!["*".to_owned()];
        Self { verbs: all(), non_resource_urls: all(), ..Self::default() }
    }

    pub fn is_for_paths(&self) -> bool {
        !self.non_resource_urls.is_empty()
    }

    /// How many texts a look at the rule may compare.
    pub(super) fn entries(&self) -> usize {
        self.lists().iter().map(|list| list.len()).sum()
    }

    /// How much text that is.
    pub(super) fn bytes(&self) -> usize {
        self.lists().iter().copied().flatten().map(String::len).sum()
    }

    fn lists(&self) -> [&Vec<String>; 5] {
        [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ]
    }

    /// Whether the rule allows the request.
    pub fn allows(&self, wanted: &Attributes<'_>) -> bool {
        if !has(&self.verbs, wanted.verb) {
            return false;
        }
        match wanted.path {
            Some(path) => self.matches_path(path),
            // A rule that names paths is about paths alone; validation refuses a mixture.
            None => {
                !self.is_for_paths()
                    && has(&self.api_groups, wanted.group)
                    && self.matches_resource(wanted.resource, wanted.subresource)
                    && self.matches_name(wanted)
            }
        }
    }

    pub(super) fn matches_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|rule| match rule.split_once('/') {
            None => rule == "*" || (subresource.is_empty() && rule == resource),
            Some((parent, sub)) => {
                !subresource.is_empty()
                    && sub == subresource
                    && (parent == "*" || parent == resource)
            }
        })
    }

    fn matches_name(&self, wanted: &Attributes<'_>) -> bool {
        if self.resource_names.is_empty() {
            return true;
        }
        // The name of an object about to be made is the caller's choice: it proves nothing. A
        // subresource is created under an object that has its name already.
        let is_unnamed =
            wanted.name.is_empty() || (wanted.verb == "create" && wanted.subresource.is_empty());
        !is_unnamed && self.resource_names.iter().any(|name| name == wanted.name)
    }

    pub(super) fn matches_path(&self, path: &str) -> bool {
        self.non_resource_urls.iter().any(|rule| match rule.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => rule == path,
        })
    }
}

/// Whether the list has the value or the wildcard.
pub(super) fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|one| one == "*" || one == value)
}

/// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.resource_names),
            ("NonResourceURLs", &self.non_resource_urls),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
            let values: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("{name}:[{}]", values.join(" "))
        });
        write!(f, "{{{}}}", parts.collect::<Vec<_>>().join(", "))
    }
}
