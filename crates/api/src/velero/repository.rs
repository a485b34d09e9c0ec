//! Repositories of copied files: one for each namespace, location and program.

use std::collections::BTreeMap;

use super::V1;
use crate::duration::GoDuration;
use crate::resource::{AGE, resource, text};
use crate::scalar::Time;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A repository of pod volume copies in a backup store.
    BackupRepository in V1 {
        plural: "backuprepositories",
        short: [],
        spec: BackupRepositorySpec,
        status: BackupRepositoryStatus,
        columns: [AGE, text("Repository Type", ".spec.repositoryType")],
    }
}

words! {
    /// The program whose repository it is.
    open RepositoryKind {
        Kopia = "kopia",
        Restic = "restic",
        Unset = "",
    }
}

/// Which volumes a repository is for, and where it is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRepositorySpec {
    /// Namespace whose pod volumes are kept in it.
    #[schemars(required)]
    pub volume_namespace: Option<String>,
    /// Backup storage location it is in.
    #[schemars(required)]
    pub backup_storage_location: Option<String>,
    /// Program whose repository it is.
    pub repository_type: Option<RepositoryKind>,
    /// Address of the repository for the restic program.
    pub restic_identifier: Option<String>,
    /// How often unused data is removed.
    #[schemars(required)]
    pub maintenance_frequency: Option<GoDuration>,
    /// Settings of the program.
    pub repository_config: Option<BTreeMap<String, String>>,
}

words! {
    /// Whether a repository can be used.
    open RepositoryPhase {
        New = "New",
        Ready = "Ready",
        NotReady = "NotReady",
    }
}

/// How a repository is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRepositoryStatus {
    /// Whether it can be used.
    pub phase: Option<RepositoryPhase>,
    /// Why it cannot be used.
    pub message: Option<String>,
    /// When maintenance last ended well.
    pub last_maintenance_time: Option<Time>,
    /// The newest runs of maintenance.
    pub recent_maintenance: Option<Vec<Maintenance>>,
}

words! {
    /// How a run of maintenance ended.
    open MaintenanceResult {
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}

/// One run of maintenance.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// How it ended.
    pub result: Option<MaintenanceResult>,
    /// When it began.
    pub start_timestamp: Option<Time>,
    /// When it ended.
    pub complete_timestamp: Option<Time>,
    /// What went wrong.
    pub message: Option<String>,
}
