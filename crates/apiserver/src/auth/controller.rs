//! Who acts inside this process: each controller under its own name, with the rights of its own role
//! and no others.

pub use api::access::Grant;
use serde_json::{Value, json};

use super::rbac::{GROUP, Kind};
use super::user::User;

/// What users, roles and bindings of controllers are called, with the controller's name behind it.
/// Nobody can ask for a token under such a name, as they could for a service account.
const PREFIX: &str = "holdfast:controller:";

/// The identity of a controller and everything it may do. What it does beyond is refused as it would
/// be of anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controller {
    pub name: &'static str,
    pub grants: &'static [Grant],
}

impl Controller {
    /// Under whom it acts, in the audit log as well.
    pub fn user(&self) -> User {
        User::authenticated(format!("{PREFIX}{}", self.name), "", [])
    }

    /// Its role and the binding that gives it the role.
    pub fn objects(&self) -> [(Kind, Value); 2] {
        let name = format!("{PREFIX}{}", self.name);
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let rules: Vec<Value> = self
            .grants
            .iter()
            .map(|grant| {
                json!({"apiGroups": grant.groups, "resources": grant.resources,
                    "verbs": grant.verbs})
            })
            .collect();
        let role = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": rules,
        });
        let binding = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": name}],
        });
        [(Kind::ClusterRole, role), (Kind::ClusterRoleBinding, binding)]
    }
}
