//! What a cluster adds to an object before it is checked, and what it refuses for reasons that lie
//! in other objects: as functions of the object and of those others.
//!
//! Owns: limit ranges, priorities, tolerations, the account of a pod, the class and the protection of
//! storage. Never: looks anything up; the caller brings what is needed.

mod limits;
mod priority;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::access::{at, list, object_mut, set, set_default, text};

pub use limits::{apply_limits, limit_violations};
pub use priority::{SYSTEM_CLASSES, resolve_priority};

/// Holds a claim while a pod may write to it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Holds a volume while it is bound to a claim.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The account of pods that name none.
pub const DEFAULT_ACCOUNT: &str = "default";
/// How long a pod stays on a node that does not answer, in seconds.
const EVICTION_SECONDS: i64 = 300;
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Gives a claim or volume the finalizer that keeps it while it is in use.
pub(crate) fn protect(obj: &mut Value, finalizer: &str) {
    let mut finalizers = list(obj, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|one| one == finalizer) {
        finalizers.push(finalizer.into());
        set(obj, "metadata.finalizers", finalizers);
    }
}

/// Whether a pod that is on a node uses the claim `name` of its namespace. A pod without a node
/// will not be started with a claim that is going.
pub fn uses_claim(pod: &Value, name: &str) -> bool {
    let uses = |volume: &Value| {
        let generated = at(volume, "ephemeral").is_some()
            && name == format!("{}-{}", text(pod, "metadata.name"), text(volume, "name"));
        generated || text(volume, "persistentVolumeClaim.claimName") == name
    };
    !text(pod, "spec.nodeName").is_empty() && list(pod, "spec.volumes").iter().any(uses)
}

/// Whether a volume still belongs to a claim.
pub fn is_bound(volume: &Value) -> bool {
    text(volume, "status.phase") == "Bound"
}

/// A claim that names no class gets the default one: the newest of those marked so.
pub fn default_class(claim: &mut Value, classes: &[Value]) {
    if at(claim, "spec.storageClassName").is_some() {
        return;
    }
    let marked = classes.iter().filter(|class| {
        let annotations = at(class, "metadata.annotations");
        annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|mark| mark == "true")
    });
    let newest = marked.max_by_key(|class| {
        let name = std::cmp::Reverse(text(class, "metadata.name"));
        (text(class, "metadata.creationTimestamp"), name)
    });
    if let Some(class) = newest {
        set(claim, "spec.storageClassName", text(class, "metadata.name"));
    }
}

/// A pod stays for a while on a node that fails, unless it says otherwise.
pub fn tolerate_failing_nodes(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let says = |toleration: &Value| {
            let given = text(toleration, "key");
            (given.is_empty() || given == key)
                && matches!(text(toleration, "effect"), "" | "NoExecute")
        };
        if list(pod, "spec.tolerations").iter().any(says) {
            continue;
        }
        let mut tolerations = list(pod, "spec.tolerations").to_vec();
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": EVICTION_SECONDS}));
        set(pod, "spec.tolerations", tolerations);
    }
}

/// Every pod runs as somebody; returns whom.
pub fn default_account(pod: &mut Value) -> String {
    let given = text(pod, "spec.serviceAccount").to_owned();
    let fallback = if given.is_empty() { DEFAULT_ACCOUNT.to_owned() } else { given };
    set_default(pod, "spec.serviceAccountName", fallback);
    let account = text(pod, "spec.serviceAccountName").to_owned();
    if object_mut(pod, "spec").is_some() {
        set(pod, "spec.serviceAccount", account.as_str());
    }
    account
}
