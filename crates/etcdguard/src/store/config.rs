//! Settings of a store, and the environment that completes them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::StoreError;

/// The directory of the Local provider where no container is named.
pub const LOCAL_CONTAINER: &str = "default.bkp";
const CONTAINER_VARIABLE: &str = "STORAGE_CONTAINER";
pub const MIN_CHUNK_BYTES: u64 = 5 << 20;

/// As in the configuration file; one for the store, its source and its second site each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreConfig {
    /// Empty: no backups, or Local, as the command says.
    pub provider: String,
    pub container: String,
    pub prefix: String,
    pub endpoint_override: String,
    pub max_parallel_chunk_uploads: u32,
    pub min_chunk_size: i64,
    pub temp_dir: String,
    /// Before the names of variables: empty, `SOURCE_` or `SECONDARY_`.
    pub env_prefix: String,
    pub is_source: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            provider: String::new(),
            container: String::new(),
            prefix: String::new(),
            endpoint_override: String::new(),
            max_parallel_chunk_uploads: 5,
            min_chunk_size: 5 << 20,
            temp_dir: "/tmp".to_owned(),
            env_prefix: String::new(),
            is_source: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadStoreConfig {
    #[error("max parallel chunk uploads should be greater than zero")]
    ParallelUploads,
    #[error("min chunk size for multi-part chunk upload should be greater than or equal to 5 MiB")]
    ChunkSize,
}

impl StoreConfig {
    /// What can be said without the environment.
    pub fn validate(&self) -> Result<(), BadStoreConfig> {
        if self.max_parallel_chunk_uploads == 0 {
            return Err(BadStoreConfig::ParallelUploads);
        }
        if u64::try_from(self.min_chunk_size).is_ok_and(|size| size >= MIN_CHUNK_BYTES) {
            Ok(())
        } else {
            Err(BadStoreConfig::ChunkSize)
        }
    }

    pub(super) fn container(
        &self,
        provider: Provider,
        environment: &Environment,
    ) -> Result<String, StoreError> {
        if !self.container.is_empty() {
            return Ok(self.container.clone());
        }
        let variable = format!("{}{CONTAINER_VARIABLE}", self.env_prefix);
        match environment.get(&variable) {
            Some(container) => Ok(container.to_owned()),
            None if provider == Provider::Local => Ok(LOCAL_CONTAINER.to_owned()),
            None => Err(StoreError::NoContainer { variable }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    Local,
    S3,
    Abs,
    Gcs,
    Swift,
    Oss,
    Ecs,
    Ocs,
    /// Fails always, for tests of what is around it.
    Failed,
}

impl Provider {
    pub const ALL: [Self; 9] = [
        Self::Local,
        Self::S3,
        Self::Abs,
        Self::Gcs,
        Self::Swift,
        Self::Oss,
        Self::Ecs,
        Self::Ocs,
        Self::Failed,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "Local",
            Self::S3 => "S3",
            Self::Abs => "ABS",
            Self::Gcs => "GCS",
            Self::Swift => "Swift",
            Self::Oss => "OSS",
            Self::Ecs => "ECS",
            Self::Ocs => "OCS",
            Self::Failed => "FAILED",
        }
    }
}

impl FromStr for Provider {
    type Err = StoreError;

    /// No name is Local.
    fn from_str(name: &str) -> Result<Self, StoreError> {
        if name.is_empty() {
            return Ok(Self::Local);
        }
        let known = Self::ALL.into_iter().find(|provider| provider.name() == name);
        known.ok_or_else(|| StoreError::Provider { provider: name.to_owned() })
    }
}

/// The variables of the process, or of a test.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Names only: values may be secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Those that are text.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// Empty is not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn home(&self) -> PathBuf {
        self.get("HOME").map(PathBuf::from).unwrap_or_default()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_file_and_missing_ones_are_the_defaults() {
        let config: StoreConfig =
            serde_json::from_str(r#"{"provider":"S3","minChunkSize":1}"#).unwrap();
        assert_eq!(config.max_parallel_chunk_uploads, 5);
        assert_eq!(config.validate(), Err(BadStoreConfig::ChunkSize));
        let keys = serde_json::to_value(StoreConfig::default()).unwrap();
        let keys: Vec<&String> = keys.as_object().unwrap().keys().collect();
        let wanted = "container endpointOverride envPrefix isSource maxParallelChunkUploads minChunkSize prefix provider tempDir";
        assert_eq!(keys, wanted.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn the_container_comes_from_the_variable_of_its_store() {
        let environment: Environment =
            [("STORAGE_CONTAINER", "a"), ("SOURCE_STORAGE_CONTAINER", "b")].into_iter().collect();
        let mut config = StoreConfig::default();
        assert_eq!(config.container(Provider::S3, &environment).unwrap(), "a");
        config.env_prefix = "SOURCE_".to_owned();
        assert_eq!(config.container(Provider::Local, &environment).unwrap(), "b");
        config.env_prefix = "SECONDARY_".to_owned();
        assert_eq!(config.container(Provider::Local, &environment).unwrap(), LOCAL_CONTAINER);
        assert!(config.container(Provider::S3, &environment).is_err());
        config.container = "c".to_owned();
        assert_eq!(config.container(Provider::S3, &environment).unwrap(), "c");
    }
}
