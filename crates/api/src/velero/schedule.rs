//! Schedules: backups made again and again.

use super::V1;
use super::backup::BackupSpec;
use crate::resource::{AGE, column, date, resource, text};
use crate::scalar::Time;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A rule by which backups are made at set times.
    Schedule in V1 {
        plural: "schedules",
        short: [],
        spec: ScheduleSpec,
        status: ScheduleStatus,
        columns: [
            text("Status", ".status.phase"),
            text("Schedule", ".spec.schedule"),
            date("LastBackup", ".status.lastBackup"),
            AGE,
            column("Paused", "boolean", ".spec.paused"),
        ],
    }
}

/// When backups are made, and which.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// Spec of the backups.
    #[schemars(required)]
    pub template: Option<BackupSpec>,
    /// Five-field cron expression or a word like `@daily`, with `CRON_TZ=<zone>` before it if it is
    /// not meant in the server's time zone.
    #[schemars(required)]
    pub schedule: Option<String>,
    /// Whether backups belong to the schedule and go when it goes.
    pub use_owner_references_in_backup: Option<bool>,
    /// Whether no backups are made for now.
    pub paused: Option<bool>,
    /// Whether the first backup waits for the next set time instead of being made at once.
    pub skip_immediately: Option<bool>,
}

words! {
    /// Whether a schedule is followed.
    open SchedulePhase {
        New = "New",
        Enabled = "Enabled",
        FailedValidation = "FailedValidation",
    }
}

/// What has become of a schedule.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// Whether the schedule is followed.
    pub phase: Option<SchedulePhase>,
    /// When the newest backup was made.
    pub last_backup: Option<Time>,
    /// When a backup was last skipped.
    pub last_skipped: Option<Time>,
    /// What is wrong with the spec.
    pub validation_errors: Option<Vec<String>>,
}
