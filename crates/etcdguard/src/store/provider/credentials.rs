//! Credentials: one JSON file, or a directory with one value a file.
//!
//! Owns: where they are looked for, and the print by which a change of them is seen. Never: what
//! the values mean.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};

use crate::store::config::{Environment, Provider};
use crate::store::error::StoreError;

const FILE_MAX_BYTES: usize = 256 * 1024;
/// Values of one provider.
const FILES_MAX: usize = 64;

/// The variables that name the file and the directory.
pub(super) const fn variables(provider: Provider) -> Option<(&'static str, &'static str)> {
    match provider {
        Provider::S3 => Some(("AWS_APPLICATION_CREDENTIALS_JSON", "AWS_APPLICATION_CREDENTIALS")),
        Provider::Abs => {
            Some(("AZURE_APPLICATION_CREDENTIALS_JSON", "AZURE_APPLICATION_CREDENTIALS"))
        }
        Provider::Swift => {
            Some(("OPENSTACK_APPLICATION_CREDENTIALS_JSON", "OPENSTACK_APPLICATION_CREDENTIALS"))
        }
        Provider::Oss => {
            Some(("ALICLOUD_APPLICATION_CREDENTIALS_JSON", "ALICLOUD_APPLICATION_CREDENTIALS"))
        }
        Provider::Ocs => {
            Some(("OPENSHIFT_APPLICATION_CREDENTIALS_JSON", "OPENSHIFT_APPLICATION_CREDENTIALS"))
        }
        Provider::Local | Provider::Gcs | Provider::Ecs | Provider::Failed => None,
    }
}

/// Where the values lie.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Json(PathBuf),
    Directory(PathBuf),
}

fn place(provider: Provider, prefix: &str, environment: &Environment) -> Option<Place> {
    let (json, directory) = variables(provider)?;
    if let Some(path) = environment.get(&format!("{prefix}{json}")) {
        return Some(Place::Json(path.into()));
    }
    let directory = PathBuf::from(environment.get(&format!("{prefix}{directory}"))?);
    // A JSON file inside wins over single values.
    let json = files_in(&directory)
        .into_iter()
        .find(|path| path.extension().is_some_and(|it| it == "json"));
    Some(json.map_or(Place::Directory(directory), Place::Json))
}

/// In the order of their names; none where the directory cannot be read.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        // Those that begin with dots are the machinery of mounted secrets.
        .filter(|path| {
            path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
        })
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files.truncate(FILES_MAX);
    files
}

/// Values by their names.
#[derive(Debug)]
pub(super) struct Fields {
    path: PathBuf,
    values: BTreeMap<String, SecretString>,
}

impl Fields {
    /// None where no variable says where.
    pub(super) fn read(
        provider: Provider,
        prefix: &str,
        environment: &Environment,
    ) -> Result<Option<Self>, StoreError> {
        match place(provider, prefix, environment) {
            None => Ok(None),
            Some(Place::Json(path)) => Self::of_json(path).map(Some),
            Some(Place::Directory(path)) => Self::of_directory(path).map(Some),
        }
    }

    /// Of the environment; `path` is how they are called where they are wrong.
    pub(super) fn of_variables(path: &str, values: BTreeMap<String, &str>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name, value.into())).collect();
        Self { path: path.into(), values }
    }

    fn of_json(path: PathBuf) -> Result<Self, StoreError> {
        let bytes = read(&path)?;
        let bad =
            |what: &str| StoreError::BadCredentials { path: path.clone(), what: what.to_owned() };
        let json: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&bytes).map_err(|_| bad("they are no JSON object"))?;
        let mut values = BTreeMap::new();
        for (name, value) in json {
            let value = match value {
                serde_json::Value::String(text) => text,
                serde_json::Value::Bool(is) => is.to_string(),
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::Null => continue,
                serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                    return Err(bad(&format!("{name} is no text")));
                }
            };
            values.insert(name, value.into());
        }
        Ok(Self { path, values })
    }

    fn of_directory(path: PathBuf) -> Result<Self, StoreError> {
        if let Err(source) = path.read_dir() {
            return Err(StoreError::Credentials { path, source });
        }
        let mut values = BTreeMap::new();
        for file in files_in(&path) {
            let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
            let text = String::from_utf8(read(&file)?).map_err(|_| StoreError::BadCredentials {
                path: file.clone(),
                what: "it is no text".to_owned(),
            })?;
            // An end of line was left by an editor; no key has one.
            values.insert(name.to_owned(), text.trim_end_matches(['\r', '\n']).into());
        }
        Ok(Self { path, values })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Empty is missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(ExposeSecret::expose_secret).filter(|value| !value.is_empty())
    }

    pub(super) fn need(&self, name: &'static str) -> Result<&str, StoreError> {
        self.get(name).ok_or_else(|| self.bad(&format!("{name} is missing")))
    }

    pub(super) fn switch(&self, name: &str) -> Result<Option<bool>, StoreError> {
        match self.get(name) {
            None => Ok(None),
            Some("true" | "True" | "TRUE" | "t" | "T" | "1") => Ok(Some(true)),
            Some("false" | "False" | "FALSE" | "f" | "F" | "0") => Ok(Some(false)),
            Some(_) => Err(self.bad(&format!("{name} is neither true nor false"))),
        }
    }

    pub(super) fn bad(&self, what: &str) -> StoreError {
        StoreError::BadCredentials { path: self.path.clone(), what: what.to_owned() }
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    durable::read_limited(path, FILE_MAX_BYTES).map_err(|error| StoreError::Credentials {
        path: path.to_owned(),
        source: std::io::Error::other(error),
    })
}

/// By which a change of files is seen: their names, lengths and times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Print(Vec<(PathBuf, Option<(u64, SystemTime)>)>);

impl Print {
    pub(super) fn of(provider: Provider, prefix: &str, environment: &Environment) -> Self {
        let files = match (provider, place(provider, prefix, environment)) {
            (_, Some(Place::Json(path))) => vec![path],
            (_, Some(Place::Directory(path))) => files_in(&path),
            (Provider::Gcs, None) => {
                let file = super::gcs::file(prefix, environment);
                file.iter().filter_map(|file| file.parent().map(files_in)).flatten().collect()
            }
            (
                Provider::Local
                | Provider::S3
                | Provider::Abs
                | Provider::Swift
                | Provider::Oss
                | Provider::Ecs
                | Provider::Ocs
                | Provider::Failed,
                None,
            ) => Vec::new(),
        };
        let stat = |path: PathBuf| {
            let found = path.metadata().ok().and_then(|it| Some((it.len(), it.modified().ok()?)));
            (path, found)
        };
        Self(files.into_iter().map(stat).collect())
    }
}

#[cfg(test)]
mod tests;
