//! Which engine serves a volume, and when another takes its place: while the volume is detached, never
//! under its clients. What a live upgrade would not be done for is refused in the peer's words.

use api::longhorn::{DataLocality, Robustness, VolumeState};
use reconcile::Severity;

use super::draft::{Draft, is_at_rest, process_state};
use crate::image::CLI_API_WITH_RESTORE_REBUILD;

/// The condition of a volume that waits for another engine, or was refused one.
const UPGRADE: &str = "EngineUpgrade";

impl Draft<'_> {
    /// Whether its engine can fill copies of a volume that restores. An older one cannot: the volume
    /// goes on with the copies it has.
    pub(super) fn rebuilds_restores(&self) -> bool {
        let image = self.status.current_image.as_ref();
        let version = image.and_then(|it| self.seen.images.get(it));
        version.is_none_or(|version| *version >= CLI_API_WITH_RESTORE_REBUILD)
    }

    /// The image that is asked for is taken, waited with, or refused.
    pub(super) fn follow_image(&mut self) {
        let wanted = self.volume.spec.image.clone().unwrap_or_default();
        let current = self.status.current_image.clone().unwrap_or_default();
        if wanted == current {
            return;
        }
        let rests = self.state() == VolumeState::Detached
            && is_at_rest(&self.engine_state())
            && self.replicas.iter().all(|it| is_at_rest(&process_state(it)));
        let name = self.name();
        let is_used = matches!(self.state(), VolumeState::Attached | VolumeState::Attaching);
        let is_local = self.volume.spec.data_locality == Some(DataLocality::StrictLocal);
        if !self.seen.images.contains_key(&wanted) {
            self.refuse_image(&format!("engine image {wanted} is not deployed"));
        } else if rests {
            self.take_image(&wanted);
        } else if is_used && self.status.robustness != Some(Robustness::Healthy) {
            self.refuse_image(&format!("cannot do live upgrade for a unhealthy volume {name}"));
        } else if is_used && is_local {
            let why = format!("cannot do live upgrade for an attached strict-local volume {name}");
            self.refuse_image(&why);
        } else {
            let why = format!("volume {name} is served by {wanted} when it was detached");
            self.condition(UPGRADE, false, "WaitForDetach", &why);
        }
    }

    fn take_image(&mut self, wanted: &str) {
        if let Some(engine) = &mut self.engine {
            engine.spec.instance.image = Some(wanted.to_owned());
        }
        for replica in &mut self.replicas {
            replica.spec.instance.image = Some(wanted.to_owned());
        }
        self.status.current_image = Some(wanted.to_owned());
        let text = format!("volume {} is served by {wanted} from now on", self.name());
        self.condition(UPGRADE, true, "Upgraded", &text);
        self.tell(Severity::Normal, "EngineUpgraded", text);
    }

    /// Nothing changes, and it is told.
    fn refuse_image(&mut self, why: &str) {
        self.volume.spec.image.clone_from(&self.status.current_image);
        self.condition(UPGRADE, false, "UpgradeRefused", why);
        self.tell(Severity::Warning, "FailedEngineUpgrade", why.to_owned());
    }
}
