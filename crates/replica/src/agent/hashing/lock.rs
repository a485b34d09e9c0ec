//! One snapshot is hashed at a time on a node: hashing reads whole disks. The lock is a file all
//! agents of the node see, or, where there is no such place, one of this agent alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agent::HOST_ROOTS;
use crate::agent::error::JobError;

const CONTROL_PATH: &str = "LONGHORN_CONTROL_PATH";
const CONTROL_PATH_DEFAULT: &str = "/var/lib/longhorn";
/// Files have no queue to wait in that could be left when a job is cancelled.
const ASK_PERIOD: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(crate) enum HashLock {
    OfNode(PathBuf),
    OfAgent(Arc<Semaphore>),
}

/// The lock is held while this lives.
#[derive(Debug)]
pub(crate) enum HashGuard {
    OfNode { _file: File },
    OfAgent { _permit: OwnedSemaphorePermit },
}

impl HashLock {
    pub(crate) fn of_this_node() -> Self {
        let roots = HOST_ROOTS.map(Path::new);
        Self::below(&roots, std::env::var(CONTROL_PATH).unwrap_or_default().as_str())
    }

    /// In the first root that has the control path.
    fn below(roots: &[&Path], control: &str) -> Self {
        let control = control_path(control);
        let control = control.strip_prefix("/").unwrap_or(&control);
        match roots.iter().map(|root| root.join(control)).find(|dir| dir.is_dir()) {
            Some(dir) => Self::OfNode(dir.join(".lock").join("hash")),
            None => Self::OfAgent(Arc::new(Semaphore::new(1))),
        }
    }

    /// Waits for its turn.
    ///
    /// # Cancel safety
    ///
    /// May be dropped while it waits.
    pub(crate) async fn acquire(&self, tasks: &Tasks) -> Result<HashGuard, JobError> {
        match self {
            Self::OfAgent(turns) => {
                let permit = Arc::clone(turns).acquire_owned().await;
                Ok(HashGuard::OfAgent { _permit: permit.map_err(|_| JobError::Stopped)? })
            }
            Self::OfNode(path) => loop {
                let own = path.clone();
                if let Some(file) = tasks.blocking("lock", move || try_lock(&own)).await?? {
                    return Ok(HashGuard::OfNode { _file: file });
                }
                tokio::time::sleep(ASK_PERIOD).await;
            },
        }
    }

    /// Whether some snapshot of this node is being hashed.
    pub(crate) async fn is_held(&self, tasks: &Tasks) -> Result<bool, JobError> {
        match self {
            Self::OfAgent(turns) => Ok(turns.available_permits() == 0),
            Self::OfNode(path) => {
                let path = path.clone();
                Ok(tasks.blocking("lock", move || try_lock(&path)).await??.is_none())
            }
        }
    }
}

fn try_lock(path: &Path) -> Result<Option<File>, JobError> {
    let failed = |source: io::Error| JobError::Io {
        doing: "lock",
        what: path.display().to_string(),
        source,
    };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// What is not a place for files falls back to the default.
fn control_path(given: &str) -> PathBuf {
    let path = Path::new(given);
    let is_bad = !path.is_absolute()
        || path.parent().is_none()
        || path.starts_with("/dev")
        || path.components().any(|part| part.as_os_str() == "..");
    if is_bad { PathBuf::from(CONTROL_PATH_DEFAULT) } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_control_paths_fall_back() {
        for odd in ["", "/", "/dev", "/dev/shm", "var", "/a/../b"] {
            assert_eq!(control_path(odd), Path::new(CONTROL_PATH_DEFAULT), "{odd:?}");
        }
        assert_eq!(control_path("/data/lh"), Path::new("/data/lh"));
    }

    #[tokio::test]
    async fn agents_of_a_node_share_the_lock_and_others_do_not() {
        let host = tempfile::tempdir().unwrap();
        let nowhere = host.path().join("nowhere");
        let roots = [nowhere.as_path(), host.path()];
        let tasks = Tasks::new();
        assert!(matches!(HashLock::below(&roots, "/c"), HashLock::OfAgent(_)));
        fs::create_dir(host.path().join("c")).unwrap();
        let one = HashLock::below(&roots, "/c");
        let other = HashLock::below(&roots, "/c");
        assert!(!other.is_held(&tasks).await.unwrap());
        let guard = one.acquire(&tasks).await.unwrap();
        assert!(other.is_held(&tasks).await.unwrap());
        let waiting = other.acquire(&tasks);
        drop(guard);
        let guard = waiting.await.unwrap();
        assert!(one.is_held(&tasks).await.unwrap());
        drop(guard);
        let alone = HashLock::below(&roots, "/none");
        let guard = alone.acquire(&tasks).await.unwrap();
        assert!(alone.is_held(&tasks).await.unwrap());
        drop(guard);
        assert!(!alone.is_held(&tasks).await.unwrap());
    }
}
