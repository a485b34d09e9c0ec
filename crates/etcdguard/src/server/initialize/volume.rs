//! The mark on a volume that says whose it is, so that a directory of another namespace is never
//! taken for our own.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const NAME: &str = "safe_guard";
/// Longer than any namespace.
const MAX_BYTES: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("the mark {} says the volume is of namespace {found:?}, not {wanted:?}", path.display())]
    Wrong { path: PathBuf, found: String, wanted: String },
    #[error("cannot read the mark of the volume")]
    Read(#[source] durable::Error),
    #[error("cannot write the mark of the volume")]
    Write(#[source] durable::Error),
    #[error("cannot look after the mark {}", path.display())]
    Mode { path: PathBuf, source: io::Error },
}

/// Makes sure that the volume of the data directory is that of `namespace`; marks one without mark.
pub(crate) fn check(data_dir: &Path, namespace: Option<&str>) -> Result<(), VolumeError> {
    let Some(wanted) = namespace else {
        tracing::warn!("POD_NAMESPACE is not set: whose the volume is cannot be checked");
        return Ok(());
    };
    let parent = parent(data_dir);
    let path = parent.join(NAME);
    match durable::read_limited(&path, MAX_BYTES) {
        Ok(found) if found == wanted.as_bytes() => protect(&path),
        Ok(found) => Err(VolumeError::Wrong {
            path,
            found: String::from_utf8_lossy(&found).into_owned(),
            wanted: wanted.to_owned(),
        }),
        Err(error) if error.is_not_found() => {
            if !parent.exists() {
                durable::create_dir_private(&parent).map_err(VolumeError::Write)?;
            }
            durable::replace_private(&path, wanted.as_bytes()).map_err(VolumeError::Write)
        }
        Err(error) => Err(VolumeError::Read(error)),
    }
}

fn protect(path: &Path) -> Result<(), VolumeError> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|source| VolumeError::Mode { path: path.to_owned(), source })
}

fn parent(data_dir: &Path) -> PathBuf {
    match data_dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_keeps_its_first_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("new.etcd");
        check(&data, None).unwrap();
        assert!(!dir.path().join(NAME).exists());
        check(&data, Some("ns1")).unwrap();
        check(&data, Some("ns1")).unwrap();
        let mark = dir.path().join(NAME);
        assert_eq!(std::fs::read(&mark).unwrap(), b"ns1");
        assert_eq!(std::fs::metadata(&mark).unwrap().permissions().mode() & 0o777, 0o600);
        let error = check(&data, Some("ns2")).unwrap_err();
        assert!(matches!(error, VolumeError::Wrong { .. }), "{error}");
        assert_eq!(std::fs::read(&mark).unwrap(), b"ns1", "nothing was touched");
    }

    #[test]
    fn a_directory_without_a_parent_has_one() {
        assert_eq!(parent(Path::new("default.etcd")), Path::new("."));
        assert_eq!(parent(Path::new("/a/b")), Path::new("/a"));
    }
}
