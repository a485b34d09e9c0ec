//! In which order kinds are brought back: what others need comes first. Pure.

/// Before all others, in this order.
const FIRST: [&str; 23] = [
    "customresourcedefinitions.apiextensions.k8s.io",
    "namespaces",
    "storageclasses.storage.k8s.io",
    "volumesnapshotclass.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
    "volumesnapshots.snapshot.storage.k8s.io",
    "datauploads.velero.io",
    "persistentvolumes",
    "persistentvolumeclaims",
    "clusterroles.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "serviceaccounts",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "secrets",
    "configmaps",
    "limitranges",
    "priorityclasses.scheduling.k8s.io",
    "pods",
    "replicasets.apps",
    "clusterclasses.cluster.x-k8s.io",
    "endpoints",
    "services",
];

/// After all others, in this order.
const LAST: [&str; 5] = [
    "clusterbootstraps.run.tanzu.vmware.com",
    "clusters.cluster.x-k8s.io",
    "clusterresourcesets.addons.cluster.x-k8s.io",
    "apps.kappctrl.k14s.io",
    "packageinstalls.packaging.carvel.dev",
];

/// Sorts by this; those between the first and the last by their name.
pub(crate) fn rank(resource: &str) -> (usize, String) {
    let at = |list: &[&str]| list.iter().position(|it| *it == resource);
    if let Some(first) = at(&FIRST) {
        return (first, String::new());
    }
    match at(&LAST) {
        Some(last) => (FIRST.len() + 1 + last, String::new()),
        None => (FIRST.len(), resource.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        let mut kinds = vec![
            "zebras.example.com",
            "apps.kappctrl.k14s.io",
            "services",
            "deployments.apps",
            "pods",
            "secrets",
            "namespaces",
            "customresourcedefinitions.apiextensions.k8s.io",
        ];
        kinds.sort_by_key(|kind| rank(kind));
        assert_eq!(
            kinds,
            [
                "customresourcedefinitions.apiextensions.k8s.io",
                "namespaces",
                "secrets",
                "pods",
                "services",
                "deployments.apps",
                "zebras.example.com",
                "apps.kappctrl.k14s.io",
            ]
        );
    }
}
