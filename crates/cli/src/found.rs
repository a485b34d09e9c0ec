//! Files that are used because they lie where a command is started, and not because somebody named
//! them. Who can put one into a shared directory would choose for others whom they ask, as whom, and
//! which program tells who they are.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Others may write to it.
const OTHERS_WRITE: u32 = 0o022;
/// A directory where everybody may make files, and remove only their own.
const STICKY: u32 = 0o1000;

/// A file that nobody has named, and that is not the caller's own.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{path} lies here, but somebody else may have put it here; name it with {option} to use it"
)]
pub struct NotOwn {
    path: String,
    option: &'static str,
}

/// Whether the file can be used although nobody has named it: it and its directory belong to the
/// caller, or to root, and nobody else can write to them.
///
/// # Errors
///
/// When it cannot.
pub fn check(path: &Path, option: &'static str) -> Result<(), NotOwn> {
    let caller = rustix::process::geteuid().as_raw();
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_own = [path, dir].into_iter().all(|it| {
        // The link too: its owner chooses where it leads.
        let both = [std::fs::symlink_metadata(it), std::fs::metadata(it)];
        both.into_iter().all(|it| it.is_ok_and(|it| is_own(&it, caller)))
    });
    let not_own = || NotOwn { path: path.display().to_string(), option };
    if is_own { Ok(()) } else { Err(not_own()) }
}

fn is_own(it: &Metadata, caller: u32) -> bool {
    let is_writable = !it.is_symlink() && it.mode() & OTHERS_WRITE != 0;
    // In a shared directory the file's own owner decides.
    let is_shared = it.is_dir() && it.mode() & STICKY != 0;
    (it.uid() == caller || it.uid() == 0) && (!is_writable || is_shared)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    #[test]
    fn only_ones_own_files_are_used_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let file = data.join("kubeconfig");
        std::fs::create_dir(&data).unwrap();
        drop(std::fs::File::create(&file).unwrap());
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&data, 0o755);
        mode(&file, 0o600);
        assert_eq!(check(&file, "--kubeconfig"), Ok(()));
        mode(&file, 0o622);
        check(&file, "--kubeconfig").unwrap_err();
        mode(&file, 0o600);
        mode(&data, 0o777);
        check(&file, "--kubeconfig").unwrap_err();
        mode(&data, 0o755);
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(check(&link, "--config"), Ok(()));
        check(&dir.path().join("nothing"), "--config").unwrap_err();
        // Only root can give files away; others cannot try the rest.
        if chown(&file, Some(65534), None).is_ok() {
            let told = check(&file, "--kubeconfig").unwrap_err().to_string();
            assert!(told.contains("name it with --kubeconfig"), "{told}");
        }
    }
}
