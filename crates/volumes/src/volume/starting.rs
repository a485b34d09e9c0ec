//! Why a volume that is to be attached is not: what its processes say against themselves.

use api::longhorn::VolumeState;
use kube::ResourceExt;

use super::draft::{Draft, is_usable, node_of};
use crate::node::failed_creation;

/// The condition of a volume that cannot be attached because a process of it does not start.
pub(crate) const ATTACH: &str = "Attach";

impl Draft<'_> {
    /// Says it as long as somebody wants the volume and does not get it.
    pub(super) fn say_starting(&mut self) {
        let wanted = !self.tickets.is_empty() && self.state() != VolumeState::Attached;
        let mut all: Vec<String> = Vec::new();
        let engine = self.seen.engine.as_ref().filter(|_| wanted);
        let status = self.engine_status().instance;
        if let (Some(engine), Some(why)) = (engine, failed_creation(&status)) {
            let node = status.owner_id.as_deref().unwrap_or("(none)");
            all.push(format!("engine {} does not start on node {node}: {why}", engine.name_any()));
        }
        for replica in self.seen.replicas.iter().filter(|it| wanted && is_usable(it)) {
            let why = replica.status.as_ref().and_then(|it| failed_creation(&it.instance));
            if let Some(why) = why {
                let (name, node) = (replica.name_any(), node_of(replica).unwrap_or("(none)"));
                all.push(format!("replica {name} does not start on node {node}: {why}"));
            }
        }
        if all.is_empty() {
            self.drop_condition(ATTACH);
        } else {
            self.condition(ATTACH, false, "FailedStarting", &all.join("; "));
        }
    }
}

/// What a volume says of why it cannot be attached.
pub(crate) fn why_not_attached(volume: &api::longhorn::Volume) -> Option<String> {
    let known = volume.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    api::condition::get(known, ATTACH)?.message.clone().filter(|it| !it.is_empty())
}
