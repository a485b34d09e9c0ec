//! Looking at the data directory. Writes nothing but the mark of a volume that has none.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::volume::{self, VolumeError};
use super::{InitializeError, Initializer, Mode, Verdict};
use crate::datadir::{self, Checked, Damage, DamageKind};

/// An etcd that is just ending is waited for so long.
const LOCK_TIMEOUT: Duration = Duration::from_mins(2);
const LOCK_POLL: Duration = Duration::from_millis(200);

impl Initializer {
    /// `newest` is the last revision in the store, where it matters.
    pub(super) async fn validate(
        &self,
        mode: Mode,
        newest: Option<i64>,
    ) -> Result<Verdict, InitializeError> {
        let (dir, namespace) = (self.data_dir().to_owned(), self.namespace.clone());
        let marked = self
            .tasks
            .blocking("look at the volume", move || volume::check(&dir, namespace.as_deref()));
        match marked.await? {
            Ok(()) => {}
            Err(error @ VolumeError::Wrong { .. }) => {
                return Ok(Verdict::WrongVolume(error.to_string()));
            }
            Err(error) => return Err(InitializeError::Volume(error)),
        }
        if self.is_held().await? {
            return Ok(Verdict::Locked);
        }
        let verdict = self.check(mode).await?;
        match (verdict, newest) {
            (Looked::At(found), Some(backup)) if found.revision < backup => {
                self.behind(found.revision, backup).await
            }
            (Looked::At(_), _) => Ok(Verdict::Valid),
            (Looked::Found(verdict), _) => Ok(verdict),
        }
    }

    /// Whether an etcd holds the database, and does not let go.
    pub(super) async fn is_held(&self) -> Result<bool, InitializeError> {
        let begun = Instant::now();
        loop {
            let dir = self.data_dir().to_owned();
            let looked = self.tasks.blocking("look at the lock", move || datadir::is_locked(&dir));
            let failed =
                |source| InitializeError::Look { path: self.data_dir().to_owned(), source };
            if !looked.await?.map_err(failed)? {
                return Ok(false);
            }
            if begun.elapsed() > LOCK_TIMEOUT {
                return Ok(true);
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    async fn check(&self, mode: Mode) -> Result<Looked, InitializeError> {
        let dir: PathBuf = self.data_dir().to_owned();
        let path = dir.clone();
        let how = match mode {
            Mode::Full => datadir::Mode::Full,
            Mode::Sanity => datadir::Mode::Sanity,
        };
        let looked =
            self.tasks.blocking("check the data directory", move || datadir::check(&dir, how));
        let damage = match looked.await? {
            Ok(checked) => {
                for warning in &checked.warnings {
                    tracing::warn!("{warning}");
                }
                return Ok(Looked::At(checked));
            }
            Err(damage) => damage,
        };
        // Without backups a brief look is at the directories alone: etcd judges the rest itself.
        let is_brief = self.store.is_none() && mode == Mode::Sanity;
        Ok(Looked::Found(match damage.kind() {
            DamageKind::Missing => Verdict::Missing,
            DamageKind::Structure => Verdict::Incomplete,
            DamageKind::Locked => Verdict::Locked,
            DamageKind::Unknown => return Err(unreadable(path, &damage)),
            DamageKind::Corrupt if is_brief => Verdict::Valid,
            DamageKind::Corrupt => Verdict::Corrupt(telemetry::Chain(&damage).to_string()),
        }))
    }

    /// The database is older than the backup. What the log holds beyond it may still make up for
    /// that when etcd applies it, with one revision an entry at most.
    async fn behind(&self, data: i64, backup: i64) -> Result<Verdict, InitializeError> {
        match self.check(Mode::Full).await? {
            Looked::At(found) => {
                let unapplied = i64::try_from(found.unapplied).unwrap_or(i64::MAX);
                let reach = found.revision.saturating_add(unapplied);
                tracing::info!(
                    "the database is at revision {data}, with its log at most at {reach}; the \
                     backup is at {backup}"
                );
                if reach >= backup {
                    return Ok(Verdict::Valid);
                }
                Ok(Verdict::Behind { data: reach, backup })
            }
            Looked::Found(verdict) => Ok(verdict),
        }
    }
}

/// What a check came to.
enum Looked {
    At(Checked),
    Found(Verdict),
}

fn unreadable(path: PathBuf, damage: &Damage) -> InitializeError {
    let source = std::io::Error::other(telemetry::Chain(damage).to_string());
    InitializeError::Look { path, source }
}
