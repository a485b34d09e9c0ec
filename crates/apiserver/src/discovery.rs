//! Discovery documents: which groups, versions, resources and verbs there are, in the plain and in
//! the aggregated form.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::registry::{Group, GroupVersion, Registry, Resource};
use crate::set_member;

/// The media type an aggregated answer must carry, parameter for parameter: clients compare it.
pub(crate) const AGGREGATED_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`
pub(crate) fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        registry.groups().iter().filter(|group| !group.name.is_empty()).map(group_entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/G`
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut entry = group_entry(registry.group(name).filter(|group| !group.name.is_empty())?);
    set_member(&mut entry, "kind", "APIGroup".into());
    set_member(&mut entry, "apiVersion", "v1".into());
    Some(entry)
}

fn group_entry(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|one| {
            let group_version = format!("{}/{}", group.name, one.version);
            json!({"groupVersion": group_version, "version": one.version})
        })
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group.name, "versions": versions, "preferredVersion": preferred})
}

/// `/api/v1`, `/apis/G/V`
pub(crate) fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let one = registry.group_version(group, version)?;
    let mut entries = Vec::new();
    for resource in &one.resources {
        entries.push(resource_entry(resource));
        entries.extend(subresources(resource).into_iter().map(|sub| sub.plain(resource)));
    }
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": crate::registry::api_version(group, version),
        "resources": entries,
    }))
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        set_member(&mut entry, "shortNames", resource.short_names.clone().into());
    }
    if !resource.categories.is_empty() {
        set_member(&mut entry, "categories", resource.categories.clone().into());
    }
    entry
}

/// A subresource as discovery shows it.
struct Listed {
    name: &'static str,
    /// Group, version and kind where they are not the parent's.
    kind: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
}

impl Listed {
    fn plain(&self, parent: &Resource) -> Value {
        let mut entry = json!({
            "name": format!("{}/{}", parent.plural, self.name),
            "singularName": "",
            "namespaced": parent.namespaced,
            "kind": self.kind.map_or(parent.kind.as_str(), |kind| kind.2),
            "verbs": self.verbs,
        });
        if let Some((group, version, _)) = self.kind {
            set_member(&mut entry, "group", group.into());
            set_member(&mut entry, "version", version.into());
        }
        entry
    }

    fn aggregated(&self, parent: &Resource) -> Value {
        let (group, version, kind) = self.kind.unwrap_or((
            parent.group.as_str(),
            parent.version.as_str(),
            parent.kind.as_str(),
        ));
        json!({
            "subresource": self.name,
            "responseKind": {"group": group, "version": version, "kind": kind},
            "verbs": self.verbs,
        })
    }
}

fn subresources(resource: &Resource) -> Vec<Listed> {
    const CHANGE: &[&str] = &["get", "patch", "update"];
    let all = [
        Listed { name: "approval", kind: None, verbs: CHANGE },
        Listed { name: "finalize", kind: None, verbs: &["update"] },
        Listed { name: "scale", kind: Some(("autoscaling", "v1", "Scale")), verbs: CHANGE },
        Listed { name: "status", kind: None, verbs: CHANGE },
        Listed {
            name: "token",
            kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            verbs: &["create"],
        },
    ];
    all.into_iter().filter(|one| resource.subresource(one.name).is_some()).collect()
}

/// `/api` in the aggregated form.
pub(crate) fn aggregated_core(registry: &Registry) -> Bytes {
    let make = || aggregated(registry, |group| group.name.is_empty());
    registry.aggregated_core.get_or_init(make).clone()
}

/// `/apis` in the aggregated form.
pub(crate) fn aggregated_groups(registry: &Registry) -> Bytes {
    let make = || aggregated(registry, |group| !group.name.is_empty());
    registry.aggregated_groups.get_or_init(make).clone()
}

fn aggregated(registry: &Registry, wanted: impl Fn(&Group) -> bool) -> Bytes {
    let items: Vec<Value> = registry
        .groups()
        .iter()
        .filter(|group| wanted(group))
        .map(|group| {
            let versions: Vec<Value> = group.versions.iter().map(aggregated_version).collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !group.name.is_empty() {
                set_member(&mut metadata, "name", group.name.clone().into());
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    Bytes::from(document.to_string())
}

fn aggregated_version(one: &GroupVersion) -> Value {
    let resources: Vec<Value> = one
        .resources
        .iter()
        .map(|resource| {
            let mut entry = json!({
                "resource": resource.plural,
                "responseKind": {
                    "group": resource.group,
                    "version": resource.version,
                    "kind": resource.kind,
                },
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": resource.singular,
                "verbs": resource.verbs,
            });
            if !resource.short_names.is_empty() {
                set_member(&mut entry, "shortNames", resource.short_names.clone().into());
            }
            if !resource.categories.is_empty() {
                set_member(&mut entry, "categories", resource.categories.clone().into());
            }
            let subs: Vec<Value> =
                subresources(resource).iter().map(|sub| sub.aggregated(resource)).collect();
            if !subs.is_empty() {
                set_member(&mut entry, "subresources", subs.into());
            }
            entry
        })
        .collect();
    json!({"version": one.version, "freshness": "Current", "resources": resources})
}
