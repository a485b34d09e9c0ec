//! The directory a restore works in, beside the data directory, and the swap at its end.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::datadir;

use super::{Existing, Plan, Restoration, RestoreError, Target};

const STATE: &str = "state.json";
/// What becomes the data directory.
const NEW: &str = "data";
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
}

impl State {
    fn of(plan: &Plan) -> Self {
        let target = match plan.target {
            Target::Newest => "newest".to_owned(),
            Target::Revision(revision) => format!("revision {revision}"),
            Target::Time(time) => format!("time {time}"),
        };
        let base = plan.base.as_ref().map(|base| base.snap_name.clone());
        Self { version: 1, base, target }
    }
}

/// `<data dir>.part`.
#[derive(Debug, Clone)]
pub(super) struct Part {
    root: PathBuf,
    data_dir: PathBuf,
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Part {
    pub(super) fn of(data_dir: &Path) -> Self {
        // A trailing slash would put it inside.
        let data_dir: PathBuf = data_dir.components().collect();
        Self { root: beside(&data_dir, ".part"), data_dir }
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

    /// Whether the base is there already. If not, the directory is emptied.
    pub(super) fn enter(&self, plan: &Plan) -> Result<bool, RestoreError> {
        let path = self.root.join(STATE);
        let state = durable::read_limited(&path, STATE_MAX).ok();
        let state = state.and_then(|bytes| serde_json::from_slice::<State>(&bytes).ok());
        if state == Some(State::of(plan)) && self.database().is_file() {
            return Ok(true);
        }
        remove(&self.root)?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.root);
        made.map_err(RestoreError::io("make", &self.root))?;
        datadir::make_dirs(&self.new_dir())?;
        Ok(false)
    }

    /// The base is whole and durable.
    pub(super) fn mark_base(&self, plan: &Plan) -> Result<(), RestoreError> {
        for dir in [self.database().parent(), Some(self.root.as_path())].into_iter().flatten() {
            datadir::sync_dir(dir)?;
        }
        let path = self.root.join(STATE);
        let text = serde_json::to_vec(&State::of(plan));
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
                    remove(&self.root)?;
                }
                Err(RestoreError::NotEmpty(dir.clone()))
            }
            (Existing::Refuse, true) | (Existing::SetAside, _) => Ok(()),
        }
    }

    /// Gives the new directory its place. Cut off between the two names, the next call ends it.
    pub(super) fn swap(&self, how: &Restoration) -> Result<Option<PathBuf>, RestoreError> {
        self.look(how)?;
        let dir = &self.data_dir;
        let mut old = None;
        if !is_empty(dir).map_err(RestoreError::io("look at", dir))? {
            let aside = beside(dir, ".old");
            remove(&aside)?;
            std::fs::rename(dir, &aside).map_err(RestoreError::io("set aside", dir))?;
            old = Some(aside);
        }
        std::fs::rename(self.new_dir(), dir).map_err(RestoreError::io("put in place", dir))?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        datadir::sync_dir(parent.unwrap_or(Path::new(".")))?;
        remove(&self.root)?;
        Ok(old)
    }
}

/// Removes what a restore that was cut off left beside a data directory that needs none.
pub fn forget(data_dir: &Path) -> Result<(), RestoreError> {
    remove(&Part::of(data_dir).root)
}

/// Whether there is nothing in a directory; one that does not exist has nothing.
fn is_empty(dir: &Path) -> io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Removes a directory and all in it; one that does not exist is removed already.
pub(super) fn remove(dir: &Path) -> Result<(), RestoreError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RestoreError::Io { what: "remove", path: dir.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
