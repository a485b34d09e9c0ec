//! Which objects a backup takes. Pure.

use api::selector::LabelSelector as Written;
use api::velero::{BackupSpec, RestoreSpec};
use objects::selector::LabelSelector;
use serde_json::Value;

use crate::catalog::{Catalog, Kind};
use crate::lists::Lists;
use crate::names;

/// Of which objects without a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cluster {
    /// All of this kind.
    All,
    /// Those that others need.
    Related,
    None,
}

#[derive(Debug, Clone, PartialEq)]
enum Scope {
    /// One pair of lists for both scopes.
    Old { resources: Lists, cluster: Option<bool> },
    /// A pair for each.
    New { cluster: Lists, namespaced: Lists },
}

/// The choice of one backup.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selection {
    pub(crate) namespaces: Lists,
    scope: Scope,
    /// An object matches one of them; none match everything.
    selectors: Vec<LabelSelector>,
}

const NAMESPACES: &str = "namespaces";

impl Selection {
    pub(crate) fn of(spec: &BackupSpec, catalog: &Catalog) -> Result<Self, String> {
        let resolve = |name: &str| catalog.resolve(name);
        let lists = |a: &Option<Vec<String>>, b: &Option<Vec<String>>| {
            Lists::new(a.as_ref(), b.as_ref()).resolved(resolve)
        };
        let scope = if uses_old_filters(spec) || !uses_new_filters(spec) {
            Scope::Old {
                resources: lists(&spec.included_resources, &spec.excluded_resources),
                cluster: spec.include_cluster_resources,
            }
        } else {
            Scope::New {
                cluster: lists(
                    &spec.included_cluster_scoped_resources,
                    &spec.excluded_cluster_scoped_resources,
                ),
                namespaced: lists(
                    &spec.included_namespace_scoped_resources,
                    &spec.excluded_namespace_scoped_resources,
                ),
            }
        };
        let namespaces =
            Lists::new(spec.included_namespaces.as_ref(), spec.excluded_namespaces.as_ref());
        let selectors = selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref())?;
        Ok(Self { namespaces, scope, selectors })
    }

    /// Kinds that are asked for and that nobody knows: somebody may think that they are in the backup.
    pub(crate) fn strangers<'s>(spec: &'s BackupSpec, catalog: &Catalog) -> Vec<&'s str> {
        let lists = [
            &spec.included_resources,
            &spec.included_cluster_scoped_resources,
            &spec.included_namespace_scoped_resources,
        ];
        let names = lists.into_iter().flatten().flatten().map(String::as_str);
        names.filter(|name| catalog.is_strange(name)).collect()
    }

    pub(crate) fn has_selectors(&self) -> bool {
        !self.selectors.is_empty()
    }

    /// Whether objects of this kind, which live in namespaces, are taken.
    pub(crate) fn takes_namespaced(&self, kind: &Kind) -> bool {
        let name = kind.resource();
        match &self.scope {
            Scope::Old { resources, .. } => resources.holds(&name),
            Scope::New { namespaced, .. } => namespaced.holds(&name),
        }
    }

    /// Which objects of this kind, which live in no namespace, are taken.
    pub(crate) fn takes_cluster(&self, kind: &Kind) -> Cluster {
        let name = kind.resource();
        match &self.scope {
            Scope::Old { resources, .. } if resources.excludes(&name) => Cluster::None,
            Scope::Old { cluster: Some(false), .. } => Cluster::None,
            Scope::Old { resources, cluster: Some(true) } if resources.holds(&name) => Cluster::All,
            Scope::Old { resources, cluster: None }
                if self.namespaces.includes_everything() && resources.holds(&name) =>
            {
                Cluster::All
            }
            Scope::Old { .. } => Cluster::Related,
            Scope::New { cluster, .. } if cluster.excludes(&name) => Cluster::None,
            Scope::New { cluster, .. } if !cluster.includes.is_empty() => {
                if cluster.holds(&name) {
                    Cluster::All
                } else {
                    Cluster::Related
                }
            }
            Scope::New { namespaced, .. }
                if self.namespaces.includes_everything()
                    && namespaced.includes_everything()
                    && self.selectors.is_empty() =>
            {
                Cluster::All
            }
            Scope::New { .. } => Cluster::Related,
        }
    }

    /// Whether Namespace objects are taken at all; which of them the name filter says.
    pub(crate) fn takes_namespace_objects(&self) -> bool {
        match &self.scope {
            Scope::Old { resources, .. } => !resources.excludes(NAMESPACES),
            Scope::New { cluster, .. } => !cluster.excludes(NAMESPACES),
        }
    }

    /// Whether an object is left out whatever the lists say.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        !is_left_out(object) && matches_any(&self.selectors, object)
    }
}

/// Objects on their way out, and those that ask for it.
pub(crate) fn is_left_out(object: &Value) -> bool {
    label(object, names::EXCLUDE_FROM_BACKUP) == Some("true")
        || object.pointer("/metadata/deletionTimestamp").is_some_and(|it| !it.is_null())
}

pub(crate) fn label<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

pub(crate) fn matches_any(selectors: &[LabelSelector], object: &Value) -> bool {
    selectors.is_empty() || selectors.iter().any(|one| one.matches(|key| label(object, key)))
}

/// The selectors of a spec, of which an object needs to match one.
pub(crate) fn selectors(
    one: Option<&Written>,
    many: Option<&Vec<Written>>,
) -> Result<Vec<LabelSelector>, String> {
    one.into_iter()
        .chain(many.into_iter().flatten())
        .map(|written| {
            let value = serde_json::to_value(written).map_err(|error| error.to_string())?;
            LabelSelector::from_value(&value).map_err(|error| error.to_string())
        })
        .collect()
}

fn is_set(list: Option<&Vec<String>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

pub(crate) fn uses_old_filters(spec: &BackupSpec) -> bool {
    spec.include_cluster_resources.is_some()
        || is_set(spec.included_resources.as_ref())
        || is_set(spec.excluded_resources.as_ref())
}

pub(crate) fn uses_new_filters(spec: &BackupSpec) -> bool {
    [
        &spec.included_cluster_scoped_resources,
        &spec.excluded_cluster_scoped_resources,
        &spec.included_namespace_scoped_resources,
        &spec.excluded_namespace_scoped_resources,
    ]
    .into_iter()
    .any(|list| is_set(list.as_ref()))
}

/// Never brought back, whatever a restore asks for.
///
/// Requests are no data: one that comes back would be carried out once more, with the rights of
/// whoever brings it back.
pub(crate) const NON_RESTORABLE: [&str; 12] = [
    "nodes",
    "events",
    "events.events.k8s.io",
    "backups.velero.io",
    "restores.velero.io",
    "resticrepositories.velero.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "backuprepositories.velero.io",
    "nonadminbackups.oadp.openshift.io",
    "nonadminrestores.oadp.openshift.io",
    "nonadmindownloadrequests.oadp.openshift.io",
];

/// Which of what a backup holds a restore brings back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RestoreSelection {
    namespaces: Lists,
    resources: Lists,
    cluster: Option<bool>,
    selectors: Vec<LabelSelector>,
}

impl RestoreSelection {
    pub(crate) fn of(spec: &RestoreSpec, catalog: &Catalog) -> Result<Self, String> {
        let namespaces =
            Lists::new(spec.included_namespaces.as_ref(), spec.excluded_namespaces.as_ref());
        let resources =
            Lists::new(spec.included_resources.as_ref(), spec.excluded_resources.as_ref());
        Ok(Self {
            namespaces,
            resources: resources.resolved(|name| catalog.resolve(name)),
            cluster: spec.include_cluster_resources,
            selectors: selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref())?,
        })
    }

    pub(crate) fn takes_namespace(&self, original: &str) -> bool {
        self.namespaces.holds(original)
    }

    pub(crate) fn takes_resource(&self, resource: &str) -> bool {
        !NON_RESTORABLE.contains(&resource) && self.resources.holds(resource)
    }

    pub(crate) fn excludes_resource(&self, resource: &str) -> bool {
        NON_RESTORABLE.contains(&resource) || self.resources.excludes(resource)
    }

    pub(crate) fn takes_cluster_objects(&self) -> Cluster {
        match self.cluster {
            Some(true) => Cluster::All,
            Some(false) => Cluster::None,
            None if self.namespaces.includes_everything() => Cluster::All,
            None => Cluster::Related,
        }
    }

    pub(crate) fn has_selectors(&self) -> bool {
        !self.selectors.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        matches_any(&self.selectors, object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::tests::{kind, sample};

    fn spec(value: Value) -> BackupSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_kind_that_is_asked_for_and_that_nobody_knows_is_named() {
        let asked = spec(json!({"includedResources": ["pods", "Pods", "po*", "*", "deploymints"]}));
        assert_eq!(Selection::strangers(&asked, &sample()), ["deploymints"]);
        let scoped = spec(json!({"includedNamespaceScopedResources": ["cofigmaps"]}));
        assert_eq!(Selection::strangers(&scoped, &sample()), ["cofigmaps"]);
        // Of what is left out many things are not everywhere.
        let left_out = spec(json!({"excludedResources": ["securitycontextconstraints"]}));
        assert!(Selection::strangers(&left_out, &sample()).is_empty());
    }

    fn select(value: Value) -> Selection {
        Selection::of(&spec(value), &sample()).unwrap()
    }

    #[test]
    fn objects_without_a_namespace_come_with_everything_or_when_needed() {
        let volume = kind("", "persistentvolumes", "PersistentVolume", false);
        for (value, wanted) in [
            (json!({}), Cluster::All),
            (json!({"includedNamespaces": ["*"]}), Cluster::All),
            (json!({"includedNamespaces": ["a"]}), Cluster::Related),
            (json!({"excludedNamespaces": ["a"]}), Cluster::Related),
            (json!({"includeClusterResources": false}), Cluster::None),
            (json!({"includedNamespaces": ["a"], "includeClusterResources": true}), Cluster::All),
            (json!({"includedResources": ["pods"]}), Cluster::Related),
            (json!({"excludedResources": ["pv", "persistentvolumes"]}), Cluster::None),
            (json!({"includedClusterScopedResources": ["persistentvolumes"]}), Cluster::All),
            (json!({"includedClusterScopedResources": ["namespaces"]}), Cluster::Related),
            (json!({"excludedClusterScopedResources": ["*"]}), Cluster::None),
            (json!({"includedNamespaceScopedResources": ["pods"]}), Cluster::Related),
        ] {
            assert_eq!(select(value.clone()).takes_cluster(&volume), wanted, "{value}");
        }
    }

    #[test]
    fn lists_choose_kinds_inside_namespaces() {
        let maps = kind("", "configmaps", "ConfigMap", true);
        for (value, wanted) in [
            (json!({}), true),
            (json!({"includedResources": ["cm"]}), true),
            (json!({"includedResources": ["pods"]}), false),
            (json!({"excludedResources": ["configmap"]}), false),
            (json!({"excludedNamespaceScopedResources": ["*"]}), false),
            (json!({"excludedNamespaceScopedResources": ["secrets"]}), true),
            (json!({"includedResources": ["config*"]}), true),
        ] {
            assert_eq!(select(value.clone()).takes_namespaced(&maps), wanted, "{value}");
        }
    }

    #[test]
    fn labels_choose_objects_and_leaving_is_not_kept() {
        let object = |labels: Value| json!({"metadata": {"labels": labels}});
        let both = select(json!({"orLabelSelectors": [
            {"matchLabels": {"n": "1"}}, {"matchLabels": {"n": "2"}}]}));
        assert!(both.matches(&object(json!({"n": "2"}))));
        assert!(!both.matches(&object(json!({"n": "3"}))));
        let all = select(json!({}));
        assert!(all.matches(&object(json!({}))));
        assert!(!all.matches(&object(json!({"velero.io/exclude-from-backup": "true"}))));
        let going = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}});
        assert!(!all.matches(&going));
    }

    #[test]
    fn what_cannot_be_restored_is_not() {
        let spec: RestoreSpec = serde_json::from_value(json!({})).unwrap();
        let all = RestoreSelection::of(&spec, &sample()).unwrap();
        assert!(all.takes_resource("pods") && !all.takes_resource("events"));
        assert!(!all.takes_resource("nonadminrestores.oadp.openshift.io"));
        assert_eq!(all.takes_cluster_objects(), Cluster::All);
    }
}
