//! The directory a restore works in, beside the data directory, and the swap at its end.
//!
//! A data directory that is a mount point cannot be replaced, and beside it is another disk: there
//! the work is done inside, and what etcd looks for gets its place at the end.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::datadir;

use super::{Existing, Plan, Restoration, RestoreError, Target, aside};

const STATE: &str = "state.json";
/// Locked by whoever works there.
const LOCK: &str = "lock";
/// What becomes the data directory.
const NEW: &str = "data";
/// Links that are followed from one to the next; a ring has no end.
const LINKS_MAX: usize = 40;
/// The longest state that is read.
const STATE_MAX: usize = 64 << 10;

/// What the directory holds, so that another restore knows whether to go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    version: u32,
    /// The object the database was begun from.
    base: Option<String>,
    /// What was asked for: a database folded further than that is of no use.
    target: String,
    /// What is folded into it, some of it or all.
    deltas: Vec<String>,
}

impl State {
    /// Whether what was prepared is of use now: all that may be in it is still wanted.
    fn leads_to(&self, wanted: &Self) -> bool {
        (self.version, &self.base, &self.target) == (wanted.version, &wanted.base, &wanted.target)
            && wanted.deltas.starts_with(&self.deltas)
    }

    fn of(plan: &Plan) -> Self {
        let target = match plan.target {
            Target::Newest => "newest".to_owned(),
            Target::Revision(revision) => format!("revision {revision}"),
            Target::Time(time) => format!("time {time}"),
        };
        let base = plan.base.as_ref().map(|base| base.snap_name.clone());
        let deltas = plan.deltas.iter().map(|delta| delta.snap_name.clone()).collect();
        Self { version: 2, base, target, deltas }
    }
}

/// What is in a data directory: all else that a file system keeps in its root is not ours.
const MEMBER: &str = "member";
/// In the root of a file system.
const NOT_OURS: [&str; 4] = ["lost+found", INSIDE, INSIDE_OLD, INSIDE_DAMAGED];
/// Where the work is done in a mount point.
const INSIDE: &str = ".restore.part";
/// Where old data is set aside in a mount point.
pub(crate) const INSIDE_OLD: &str = ".restore.old";
/// Where it is kept for people.
pub(crate) const INSIDE_DAMAGED: &str = ".restore.damaged";

/// `<data dir>.part`.
#[derive(Debug, Clone)]
pub(super) struct Part {
    root: PathBuf,
    data_dir: PathBuf,
    place: Place,
    /// Where it is held, nobody else works there: of two who write one database, neither gets what it
    /// wrote, and the slower one would go on writing to what the other has put in place.
    _held: Option<Arc<File>>,
}

/// How the new directory gets its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is given the name.
    Named,
    /// The name stays, and it is put inside.
    Mounted,
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Part {
    pub(super) fn of(data_dir: &Path) -> Self {
        let data_dir = resolved(data_dir);
        if is_mount_point(&data_dir) { Self::inside(data_dir) } else { Self::named(data_dir) }
    }

    fn named(data_dir: PathBuf) -> Self {
        Self { root: beside(&data_dir, ".part"), data_dir, place: Place::Named, _held: None }
    }

    fn inside(data_dir: PathBuf) -> Self {
        Self { root: data_dir.join(INSIDE), data_dir, place: Place::Mounted, _held: None }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn new_dir(&self) -> PathBuf {
        self.root.join(NEW)
    }

    pub(super) fn database(&self) -> PathBuf {
        self.new_dir().join(datadir::DATABASE)
    }

    /// Whether a base is there that a next try can go on with.
    pub(super) fn is_begun(&self) -> bool {
        self.root.join(STATE).exists()
    }

    /// Whether the base is there already. If not, the directory is emptied.
    pub(super) fn enter(&self, plan: &Plan) -> Result<bool, RestoreError> {
        let path = self.root.join(STATE);
        let state = durable::read_limited(&path, STATE_MAX).ok();
        let state = state.and_then(|bytes| serde_json::from_slice::<State>(&bytes).ok());
        let wanted = State::of(plan);
        if state.is_some_and(|state| state.leads_to(&wanted)) && self.database().is_file() {
            self.write(&wanted)?;
            return Ok(true);
        }
        self.empty().map_err(RestoreError::io("empty", &self.root))?;
        datadir::make_dirs(&self.new_dir())?;
        Ok(false)
    }

    /// Removes all but what it is held by.
    fn empty(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != LOCK {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes it, its lock last: until then nobody else begins in it.
    pub(super) fn end(&self) -> Result<(), RestoreError> {
        let unless_gone = |done: io::Result<()>| match done {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
        unless_gone(self.empty())
            .and_then(|()| unless_gone(std::fs::remove_file(self.root.join(LOCK))))
            .and_then(|()| match unless_gone(std::fs::remove_dir(&self.root)) {
                // Somebody else has begun in it since.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                done => done,
            })
            .map_err(RestoreError::io("remove", &self.root))
    }

    /// The same, held for as long as any clone of it lives; refused where somebody else holds it.
    pub(super) fn claimed(&self) -> Result<Self, RestoreError> {
        let failed = |what| RestoreError::io(what, &self.root);
        if !self.is_ours().map_err(failed("look at"))? {
            return Err(RestoreError::Foreign(self.root.clone()));
        }
        loop {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.root);
            made.map_err(failed("make"))?;
            let path = self.root.join(LOCK);
            let lock = match File::options().append(true).create(true).open(&path) {
                // Whoever held it has just removed all of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed("lock"))?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(RestoreError::Busy(self.root.clone())),
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            }
            if is_still(&lock, &path).map_err(failed("look at"))? {
                return Ok(Self { _held: Some(Arc::new(lock)), ..self.clone() });
            }
        }
    }

    /// Whether it is for us to work in: people call a directory so too.
    fn is_ours(&self) -> io::Result<bool> {
        let has = |name| self.root.join(name).try_exists();
        Ok(has(LOCK)? || has(STATE)? || has_nothing(&self.root)?)
    }

    /// The base is whole and durable.
    pub(super) fn mark_base(&self, plan: &Plan) -> Result<(), RestoreError> {
        for dir in [self.database().parent(), Some(self.root.as_path())].into_iter().flatten() {
            datadir::sync_dir(dir)?;
        }
        self.write(&State::of(plan))
    }

    fn write(&self, state: &State) -> Result<(), RestoreError> {
        let path = self.root.join(STATE);
        let text = serde_json::to_vec(state);
        let text = text.map_err(io::Error::from).map_err(RestoreError::io("describe", &path))?;
        durable::replace_private(&path, &text)
            .map_err(|source| RestoreError::State { path, source })
    }

    /// Refuses what must not be replaced.
    pub(super) fn look(&self, how: &Restoration) -> Result<(), RestoreError> {
        let dir = &self.data_dir;
        if datadir::is_locked(dir).map_err(RestoreError::io("look at", dir))? {
            return Err(RestoreError::InUse(dir.clone()));
        }
        match (how.existing, is_empty(dir).map_err(RestoreError::io("look at", dir))?) {
            (Existing::Refuse, false) => {
                // Killed right after its swap, a restore leaves an empty shell.
                if !self.new_dir().exists() {
                    self.forget()?;
                }
                Err(RestoreError::NotEmpty(dir.clone()))
            }
            (Existing::Refuse, true) | (Existing::SetAside | Existing::SetAsideIfPast, _) => Ok(()),
        }
    }

    /// Removes it, unless somebody works there.
    fn forget(&self) -> Result<(), RestoreError> {
        if !self.root.try_exists().map_err(RestoreError::io("look at", &self.root))? {
            return Ok(());
        }
        match self.claimed() {
            Ok(held) => held.end(),
            Err(RestoreError::Busy(_) | RestoreError::Foreign(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives the new directory its place. Cut off between the two names, the next call ends it.
    pub(super) fn swap(&self, how: &Restoration) -> Result<Option<PathBuf>, RestoreError> {
        self.look(how)?;
        let (from, to) = match self.place {
            Place::Named => (self.new_dir(), self.data_dir.clone()),
            Place::Mounted => (self.new_dir().join(MEMBER), self.data_dir.join(MEMBER)),
        };
        let mut old = None;
        if !is_empty(&to).map_err(RestoreError::io("look at", &to))? {
            old = Some(self.set_aside(&to).map_err(RestoreError::io("set aside", &to))?);
        }
        std::fs::rename(&from, &to).map_err(RestoreError::io("put in place", &to))?;
        aside::sync_parent(&to).map_err(RestoreError::io("put in place", &to))?;
        self.end()?;
        Ok(old)
    }

    fn set_aside(&self, old: &Path) -> io::Result<PathBuf> {
        match self.place {
            Place::Named => aside::set_aside(old),
            // A name that nobody else gives.
            Place::Mounted => {
                let to = self.data_dir.join(INSIDE_OLD);
                aside::remove(&to)?;
                std::fs::rename(old, &to)?;
                Ok(to)
            }
        }
    }

    /// Where the database is that the new one is to follow.
    pub(super) fn old_database(&self) -> PathBuf {
        self.data_dir.join(datadir::DATABASE)
    }
}

/// Whether there is nothing at all in a directory, or none.
fn has_nothing(dir: &Path) -> io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether an open file is the one of that name: whoever removed it meanwhile had locked it before.
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match path.metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where a link leads; there may be nothing there yet.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    // With a slash at its end, what is to be beside it would be inside.
    let mut path: PathBuf = path.components().collect();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        // One that is not absolute is so from where the link is.
        path = path.parent().map_or_else(|| target.clone(), |parent| parent.join(&target));
    }
    path
}

/// Whether another file system, or another part of one, begins there. What cannot be asked is none.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let asked = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    asked.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Removes what a restore that was cut off left beside a data directory that needs none.
pub fn forget(data_dir: &Path) -> Result<(), RestoreError> {
    Part::of(data_dir).forget()
}

/// Whether there is nothing in a directory; one that does not exist has nothing.
fn is_empty(dir: &Path) -> io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.all(|entry| {
            entry.is_ok_and(|entry| NOT_OURS.iter().any(|name| entry.file_name() == **name))
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restoration(data_dir: &Path, existing: Existing) -> Restoration {
        let identity = datadir::Identity {
            name: String::new(),
            initial_cluster: String::new(),
            token: String::new(),
            peer_urls: Vec::new(),
        };
        let (data_dir, temp_dir) = (data_dir.to_owned(), data_dir.with_extension("tmp"));
        let (max_fetchers, skip_hash_check) = (1, false);
        Restoration { data_dir, identity, temp_dir, max_fetchers, skip_hash_check, existing }
    }

    fn swapped(part: &Part, existing: Existing) -> Option<PathBuf> {
        datadir::make_dirs(&part.new_dir()).unwrap();
        part.swap(&restoration(&part.data_dir, existing)).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The root of a file system has things of its own.
    /// It is somebody else's as soon as the lock is gone.
    #[test]
    fn what_ends_goes_whole_and_leaves_what_comes_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let part = Part::of(&dir.path().join("data.etcd"));
        let held = part.claimed().unwrap();
        std::fs::create_dir_all(held.new_dir().join(MEMBER)).unwrap();
        durable::replace_private(held.root().join(STATE), b"{}").unwrap();
        held.end().unwrap();
        assert!(!part.root().exists());
        let next = part.claimed().unwrap();
        held.empty().unwrap();
        assert!(next.root().join(LOCK).exists());
        drop(held);
        next.end().unwrap();
        next.end().unwrap();
        assert!(!part.root().exists());
    }

    #[test]
    fn a_mount_point_stays_and_gets_the_data_inside() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.etcd");
        std::fs::create_dir_all(data.join("lost+found")).unwrap();
        let part = Part::inside(data.clone());
        assert_eq!(swapped(&part, Existing::Refuse), None);
        assert_eq!(names(&data), ["lost+found", "member"]);
        assert!(part.look(&restoration(&data, Existing::Refuse)).is_err(), "there is data now");
        assert_eq!(swapped(&part, Existing::SetAside), Some(data.join(INSIDE_OLD)));
        assert_eq!(names(&data), [INSIDE_OLD, "lost+found", "member"]);
        assert_eq!(names(dir.path()), ["data.etcd"], "nothing beside it");
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("disk/real.etcd"), dir.path().join("data.etcd"));
        for is_there in [true, false] {
            let _ = std::fs::remove_dir_all(&real);
            std::fs::create_dir_all(real.parent().unwrap()).unwrap();
            if is_there {
                std::fs::create_dir(&real).unwrap();
            }
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink("disk/real.etcd", &link).unwrap();
            let part = Part::of(&link);
            assert_eq!(part.root, dir.path().join("disk/real.etcd.part"));
            assert_eq!(swapped(&part, Existing::Refuse), None);
            assert!(link.is_symlink() && real.join("member/snap").is_dir());
        }
    }
}
