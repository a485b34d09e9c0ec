//! The copies of a volume, as resources. What becomes of one is decided with its volume
//! ([`crate::volume`]), since no copy can be judged without the others.

use api::longhorn::{InstanceState, Replica};

use crate::engine::join;

/// Where a copy listens, while it runs.
pub(crate) fn address_of(replica: &Replica) -> Option<String> {
    let status = &replica.status.as_ref()?.instance;
    if status.current_state != Some(InstanceState::Running)
        || replica.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let ip = set(&status.storage_ip).or_else(|| set(&status.ip));
    join(ip.as_deref(), status.port)
}
