//! What kinds of objects the cluster has, and which of them a name that people write means.

use std::collections::BTreeMap;

use kube::Client;
use kube::core::discovery::verbs;

/// One kind of object, served at one version.
#[expect(clippy::struct_field_names, reason = "that is what the API calls it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    /// Whether this version is the one its group prefers, of those that have the kind.
    pub(crate) preferred: bool,
}

impl Kind {
    /// `resource.group`, or `resource` of the core.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of all its objects, or of those in one namespace.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let (version, plural) = (self.api_version(), &self.plural);
        match namespace {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{version}/{plural}"),
        }
    }

    fn is_called(&self, name: &str) -> bool {
        self.plural == name
            || self.singular == name
            || self.kind.to_lowercase() == name
            || self.short.iter().any(|short| short == name)
    }

    /// Only what can be listed and made again is worth keeping.
    pub(crate) fn can_be_backed_up(&self) -> bool {
        [verbs::LIST, verbs::CREATE, verbs::GET, verbs::DELETE]
            .iter()
            .all(|verb| self.verbs.iter().any(|it| it == verb))
    }
}

/// The same objects under two names; the first of each pair is taken.
const TWINS: [(&str, &str); 5] = [
    ("deployments.apps", "deployments.extensions"),
    ("daemonsets.apps", "daemonsets.extensions"),
    ("replicasets.apps", "replicasets.extensions"),
    ("networkpolicies.networking.k8s.io", "networkpolicies.extensions"),
    ("events", "events.events.k8s.io"),
];
/// Written first, in this order.
const FIRST: [&str; 3] = ["pods", "persistentvolumeclaims", "persistentvolumes"];

/// All kinds of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    kinds: Vec<Kind>,
}

impl Catalog {
    #[cfg(test)]
    pub(crate) fn of(kinds: Vec<Kind>) -> Self {
        Self { kinds }
    }

    /// Asks the cluster. A group that does not answer (a dead aggregated server) is left out and
    /// named in the second value.
    pub(crate) async fn ask(client: &Client) -> Result<(Self, Vec<String>), kube::Error> {
        let mut kinds = Vec::new();
        let mut silent = Vec::new();
        let core = client.list_core_api_versions().await?;
        for version in &core.versions {
            let list = client.list_core_api_resources(version).await?;
            kinds.extend(from_list("", version, &list));
        }
        prefer(&mut kinds, "v1");
        for group in client.list_api_groups().await?.groups {
            let preferred = group
                .preferred_version
                .as_ref()
                .or_else(|| group.versions.first())
                .map(|version| version.version.clone())
                .unwrap_or_default();
            let mut of_group = Vec::new();
            for version in &group.versions {
                match client.list_api_group_resources(&version.group_version).await {
                    Ok(list) => of_group.extend(from_list(&group.name, &version.version, &list)),
                    Err(error) => silent.push(format!("{}: {error}", version.group_version)),
                }
            }
            prefer(&mut of_group, &preferred);
            kinds.extend(of_group);
        }
        Ok((Self { kinds }, silent))
    }

    /// What can be backed up, in the order it is written.
    pub(crate) fn to_back_up(&self) -> Vec<&Kind> {
        let mut kinds: Vec<&Kind> =
            self.kinds.iter().filter(|it| it.preferred && it.can_be_backed_up()).collect();
        let names: Vec<String> = kinds.iter().map(|it| it.resource()).collect();
        let has = |name: &str| names.iter().any(|it| it == name);
        kinds.retain(|it| {
            let name = it.resource();
            !TWINS.iter().any(|(kept, twin)| *twin == name && has(kept))
        });
        let rank = |it: &&Kind| {
            let first = FIRST.iter().position(|first| it.group.is_empty() && it.plural == *first);
            (!it.group.is_empty(), it.group == "extensions", first.unwrap_or(FIRST.len()))
        };
        kinds.sort_by_key(rank);
        kinds
    }

    /// The kind of an object, if the cluster serves it in that version.
    pub(crate) fn served(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.kinds.iter().find(|it| it.kind == kind && it.api_version() == api_version)
    }

    /// The preferred version of a `resource.group`.
    pub(crate) fn resource(&self, resource: &str) -> Option<&Kind> {
        let mut found = self.kinds.iter().filter(|it| it.resource() == resource);
        let first = found.clone().next();
        found.find(|it| it.preferred).or(first)
    }

    /// A name that people write as `resource.group`; one that means nothing here stays as it is, and
    /// so do patterns.
    pub(crate) fn resolve(&self, name: &str) -> Vec<String> {
        if crate::lists::is_pattern(name) {
            return vec![name.to_owned()];
        }
        let lower = name.to_lowercase();
        let (short, group) = match lower.split_once('.') {
            Some((short, group)) => (short, Some(group)),
            None => (lower.as_str(), None),
        };
        let whole = |it: &&Kind| {
            group.is_none_or(|group| {
                it.group == group || format!("{}.{}", it.version, it.group) == group
            })
        };
        // As everywhere, the beginning of a group is enough: `roles.rbac`.
        let begun = |it: &&Kind| {
            group.is_some_and(|group| !group.is_empty() && it.group.starts_with(group))
        };
        // Without a group the first that has the name is meant, as everywhere.
        let called = || self.kinds.iter().filter(|it| it.is_called(short));
        let preferred = || called().filter(|it| it.preferred);
        let found = preferred().find(whole).or_else(|| called().find(whole));
        let found = found.or_else(|| preferred().find(begun)).or_else(|| called().find(begun));
        vec![found.map_or_else(|| name.to_owned(), Kind::resource)]
    }

    /// Whether a name that people write means nothing here.
    pub(crate) fn is_strange(&self, name: &str) -> bool {
        !crate::lists::is_pattern(name)
            && !self.resolve(name).iter().any(|it| self.resource(it).is_some())
    }
}

/// Marks one version of each kind of a group: the preferred one where that has the kind, else the first
/// that has it. Kinds of one group differ in age, and each has to be somebody's.
fn prefer(kinds: &mut [Kind], version: &str) {
    let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, kind) in kinds.iter().enumerate() {
        let choice = chosen.entry(kind.plural.clone()).or_insert(at);
        if kind.version == version {
            *choice = at;
        }
    }
    for at in chosen.into_values() {
        if let Some(kind) = kinds.get_mut(at) {
            kind.preferred = true;
        }
    }
}

fn from_list(
    group: &str,
    version: &str,
    list: &k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList,
) -> Vec<Kind> {
    // Those with a slash are parts of others.
    let whole = list.resources.iter().filter(|it| !it.name.contains('/'));
    whole
        .map(|it| Kind {
            group: it.group.clone().filter(|it| !it.is_empty()).unwrap_or_else(|| group.to_owned()),
            version: it
                .version
                .clone()
                .filter(|it| !it.is_empty())
                .unwrap_or_else(|| version.to_owned()),
            plural: it.name.clone(),
            singular: it.singular_name.clone(),
            kind: it.kind.clone(),
            short: it.short_names.clone().unwrap_or_default(),
            namespaced: it.namespaced,
            verbs: it.verbs.clone(),
            preferred: false,
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn kind(group: &str, plural: &str, kind: &str, namespaced: bool) -> Kind {
        Kind {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            short: if plural == "configmaps" { vec!["cm".to_owned()] } else { Vec::new() },
            namespaced,
            verbs: ["list", "create", "get", "delete"].map(str::to_owned).to_vec(),
            preferred: true,
        }
    }

    pub(crate) fn sample() -> Catalog {
        Catalog::of(vec![
            kind("", "configmaps", "ConfigMap", true),
            kind("", "namespaces", "Namespace", false),
            kind("", "persistentvolumes", "PersistentVolume", false),
            kind("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
            kind("", "pods", "Pod", true),
            kind("", "events", "Event", true),
            kind("apps", "deployments", "Deployment", true),
            kind("events.k8s.io", "events", "Event", true),
            Kind {
                verbs: vec!["create".to_owned()],
                ..kind("authorization.k8s.io", "reviews", "Review", false)
            },
        ])
    }

    #[test]
    fn names_that_people_write_are_understood() {
        let catalog = sample();
        for (name, wanted) in [
            ("cm", "configmaps"),
            ("ConfigMap", "configmaps"),
            ("deployments", "deployments.apps"),
            ("deployments.apps", "deployments.apps"),
            ("deployment.v1.apps", "deployments.apps"),
            ("events.events", "events.events.k8s.io"),
            ("Events.EVENTS.k8s", "events.events.k8s.io"),
            ("events.vents", "events.vents"),
            ("typo", "typo"),
            ("*.apps", "*.apps"),
        ] {
            assert_eq!(catalog.resolve(name), [wanted], "{name}");
        }
    }

    #[test]
    fn a_kind_that_only_an_older_version_has_is_kept_in_that() {
        let at = |version: &str, plural: &str| Kind {
            version: version.to_owned(),
            preferred: false,
            ..kind("g.io", plural, "K", true)
        };
        let mut kinds = vec![at("v1beta1", "a"), at("v1beta1", "b"), at("v1", "a"), at("v2", "b")];
        prefer(&mut kinds, "v1");
        let catalog = Catalog::of(kinds);
        let found: Vec<(&str, &str)> = catalog
            .to_back_up()
            .iter()
            .map(|it| (it.plural.as_str(), it.version.as_str()))
            .collect();
        assert_eq!(found, [("b", "v1beta1"), ("a", "v1")]);
    }

    #[test]
    fn pods_and_their_volumes_come_first_and_twins_once() {
        let catalog = sample();
        let names: Vec<String> = catalog.to_back_up().iter().map(|it| it.resource()).collect();
        assert_eq!(names[..3], ["pods", "persistentvolumeclaims", "persistentvolumes"]);
        assert!(!names.contains(&"events.events.k8s.io".to_owned()));
        assert!(!names.contains(&"reviews.authorization.k8s.io".to_owned()));
        assert_eq!(names.last().unwrap(), "deployments.apps");
    }
}
