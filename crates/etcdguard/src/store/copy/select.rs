//! Which snapshots a copy is of: a pure function of two listings and the time.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::store::snapshot::{Kind, Layout, Snapshot};

/// Among so many of the newest full snapshots the last one of a source is looked for.
const RECENT_FULLS: usize = 4;

/// What of a source is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Selection {
    /// Full snapshots with what follows them; none: all.
    pub max_backups: Option<usize>,
    /// Of the full snapshot; none: of any age.
    pub max_age_days: Option<i64>,
}

/// A full snapshot, and the deltas up to the next one.
struct Backup<'s> {
    full: &'s Snapshot,
    deltas: Vec<&'s Snapshot>,
}

/// What is to be copied, the newest backup first, each with its full snapshot first. Both listings
/// are sorted. What `destination` holds already, under any mark, is left out.
pub fn select(
    source: &[Snapshot],
    destination: &[Snapshot],
    selection: Selection,
    now: Timestamp,
) -> Vec<Snapshot> {
    let present: BTreeSet<String> =
        destination.iter().filter(|snapshot| !snapshot.is_chunk).map(Snapshot::identity).collect();
    let mut backups = backups(source);
    backups.sort_by_key(|backup| Reverse((backup.full.history, backup.full.created_on)));
    let is_young = |backup: &Backup<'_>| {
        selection.max_age_days.is_none_or(|days| !backup.full.is_older_than_days(days, now))
    };
    backups
        .into_iter()
        .filter(is_young)
        .take(selection.max_backups.unwrap_or(usize::MAX))
        .flat_map(|backup| std::iter::once(backup.full).chain(backup.deltas))
        .filter(|snapshot| !present.contains(&snapshot.identity()))
        .cloned()
        .collect()
}

fn backups(snapshots: &[Snapshot]) -> Vec<Backup<'_>> {
    let mut backups: Vec<Backup<'_>> = Vec::new();
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.is_chunk) {
        match snapshot.kind {
            Kind::Full => backups.push(Backup { full: snapshot, deltas: Vec::new() }),
            // Those before every full snapshot are of no use.
            Kind::Incr => backups
                .iter_mut()
                .next_back()
                .into_iter()
                .for_each(|backup| backup.deltas.push(snapshot)),
        }
    }
    backups
}

/// Whether the source says that nothing will follow.
pub fn has_recent_final(source: &[Snapshot]) -> bool {
    let is_full = |snapshot: &&Snapshot| snapshot.kind == Kind::Full && !snapshot.is_chunk;
    source.iter().rev().filter(is_full).take(RECENT_FULLS).any(|snapshot| snapshot.is_final)
}

/// What a copy is called: in the layout that is written, and never the last of its store.
pub(super) fn copied_name(snapshot: &Snapshot) -> Snapshot {
    let mut copy = Snapshot {
        is_final: false,
        layout: Layout::V2,
        snap_dir: String::new(),
        prefix: String::new(),
        immutable_until: None,
        version_id: None,
        ..snapshot.clone()
    };
    copy.rename();
    copy
}
