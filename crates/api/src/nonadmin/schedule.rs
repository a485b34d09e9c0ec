//! A tenant's schedules: backups asked for again and again.

use super::{Phase, V1ALPHA1};
use crate::condition::Condition;
use crate::resource::{AGE, column, date, resource, text};
use crate::scalar::Time;
use crate::velero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A tenant's rule by which backups of its own namespace are asked for at set times.
    NonAdminSchedule in V1ALPHA1 {
        plural: "nonadminschedules",
        short: ["nas"],
        spec: NonAdminScheduleSpec,
        status: NonAdminScheduleStatus,
        columns: [
            text("Request-Phase", ".status.phase"),
            text("Schedule", ".spec.scheduleSpec.schedule"),
            date("Last-Backup", ".status.lastBackup"),
            column("Paused", "boolean", ".spec.scheduleSpec.paused"),
            AGE,
        ],
    }
}

/// When backups are asked for, and which.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminScheduleSpec {
    /// Spec of a Velero schedule. Its template may only speak of this namespace.
    #[schemars(required)]
    pub schedule_spec: Option<velero::ScheduleSpec>,
}

/// What has become of the schedule.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminScheduleStatus {
    /// Where the schedule is in its life: it is followed once it is Created.
    pub phase: Option<Phase>,
    /// What the schedule has or has not passed, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// When the newest backup was asked for.
    pub last_backup: Option<Time>,
    /// Name of the `NonAdminBackup` that was asked for then.
    pub last_backup_name: Option<String>,
    /// When backups that were missed were last skipped.
    pub last_skipped: Option<Time>,
}
