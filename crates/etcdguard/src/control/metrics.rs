//! What the controllers have counted and timed. The names that dashboards know are given by who
//! implements [`Meter`].

use std::time::Duration;

use crate::store::Kind;

/// An object of a store that is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Snapshot(Kind),
    Chunk,
}

/// Takes measurements. Never blocks.
pub trait Meter: std::fmt::Debug + Send + Sync + 'static {
    fn snapshot_took(&self, kind: Kind, succeeded: bool, took: Duration);
    /// The newest snapshot of a kind: its last revision, and when it was made in Unix seconds.
    fn latest_snapshot(&self, kind: Kind, revision: i64, unix_seconds: i64);
    /// Whether a snapshot of this kind would hold anything new.
    fn snapshot_required(&self, kind: Kind, required: bool);
    /// How many deltas follow the newest full, and how many revisions they hold.
    fn latest_deltas(&self, deltas: usize, revisions: i64);
    /// `kind` is one of a few words of ours, never the text of an error.
    fn snapshotter_failed(&self, kind: &'static str);
    fn collected(&self, object: Object, succeeded: bool);
    fn defragmentation_took(&self, endpoint: &str, succeeded: bool, took: Duration);
    fn learner(&self, is_learner: bool);
    /// An attempt to make this member a learner.
    fn learner_counted(&self, succeeded: bool);
    fn add_learner_took(&self, succeeded: bool, took: Duration);
    fn member_remove_took(&self, succeeded: bool, took: Duration);
    fn member_promote_took(&self, succeeded: bool, took: Duration);
}

/// Measures nothing, for commands that nobody scrapes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unmetered;

impl Meter for Unmetered {
    fn snapshot_took(&self, _: Kind, _: bool, _: Duration) {}
    fn latest_snapshot(&self, _: Kind, _: i64, _: i64) {}
    fn snapshot_required(&self, _: Kind, _: bool) {}
    fn latest_deltas(&self, _: usize, _: i64) {}
    fn snapshotter_failed(&self, _: &'static str) {}
    fn collected(&self, _: Object, _: bool) {}
    fn defragmentation_took(&self, _: &str, _: bool, _: Duration) {}
    fn learner(&self, _: bool) {}
    fn learner_counted(&self, _: bool) {}
    fn add_learner_took(&self, _: bool, _: Duration) {}
    fn member_remove_took(&self, _: bool, _: Duration) {}
    fn member_promote_took(&self, _: bool, _: Duration) {}
}
