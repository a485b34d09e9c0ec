//! Volumes that follow the backups of another, and take over.

use api::longhorn::{Engine, Frontend, Volume, VolumeSpec};

/// It follows, and is served to nobody.
pub fn make_standby(spec: &mut VolumeSpec) {
    spec.standby = Some(true);
    spec.frontend = Some(Frontend::None);
}

/// What makes a standby volume an ordinary one.
pub fn activation() -> serde_json::Value {
    serde_json::json!({ "spec": { "Standby": false, "frontend": "blockdev" } })
}

pub fn is_standby(volume: &Volume) -> bool {
    volume.status.as_ref().is_some_and(|it| it.is_standby == Some(true))
        || volume.spec.standby == Some(true)
}

/// How a standby volume stands beside its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Following {
    /// The newest backup of the source that is known.
    pub newest: String,
    /// What all copies hold.
    pub holds: String,
    /// How far its copies are with what they restore now, in percent.
    pub progress: Option<i32>,
}

impl Following {
    pub fn of(volume: &Volume, engine: Option<&Engine>) -> Self {
        let status = volume.status.clone().unwrap_or_default();
        let engine = engine.and_then(|it| it.status.clone()).unwrap_or_default();
        let restores = engine.restore_status.unwrap_or_default();
        let running = restores.values().filter(|it| it.is_restoring == Some(true));
        Self {
            newest: status.last_backup.unwrap_or_default(),
            holds: engine.last_restored_backup.unwrap_or_default(),
            progress: running.map(|it| it.progress.unwrap_or(0)).min(),
        }
    }

    pub fn told(&self) -> String {
        match (self.progress, self.is_up_to_date()) {
            (Some(progress), _) => format!("restoring {progress} %"),
            (None, true) => "up to date".to_owned(),
            (None, false) => "behind".to_owned(),
        }
    }

    pub fn is_up_to_date(&self) -> bool {
        self.newest == self.holds && !self.newest.is_empty()
    }
}
