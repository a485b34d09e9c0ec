//! Nobody grants what they do not hold.
//!
//! Writing a role needs all its permissions, or the verb `escalate` on it; writing a binding needs
//! all permissions of the role it names, or the verb `bind` on that role.

use serde_json::Value;

use super::cover::missing;
use super::index::{Kind, RbacIndex, RoleName};
use super::rule::PolicyRule;
use super::{Attributes, GROUP};
use crate::auth::user::{MASTERS, User};

/// Most missing permissions a message lists.
const MAX_LISTED: usize = 32;

/// Why a role or binding may not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EscalationError {
    /// 403; the text goes behind `RES "NAME" is forbidden: `.
    #[error("{0}")]
    NotHeld(String),
    /// 404: only those with the verb `bind` may bind a role that does not exist yet.
    #[error("{}.{GROUP} {name:?} not found", kind.resource())]
    NoSuchRole { kind: Kind, name: String },
}

/// May `user` write this Role or `ClusterRole`?
pub fn check_role(
    index: &RbacIndex,
    user: &User,
    kind: Kind,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), EscalationError> {
    let (namespace, name) = names(new);
    // Labels count too: an aggregated role may pick the rules up by them.
    let grants = ["/rules", "/aggregationRule", "/metadata/labels"];
    let wanted = Attributes { verb: "escalate", namespace, name, ..on(kind, user) };
    if user.in_group(MASTERS) || same(new, old, &grants) || index.authorize(&wanted).allowed {
        return Ok(());
    }
    let mut rules = PolicyRule::list(new.get("rules"));
    if new.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
        // Whatever gets the label later is granted as well, so nothing less than all will do.
        rules.extend([PolicyRule::all_resources(), PolicyRule::all_paths()]);
    }
    holds(index, user, namespace, &rules)
}

/// May `user` write this `RoleBinding` or `ClusterRoleBinding`?
pub fn check_binding(
    index: &RbacIndex,
    user: &User,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), EscalationError> {
    let (namespace, _) = names(new);
    if user.in_group(MASTERS) || same(new, old, &["/roleRef", "/subjects"]) {
        return Ok(());
    }
    let Some(role) = RoleName::of_binding(new) else {
        // Validation refuses it; until then it grants nothing.
        return Ok(());
    };
    let wanted = Attributes { verb: "bind", namespace, name: &role.name, ..on(role.kind, user) };
    if index.authorize(&wanted).allowed {
        return Ok(());
    }
    match index.role_rules(&role, namespace) {
        Some(rules) => holds(index, user, namespace, &rules),
        None => Err(EscalationError::NoSuchRole { kind: role.kind, name: role.name }),
    }
}

fn on(kind: Kind, user: &User) -> Attributes<'_> {
    Attributes { group: GROUP, resource: kind.resource(), ..Attributes::of(user) }
}

fn names(object: &Value) -> (&str, &str) {
    let text = |key| object.pointer(key).and_then(Value::as_str).unwrap_or_default();
    (text("/metadata/namespace"), text("/metadata/name"))
}

fn same(new: &Value, old: Option<&Value>, paths: &[&str]) -> bool {
    old.is_some_and(|old| paths.iter().all(|path| new.pointer(path) == old.pointer(path)))
}

fn holds(
    index: &RbacIndex,
    user: &User,
    namespace: &str,
    wanted: &[PolicyRule],
) -> Result<(), EscalationError> {
    let held = index.rules_for(user, namespace);
    let missing = missing(held.iter(), wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<_> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    let mut lines = vec![format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:",
        user.name,
        groups.join(" ")
    )];
    lines.extend(missing.iter().take(MAX_LISTED).map(PolicyRule::to_string));
    if missing.len() > MAX_LISTED {
        lines.push(format!("and {} more", missing.len() - MAX_LISTED));
    }
    Err(EscalationError::NotHeld(lines.join("\n")))
}
