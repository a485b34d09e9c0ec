//! Copies where the volume is used: by preference (`best-effort`), or nowhere else (`strict-local`).

use api::longhorn::{DataLocality, VolumeState};
use kube::ResourceExt as _;

use super::draft::{Draft, has_failed, is_leaving, is_usable, node_of};
use crate::schedule::{self, Asked};

/// Where copies of a volume may be, as far as its locality goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Local {
    Anywhere,
    At(String),
    /// Where it is first attached, which is not known yet.
    Unknown,
}

impl Draft<'_> {
    fn is_strictly_local(&self) -> bool {
        self.volume.spec.data_locality == Some(DataLocality::StrictLocal)
    }

    /// Where the only copy of a strictly local volume is, or is to be.
    pub(super) fn only_place(&self) -> Local {
        if !self.is_strictly_local() {
            return Local::Anywhere;
        }
        let wanted = self.volume.spec.node_id.as_deref().filter(|it| !it.is_empty());
        // One that fills itself is not used yet: it goes where it happens to do that.
        self.home().or(wanted).map_or(Local::Unknown, |node| Local::At(node.to_owned()))
    }

    /// The node of the copy that a strictly local volume has, whatever became of that.
    pub(super) fn home(&self) -> Option<&str> {
        let mut copies = self.replicas.iter().filter(|it| !is_leaving(it));
        copies.find_map(node_of).filter(|_| self.is_strictly_local())
    }

    /// The node a copy is wanted on, though the volume works without.
    pub(super) fn wants_near(&self) -> Option<&str> {
        let prefers = self.volume.spec.data_locality == Some(DataLocality::BestEffort);
        let at = self.status.current_node_id.as_deref().filter(|it| !it.is_empty());
        at.filter(|_| prefers && self.state() == VolumeState::Attached)
    }

    /// One more copy where the volume is used, if there is none and there is room. When it is whole,
    /// one elsewhere is too many and goes.
    pub(super) fn draw_near(&mut self) {
        let Some(node) = self.wants_near().map(str::to_owned) else { return };
        let is_here = |it: &api::longhorn::Replica| node_of(it) == Some(node.as_str());
        let has_one = self.replicas.iter().any(|it| is_usable(it) && is_here(it));
        if has_one || self.restores() || self.clones() || self.use_again(Some(&node)) {
            return;
        }
        // One that failed here and rests is tried again, later.
        if self.replicas.iter().any(|it| has_failed(it) && !is_leaving(it) && is_here(it)) {
            return;
        }
        let asked = Asked { hard_node: Some(node.clone()), ..self.asked() };
        let others = self.placed(usize::MAX);
        if schedule::place(&asked, &self.seen.candidates, &others).is_err() {
            return;
        }
        let mut copy = self.new_copy(1);
        copy.spec.hard_node_affinity = Some(node.clone());
        let text =
            format!("replica {} is made on node {node}, where the volume is used", copy.name_any());
        self.create.push(copy);
        self.place_copies();
        self.tell(reconcile::Severity::Normal, "Rebuilding", text);
    }
}
