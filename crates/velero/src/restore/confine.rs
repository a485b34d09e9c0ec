//! What a restore may touch, whatever it is asked for and whatever stands in the archive.

use api::velero::{BackupStorageLocation, Restore};

use crate::catalog::Kind;
use crate::names;
use crate::world::tenant_of;

/// Nobody gains rights or lifts limits by a restore without an identity of its own, or by what stands in a
/// store of its own.
const WITHHELD_GROUPS: [&str; 5] = [
    "rbac.authorization.k8s.io",
    "authorization.openshift.io",
    "velero.io",
    "oadp.openshift.io",
    // With the next: where traffic goes, which tenants may not say.
    "discovery.k8s.io",
];
const WITHHELD: [&str; 3] = ["resourcequotas", "limitranges", "endpoints"];
/// What a restore may touch, whatever it is asked for and whatever stands in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Confined {
    /// The only namespace that may be touched: the tenant's that it was asked for.
    pub(super) tenant: Option<String>,
    /// The tenant that may have written the archive, for it lies in a store of its own. It may have put
    /// there what whoever restores from it could make, and the tenant could not.
    pub(super) author: Option<String>,
    has_identity: bool,
}

/// Kinds of these groups are a cluster's own. Those of others mean what their programs make of them.
const BUILT_IN: [&str; 7] =
    ["", "apps", "batch", "autoscaling", "policy", "networking.k8s.io", "coordination.k8s.io"];

impl Confined {
    pub(super) fn of(restore: &Restore, location: &BackupStorageLocation) -> Self {
        let notes = restore.metadata.annotations.as_ref();
        let note = |key: &str| notes.and_then(|it| it.get(key));
        Self {
            tenant: note(names::TENANT_NAMESPACE).cloned(),
            author: tenant_of(location).map(str::to_owned),
            has_identity: note(names::RUN_AS).is_some(),
        }
    }

    /// Whether objects of `from` may come back, in `to`.
    pub(super) fn allows(&self, from: &str, to: &str) -> bool {
        let only = |it: &Option<String>, name: &str| it.as_deref().is_none_or(|it| it == name);
        only(&self.tenant, to) && only(&self.author, from)
    }

    /// Whether a tenant asked for it, or may have written what is restored.
    pub(super) fn is_tenants(&self) -> bool {
        self.tenant.is_some() || self.author.is_some()
    }

    /// Whether objects without a namespace may come back.
    pub(super) fn allows_cluster(&self) -> bool {
        self.tenant.is_none() && self.author.is_none()
    }

    /// Whether what gives rights or sets limits stays out: where nobody's own rights decide, and where
    /// a tenant would borrow those of whoever restores for it.
    pub(super) fn withholds(&self) -> bool {
        self.author.is_some() || self.tenant.is_some() && !self.has_identity
    }

    /// Whether an object of this group stays out. What another program does for an object that a tenant
    /// wrote itself, nobody knows; where the tenant's own rights decide, they say whether it may ask for it.
    pub(super) fn withholds_group(&self, group: &str) -> bool {
        let is_unasked = self.author.is_some() && self.tenant.is_some() && !self.has_identity;
        is_unasked && !BUILT_IN.contains(&group)
    }
}

/// Whether objects of a kind give rights, set limits or lead traffic.
pub(super) fn is_withheld(kind: &Kind) -> bool {
    WITHHELD_GROUPS.contains(&kind.group.as_str())
        || kind.group.is_empty() && WITHHELD.contains(&kind.plural.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_archive_that_a_tenant_may_have_written_gains_nothing_by_who_restores_it() {
        let location = |notes: Value| -> BackupStorageLocation {
            serde_json::from_value(json!({"metadata": {"name": "l", "annotations": notes}}))
                .unwrap()
        };
        let with = |notes: Value| -> Restore {
            serde_json::from_value(json!({"metadata": {"name": "r", "annotations": notes},
                "spec": {}}))
            .unwrap()
        };
        let (ours, own) =
            (location(json!({})), location(json!({names::TENANT_LOCATION_NAMESPACE: "a"})));
        let as_admin = with(json!({names::TENANT_NAMESPACE: "a", names::RUN_AS: "{}"}));
        let as_nobody = with(json!({names::TENANT_NAMESPACE: "a"}));
        let by_admin = with(json!({}));
        let of = Confined::of;
        // What the executor took itself holds what was there: whoever asks decides.
        assert!(!of(&as_admin, &ours).withholds() && of(&as_nobody, &ours).withholds());
        assert!(!of(&by_admin, &ours).withholds() && of(&by_admin, &ours).allows_cluster());
        for asked in [&as_admin, &as_nobody, &by_admin] {
            let confined = of(asked, &own);
            assert!(confined.withholds() && !confined.allows_cluster(), "{confined:?}");
            assert!(!confined.allows("b", "a") && confined.allows("a", "a"), "{confined:?}");
        }
        // What other programs act on comes from a tenant's own store with the tenant's rights only.
        for (asked, place, stays) in
            [(&as_nobody, &own, true), (&as_nobody, &ours, false), (&as_admin, &own, false)]
        {
            let confined = of(asked, place);
            assert_eq!(confined.withholds_group("argoproj.io"), stays, "{confined:?}");
            assert!(!confined.withholds_group("apps") && !confined.withholds_group(""));
        }
        assert!(!of(&by_admin, &own).withholds_group("argoproj.io"), "it was read first");
        assert!(
            of(&by_admin, &own).allows("a", "copy") && !of(&as_admin, &own).allows("a", "copy")
        );
    }
}
