//! Which types the server serves at this moment: the built-in kinds and the versions of every
//! custom resource definition. A [`Registry`] never changes; a change of a definition makes a new
//! one, so a request sees one consistent set from its first line to its last.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use objects::crd::{Definition, Scale, Scope, Version};
use objects::kinds::{self, Kind};
use objects::node::{JsonType, Node};
use objects::table::PrinterColumn;

use crate::definitions::Names;

/// One served version of one type.
#[derive(Debug)]
pub struct Resource {
    /// Where the store keeps the objects; all versions of a type share it.
    pub id: Arc<str>,
    pub group: String,
    pub version: String,
    /// `group/version`, or `v1`.
    pub api_version: String,
    /// The `apiVersion` stored objects carry.
    pub stored_as: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<&'static str>,
    pub node: Arc<Node>,
    pub origin: Origin,
}

#[derive(Debug)]
pub enum Origin {
    BuiltIn(&'static Kind),
    Custom(Custom),
}

/// What only custom resources have.
#[derive(Debug)]
pub struct Custom {
    pub definition: Arc<Definition>,
    pub version: Arc<Version>,
    pub columns: Vec<PrinterColumn>,
    /// Objects written before this revision may not fit the schema any more: they are pruned and
    /// defaulted when read.
    pub schema_since: u64,
    pub terminating: bool,
    /// What users of a deprecated version are told with every answer.
    pub warning: Option<String>,
}

/// A part of an object with an endpoint of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subresource {
    Status,
    Scale(Scale),
    Finalize,
    Token,
    Approval,
}

impl Resource {
    pub fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::BuiltIn(_) => None,
            Origin::Custom(custom) => Some(custom),
        }
    }

    pub fn built_in(&self) -> Option<&'static Kind> {
        match &self.origin {
            Origin::BuiltIn(kind) => Some(kind),
            Origin::Custom(_) => None,
        }
    }

    pub fn has_status(&self) -> bool {
        match &self.origin {
            Origin::BuiltIn(kind) => kind.status,
            Origin::Custom(custom) => custom.version.status,
        }
    }

    /// The subresource of this name, if the type declares it.
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        match (&self.origin, name) {
            (_, "status") => self.has_status().then_some(Subresource::Status),
            (Origin::Custom(custom), "scale") => {
                custom.version.scale.clone().map(Subresource::Scale)
            }
            (Origin::BuiltIn(kind), _) if !kind.subresources.iter().any(|s| s.name == name) => None,
            (Origin::BuiltIn(_), "scale") => Some(Subresource::Scale(Scale {
                spec_path: ".spec.replicas".to_owned(),
                status_path: ".status.replicas".to_owned(),
                selector_path: None,
            })),
            (Origin::BuiltIn(_), "finalize") => Some(Subresource::Finalize),
            (Origin::BuiltIn(_), "approval") => Some(Subresource::Approval),
            (Origin::BuiltIn(_), "token") => Some(Subresource::Token),
            _ => None,
        }
    }

    /// Reviews are answered, never stored.
    pub fn is_stored(&self) -> bool {
        self.verbs.contains(&"get")
    }

    /// Events are kept in the core form whatever API group they are asked for in.
    pub fn is_events_v1(&self) -> bool {
        self.group == "events.k8s.io"
    }

    pub fn key(&self, namespace: Option<&str>, name: &str) -> crate::store::Key {
        crate::store::Key {
            resource: self.id.clone(),
            namespace: namespace.unwrap_or_default().into(),
            name: name.into(),
        }
    }
}

/// Where objects of a type are kept.
pub(crate) fn resource_id(group: &str, plural: &str) -> Arc<str> {
    match (group, plural) {
        ("events.k8s.io", "events") => "/events".into(),
        _ => format!("{group}/{plural}").into(),
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// What one definition holds and serves, kept until the definition changes.
#[derive(Debug, Clone)]
pub struct CustomTypes {
    pub revision: u64,
    pub group: String,
    pub names: Names,
    /// Some of its names belong to another definition.
    pub waits_for_names: bool,
    /// The served types.
    pub resources: Vec<Arc<Resource>>,
    /// The type as it is stored, where no version is served: its objects are there nevertheless, and
    /// go with their namespace and their definition.
    pub hidden: Option<Arc<Resource>>,
}

/// A group with its versions, most stable first.
#[derive(Debug)]
pub struct Group {
    pub name: String,
    pub versions: Vec<GroupVersion>,
}

#[derive(Debug)]
pub struct GroupVersion {
    pub version: String,
    pub resources: Vec<Arc<Resource>>,
    /// Changes whenever one of the types does.
    pub fingerprint: u64,
    openapi: OnceLock<Bytes>,
}

impl GroupVersion {
    /// The OpenAPI v3 document, made at the first request for it.
    pub fn openapi(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        self.openapi.get_or_init(make).clone()
    }
}

#[derive(Debug)]
pub struct Registry {
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    by_kind: HashMap<(String, String), Arc<Resource>>,
    hidden: HashMap<Arc<str>, Arc<Resource>>,
    groups: Vec<Group>,
    pub(crate) aggregated_core: OnceLock<Bytes>,
    pub(crate) aggregated_groups: OnceLock<Bytes>,
    pub(crate) openapi_v2: OnceLock<Bytes>,
    pub(crate) openapi_v2_protobuf: OnceLock<Bytes>,
}

/// The types of a group-version, and a number that changes with them.
type Collected = (Vec<Arc<Resource>>, u64);

impl Registry {
    pub fn new(customs: &BTreeMap<String, CustomTypes>) -> Self {
        let mut all: BTreeMap<(String, String), Collected> = BTreeMap::new();
        for resource in built_in_resources() {
            let key = (resource.group.clone(), resource.version.clone());
            all.entry(key).or_default().0.push(resource.clone());
        }
        for custom in customs.values() {
            for resource in &custom.resources {
                let key = (resource.group.clone(), resource.version.clone());
                let entry = all.entry(key).or_default();
                entry.0.push(resource.clone());
                entry.1 = fold(fold(entry.1, custom.revision), entry.0.len() as u64);
            }
        }
        let mut registry = Self {
            by_path: HashMap::new(),
            by_kind: HashMap::new(),
            hidden: customs
                .values()
                .filter_map(|custom| custom.hidden.clone())
                .map(|resource| (resource.id.clone(), resource))
                .collect(),
            groups: Vec::new(),
            aggregated_core: OnceLock::new(),
            aggregated_groups: OnceLock::new(),
            openapi_v2: OnceLock::new(),
            openapi_v2_protobuf: OnceLock::new(),
        };
        for ((group, version), (mut resources, fingerprint)) in all {
            resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            registry.add(group, version, resources, fingerprint);
        }
        for group in &mut registry.groups {
            group.versions.sort_by_key(|one| version_rank(&one.version));
        }
        registry
    }

    fn add(
        &mut self,
        group: String,
        version: String,
        resources: Vec<Arc<Resource>>,
        fingerprint: u64,
    ) {
        for resource in &resources {
            let path = (group.clone(), version.clone(), resource.plural.clone());
            self.by_path.insert(path, resource.clone());
            if resource.is_stored() {
                self.by_kind
                    .entry((group.clone(), resource.kind.clone()))
                    .or_insert_with(|| resource.clone());
            }
        }
        let one = GroupVersion { version, resources, fingerprint, openapi: OnceLock::new() };
        match self.groups.last_mut() {
            Some(last) if last.name == group => last.versions.push(one),
            _ => self.groups.push(Group { name: group, versions: vec![one] }),
        }
    }

    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A type by group and kind, whatever the version: owner references name types that way.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }

    /// The type whose objects the store keeps under `id`, in the form they are stored in; whether or
    /// not it is served.
    pub fn by_id(&self, id: &str) -> Option<&Arc<Resource>> {
        self.served_by_id(id).or_else(|| self.hidden.get(id))
    }

    fn served_by_id(&self, id: &str) -> Option<&Arc<Resource>> {
        let (group, plural) = id.split_once('/')?;
        let group = self.group(group)?;
        let mut served = group
            .versions
            .iter()
            .filter_map(|one| one.resources.iter().find(|resource| resource.plural == plural));
        let first = served.clone().next();
        served.find(|resource| resource.api_version == resource.stored_as).or(first)
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub fn group_version(&self, group: &str, version: &str) -> Option<&GroupVersion> {
        self.group(group)?.versions.iter().find(|one| one.version == version)
    }
}

fn fold(hash: u64, value: u64) -> u64 {
    // FNV-1a over whole words: only inequality matters here.
    (hash ^ value).wrapping_mul(0x0100_0000_01b3)
}

/// GA before beta before alpha, higher numbers first, anything else last by name.
fn version_rank(version: &str) -> (u8, std::cmp::Reverse<u64>, std::cmp::Reverse<u64>, String) {
    use std::cmp::Reverse;
    let other = || (3, Reverse(0), Reverse(0), version.to_owned());
    let Some(rest) = version.strip_prefix('v') else { return other() };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at(digits);
    let Ok(major) = major.parse::<u64>() else { return other() };
    let ranked = |class: u8, minor: &str| {
        minor.parse::<u64>().map_or_else(
            |_| other(),
            |minor| (class, Reverse(major), Reverse(minor), String::new()),
        )
    };
    match stage {
        "" => (0, Reverse(major), Reverse(0), String::new()),
        _ => {
            if let Some(minor) = stage.strip_prefix("beta") {
                ranked(1, minor)
            } else if let Some(minor) = stage.strip_prefix("alpha") {
                ranked(2, minor)
            } else {
                other()
            }
        }
    }
}

fn built_in_resources() -> &'static [Arc<Resource>] {
    static ALL: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    ALL.get_or_init(|| {
        kinds::all().iter().filter_map(|kind| built_in(kind).map(Arc::new)).collect()
    })
}

fn built_in(kind: &'static Kind) -> Option<Resource> {
    let node = objects::builtin::node(kind.group, kind.version, kind.kind)?;
    let api_version = api_version(kind.group, kind.version);
    let is_event = kind.kind == "Event";
    Some(Resource {
        id: resource_id(kind.group, kind.plural),
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        stored_as: if is_event { "v1".to_owned() } else { api_version.clone() },
        api_version,
        plural: kind.plural.to_owned(),
        singular: kind.singular.to_owned(),
        kind: kind.kind.to_owned(),
        list_kind: kind.list_kind.to_owned(),
        namespaced: kind.namespaced,
        short_names: kind.short_names.iter().map(|one| (*one).to_owned()).collect(),
        categories: kind.categories.iter().map(|one| (*one).to_owned()).collect(),
        verbs: kind.verbs.to_vec(),
        node,
        origin: Origin::BuiltIn(kind),
    })
}

const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Versions of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Served,
    /// The one that objects are stored in.
    Stored,
}

pub(crate) fn custom_resources(
    definition: &Arc<Definition>,
    which: Which,
    schema_since: u64,
    terminating: bool,
) -> Vec<Arc<Resource>> {
    let stored = definition.versions.iter().find(|version| version.storage);
    let stored_as = api_version(&definition.group, stored.map_or("", |version| &version.name));
    definition
        .versions
        .iter()
        .filter(|version| match which {
            Which::Served => version.served,
            Which::Stored => version.storage,
        })
        .map(|version| {
            let version = Arc::new(version.clone());
            Arc::new(Resource {
                id: resource_id(&definition.group, &definition.plural),
                group: definition.group.clone(),
                version: version.name.clone(),
                api_version: api_version(&definition.group, &version.name),
                stored_as: stored_as.clone(),
                plural: definition.plural.clone(),
                singular: definition.singular.clone(),
                kind: definition.kind.clone(),
                list_kind: definition.list_kind.clone(),
                namespaced: definition.scope == Scope::Namespaced,
                short_names: definition.short_names.clone(),
                categories: definition.categories.clone(),
                verbs: CUSTOM_VERBS.to_vec(),
                node: with_metadata(&version.schema),
                origin: Origin::Custom(Custom {
                    columns: printer_columns(&version),
                    warning: deprecation(definition, &version),
                    definition: definition.clone(),
                    version,
                    schema_since,
                    terminating,
                }),
            })
        })
        .collect()
}

/// The author's words about a deprecated version, or which version to use instead.
fn deprecation(definition: &Definition, version: &Version) -> Option<String> {
    if !version.deprecated {
        return None;
    }
    let name = |version: &str| format!("{}/{version} {}", definition.group, definition.kind);
    let own = version_rank(&version.name);
    let better = definition
        .versions
        .iter()
        .filter(|other| other.served && !other.deprecated && version_rank(&other.name) < own)
        .min_by_key(|other| version_rank(&other.name));
    Some(version.deprecation_warning.clone().unwrap_or_else(|| match better {
        None => format!("{} is deprecated", name(&version.name)),
        Some(better) => {
            format!("{} is deprecated; use {}", name(&version.name), name(&better.name))
        }
    }))
}

/// Definitions describe `spec` and `status`; what every object has is added here.
fn with_metadata(schema: &Node) -> Arc<Node> {
    let mut root = schema.clone();
    let text = || Arc::new(Node { kind: Some(JsonType::String), ..Node::default() });
    root.properties.insert("apiVersion".to_owned(), text());
    root.properties.insert("kind".to_owned(), text());
    root.properties.insert("metadata".to_owned(), objects::builtin::object_meta());
    Arc::new(root)
}

fn printer_columns(version: &Version) -> Vec<PrinterColumn> {
    if version.columns.is_empty() {
        return PrinterColumn::standard();
    }
    let parse = |column: &objects::crd::Column| {
        Some(PrinterColumn {
            path: objects::jsonpath::Path::parse(&column.json_path).ok()?,
            column: objects::table::Column {
                name: column.name.clone(),
                kind: column.kind.clone(),
                format: column.format.clone(),
                description: column.description.clone(),
                priority: i32::try_from(column.priority).unwrap_or(i32::MAX),
            },
        })
    };
    version.columns.iter().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first_and_higher_numbers_before_lower() {
        let mut versions =
            ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2", "v2", "v1beta1"].to_vec();
        versions.sort_by_key(|version| version_rank(version));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1beta1", "v1alpha1", "foo"]
        );
    }

    #[test]
    fn every_built_in_kind_has_a_shape() {
        for kind in kinds::all() {
            assert!(built_in(kind).is_some(), "{}/{} {}", kind.group, kind.version, kind.kind);
        }
    }

    #[test]
    fn both_event_groups_share_one_storage() {
        let registry = Registry::new(&BTreeMap::new());
        let core = registry.resource("", "v1", "events").unwrap();
        let events = registry.resource("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.id, events.id);
    }
}
