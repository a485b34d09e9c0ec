//! A backup target: a directory, or a path of a bucket.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::objects::{backup_key, volume_folder};
use super::{Bucket, S3_KEY, S3_SECRET};
use crate::engine::{Cli, Ran, write_file};

/// Older than any lock lives, and than any write takes.
const LONG_AGO: Duration = Duration::from_hours(48);

#[derive(Debug, Clone)]
pub enum Target {
    Directory(PathBuf),
    Bucket {
        bucket: Bucket,
        /// Where its service is said to be.
        endpoint: String,
    },
}

impl Target {
    pub fn directory(path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        Self::Directory(path.to_owned())
    }

    /// A bucket of its own; none, after having said so, where there is no service.
    pub fn bucket() -> Option<Self> {
        let bucket = Bucket::make()?;
        let endpoint = format!("http://{}", bucket.at);
        Some(Self::Bucket { bucket, endpoint })
    }

    /// The same bucket, by another way.
    #[must_use]
    pub fn through(&self, endpoint: &str) -> Self {
        match self {
            Self::Directory(_) => panic!("there is only one way to a directory"),
            Self::Bucket { bucket, .. } => {
                Self::Bucket { bucket: bucket.clone(), endpoint: endpoint.to_owned() }
            }
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Directory(_) => "directory",
            Self::Bucket { .. } => "bucket",
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Directory(path) => format!("vfs://{}", path.display()),
            Self::Bucket { bucket, .. } => {
                format!("s3://{}@us-east-1/{}", bucket.name, bucket.prefix)
            }
        }
    }

    pub fn backup_url(&self, volume: &str, backup: &str) -> String {
        format!("{}?backup={backup}&volume={volume}", self.url())
    }

    /// What whoever uses it must have in its environment.
    pub fn environment(&self) -> Vec<(String, String)> {
        match self {
            Self::Directory(_) => Vec::new(),
            Self::Bucket { endpoint, .. } => [
                ("AWS_ACCESS_KEY_ID", S3_KEY),
                ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
                ("AWS_ENDPOINTS", endpoint),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        }
    }

    /// For commands that need no engine.
    pub fn cli(&self) -> Cli {
        // Nobody listens there.
        Cli::new(1, "").with(&self.environment())
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        match self {
            Self::Directory(path) => std::fs::read(path.join(key)).ok(),
            Self::Bucket { bucket, .. } => bucket.get(key),
        }
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        match self {
            Self::Directory(path) => {
                let path = path.join(key);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                write_file(&path, bytes);
            }
            Self::Bucket { bucket, .. } => bucket.put(key, bytes),
        }
    }

    pub fn put_all(&self, objects: &[(String, Vec<u8>)]) {
        match self {
            Self::Directory(_) => objects.iter().for_each(|(key, bytes)| self.put(key, bytes)),
            Self::Bucket { bucket, .. } => bucket.put_all(objects),
        }
    }

    pub fn remove(&self, key: &str) {
        match self {
            Self::Directory(path) => std::fs::remove_file(path.join(key)).unwrap(),
            Self::Bucket { bucket, .. } => bucket.remove(key),
        }
    }

    /// Keys of all objects, in order.
    pub fn keys(&self) -> Vec<String> {
        match self {
            Self::Directory(path) => {
                let mut keys = Vec::new();
                collect(path, &path.join("backupstore"), &mut keys);
                keys.sort();
                keys
            }
            Self::Bucket { bucket, .. } => bucket.keys(),
        }
    }

    /// Keys of the blocks of a volume.
    pub fn blocks(&self, volume: &str) -> Vec<String> {
        let folder = format!("{}/blocks/", volume_folder(volume));
        self.keys().into_iter().filter(|key| key.starts_with(&folder)).collect()
    }

    /// The record of a backup.
    #[track_caller]
    pub fn record(&self, volume: &str, backup: &str) -> Value {
        let bytes = self.get(&backup_key(volume, backup));
        serde_json::from_slice(&bytes.unwrap_or_else(|| panic!("no record of {backup}"))).unwrap()
    }

    /// Names of the backups of a volume that are complete, by their records.
    pub fn complete(&self, volume: &str) -> Vec<String> {
        let folder = format!("{}/backups/backup_", volume_folder(volume));
        let keys = self.keys();
        let names = keys.iter().filter_map(|key| key.strip_prefix(&folder)?.strip_suffix(".cfg"));
        let is_complete = |name: &&str| {
            let bytes = self.get(&backup_key(volume, name)).unwrap_or_default();
            let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            record["CreatedTime"].as_str().is_some_and(|it| !it.is_empty())
        };
        names.filter(is_complete).map(str::to_owned).collect()
    }

    /// As if all who hold locks, or left files half written, had died long ago. Only where time can
    /// be turned back: in a directory.
    pub fn age(&self) {
        let Self::Directory(path) = self else { panic!("the times of a bucket are its own") };
        let left = |key: &String| key.contains("/locks/") || key.contains("/.");
        for key in self.keys().iter().filter(|key| left(key)) {
            // One that is gone was given back.
            if let Ok(file) = std::fs::File::options().write(true).open(path.join(key)) {
                file.set_modified(SystemTime::now() - LONG_AGO).unwrap();
            }
        }
    }

    /// `backup verify --deep` of a volume.
    pub fn verify(&self, volume: &str) -> (Ran, Value) {
        let ran = self.cli().call(&["backup", "verify", "--deep", "--volume", volume, &self.url()]);
        let report = serde_json::Deserializer::from_str(&ran.stdout).into_iter().next();
        let report = report.and_then(Result::ok).unwrap_or_default();
        (ran, report)
    }

    /// Every backup verifies, and there is no block that none needs.
    #[track_caller]
    pub fn assert_sound(&self, volume: &str) {
        let (ran, report) = self.verify(volume);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        assert_eq!(report["orphanBlocks"], 0, "{report}");
        assert_eq!(report["inProgress"].as_array().map(Vec::len), Some(0), "{report}");
        let found = self.blocks(volume);
        let needed = self.needed_blocks(volume);
        assert_eq!(found, needed, "blocks in the store, and those that records name");
    }

    /// Keys of the blocks that complete backups name.
    pub fn needed_blocks(&self, volume: &str) -> Vec<String> {
        let mut needed = std::collections::BTreeSet::new();
        for backup in self.complete(volume) {
            let record = self.record(volume, &backup);
            for block in record["Blocks"].as_array().into_iter().flatten() {
                needed.insert(super::block_key(volume, block["BlockChecksum"].as_str().unwrap()));
            }
        }
        needed.into_iter().collect()
    }
}

fn collect(root: &Path, dir: &Path, keys: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, keys);
        } else {
            let key = path.strip_prefix(root).unwrap();
            keys.push(key.to_str().unwrap().to_owned());
        }
    }
}
