//! What a cluster has to allow the controllers, the nodes, the Block Storage API and tenants: the same
//! rights they have beside the embedded server, as manifests. `deploy/rbac.yaml` is what this makes.

use std::fmt::Write as _;

use reconcile::Grant;

use crate::{block, controllers, node};

/// Where volumes and whoever serves them live.
const NAMESPACE: &str = volumes::NAMESPACE;
const HEAD: &str = "\
# What Holdfast needs in a cluster: the output of `holdfast controllers --roles`.
# Rights on volumes hold in their namespace only, those of tenants' backups in the administrators'; what
# controllers of tenants read elsewhere is the Secret that a storage location names. The executor of
# Velero's resources reads and writes whole namespaces: its role is bound to nobody here; bind it where
# `--velero true` is wanted.
# Whoever has view, edit or admin in a namespace may ask for backups and restores of it, as the roles at
# the end join those three.
";
/// Resources that belong to no namespace: group and name.
const CLUSTER_WIDE: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "storageclasses"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
];

/// What tenants ask for, and what they may do with it: joined to the roles of a namespace.
const TENANT: &[&str] = &[
    "nonadminbackups",
    "nonadminrestores",
    "nonadminbackupstoragelocations",
    "nonadmindownloadrequests",
    "nonadminschedules",
];
const TENANT_ROLES: [(&str, &[&str]); 2] =
    [("edit", &["create", "delete", "patch", "update"]), ("view", &["get", "list", "watch"])];

/// All manifests, as one document after another.
pub(crate) fn manifest(admin_namespace: &str) -> String {
    let mut text = HEAD.to_owned();
    let account = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n"
        )
    };
    // Engines use devices and directories of their machine; a cluster that allows that nowhere else is told.
    let _ = writeln!(
        text,
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n  \
         labels: {{pod-security.kubernetes.io/enforce: privileged}}"
    );
    let _ = writeln!(
        text,
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {admin_namespace}}}"
    );
    text.push_str(&account("holdfast-controllers"));
    text.push_str(&account("holdfast-node"));
    text.push_str(&account("holdfast-block-api"));
    let of_volumes: Vec<&str> = volumes::controllers().iter().map(|it| it.name).collect();
    for controller in controllers::all() {
        let name = format!("holdfast:controller:{}", controller.name);
        let is_executor = controller.name == velero::CONTROLLER.name;
        let holder = (!is_executor).then_some("holdfast-controllers");
        let near = of_volumes.contains(&controller.name).then_some(NAMESPACE);
        roles(&mut text, &name, controller.grants, near, holder);
        if controller.name == tenants::CONTROLLER.name {
            roles(&mut text, &name, tenants::ADMIN_GRANTS, Some(admin_namespace), holder);
        }
    }
    let near = Some(NAMESPACE);
    roles(&mut text, "holdfast:node", node::IDENTITY.grants, near, Some("holdfast-node"));
    let of_blocks = block::IDENTITY.grants;
    roles(&mut text, "holdfast:block-api", of_blocks, near, Some("holdfast-block-api"));
    election(&mut text);
    of_tenants(&mut text);
    text
}

fn of_tenants(text: &mut String) {
    for (role, verbs) in TENANT_ROLES {
        let _ = writeln!(
            text,
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
             metadata:\n  name: \"holdfast:non-admin-{role}\"\n  \
             labels: {{rbac.authorization.k8s.io/aggregate-to-{role}: \"true\"}}\nrules:"
        );
        let statuses: Vec<String> = TENANT.iter().map(|it| format!("{it}/status")).collect();
        let mut resources = TENANT.to_vec();
        if role == "view" {
            resources.extend(statuses.iter().map(String::as_str));
        }
        rule(text, "oadp.openshift.io", &resources, verbs);
    }
}

/// A role for the whole cluster, and, for what can be had in one namespace, one for that.
fn roles(
    text: &mut String,
    name: &str,
    grants: &[Grant],
    near: Option<&str>,
    holder: Option<&str>,
) {
    let wide = |group: &str, resource: &str| CLUSTER_WIDE.contains(&(group, resource));
    let mut rules = (String::new(), String::new());
    for grant in grants {
        for group in grant.groups {
            let (far, close): (Vec<&str>, Vec<&str>) =
                grant.resources.iter().partition(|resource| {
                    near.is_none() || wide(group, resource.split('/').next().unwrap_or(""))
                });
            for (resources, rules) in [(far, &mut rules.0), (close, &mut rules.1)] {
                if resources == ["customresourcedefinitions"] {
                    own_definitions(rules, group, grant.verbs);
                } else if !resources.is_empty() {
                    rule(rules, group, &resources, grant.verbs);
                }
            }
        }
    }
    for (kind, rules) in [("ClusterRole", &rules.0), ("Role", &rules.1)] {
        if rules.is_empty() {
            continue;
        }
        let place = match near {
            Some(namespace) if kind == "Role" => format!(", namespace: {namespace}"),
            _ => String::new(),
        };
        let head = |kind: &str| {
            format!(
                "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: \"{name}\"{place}}}\n"
            )
        };
        let _ = write!(text, "{}rules:\n{rules}", head(kind));
        if let Some(holder) = holder {
            let _ = writeln!(
                text,
                "{}roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: \"{name}\"}}\n\
                 subjects:\n- {{kind: ServiceAccount, name: {holder}, namespace: {NAMESPACE}}}",
                head(&format!("{kind}Binding")),
            );
        }
    }
}

fn rule(text: &mut String, group: &str, resources: &[&str], verbs: &[&str]) {
    let (resources, verbs) = (list(resources), list(verbs));
    let _ = writeln!(
        text,
        "- {{apiGroups: [\"{group}\"], resources: [{resources}], verbs: [{verbs}]}}"
    );
}

/// Rights on objects of these names only; `create` is for any, since a name is not known before.
fn rule_of(text: &mut String, group: &str, resource: &str, names: &[&str], verbs: &[&str]) {
    let (create, others): (Vec<&str>, Vec<&str>) = verbs.iter().partition(|it| **it == "create");
    if !create.is_empty() {
        rule(text, group, &[resource], &create);
    }
    let (names, verbs) = (list(names), list(&others));
    let _ = writeln!(
        text,
        "- {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], resourceNames: [{names}], verbs: [{verbs}]}}"
    );
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// Who may change the definition of any kind could have all its objects sent to himself.
fn own_definitions(text: &mut String, group: &str, verbs: &[&str]) {
    let all = api::crds();
    let names = all.iter().filter_map(|it| it.pointer("/metadata/name")?.as_str());
    rule_of(text, group, "customresourcedefinitions", &names.collect::<Vec<_>>(), verbs);
}

/// One process at a time leads.
fn election(text: &mut String) {
    let head = |kind: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n\
             metadata: {{name: \"holdfast:election\", namespace: kube-system}}\n"
        )
    };
    let _ = writeln!(text, "{}rules:", head("Role"));
    // Other leases there keep the cluster's own parts at work.
    let verbs = ["get", "create", "update", "patch"];
    rule_of(text, "coordination.k8s.io", "leases", &[controllers::LEASE_NAME], &verbs);
    let _ = writeln!(
        text,
        "{}roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: \"holdfast:election\"}}\n\
         subjects:\n- {{kind: ServiceAccount, name: holdfast-controllers, namespace: {NAMESPACE}}}",
        head("RoleBinding"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_of_the_repository_are_what_this_build_needs() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
        let stored = std::fs::read_to_string(path).unwrap();
        let now = manifest(tenants::names::ADMIN_NAMESPACE);
        let (stored, now): (Vec<&str>, Vec<&str>) =
            (stored.split("---\n").collect(), now.split("---\n").collect());
        for document in now {
            assert!(
                stored.contains(&document),
                "deploy/rbac.yaml lacks this: write it anew with `holdfast controllers --roles`\n{document}"
            );
        }
    }

    /// Both servers give tenants the same.
    #[test]
    fn tenants_may_do_in_a_cluster_what_they_may_beside_the_embedded_server() {
        let documents = manifest(tenants::names::ADMIN_NAMESPACE);
        let documents: Vec<&str> = documents.split("---\n").collect();
        let kinds = apiserver::auth::bootstrap::objects();
        for (role, _) in TENANT_ROLES {
            let name = format!("holdfast:non-admin-{role}");
            let text = documents.iter().find(|it| it.contains(&format!("{name}\"\n")));
            let ours: serde_json::Value = serde_saphyr::from_str(text.unwrap()).unwrap();
            let theirs = kinds.iter().map(|(_, it)| it).find(|it| it["metadata"]["name"] == *name);
            let theirs = theirs.unwrap();
            assert_eq!(ours["rules"], theirs["rules"], "{name}");
            for (label, value) in ours["metadata"]["labels"].as_object().unwrap() {
                assert_eq!(theirs["metadata"]["labels"][label], *value, "{name}");
            }
        }
    }

    #[test]
    fn what_others_depend_on_can_be_changed_by_name_only() {
        let text = manifest("admins");
        let rules = text.lines().filter(|it| {
            it.contains("\"customresourcedefinitions\"")
                || (it.contains("\"leases\"") && it.contains("\"update\""))
        });
        let open: Vec<&str> = rules
            .filter(|it| !it.contains("resourceNames") && !it.ends_with("verbs: [\"create\"]}"))
            .collect();
        assert!(
            open.iter().all(|it| it.contains("\"leases\"") && !it.contains("kube-system")),
            "{open:?}"
        );
        let election = text.split("---\n").find(|it| it.contains("holdfast:election")).unwrap();
        assert!(election.contains("resourceNames: [\"holdfast-controllers\"]"), "{election}");
    }

    #[test]
    fn rights_on_secrets_end_at_the_namespace_of_whoever_needs_them() {
        let text = manifest("admins");
        let wide = |name: &str| {
            let name = format!("{name}\"");
            text.split("---\n").find(|it| it.contains("kind: ClusterRole\n") && it.contains(&name))
        };
        let of_tenants = wide("controller:tenants").unwrap();
        assert!(
            !of_tenants.contains("configmaps") && !of_tenants.contains("velero.io"),
            "{of_tenants}"
        );
        assert!(of_tenants.contains("[\"secrets\"], verbs: [\"get\"]"), "{of_tenants}");
        assert!(text.contains("controller:tenants\", namespace: admins}"), "{text}");
        for document in [wide("controller:volumes"), wide("holdfast:node")].into_iter().flatten() {
            assert!(
                !document.contains("secrets") && !document.contains("longhorn.io"),
                "{document}"
            );
        }
    }
}
