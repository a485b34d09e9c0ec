//! Opening the store of a target with the credentials of its Secret. One that is open stays so until
//! its URL or its Secret changes.

use std::collections::HashMap;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::longhorn::BackupTarget;
use backupstore::{BackupStore, Environment, TargetUrl};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use reconcile::Key;

use crate::NAMESPACE;
use crate::backup::World;

/// An open store, and what others need to open it, too.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) store: BackupStore,
    pub(crate) url: TargetUrl,
    pub(crate) environment: Environment,
    /// 0 is no limit.
    pub(crate) bytes_per_second: u64,
}

/// All open stores.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    open: Mutex<HashMap<String, (String, Arc<Door>)>>,
    /// What the last look of this process at a target went by.
    seen: Mutex<HashMap<String, String>>,
    /// What the last look that failed went by, and when that was.
    failures: Mutex<HashMap<String, (String, Timestamp)>>,
}

impl Doors {
    pub(crate) fn close(&self, target: &str) {
        lock(&self.open).remove(target);
        lock(&self.seen).remove(target);
    }

    pub(crate) fn is_seen(&self, target: &str, fingerprint: &str) -> bool {
        lock(&self.seen).get(target).is_some_and(|it| it == fingerprint)
    }

    pub(crate) fn failed(&self, target: &str, fingerprint: &str, at: Timestamp) {
        lock(&self.failures).insert(target.to_owned(), (fingerprint.to_owned(), at));
    }

    /// When the last look at this very store failed.
    pub(crate) fn failed_at(&self, target: &str, fingerprint: &str) -> Option<Timestamp> {
        let failures = lock(&self.failures);
        failures.get(target).filter(|(went_by, _)| went_by == fingerprint).map(|(_, at)| *at)
    }

    pub(crate) fn saw(&self, target: &str, fingerprint: &str) {
        lock(&self.seen).insert(target.to_owned(), fingerprint.to_owned());
        lock(&self.failures).remove(target);
    }
}

fn lock<V>(map: &Mutex<HashMap<String, V>>) -> MutexGuard<'_, HashMap<String, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn url(target: &BackupTarget) -> Result<TargetUrl, String> {
    let url = target.spec.backup_target_url.as_deref().unwrap_or_default().trim();
    if url.is_empty() {
        return Err(format!("backup target {} has no URL", target.name_any()));
    }
    TargetUrl::parse(url).map_err(|error| text(&error))
}

/// Where a URL leads, without how to get there: options and keys are the target's own.
pub(crate) fn place(url: &TargetUrl) -> String {
    let text = url.to_string();
    let place = text.split_once('?').map_or(text.as_str(), |(place, _)| place);
    place.trim_end_matches('/').to_owned()
}

/// Changes with whatever decides which store this is and who we are there.
pub(super) fn fingerprint(world: &World, target: &BackupTarget) -> String {
    let secret = target.spec.credential_secret.clone().unwrap_or_default();
    let version =
        world.secrets.get(&Key::new(NAMESPACE, &secret)).and_then(|it| it.resource_version());
    let url = target.spec.backup_target_url.clone().unwrap_or_default();
    format!("{url}\n{secret}\n{}", version.unwrap_or_default())
}

/// The store of a target. Says what is to be done where it cannot be opened.
pub(crate) async fn open(world: &World, name: &str) -> Result<Arc<Door>, String> {
    let target = world.target(name).ok_or_else(|| {
        format!(
            "backup target {name} does not exist; make it, or label the object {}=true to remove it and keep the data",
            crate::label::OBJECT_ONLY
        )
    })?;
    if let (Ok(url), false) = (url(&target), world.backup_volumes.by("target", name).is_empty()) {
        check_mounted(&url)?;
    }
    let fingerprint = fingerprint(world, &target);
    let rate = target.spec.bytes_per_second.map_or(0, |it| u64::try_from(it.0).unwrap_or(0));
    if let Some((known, door)) = lock(&world.doors.open).get(name)
        && *known == fingerprint
        && door.bytes_per_second == rate
    {
        check_directory(&door.url)?;
        return Ok(Arc::clone(door));
    }
    let secret = target.spec.credential_secret.clone().unwrap_or_default();
    let secret = world.secrets.get(&Key::new(NAMESPACE, &secret));
    let door = Arc::new(open_with(&target, secret.as_deref()).await?);
    lock(&world.doors.open).insert(name.to_owned(), (fingerprint, Arc::clone(&door)));
    Ok(door)
}

/// The store of a target, opened anew.
pub(crate) async fn open_with(
    target: &BackupTarget,
    secret: Option<&Secret>,
) -> Result<Door, String> {
    let url = url(target)?;
    check_directory(&url)?;
    let environment = environment(target, secret, &url)?;
    let store = BackupStore::open(&url, &environment).await.map_err(|error| text(&error))?;
    let rate = target.spec.bytes_per_second.map_or(0, |it| u64::try_from(it.0).unwrap_or(0));
    Ok(Door { store, url, environment, bytes_per_second: rate })
}

/// A directory that is not there is most likely not mounted, and not a store without backups.
fn check_directory(url: &TargetUrl) -> Result<(), String> {
    match url.directory().filter(|directory| !directory.is_dir()) {
        None => Ok(()),
        Some(missing) => Err(format!(
            "the directory {} does not exist; make it, or mount what belongs there",
            missing.display()
        )),
    }
}

/// A directory that had backups and has nothing at all in it is most likely a mount point without its
/// file system: what is not there is not deleted, and nothing is written below it. A store that was
/// emptied by deletions still has the file that its writers lock.
fn check_mounted(url: &TargetUrl) -> Result<(), String> {
    let is_empty = |directory: &PathBuf| {
        std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
    };
    match url.directory().filter(is_empty) {
        None => Ok(()),
        Some(empty) => Err(format!(
            "the directory {} had backups and is empty: is its file system mounted? If it was emptied on purpose, label the BackupVolumes of this target {}=true and delete them",
            empty.display(),
            crate::label::OBJECT_ONLY
        )),
    }
}

/// Object stores are never asked with the rights of the machine: those may be another's.
pub(crate) fn environment(
    target: &BackupTarget,
    secret: Option<&Secret>,
    url: &TargetUrl,
) -> Result<Environment, String> {
    let scheme = url.scheme();
    let needed: &[&str] = match scheme {
        "s3" => &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
        "cifs" => &["CIFS_USERNAME", "CIFS_PASSWORD"],
        "azblob" => &["AZBLOB_ACCOUNT_NAME", "AZBLOB_ACCOUNT_KEY"],
        "gs" => &["GOOGLE_SERVICE_ACCOUNT_KEY"],
        _ => &[],
    };
    let name = target.spec.credential_secret.clone().unwrap_or_default();
    if name.is_empty() {
        return if needed.is_empty() {
            Ok(Environment::from_pairs::<&str, String>([]))
        } else {
            Err(format!("could not access {scheme} without credential secret"))
        };
    }
    let secret =
        secret.ok_or_else(|| format!("credential secret {name} does not exist in {NAMESPACE}"))?;
    let data = secret.data.clone().unwrap_or_default();
    let missing: Vec<&str> =
        needed.iter().filter(|key| !data.contains_key(**key)).copied().collect();
    if !missing.is_empty() {
        return Err(format!("could not backup to {scheme}, missing {missing:?} in the secret"));
    }
    let pairs = data.into_iter().map(|(key, value)| (key, value.0));
    Environment::from_secret(pairs).map_err(|error| text(&error))
}

/// One line with all causes.
pub(crate) fn text(error: &backupstore::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some libraries repeat their causes in their own words.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_whose_directory_is_empty_is_not_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let url = TargetUrl::parse(&format!("vfs://{}", dir.path().display())).unwrap();
        assert!(check_directory(&url).is_ok());
        assert!(check_mounted(&url).unwrap_err().contains("is its file system mounted?"));
        std::fs::create_dir(dir.path().join("backupstore")).unwrap();
        assert!(check_mounted(&url).is_ok());
        assert!(check_mounted(&TargetUrl::parse("s3://bucket@region/").unwrap()).is_ok());
    }
}
