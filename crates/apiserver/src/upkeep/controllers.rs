//! The controllers that upkeep consists of, and what each may do.

use crate::auth::controller::{Controller, Grant};

const EVERY: &[&str] = &["*"];

/// Collects dependents, and takes references to owners that are gone out of those that stay.
pub(super) const GARBAGE: Controller = Controller {
    name: "garbage-collector",
    grants: &[Grant { groups: EVERY, resources: EVERY, verbs: &["delete", "update"] }],
};

/// Empties namespaces that are being deleted.
pub(super) const NAMESPACES: Controller = Controller {
    name: "namespaces",
    grants: &[
        Grant { groups: EVERY, resources: EVERY, verbs: &["deletecollection"] },
        Grant {
            groups: &[""],
            resources: &["namespaces/finalize", "namespaces/status"],
            verbs: &["update"],
        },
    ],
};

/// Gives every namespace its account.
pub(super) const ACCOUNTS: Controller = Controller {
    name: "service-accounts",
    grants: &[Grant { groups: &[""], resources: &["serviceaccounts"], verbs: &["create"] }],
};

/// Empties definitions that are being deleted, and gives names to those that wait for them.
pub(super) const DEFINITIONS: Controller = Controller {
    name: "definition-cleanup",
    grants: &[
        Grant { groups: EVERY, resources: EVERY, verbs: &["deletecollection"] },
        Grant {
            groups: &["apiextensions.k8s.io"],
            resources: &["customresourcedefinitions", "customresourcedefinitions/status"],
            verbs: &["update"],
        },
    ],
};

/// Keeps the rules of aggregated roles together, which are more than it has itself.
pub(super) const ROLES: Controller = Controller {
    name: "role-aggregation",
    grants: &[Grant {
        groups: &["rbac.authorization.k8s.io"],
        resources: &["clusterroles"],
        verbs: &["escalate", "update"],
    }],
};

/// Lets old events go.
pub(super) const EVENTS: Controller = Controller {
    name: "event-expiry",
    grants: &[Grant { groups: &[""], resources: &["events"], verbs: &["deletecollection"] }],
};

/// Lets claims and volumes go that nothing uses any more.
pub(super) const STORAGE: Controller = Controller {
    name: "storage-protection",
    grants: &[Grant {
        groups: &[""],
        resources: &["persistentvolumeclaims", "persistentvolumes"],
        verbs: &["update"],
    }],
};

/// All of them; a controller that is not here has no role, and everything it does is refused.
pub(crate) const ALL: &[Controller] =
    &[GARBAGE, NAMESPACES, ACCOUNTS, DEFINITIONS, ROLES, EVENTS, STORAGE];
