//! Setting a data directory aside: it gets another name and goes when it is no longer needed.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::restore;

/// What the name of a directory that is kept for people ends with.
const KEPT_SUFFIX: &str = ".damaged";

/// What moves, and where it moves to.
struct Move {
    from: PathBuf,
    to: PathBuf,
}

impl Move {
    /// Where a link leads is what moves, so that what comes in its place is on the same disk. A mount
    /// point has to stay: what is in it moves, and stays inside.
    fn kept(data_dir: &Path) -> Self {
        let dir = restore::resolved(data_dir);
        if restore::is_mount_point(&dir) {
            return Self { from: dir.join("member"), to: dir.join(restore::INSIDE_DAMAGED) };
        }
        let mut name = dir.as_os_str().to_owned();
        name.push(KEPT_SUFFIX);
        Self { from: dir, to: PathBuf::from(name) }
    }

    /// Durably.
    fn perform(&self) -> io::Result<()> {
        std::fs::rename(&self.from, &self.to)?;
        restore::sync_parent(&self.from)
    }
}

/// The same where no backup can take its place: it may be the only copy there is, and people may mend it,
/// so it stays until they remove it. One that is kept already is the older, and the better one.
pub(super) fn keep_aside(data_dir: &Path) -> io::Result<()> {
    keep(data_dir).and_then(|()| lead_somewhere(data_dir))
}

fn keep(data_dir: &Path) -> io::Result<()> {
    let kept = Move::kept(data_dir);
    let holds_data = data_dir.join("member").try_exists()?;
    if !holds_data || kept.to.try_exists()? {
        return make_way(data_dir);
    }
    tracing::warn!(
        "{} cannot be used, and there is no backup: it is kept as {} for whoever can mend it",
        data_dir.display(),
        kept.to.display()
    );
    kept.perform()
}

/// Moves the directory out of the way, durably; one that is not there is out of the way. An older
/// one that was set aside before goes.
pub(super) fn set_aside(data_dir: &Path) -> io::Result<()> {
    make_way(data_dir).and_then(|()| lead_somewhere(data_dir))
}

fn make_way(data_dir: &Path) -> io::Result<()> {
    let dir = restore::resolved(data_dir);
    let is_mount_point = restore::is_mount_point(&dir);
    let from = if is_mount_point { dir.join("member") } else { dir.clone() };
    // One that is empty is out of the way as well: what was set aside before it may be the only copy.
    if !from.try_exists()? || is_empty(&from)? {
        return Ok(());
    }
    if !is_mount_point {
        return restore::set_aside(&dir).map(drop);
    }
    let to = dir.join(restore::INSIDE_OLD);
    restore::remove(&to)?;
    Move { from, to }.perform()
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

/// A link leads to a directory, also after one that was killed here: etcd makes none where a link leads
/// nowhere.
fn lead_somewhere(data_dir: &Path) -> io::Result<()> {
    let dir = restore::resolved(data_dir);
    if !data_dir.is_symlink() || dir.try_exists()? {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    restore::sync_parent(&dir)
}

/// Removes a directory that was set aside. Call it when etcd has been seen at work.
pub fn remove_old(data_dir: &Path) -> io::Result<()> {
    let dir = restore::resolved(data_dir);
    if !restore::is_mount_point(&dir) {
        return restore::remove_aside(&dir);
    }
    let old = dir.join(restore::INSIDE_OLD);
    if old.try_exists()? {
        tracing::info!("removing {}, which is not needed any more", old.display());
        restore::remove(&old)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_backup_can_replace_is_kept_until_people_remove_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.etcd");
        keep_aside(&data).unwrap();
        for round in ["first", "second"] {
            std::fs::create_dir_all(data.join("member").join(round)).unwrap();
            keep_aside(&data).unwrap();
            assert!(!data.exists());
            remove_old(&data).unwrap();
        }
        assert!(dir.path().join("data.etcd.damaged/member/first").exists());
        assert!(!dir.path().join("data.etcd.old").exists());
    }

    /// Whoever is about to mend something by hand gives it that name too.
    #[test]
    fn what_people_put_aside_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (data, theirs) = (dir.path().join("data.etcd"), dir.path().join("data.etcd.old"));
        std::fs::create_dir_all(theirs.join("member/theirs")).unwrap();
        remove_old(&data).unwrap();
        for round in ["one", "two"] {
            std::fs::create_dir_all(data.join("member").join(round)).unwrap();
            set_aside(&data).unwrap();
            assert!(dir.path().join("data.etcd.old.1/member").join(round).exists());
        }
        assert!(!dir.path().join("data.etcd.old.1/member/one").exists());
        // Put there in the place of what was set aside.
        std::fs::remove_dir_all(dir.path().join("data.etcd.old.1")).unwrap();
        std::fs::create_dir_all(dir.path().join("data.etcd.old.1/member/theirs")).unwrap();
        remove_old(&data).unwrap();
        for name in ["data.etcd.old", "data.etcd.old.1"] {
            assert!(dir.path().join(name).join("member/theirs").exists(), "{name}");
        }
        assert!(!dir.path().join("data.etcd.aside").exists());
    }

    /// Through a link all stays on the disk that it leads to, and etcd finds a directory there.
    #[test]
    fn what_a_link_leads_to_is_set_aside_and_swept() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("disk/real.etcd"), dir.path().join("data.etcd"));
        std::fs::create_dir_all(real.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("disk/real.etcd", &link).unwrap();
        for (aside, name) in
            [(set_aside as fn(&Path) -> io::Result<()>, "old"), (keep_aside, "damaged")]
        {
            std::fs::create_dir_all(real.join("member")).unwrap();
            aside(&link).unwrap();
            assert!(link.is_symlink() && real.is_dir() && !real.join("member").exists(), "{name}");
            assert!(dir.path().join(format!("disk/real.etcd.{name}/member")).is_dir());
            // Again, and killed before there was a directory again: no etcd has been there between.
            aside(&link).unwrap();
            std::fs::remove_dir(&real).unwrap();
            aside(&link).unwrap();
            assert!(real.is_dir());
            assert!(dir.path().join(format!("disk/real.etcd.{name}/member")).is_dir());
        }
        remove_old(&link).unwrap();
        assert!(!dir.path().join("disk/real.etcd.old").exists(), "and goes when it is not needed");
        assert!(dir.path().join("disk/real.etcd.damaged").exists());
    }

    #[test]
    fn the_newest_directory_set_aside_is_kept_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (data, old) = (dir.path().join("data.etcd"), dir.path().join("data.etcd.old"));
        set_aside(&data).unwrap();
        for round in ["one", "two"] {
            std::fs::create_dir_all(data.join(round)).unwrap();
            set_aside(&data).unwrap();
            assert!(!data.exists());
            assert!(old.join(round).exists());
        }
        assert!(!old.join("one").exists());
        remove_old(&data).unwrap();
        remove_old(&data).unwrap();
        assert!(!old.exists());
    }
}
