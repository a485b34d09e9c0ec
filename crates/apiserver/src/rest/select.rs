//! Label and field selectors of one request, matched against stored objects. Names, namespaces and
//! labels are matched without parsing the object.

use objects::selector::{FieldOperator, FieldSelector, LabelSelector};
use objects::{fields, prune};
use serde_json::Value;

use crate::failure::Failure;
use crate::registry::Resource;
use crate::request::Query;
use crate::store::Stored;

#[derive(Debug, Default)]
pub(crate) struct Selection {
    labels: Option<LabelSelector>,
    fields: Vec<FieldRule>,
    name: Option<String>,
}

#[derive(Debug)]
struct FieldRule {
    path: String,
    equal: bool,
    value: String,
}

/// Every watch keeps its selector, and every change is matched with all parts of it.
const MAX_SELECTOR_BYTES: usize = 8 * 1024;
const MAX_SELECTOR_PARTS: usize = 256;

fn check_length(name: &str, text: &str) -> Result<(), Failure> {
    let parts = text.split(',').count();
    if text.len() <= MAX_SELECTOR_BYTES && parts <= MAX_SELECTOR_PARTS {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "{name} is too long: {} bytes in {parts} parts; {MAX_SELECTOR_BYTES} bytes and {MAX_SELECTOR_PARTS} parts are the limit",
        text.len()
    )))
}

impl Selection {
    pub(crate) fn parse(resource: &Resource, query: &Query) -> Result<Self, Failure> {
        for name in ["labelSelector", "fieldSelector"] {
            check_length(name, query.get(name).unwrap_or_default())?;
        }
        let labels = match query.get("labelSelector") {
            None => None,
            Some(text) => Some(LabelSelector::parse(text).map_err(|error| {
                Failure::bad_request(format!("unable to parse labelSelector {text:?}: {error}"))
            })?),
        };
        let Some(text) = query.get("fieldSelector") else {
            return Ok(Self { labels, ..Self::default() });
        };
        let parsed = FieldSelector::parse(text).map_err(|error| {
            Failure::bad_request(format!("unable to parse fieldSelector {text:?}: {error}"))
        })?;
        let name = parsed.name().map(str::to_owned);
        let mut rules = Vec::new();
        for one in parsed.requirements() {
            if !is_selectable(resource, &one.path) {
                let text = format!("field label not supported: {}", one.path);
                return Err(Failure::bad_request(text));
            }
            rules.push(FieldRule {
                path: one.path.clone(),
                equal: one.operator == FieldOperator::Equal,
                value: one.value.clone(),
            });
        }
        Ok(Self { labels, fields: rules, name })
    }

    /// Whether the objects must be read for it: names, namespaces and labels are known without.
    pub(crate) fn looks_into_objects(query: &Query) -> bool {
        let fields = query.get("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
        let is_inside = |path: &str| !matches!(path, "metadata.name" | "metadata.namespace");
        fields.is_some_and(|all| all.requirements().iter().any(|one| is_inside(&one.path)))
    }

    /// `metadata.name=X` pins one object; RBAC treats such a list as being about X.
    pub(crate) fn pinned_name(query: &Query) -> Option<String> {
        let parsed = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
        parsed.name().map(str::to_owned)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, resource: &Resource, stored: &Stored) -> bool {
        if let Some(labels) = &self.labels
            && !labels.matches(|key: &str| stored.label(key))
        {
            return false;
        }
        let mut parsed: Option<Value> = None;
        self.fields.iter().all(|rule| {
            let equal = match rule.path.as_str() {
                "metadata.name" => *stored.key.name == *rule.value,
                "metadata.namespace" => *stored.key.namespace == *rule.value,
                path => {
                    let object = parsed.get_or_insert_with(|| readable(resource, stored));
                    fields::value(object, path) == rule.value
                }
            };
            equal == rule.equal
        })
    }
}

fn is_selectable(resource: &Resource, path: &str) -> bool {
    if matches!(path, "metadata.name" | "metadata.namespace") {
        return true;
    }
    match resource.custom() {
        None => fields::selectable(&resource.group, &resource.plural, path),
        Some(custom) => {
            let declared = &custom.version.selectable_fields;
            declared.iter().any(|field| field.trim_start_matches('.') == path)
        }
    }
}

/// The object in the resource's own form; an unreadable one matches nothing.
fn readable(resource: &Resource, stored: &Stored) -> Value {
    let mut object = super::view::value(resource, stored).unwrap_or_default();
    if resource.custom().is_some() {
        prune::prune(&resource.node, &mut object);
    }
    object
}
