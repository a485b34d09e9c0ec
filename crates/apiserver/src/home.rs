//! The data directory before anything in it is opened: is it ours alone, is it whole, and is the
//! clock behind what was written there?

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How far behind the files a clock may be before it is worth a word.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(5);
const OTHERS: u32 = 0o077;

/// Why a data directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("cannot look at {}", path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error(
        "the object store {} is gone, but the keys in {} are there; restore a copy of it, or move \
         the whole data directory away to start empty",
        objects.display(), pki.display()
    )]
    ObjectsGone { objects: PathBuf, pki: PathBuf },
    #[error(
        "the data directory {} is open to other users (mode {mode:o}) and holds files of others; \
         name a directory of its own, or close it with chmod 700",
        path.display()
    )]
    Shared { path: PathBuf, mode: u32 },
    #[error(
        "the data directory {} is open to other users, and their rights cannot be taken away; \
         name a directory below it, which is then made for the server alone",
        path.display()
    )]
    Open { path: PathBuf, source: io::Error },
}

pub(crate) fn objects(dir: &Path) -> PathBuf {
    dir.join("objects.db")
}

pub(crate) fn pki(dir: &Path) -> PathBuf {
    dir.join("pki")
}

/// Looks at everything there is to look at.
pub(crate) fn check(dir: &Path, now: SystemTime) -> Result<(), HomeError> {
    close(dir)?;
    if is_file(&pki(dir).join("ca.crt"))? && !is_file(&objects(dir))? {
        return Err(HomeError::ObjectsGone { objects: objects(dir), pki: pki(dir) });
    }
    if let Some((path, behind)) = clock_behind(dir, now) {
        tracing::warn!(
            file = %path.display(),
            behind_s = behind.as_secs(),
            "the clock is behind: the file was written {} later than now; leases, tokens and \
             certificates are judged by this clock",
            spell(behind)
        );
    }
    Ok(())
}

fn is_file(path: &Path) -> Result<bool, HomeError> {
    path.try_exists().map_err(|source| HomeError::Look { path: path.to_owned(), source })
}

/// Keys and secrets are inside: nobody else may enter.
fn close(dir: &Path) -> Result<(), HomeError> {
    let look = |source| HomeError::Look { path: dir.to_owned(), source };
    let mode = std::fs::metadata(dir).map_err(look)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    if !is_ours(dir).map_err(look)? {
        return Err(HomeError::Shared { path: dir.to_owned(), mode });
    }
    std::fs::set_permissions(dir, Permissions::from_mode(mode & 0o700))
        .map_err(|source| HomeError::Open { path: dir.to_owned(), source })?;
    tracing::warn!(path = %dir.display(), "the data directory was open to other users; closed it");
    Ok(())
}

/// Our files are in it, or none but those that a first start has just made.
fn is_ours(dir: &Path) -> io::Result<bool> {
    if objects(dir).try_exists()? || pki(dir).try_exists()? {
        return Ok(true);
    }
    for entry in std::fs::read_dir(dir)? {
        if entry?.file_name() != "LOCK" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The file that was written latest, if that is still to come by our clock.
fn clock_behind(dir: &Path, now: SystemTime) -> Option<(PathBuf, Duration)> {
    let files = ["objects.db", "objects.db-wal", "objects.db.mark", "audit.log", "pki/server.crt"];
    let written = files.into_iter().filter_map(|name| {
        let path = dir.join(name);
        let at = std::fs::metadata(&path).ok()?.modified().ok()?;
        Some((path, at.duration_since(now).ok()?))
    });
    written.max_by_key(|(_, behind)| *behind).filter(|(_, behind)| *behind > CLOCK_TOLERANCE)
}

fn spell(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn dir_with(mode: u32, files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::File::create(path).unwrap();
        }
        std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        dir
    }

    #[test]
    fn a_directory_of_ours_is_closed_and_one_of_others_is_refused() {
        for files in [&[][..], &["LOCK"][..], &["objects.db", "pki/ca.crt", "x"][..]] {
            let dir = dir_with(0o755, files);
            check(dir.path(), SystemTime::now()).unwrap();
            assert_eq!(mode(dir.path()), 0o700);
        }
        let dir = dir_with(0o755, &["somebody's"]);
        let error = check(dir.path(), SystemTime::now()).unwrap_err();
        assert!(error.to_string().contains("open to other users (mode 755)"), "{error}");
        assert_eq!(mode(dir.path()), 0o755);
    }

    #[test]
    fn keys_without_objects_are_refused_by_name() {
        let dir = dir_with(0o700, &["pki/ca.crt"]);
        let error = check(dir.path(), SystemTime::now()).unwrap_err();
        assert!(error.to_string().contains("objects.db is gone"), "{error}");
    }

    #[test]
    fn a_clock_two_days_back_is_noticed() {
        let dir = dir_with(0o700, &["objects.db"]);
        let now = SystemTime::now();
        assert!(clock_behind(dir.path(), now).is_none());
        let back = now - Duration::from_hours(49);
        let (path, behind) = clock_behind(dir.path(), back).unwrap();
        assert!(path.ends_with("objects.db"));
        assert_eq!(spell(behind + Duration::from_secs(1)), "2 d 1 h");
    }
}
