//! The copies of a volume, as resources. What becomes of one is decided with its volume
//! ([`crate::volume`]), since no copy can be judged without the others.

use api::longhorn::{InstanceState, Replica};
use kube::ResourceExt as _;

use crate::DATA;
use crate::engine::join;

/// Somebody has deleted it.
pub(crate) fn is_unwanted(replica: &Replica) -> bool {
    replica.metadata.deletion_timestamp.is_some()
}

/// Its volume needs it, whoever has deleted it: it serves as ever, and its data stays.
pub(crate) fn is_kept(replica: &Replica) -> bool {
    replica.finalizers().iter().any(|it| it == DATA)
}

/// It goes, and its data with it.
pub(crate) fn is_leaving(replica: &Replica) -> bool {
    is_unwanted(replica) && !is_kept(replica)
}

/// Where a copy listens, while it runs.
pub(crate) fn address_of(replica: &Replica) -> Option<String> {
    let status = &replica.status.as_ref()?.instance;
    if status.current_state != Some(InstanceState::Running) || is_leaving(replica) {
        return None;
    }
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let ip = set(&status.storage_ip).or_else(|| set(&status.ip));
    join(ip.as_deref(), status.port)
}
