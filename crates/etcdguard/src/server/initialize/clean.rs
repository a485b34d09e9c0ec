//! Cleaning the directory of what is on its way to the store.

use std::io;
use std::path::Path;

/// How names begin of files that were to be sent, ours and those of earlier versions; they end as temporary ones.
const OURS: [&str; 3] = ["guard-", "full-", "delta-"];
const OURS_END: &str = ".tmp";
/// Of others of this dialect.
const OTHERS: &str = "etcd-backup-";

/// Removes files that somebody who was killed has left; makes the directory where there is none. What is
/// not known stays: the directory is one that somebody named, and may hold what nothing brings back.
pub(super) fn clean(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if is_known(entry.file_name().as_encoded_bytes()) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_known(name: &[u8]) -> bool {
    let is_ours = OURS.iter().any(|it| name.starts_with(it.as_bytes()));
    (is_ours && name.ends_with(OURS_END.as_bytes())) || name.starts_with(OTHERS.as_bytes())
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
        for name in [
            "guard-01.tmp",
            "full-0a.tmp",
            "etcd-backup-17",
            "full-2024.tar",
            "notes",
            "safe_guard",
        ] {
            std::fs::File::create(temp.join(name)).unwrap();
        }
        clean(&temp).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(&temp).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["data.etcd", "full-2024.tar", "full-of-files", "notes", "safe_guard"]);
        assert!(temp.join("data.etcd/member").is_dir());
    }
}
