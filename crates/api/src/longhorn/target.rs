//! Backup targets: the stores backups go to.

use super::V1BETA2;
use super::condition::Condition;
use super::rules;
use crate::duration::GoDuration;
use crate::resource::{column, resource, text};
use crate::scalar::{TextInt, Time};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A store that receives backups.
    BackupTarget in V1BETA2 {
        plural: "backuptargets",
        short: ["lhbt"],
        spec: BackupTargetSpec,
        status: BackupTargetStatus,
        columns: [
            text("URL", ".spec.backupTargetURL"),
            text("Credential", ".spec.credentialSecret"),
            text("PollInterval", ".spec.pollInterval"),
            column("Available", "boolean", ".status.available"),
            text("LastSyncedAt", ".status.lastSyncedAt"),
        ],
    }
}

/// How a store is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupTargetSpec {
    /// URL of the store: `s3://bucket@region/path`, `nfs://host:/path` and others. Empty: none.
    #[serde(rename = "backupTargetURL")]
    pub backup_target_url: Option<String>,
    /// Secret with the credentials.
    pub credential_secret: Option<String>,
    /// How often the store is read. 0: only when asked.
    pub poll_interval: Option<GoDuration>,
    /// Asks to read the store, if that was last done before this time.
    pub sync_requested_at: Option<Time>,
    /// Bytes that all backups together may send to it in a second, as text: `"10485760"`. 0 or absent: no
    /// limit.
    #[schemars(transform = rules::not_negative)]
    pub bytes_per_second: Option<TextInt>,
    /// When and how deep its backups are looked at.
    pub verification: Option<TargetVerification>,
}

words! {
    /// How deep backups are looked at.
    open VerificationDepth {
        /// Records, and whether every block they name is there.
        Quick = "quick",
        /// Every block is fetched, unpacked and hashed, too.
        Deep = "deep",
        /// The newest backup of each volume is restored into a file that is thrown away.
        Drill = "drill",
    }
}

/// When and how deep the backups of a store are looked at.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetVerification {
    /// When, as five-field cron. Empty: never.
    #[schemars(transform = rules::cron_or_never)]
    pub cron: Option<String>,
    /// How deep. Quick, unless it says otherwise.
    pub depth: Option<VerificationDepth>,
}

/// What a look at the backups of a store found.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetVerified {
    /// `Healthy`, `Damaged` or `Unknown`.
    pub result: Option<String>,
    /// How many backups were looked at, and what is wrong with them.
    pub message: Option<String>,
    /// When the last look began.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// When the next one begins.
    pub next_at: Option<Time>,
}

/// How a store is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupTargetStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Whether it can be reached.
    pub available: Option<bool>,
    /// Why it cannot be reached.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// When it was last read.
    pub last_synced_at: Option<Time>,
    /// What the last look at its backups found.
    pub verification: Option<TargetVerified>,
}
