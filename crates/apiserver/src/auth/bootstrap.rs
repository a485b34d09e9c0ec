//! The roles and bindings a fresh server starts with.
//!
//! Tenants get `admin`, `edit` or `view` by a `RoleBinding` in their namespace. These three are
//! aggregated, so a new API group joins them with a labelled `ClusterRole`. They must never reach the
//! groups through which Holdfast itself works (`velero.io`, `longhorn.io`): those objects stand for
//! all tenants at once.

mod table;

use serde_json::{Map, Value, json};

use super::rbac::{GROUP, Kind};
use super::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const TENANT_WRITE: &[&str] = &["create", "delete", "patch", "update"];

const HEALTH: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
const DISCOVERY: &[&str] = &["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];

const NON_ADMIN: &[&str] = &[
    "nonadminbackups",
    "nonadminrestores",
    "nonadminbackupstoragelocations",
    "nonadmindownloadrequests",
    "nonadminschedules",
];

/// All default objects with their kinds: our own before those of the table, which yield to them.
pub fn objects() -> Vec<(Kind, Value)> {
    let roles = cluster_roles().into_iter().map(|role| (Kind::ClusterRole, role));
    let bindings = bindings().into_iter().map(|binding| (Kind::ClusterRoleBinding, binding));
    let own: Vec<(Kind, Value)> = roles.chain(bindings).collect();
    let place = |(kind, object): &(Kind, Value)| {
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        (*kind, metadata.get("namespace").cloned(), metadata.get("name").cloned())
    };
    let taken: Vec<_> = own.iter().map(place).collect();
    let expected = table::objects().into_iter().filter(|one| !taken.contains(&place(one)));
    own.iter().cloned().chain(expected).collect()
}

fn cluster_roles() -> Vec<Value> {
    let paths = |urls: &[&str]| json!({"nonResourceURLs": urls, "verbs": ["get"]});
    let health_and_discovery: Vec<_> = HEALTH.iter().chain(DISCOVERY).copied().collect();
    let own_questions = [
        rule(
            "authorization.k8s.io",
            &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            &["create"],
        ),
        rule("authentication.k8s.io", &["selfsubjectreviews"], &["create"]),
    ];
    let all = [
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
    ];
    vec![
        role("cluster-admin", &[], &all),
        role("system:discovery", &[], &[paths(&health_and_discovery)]),
        role("system:public-info-viewer", &[], &[paths(HEALTH)]),
        role("system:basic-user", &[], &own_questions),
        aggregated("admin", "admin", &[]),
        aggregated("edit", "edit", &["admin"]),
        aggregated("view", "view", &["edit"]),
        role("system:aggregate-to-admin", &["admin"], &table::rules("system:aggregate-to-admin")),
        role("system:aggregate-to-edit", &["edit"], &edit_rules()),
        role("system:aggregate-to-view", &["view"], &view_rules()),
        role(
            "holdfast:non-admin-edit",
            &["edit"],
            &[rule("oadp.openshift.io", NON_ADMIN, TENANT_WRITE)],
        ),
        role("holdfast:non-admin-view", &["view"], &[non_admin_view()]),
    ]
}

/// What the table gives to a role, and what only this server has: events of the newer group beside
/// those of the older, leases for whoever looks.
fn with_table(role: &str, more: Vec<Value>) -> Vec<Value> {
    table::rules(role).into_iter().chain(more).collect()
}

fn edit_rules() -> Vec<Value> {
    with_table("system:aggregate-to-edit", vec![rule("events.k8s.io", &["events"], WRITE)])
}

/// No secrets: a token of a service account in one would be more than reading.
fn view_rules() -> Vec<Value> {
    let more = vec![
        rule("events.k8s.io", &["events"], READ),
        rule("coordination.k8s.io", &["leases"], READ),
    ];
    with_table("system:aggregate-to-view", more)
}

fn non_admin_view() -> Value {
    let mut resources: Vec<String> = NON_ADMIN.iter().map(|&one| one.to_owned()).collect();
    resources.extend(NON_ADMIN.iter().map(|one| format!("{one}/status")));
    json!({"apiGroups": ["oadp.openshift.io"], "resources": resources, "verbs": READ})
}

fn bindings() -> Vec<Value> {
    vec![
        binding("cluster-admin", &[MASTERS]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(name: &str, aggregate_to: &[&str], rules: &[Value]) -> Value {
    object("ClusterRole", name, aggregate_to, json!({"rules": rules}))
}

fn aggregated(name: &str, target: &str, aggregate_to: &[&str]) -> Value {
    let labels: Map<_, _> = [(aggregation_label(target), json!("true"))].into_iter().collect();
    let rest = json!({
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]},
        "rules": [],
    });
    object("ClusterRole", name, aggregate_to, rest)
}

fn binding(role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<_> = groups
        .iter()
        .map(|name| json!({"apiGroup": GROUP, "kind": "Group", "name": name}))
        .collect();
    let rest = json!({
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    });
    object("ClusterRoleBinding", role, &[], rest)
}

fn aggregation_label(target: &str) -> String {
    format!("{GROUP}/aggregate-to-{target}")
}

fn object(kind: &str, name: &str, aggregate_to: &[&str], rest: Value) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/bootstrapping".to_owned(), json!("rbac-defaults"));
    for target in aggregate_to {
        labels.insert(aggregation_label(target), json!("true"));
    }
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
    });
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::rbac::{Attributes, RbacIndex};
    use crate::auth::user::User;

    /// The defaults, with `ada` bound to `role` in namespace `ns`.
    fn index(role: &str) -> RbacIndex {
        let mut index = RbacIndex::default();
        for (kind, object) in objects() {
            index.upsert(kind, &object);
        }
        let binding = json!({
            "metadata": {"name": "ada", "namespace": "ns"},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "ada"}],
        });
        index.upsert(Kind::RoleBinding, &binding);
        index
    }

    fn allowed(role: &str, verb: &str, group: &str, resource: &str, namespace: &str) -> bool {
        let ada = User::authenticated("ada", "", []);
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let at = Attributes::of(&ada);
        let wanted = Attributes { verb, group, resource, subresource, namespace, ..at };
        index(role).authorize(&wanted).allowed
    }

    #[test]
    fn tenants_may_do_what_their_role_says() {
        let oadp = "oadp.openshift.io";
        // resource, group, verb, [view, edit, admin]
        let cases = [
            ("configmaps", "", "get", [true, true, true]),
            ("configmaps", "", "create", [false, true, true]),
            ("secrets", "", "get", [false, true, true]),
            ("serviceaccounts/token", "", "create", [false, true, true]),
            ("namespaces", "", "delete", [false, false, false]),
            ("roles", GROUP, "get", [false, false, true]),
            ("rolebindings", GROUP, "create", [false, false, true]),
            ("clusterroles", GROUP, "create", [false, false, false]),
            ("leases", "coordination.k8s.io", "update", [false, true, true]),
            ("nonadminbackups", oadp, "list", [true, true, true]),
            ("nonadminbackups/status", oadp, "get", [true, true, true]),
            ("nonadminbackups/status", oadp, "update", [false, false, false]),
            ("nonadminrestores", oadp, "create", [false, true, true]),
            ("nonadmindownloadrequests", oadp, "delete", [false, true, true]),
            ("nonadminbackupstoragelocationrequests", oadp, "get", [false, false, false]),
            ("backups", "velero.io", "get", [false, false, false]),
            ("volumes", "longhorn.io", "get", [false, false, false]),
        ];
        for (resource, group, verb, wanted) in cases {
            for (role, wanted) in ["view", "edit", "admin"].into_iter().zip(wanted) {
                let got = allowed(role, verb, group, resource, "ns");
                assert_eq!(got, wanted, "{role} {verb} {resource}");
                let elsewhere = allowed(role, verb, group, resource, "other");
                assert!(!elsewhere, "{role} {verb} {resource} in another namespace");
            }
        }
    }

    #[test]
    fn everyone_sees_health_and_only_the_known_discover() {
        let ada = User::authenticated("ada", "", []);
        let nobody = User::anonymous();
        let get = |user, path| {
            let wanted = Attributes { verb: "get", path: Some(path), ..Attributes::of(user) };
            index("none").authorize(&wanted).allowed
        };
        for path in ["/healthz", "/version/", "/livez"] {
            assert!(get(&nobody, path) && get(&ada, path), "{path}");
        }
        for path in ["/api", "/apis/apps/v1", "/openapi/v3"] {
            assert!(!get(&nobody, path) && get(&ada, path), "{path}");
        }
        assert!(!get(&ada, "/metrics"));
    }

    #[test]
    fn every_default_is_marked() {
        for (_, object) in objects() {
            let label = object.pointer("/metadata/labels/kubernetes.io~1bootstrapping");
            assert_eq!(label, Some(&json!("rbac-defaults")));
        }
    }
}
