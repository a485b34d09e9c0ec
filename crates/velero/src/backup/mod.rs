//! Backups: the queue they wait in, and how one is made.

pub(crate) mod collect;
pub(crate) mod decide;
pub(crate) mod machine;
pub(crate) mod pack;
pub(crate) mod queue;
pub(crate) mod run;
