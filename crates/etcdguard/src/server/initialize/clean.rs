//! Cleaning the directory of what is on its way to the store.

use std::io;
use std::path::Path;

/// How names begin of files that were to be sent: ours, those of earlier versions, and those of others
/// of this dialect.
const BEGINNINGS: [&str; 4] = ["guard-", "full-", "delta-", "etcd-backup-"];

/// Removes files that somebody who was killed has left; makes the directory where there is none. What is
/// not known stays: the directory is one that somebody named, and may hold what nothing brings back.
pub(super) fn clean(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours =
            BEGINNINGS.iter().any(|it| name.as_encoded_bytes().starts_with(it.as_bytes()));
        if is_ours && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_on_its_way_goes_and_what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let temp = dir.path().join("volume");
        clean(&temp).unwrap();
        std::fs::create_dir_all(temp.join("data.etcd/member")).unwrap();
        std::fs::create_dir(temp.join("full-of-files")).unwrap();
        for name in ["guard-01.tmp", "etcd-backup-17", "notes", "safe_guard"] {
            std::fs::File::create(temp.join(name)).unwrap();
        }
        clean(&temp).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(&temp).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["data.etcd", "full-of-files", "notes", "safe_guard"]);
        assert!(temp.join("data.etcd/member").is_dir());
    }
}
