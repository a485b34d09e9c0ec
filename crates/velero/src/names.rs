//! Labels, annotations and other words that are written into objects, and how they are cut to fit.

use sha2::{Digest, Sha256};

pub(crate) const BACKUP_NAME: &str = "velero.io/backup-name";
pub(crate) const BACKUP_UID: &str = "velero.io/backup-uid";
pub(crate) const RESTORE_NAME: &str = "velero.io/restore-name";
pub(crate) const SCHEDULE_NAME: &str = "velero.io/schedule-name";
pub(crate) const STORAGE_LOCATION: &str = "velero.io/storage-location";
pub(crate) const EXCLUDE_FROM_BACKUP: &str = "velero.io/exclude-from-backup";
pub(crate) const GC_FAILURE: &str = "velero.io/gc-failure";
pub(crate) const RESTORE_STATUS: &str = "velero.io/restore-status";
pub(crate) const RESOURCE_TIMEOUT: &str = "velero.io/resource-timeout";
pub(crate) const GIT_VERSION: &str = "velero.io/source-cluster-k8s-gitversion";
pub(crate) const MAJOR_VERSION: &str = "velero.io/source-cluster-k8s-major-version";
pub(crate) const MINOR_VERSION: &str = "velero.io/source-cluster-k8s-minor-version";
pub(crate) const RESTORE_FINALIZER: &str = "restores.velero.io/external-resources-finalizer";

/// Of a restore made for a tenant: the namespace it is for. Nothing outside is touched.
pub(crate) const TENANT_NAMESPACE: &str = "openshift.io/oadp-nar-origin-namespace";
/// Of a backup made for a tenant.
pub(crate) const TENANT_BACKUP_NAMESPACE: &str = "openshift.io/oadp-nab-origin-namespace";
/// The identity of a backup made for a tenant, which is its name.
pub(crate) const TENANT_BACKUP_ID: &str = "openshift.io/oadp-nab-origin-nacuuid";
/// All that is kept of a backup found in a tenant's own store.
pub(crate) const TENANT_BACKUP_LABELS: [&str; 4] =
    ["openshift.io/oadp", "app.kubernetes.io/managed-by", TENANT_BACKUP_ID, STORAGE_LOCATION];
pub(crate) const TENANT_BACKUP_NOTES: [&str; 6] = [
    TENANT_BACKUP_NAMESPACE,
    "openshift.io/oadp-nab-origin-name",
    GIT_VERSION,
    MAJOR_VERSION,
    MINOR_VERSION,
    RESOURCE_TIMEOUT,
];
/// Of a storage location made for a tenant.
pub(crate) const TENANT_LOCATION_NAMESPACE: &str = "openshift.io/oadp-nabsl-origin-namespace";
/// Of a backup or restore made for a tenant: the namespace it was asked for in, and the cluster, by uids.
pub(crate) const NAMESPACE_UID: &str = "holdfast.io/namespace-uid";
pub(crate) const CLUSTER_UID: &str = "holdfast.io/cluster-uid";
/// On a restore: whose rights it is carried out with, as `{"user": …, "groups": […]}`.
pub(crate) const RUN_AS: &str = "holdfast.io/run-as";

/// The format that backups are written in.
pub(crate) const FORMAT_VERSION: &str = "1.1.0";

const LABEL_MAX: usize = 63;
const KEPT: usize = 57;

/// A name as the value of a label: where it is too long, its beginning and some of its sum.
pub(crate) fn label_value(name: &str) -> String {
    if name.len() <= LABEL_MAX {
        return name.to_owned();
    }
    let sum = Sha256::digest(name.as_bytes());
    let sum = sum.iter().take(3).fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
    let kept: String = name.chars().take(KEPT).collect();
    format!("{kept}{sum:06x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        assert_eq!(label_value("short"), "short");
        assert_eq!(label_value(&"a".repeat(63)).len(), 63);
        let (a, b) = (format!("{}x", "a".repeat(80)), format!("{}y", "a".repeat(80)));
        assert_eq!(label_value(&a).len(), 63);
        assert_ne!(label_value(&a), label_value(&b));
        assert!(label_value(&a).starts_with(&"a".repeat(57)));
    }
}
