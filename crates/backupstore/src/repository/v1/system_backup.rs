//! `system-backup.cfg`: what is known of a saved system, whose archive lies beside it.

use serde::{Deserialize, Serialize};

use super::json;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemBackupCfg {
    #[serde(rename = "Name")]
    pub name: String,
    #[serde(rename = "LonghornVersion")]
    pub version: String,
    #[serde(rename = "LonghornGitCommit")]
    pub git_commit: String,
    #[serde(rename = "BackupTargetURL")]
    pub backup_target_url: String,
    #[serde(rename = "ManagerImage")]
    pub manager_image: String,
    #[serde(rename = "EngineImage")]
    pub engine_image: String,
    #[serde(rename = "CreatedAt")]
    pub created_at: String,
    /// SHA-256 of the archive, in hex.
    #[serde(rename = "Checksum")]
    pub checksum: String,
}

impl SystemBackupCfg {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        json::from_bytes(bytes).map_err(|error| error.to_string())
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        json::to_bytes(self)
    }
}
