//! A volume put back to one of its snapshots, by the annotation [`ASKED`].
//!
//! From the moment it is said to be under way until it is written down as done, nobody else gets the
//! volume, and it has no frontend: a revert that is done twice, because whoever did it ended before that
//! or was too late, does the same as one.

use std::time::Duration;

use api::condition::Status;
use api::longhorn::{AttacherType, VolumeState};
use kube::ResourceExt;
use reconcile::Severity;

use super::draft::Draft;
use crate::attachment;

/// Names the snapshot. Goes when the volume is reverted, or cannot be.
pub const ASKED: &str = "holdfast.io/revert-to";
/// When a volume that others have is looked at again, though nothing changed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Draft<'_> {
    pub(super) fn reverts_to(&self) -> Option<String> {
        self.volume.annotations().get(ASKED).filter(|it| !it.is_empty()).cloned()
    }

    pub(super) fn revert_ticket(&self) -> String {
        attachment::own(AttacherType::LonghornApi, &format!("revert-{}", self.name()), "", "true").0
    }

    /// Attached by others it waits; else it attaches itself, without a frontend, and is reverted.
    pub(super) fn follow_revert(&mut self) {
        let id = self.revert_ticket();
        let begun = self.revert_has_begun();
        let Some(snapshot) = self.reverts_to() else {
            self.tickets.remove(&id);
            if self.says_revert() {
                self.drop_condition("Revert");
            }
            return;
        };
        if self.restores() || self.clones() || self.is_faulted() {
            if begun {
                // Pending would let others in, and then be done over what they write.
                let why = format!(
                    "the volume lost its copies while it was reverted to {snapshot}: whether it was done is not known, look at its data and ask again"
                );
                self.end_revert("RevertFailure", &why, Severity::Warning);
                return;
            }
            self.tickets.remove(&id);
            let why = "the volume is being filled, or has no usable copy";
            self.condition("Revert", false, "RevertPending", why);
            self.look_after(LOOK_AGAIN);
            return;
        }
        let known = self.engine_status().snapshots.unwrap_or_default();
        let usable = known.get(&snapshot).is_some_and(|it| it.removed != Some(true));
        if !usable {
            let why = format!("volume {} has no snapshot {snapshot}", self.name());
            self.end_revert("RevertFailure", &why, Severity::Warning);
            return;
        }
        if !begun && self.tickets.keys().any(|other| *other != id) {
            self.tickets.remove(&id);
            let why = format!("the volume is in use: detach it to revert it to {snapshot}");
            self.condition("Revert", false, "RevertPending", &why);
            self.look_after(LOOK_AGAIN);
            return;
        }
        self.condition("Revert", true, "RevertInProgress", &format!("to snapshot {snapshot}"));
        self.keep_as(AttacherType::LonghornApi, &format!("revert-{}", self.name()), true, "true");
        let alone = self.state() == VolumeState::Attached
            && self.status.frontend_disabled == Some(true)
            && self.volume.spec.disable_frontend == Some(true);
        if alone && self.engine_runs() && self.is_synced() {
            self.revert = Some(snapshot);
        }
    }

    fn says_revert(&self) -> bool {
        let mut known = self.status.conditions.iter().flatten();
        known.any(|it| it.kind == "Revert" && it.status == Status::True)
    }

    /// Whether the engine may have been asked already: nobody may write before that is settled.
    pub(super) fn revert_has_begun(&self) -> bool {
        self.says_revert() && self.reverts_to().is_some()
    }

    fn end_revert(&mut self, reason: &str, why: &str, severity: Severity) {
        self.volume.annotations_mut().remove(ASKED);
        let id = self.revert_ticket();
        self.tickets.remove(&id);
        self.condition("Revert", false, reason, why);
        let reason = if severity == Severity::Normal { "Reverted" } else { "FailedRevert" };
        self.tell(severity, reason, why.to_owned());
    }

    /// What is written when the engine has done it.
    pub(super) fn reverted(&mut self) {
        let Some(snapshot) = self.revert.clone() else { return };
        let text = format!("volume {} is reverted to snapshot {snapshot}", self.name());
        self.end_revert("Reverted", &text, Severity::Normal);
    }
}
