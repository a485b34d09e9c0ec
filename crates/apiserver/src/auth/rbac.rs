//! Role-based access control, as Kubernetes has it: additive grants, no denials.
//!
//! Pure: no store, no clock, no I/O. [`RbacIndex`] is fed with the stored roles and bindings and
//! answers [`RbacIndex::authorize`] with a few hash lookups. Start reading at `index`; `rule` is
//! what one rule matches, `cover` and `escalation` keep callers from granting what they lack.

mod cover;
pub mod escalation;
mod index;
mod rule;
mod selector;

pub use cover::missing;
pub use escalation::{EscalationError, check_binding, check_role};
pub use index::{Kind, RbacIndex, RoleName, Rules};
pub use rule::PolicyRule;

use super::user::User;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What a request is about, as far as authorization looks at it. Empty text means "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Set for requests that are not about a resource: `/healthz`, `/apis/GROUP`.
    pub path: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// Only the user; for `Attributes { verb: "get", ..Attributes::of(user) }`.
    pub const fn of(user: &'a User) -> Self {
        Self {
            user,
            verb: "",
            group: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path: None,
        }
    }
}

/// The answer, and in words why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Empty when nothing allowed it: with additive grants there is nothing to name.
    pub reason: String,
}

#[cfg(test)]
mod tests;
