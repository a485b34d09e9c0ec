//! Backup targets: the stores backups go to.

use super::V1BETA2;
use super::condition::Condition;
use crate::duration::GoDuration;
use crate::resource::{column, resource, text};
use crate::scalar::Time;
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
}
