//! Recurring jobs: snapshots, backups and clean-ups at set times.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::rules;
use crate::resource::{AGE, column, resource, text};
use crate::scalar::Time;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// Work done on volumes at set times.
    RecurringJob in V1BETA2 {
        plural: "recurringjobs",
        short: ["lhrj"],
        spec: RecurringJobSpec,
        status: RecurringJobStatus,
        columns: [
            text("Groups", ".spec.groups"),
            text("Task", ".spec.task"),
            text("Cron", ".spec.cron"),
            text("RetentionPolicy", ".spec.retentionPolicy"),
            column("RetainCount", "integer", ".spec.retain"),
            text("RetainAge", ".spec.retainAge"),
            column("Concurrency", "integer", ".spec.concurrency"),
            AGE,
            text("Labels", ".spec.labels"),
            text("LastResult", ".status.lastResult"),
            text("NextRunAt", ".status.nextRunAt"),
        ],
    }
}

words! {
    /// What a job does.
    open RecurringTask {
        Snapshot = "snapshot",
        SnapshotForceCreate = "snapshot-force-create",
        SnapshotCleanup = "snapshot-cleanup",
        SnapshotDelete = "snapshot-delete",
        Backup = "backup",
        BackupForceCreate = "backup-force-create",
        FilesystemTrim = "filesystem-trim",
        SystemBackup = "system-backup",
    }
}

words! {
    /// What decides how long results are kept.
    open RetentionPolicy {
        CountBased = "count-based",
        AgeBased = "age-based",
        /// Count-based.
        Unset = "",
    }
}

/// What a job does, when, and to which volumes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::job)]
pub struct RecurringJobSpec {
    /// Name of the job.
    pub name: Option<String>,
    /// Groups of volumes it is for; `default` is every volume without a job of its own.
    pub groups: Option<Vec<String>>,
    /// What it does.
    pub task: Option<RecurringTask>,
    /// When, as five-field cron.
    #[schemars(transform = rules::cron)]
    pub cron: Option<String>,
    /// How many results are kept, when they are counted.
    #[schemars(range(min = 0))]
    pub retain: Option<i32>,
    /// How long results are kept, when their age decides, as `720h`.
    #[schemars(transform = rules::duration)]
    pub retain_age: Option<String>,
    /// Whether results are kept by count or by age.
    pub retention_policy: Option<RetentionPolicy>,
    /// How many volumes it works on at once.
    #[schemars(range(min = 0))]
    pub concurrency: Option<i32>,
    /// Labels for the results.
    pub labels: Option<BTreeMap<String, String>>,
    /// Settings of the task: `full-backup-interval`, `volume-backup-policy`, `deadline` (how long a
    /// run may take).
    #[schemars(transform = rules::parameters)]
    pub parameters: Option<BTreeMap<String, String>>,
}

/// How often a job ran.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecurringJobStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Runs so far.
    pub execution_count: Option<i64>,
    /// When it last began a run.
    pub last_run_at: Option<Time>,
    /// When it begins the next one.
    pub next_run_at: Option<Time>,
    /// Whether a run is under way.
    pub running: Option<bool>,
    /// What came of the last run that ended: `Succeeded`, `Failed`, `DeadlineExceeded`, `Canceled` or
    /// `Interrupted`.
    pub last_result: Option<String>,
    /// What that run did, and to which volumes it could not.
    pub last_message: Option<String>,
    /// When that run ended.
    pub last_finished_at: Option<Time>,
}
