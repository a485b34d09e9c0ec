//! Where each kind of job stands, and which may run beside which. Pure but for the lock; jobs hold
//! a [`Claim`], so that one that breaks down shows as failed and not as running for ever.
//!
//! A further kind of job is a variant of [`Kind`] with its slot here and its row in
//! [`Board::rejection`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::JobError;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Never,
    Running {
        percent: u8,
    },
    Complete,
    Failed {
        percent: u8,
        error: String,
    },
}

impl Phase {
    /// The word of the dialect.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Never => "",
            Self::Running { .. } => "in_progress",
            Self::Complete => "complete",
            Self::Failed { .. } => "error",
        }
    }

    pub(crate) fn percent(&self) -> i32 {
        match self {
            Self::Never => 0,
            Self::Running { percent } | Self::Failed { percent, .. } => i32::from(*percent),
            Self::Complete => 100,
        }
    }

    pub(crate) fn error(&self) -> String {
        match self {
            Self::Never | Self::Running { .. } | Self::Complete => String::new(),
            Self::Failed { error, .. } => error.clone(),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Purge,
    Rebuild,
    Clone,
}

/// What is known of the jobs of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) purge: Phase,
    pub(crate) rebuild: Phase,
    /// The replicas of the last rebuild.
    pub(crate) rebuild_sources: Vec<String>,
    pub(crate) clone: Phase,
    pub(crate) clone_source: String,
    pub(crate) clone_snapshot: String,
}

impl Board {
    fn slot(&mut self, kind: Kind) -> &mut Phase {
        match kind {
            Kind::Purge => &mut self.purge,
            Kind::Rebuild => &mut self.rebuild,
            Kind::Clone => &mut self.clone,
        }
    }

    /// Why a job of this kind may not begin now.
    fn rejection(&self, kind: Kind, own: impl fmt::Display) -> Option<JobError> {
        let (purging, rebuilding) = (self.purge.is_running(), self.rebuild.is_running());
        match kind {
            Kind::Purge if purging => Some(JobError::AlreadyPurging),
            Kind::Purge if rebuilding => Some(JobError::PurgeWhileRebuilding(own.to_string())),
            Kind::Rebuild if purging => Some(JobError::Purging),
            Kind::Rebuild if rebuilding => Some(JobError::AlreadyRebuilding),
            Kind::Clone if self.clone.is_running() => Some(JobError::AlreadyCloning),
            Kind::Clone if purging => Some(JobError::Purging),
            Kind::Clone if rebuilding => Some(JobError::AlreadyRebuilding),
            Kind::Purge | Kind::Rebuild | Kind::Clone => None,
        }
    }
}

/// The board, shared by all calls and jobs.
#[derive(Debug, Default)]
pub(crate) struct Statuses(Mutex<Board>);

impl Statuses {
    pub(crate) fn board(&self) -> Board {
        self.lock().clone()
    }

    /// Begins a job, unless another stands in its way. `own` is the address of the replica here.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: Kind,
        own: impl fmt::Display,
        describe: impl FnOnce(&mut Board),
    ) -> Result<Claim, JobError> {
        let mut board = self.lock();
        if let Some(rejection) = board.rejection(kind, own) {
            return Err(rejection);
        }
        *board.slot(kind) = Phase::Running { percent: 0 };
        describe(&mut board);
        Ok(Claim { statuses: Arc::clone(self), kind, is_finished: false })
    }

    /// Forgets what is over. What runs is not forgotten: it would be started twice.
    pub(crate) fn reset(&self) {
        let mut board = self.lock();
        let mut fresh = Board::default();
        if board.purge.is_running() {
            fresh.purge = board.purge.clone();
        }
        if board.rebuild.is_running() {
            fresh.rebuild = board.rebuild.clone();
            fresh.rebuild_sources.clone_from(&board.rebuild_sources);
        }
        if board.clone.is_running() {
            fresh.clone = board.clone.clone();
            fresh.clone_source.clone_from(&board.clone_source);
            fresh.clone_snapshot.clone_from(&board.clone_snapshot);
        }
        *board = fresh;
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to be the running job of a kind.
#[derive(Debug)]
pub(crate) struct Claim {
    statuses: Arc<Statuses>,
    kind: Kind,
    is_finished: bool,
}

impl Claim {
    pub(crate) fn progress(&self, percent: u8) {
        let mut board = self.statuses.lock();
        *board.slot(self.kind) = Phase::Running { percent: percent.min(99) };
    }

    pub(crate) fn finish(mut self, outcome: &Result<(), JobError>) {
        self.end(outcome.as_ref().err().map(JobError::text));
    }

    fn end(&mut self, error: Option<String>) {
        self.is_finished = true;
        let mut board = self.statuses.lock();
        let slot = board.slot(self.kind);
        let percent = u8::try_from(slot.percent()).unwrap_or(0);
        *slot = match error {
            None => Phase::Complete,
            Some(error) => Phase::Failed { percent, error },
        };
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_finished {
            self.end(Some(JobError::Stopped.text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(statuses: &Arc<Statuses>, kind: Kind) -> Result<Claim, String> {
        statuses.begin(kind, "10.0.0.1:9502", |_| {}).map_err(|error| error.text())
    }

    #[test]
    fn jobs_that_would_disturb_each_other_are_refused_in_known_words() {
        let statuses = Arc::new(Statuses::default());
        let purge = begin(&statuses, Kind::Purge).unwrap();
        let refused = |kind| begin(&statuses, kind).unwrap_err();
        assert_eq!(refused(Kind::Purge), "replica is already purging snapshots");
        assert_eq!(refused(Kind::Rebuild), "replica is purging snapshots");
        purge.finish(&Ok(()));
        let rebuild = begin(&statuses, Kind::Rebuild).unwrap();
        assert_eq!(refused(Kind::Rebuild), "replica is already rebuilding");
        let text = "cannot purge snapshots because 10.0.0.1:9502 is rebuilding";
        assert_eq!(refused(Kind::Purge), text);
        rebuild.finish(&Err(JobError::NothingToSync));
        assert_eq!(statuses.board().rebuild.word(), "error");
        assert!(begin(&statuses, Kind::Purge).is_ok());
    }

    #[test]
    fn a_job_that_breaks_down_is_not_shown_as_running() {
        let statuses = Arc::new(Statuses::default());
        let claim = begin(&statuses, Kind::Clone).unwrap();
        claim.progress(40);
        assert_eq!(statuses.board().clone, Phase::Running { percent: 40 });
        drop(claim);
        let phase = statuses.board().clone;
        assert_eq!((phase.word(), phase.percent()), ("error", 40));
    }

    #[test]
    fn a_reset_forgets_all_but_what_runs() {
        let statuses = Arc::new(Statuses::default());
        begin(&statuses, Kind::Clone).unwrap().finish(&Ok(()));
        let purge = begin(&statuses, Kind::Purge).unwrap();
        statuses.reset();
        assert_eq!(statuses.board().clone, Phase::Never);
        assert!(statuses.board().purge.is_running());
        purge.finish(&Ok(()));
        statuses.reset();
        assert_eq!(statuses.board(), Board::default());
    }
}
