//! Backups: the queue they wait in, and how one is made.

pub(crate) mod collect;
pub(crate) mod decide;
pub(crate) mod machine;
pub(crate) mod pack;
pub(crate) mod queue;
pub(crate) mod run;

/// How far a backup is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Objects in the tarball so far.
    pub(crate) items: i64,
    /// Volumes whose data is taken, and those of them that are done.
    pub(crate) volumes: i64,
    pub(crate) volumes_done: i64,
}
