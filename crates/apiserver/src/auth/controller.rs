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

/// What a controller may do in one namespace, beside what it may do everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// The name of the controller.
    pub name: &'static str,
    pub namespace: String,
    pub grants: &'static [Grant],
}

impl Near {
    /// The role in that namespace, and the binding that gives it to the controller.
    pub fn objects(&self) -> [(Kind, Value); 2] {
        let scope = Scope::Namespace(&self.namespace);
        objects(self.name, self.grants, scope)
    }
}

/// Where a role holds.
#[derive(Debug, Clone, Copy)]
enum Scope<'a> {
    Cluster,
    Namespace(&'a str),
}

/// A role with these grants, and its binding to the user of the controller.
fn objects(controller: &str, grants: &[Grant], scope: Scope<'_>) -> [(Kind, Value); 2] {
    let name = format!("{PREFIX}{controller}");
    let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let (role, binding, metadata) = match scope {
        Scope::Cluster => {
            (Kind::ClusterRole, Kind::ClusterRoleBinding, json!({"name": name, "labels": labels}))
        }
        Scope::Namespace(namespace) => (
            Kind::Role,
            Kind::RoleBinding,
            json!({"name": name, "namespace": namespace, "labels": labels}),
        ),
    };
    let rules: Vec<Value> = grants
        .iter()
        .map(|grant| {
            json!({"apiGroups": grant.groups, "resources": grant.resources,
                "verbs": grant.verbs})
        })
        .collect();
    let version = format!("{GROUP}/v1");
    let made = json!({"apiVersion": version, "kind": role.as_str(), "metadata": metadata,
        "rules": rules});
    let bound = json!({"apiVersion": version, "kind": binding.as_str(), "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": role.as_str(), "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": name}]});
    [(role, made), (binding, bound)]
}

impl Controller {
    /// Under whom it acts, in the audit log as well.
    pub fn user(&self) -> User {
        User::authenticated(format!("{PREFIX}{}", self.name), "", [])
    }

    /// Its role and the binding that gives it the role.
    pub fn objects(&self) -> [(Kind, Value); 2] {
        objects(self.name, self.grants, Scope::Cluster)
    }
}
