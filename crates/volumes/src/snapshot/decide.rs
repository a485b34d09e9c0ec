//! What becomes of a snapshot. Pure.

use std::time::Duration;

use api::longhorn::{EngineSnapshot, Snapshot, SnapshotStatus, Volume};
use api::scalar::Stamp;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::volume::starting::why_not_attached;

/// When what is under way is looked at again.
const AGAIN: Duration = Duration::from_secs(5);
/// A snapshot that was taken and is not listed by then is lost.
const LOST: SignedDuration = SignedDuration::from_secs(60);

pub(super) struct Seen<'a> {
    pub(super) now: Timestamp,
    pub(super) snapshot: &'a Snapshot,
    pub(super) volume: Option<&'a Volume>,
    /// Name of the engine, if there is one.
    pub(super) engine: Option<String>,
    /// It answers, and has said what it has.
    pub(super) runs: bool,
    pub(super) purging: bool,
    pub(super) size: Option<i64>,
    /// The snapshot as the engine has it, or had it when it last ran.
    pub(super) known: Option<&'a EngineSnapshot>,
    pub(super) may_purge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Take,
    /// Mark it as removed, and begin to merge it.
    Remove,
    Purge,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) status: SnapshotStatus,
    pub(super) act: Option<Act>,
    /// Whether the volume must be attached for it.
    pub(super) ticket: bool,
    /// Nothing is left of it: the object goes.
    pub(super) gone: bool,
    pub(super) next: Option<Duration>,
}

pub(super) fn decide(seen: &Seen<'_>) -> Verdict {
    if seen.snapshot.metadata.deletion_timestamp.is_some() {
        return leave(seen);
    }
    match seen.known {
        Some(known) => present(seen, known),
        None => absent(seen),
    }
}

fn status(seen: &Seen<'_>) -> SnapshotStatus {
    seen.snapshot.status.clone().unwrap_or_default()
}

fn calm(status: SnapshotStatus) -> Verdict {
    Verdict { status, act: None, ticket: false, gone: false, next: None }
}

fn told(seen: &Seen<'_>, known: &EngineSnapshot) -> SnapshotStatus {
    let removed = known.removed == Some(true);
    SnapshotStatus {
        parent: known.parent.clone(),
        children: known.children.clone(),
        mark_removed: Some(removed),
        user_created: known.usercreated,
        creation_time: known.created.clone(),
        size: known.size.as_ref().and_then(|size| size.parse().ok()),
        labels: known.labels.clone(),
        error: Some(String::new()),
        // As large as the volume was then, however it grows.
        restore_size: status(seen).restore_size.filter(|size| *size > 0).or(seen.size),
        ready_to_use: Some(!removed && seen.snapshot.metadata.deletion_timestamp.is_none()),
        ..status(seen)
    }
}

fn present(seen: &Seen<'_>, known: &EngineSnapshot) -> Verdict {
    calm(told(seen, known))
}

fn was_taken(status: &SnapshotStatus) -> bool {
    status.creation_time.as_ref().is_some_and(Stamp::is_set)
}

/// A moment ago. What was asked for by a clock that was ahead is not waited for.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at).abs() <= LOST
}

fn absent(seen: &Seen<'_>) -> Verdict {
    let old = status(seen);
    let requested = old.requested_time.as_ref().and_then(Stamp::get);
    let overdue = requested.is_some_and(|at| !is_recent(at, seen.now));
    let asks = seen.snapshot.spec.create_snapshot == Some(true);
    if was_taken(&old) || overdue || (!asks && requested.is_none()) {
        return lost(seen, old);
    }
    if requested.is_some() {
        // It was taken; the engine is about to list it.
        return Verdict { ticket: true, next: Some(AGAIN), ..calm(old) };
    }
    if let Some(why) = rejection(seen) {
        let status = SnapshotStatus { error: Some(why), ready_to_use: Some(false), ..old };
        return Verdict { next: Some(AGAIN * 6), ..calm(status) };
    }
    if seen.runs {
        return Verdict { act: Some(Act::Take), ticket: true, next: Some(AGAIN), ..calm(old) };
    }
    let engine = seen.engine.clone().unwrap_or_default();
    let told = seen.volume.and_then(why_not_attached);
    let told = told.map(|it| format!(": {it}")).unwrap_or_default();
    let why = format!(
        "failed to take snapshot because the volume engine {engine} is not running. Waiting for the \
         volume to be attached{told}"
    );
    let status = SnapshotStatus { error: Some(why), ready_to_use: Some(false), ..old };
    Verdict { ticket: true, next: Some(AGAIN), ..calm(status) }
}

/// Snapshots of a volume that follows another are its own business.
fn rejection(seen: &Seen<'_>) -> Option<String> {
    let name = seen.snapshot.spec.volume.clone().unwrap_or_default();
    let Some(volume) = seen.volume else {
        return Some(format!("volume {name} does not exist"));
    };
    let status = volume.status.clone().unwrap_or_default();
    if status.is_standby == Some(true) {
        return Some(format!("failed to create snapshot for standby volume {}", volume.name_any()));
    }
    if crate::volume::is_unfinished_clone(volume) {
        let name = volume.name_any();
        return Some(format!("failed to create snapshot: volume {name} is being copied to"));
    }
    (status.restore_required == Some(true)).then(|| {
        format!("failed to create snapshot: volume {} is restoring data", volume.name_any())
    })
}

/// It was there, and is not any more.
fn lost(seen: &Seen<'_>, old: SnapshotStatus) -> Verdict {
    // An engine that does not run cannot be asked whether it is so.
    if !seen.runs {
        return calm(old);
    }
    let why = "lost track of the corresponding snapshot info inside volume engine".to_owned();
    let status = SnapshotStatus { error: Some(why), ready_to_use: Some(false), ..old };
    Verdict { gone: true, ..calm(status) }
}

fn leave(seen: &Seen<'_>) -> Verdict {
    let old = status(seen);
    // Those of a restore or a copy come and go with it: only the object goes.
    let is_kept = |it: &Volume| {
        let status = it.status.clone().unwrap_or_default();
        status.restore_required == Some(true)
            || status.is_standby == Some(true)
            || crate::volume::is_unfinished_clone(it)
    };
    let orphaned =
        seen.volume.is_none_or(|it| it.metadata.deletion_timestamp.is_some() || is_kept(it));
    let Some(known) = seen.known.filter(|_| !orphaned) else {
        // Taken a moment ago and not listed yet: it must be seen before it can go.
        let pending = old
            .requested_time
            .as_ref()
            .and_then(Stamp::get)
            .is_some_and(|at| !was_taken(&old) && is_recent(at, seen.now));
        let waits = pending && !orphaned;
        let next = waits.then_some(AGAIN);
        return Verdict { gone: !waits, ticket: waits, next, ..calm(old) };
    };
    let status = told(seen, known);
    let removed = known.removed == Some(true);
    if !seen.runs {
        let why = "waiting for the volume to be attached to delete the snapshot".to_owned();
        let status = SnapshotStatus { error: Some(why), ..status };
        return Verdict { ticket: true, next: Some(AGAIN), ..calm(status) };
    }
    if !removed {
        return Verdict { act: Some(Act::Remove), ticket: true, next: Some(AGAIN), ..calm(status) };
    }
    let below_head = known.children.iter().flatten().any(|(child, _)| child == "volume-head");
    if below_head || !seen.may_purge {
        // It can only be merged into a snapshot, and there is none above it.
        return calm(status);
    }
    let act = (!seen.purging).then_some(Act::Purge);
    Verdict { act, ticket: true, next: Some(AGAIN), ..calm(status) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::longhorn::{SnapshotSpec, VolumeSpec, VolumeStatus};
    use api::scalar::Time;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn asked() -> Snapshot {
        let spec = SnapshotSpec {
            volume: Some("v".into()),
            create_snapshot: Some(true),
            ..SnapshotSpec::default()
        };
        Snapshot::new("s", spec)
    }

    fn deleted(mut snapshot: Snapshot) -> Snapshot {
        snapshot.metadata.deletion_timestamp = Some(meta::Time(now()));
        snapshot
    }

    fn listed(removed: bool, child: &str) -> EngineSnapshot {
        EngineSnapshot {
            removed: Some(removed),
            created: Some(Stamp::from("2026-01-01T00:00:00Z")),
            size: Some("4096".into()),
            children: Some(BTreeMap::from([(child.to_owned(), true)])),
            ..EngineSnapshot::default()
        }
    }

    fn look(snapshot: &Snapshot, known: Option<&EngineSnapshot>, runs: bool) -> Verdict {
        let volume = Volume::new("v", VolumeSpec::default());
        decide(&Seen {
            now: now(),
            snapshot,
            volume: Some(&volume),
            engine: Some("v-e-0".into()),
            runs,
            purging: false,
            size: Some(1 << 20),
            known,
            may_purge: true,
        })
    }

    #[test]
    fn one_that_is_asked_for_is_taken_once_the_engine_runs() {
        let waiting = look(&asked(), None, false);
        assert!(waiting.ticket && waiting.act.is_none());
        assert!(
            waiting.status.error.unwrap().starts_with(
                "failed to take snapshot because the volume engine v-e-0 is not running"
            )
        );
        assert_eq!(look(&asked(), None, true).act, Some(Act::Take));
        let mut taken = asked();
        taken.status = Some(SnapshotStatus {
            requested_time: Some(Stamp::from(Time::new(now()))),
            ..SnapshotStatus::default()
        });
        let wait = look(&taken, None, true);
        assert!(wait.act.is_none() && wait.ticket && !wait.gone);
        let ready = look(&taken, Some(&listed(false, "volume-head")), true);
        assert_eq!(ready.status.ready_to_use, Some(true));
        assert_eq!(ready.status.size, Some(4096));
        assert!(!ready.ticket);
    }

    #[test]
    fn one_that_a_clock_ahead_asked_for_is_not_waited_for() {
        let mut taken = asked();
        taken.status = Some(SnapshotStatus {
            requested_time: Some(Stamp::from(Time::new(now() + SignedDuration::from_hours(24)))),
            ..SnapshotStatus::default()
        });
        assert!(look(&taken, None, true).gone);
        assert!(look(&deleted(taken), None, true).gone);
    }

    #[test]
    fn one_that_vanished_goes_and_only_a_running_engine_can_say_so() {
        let mut there = asked();
        there.status = Some(SnapshotStatus {
            creation_time: Some(Stamp::from("2026-01-01T00:00:00Z")),
            ..SnapshotStatus::default()
        });
        assert!(look(&there, None, true).gone);
        assert!(!look(&there, None, false).gone);
        let told = Snapshot::new(
            "s",
            SnapshotSpec { volume: Some("v".into()), ..SnapshotSpec::default() },
        );
        assert!(look(&told, None, true).gone);
    }

    #[test]
    fn deletion_marks_then_merges_and_ends_when_the_engine_has_it_no_more() {
        let going = deleted(asked());
        assert!(look(&going, None, true).gone);
        let first = look(&going, Some(&listed(false, "t")), true);
        assert_eq!((first.act, first.gone), (Some(Act::Remove), false));
        let then = look(&going, Some(&listed(true, "t")), true);
        assert_eq!((then.act, then.ticket, then.gone), (Some(Act::Purge), true, false));
        let below = look(&going, Some(&listed(true, "volume-head")), true);
        assert_eq!((below.act, below.ticket, below.gone), (None, false, false));
        let closed = look(&going, Some(&listed(false, "t")), false);
        assert_eq!((closed.act, closed.ticket, closed.gone), (None, true, false));
    }

    /// Somebody made an object for the snapshot a restore works on, and deleted it.
    #[test]
    fn what_a_restore_works_on_is_not_taken_from_under_it() {
        let going = deleted(asked());
        for status in [
            VolumeStatus { restore_required: Some(true), ..VolumeStatus::default() },
            VolumeStatus { is_standby: Some(true), ..VolumeStatus::default() },
        ] {
            let mut volume = Volume::new("v", VolumeSpec::default());
            volume.status = Some(status);
            let known = listed(false, "volume-head");
            let verdict = decide(&Seen {
                now: now(),
                snapshot: &going,
                volume: Some(&volume),
                engine: Some("v-e-0".into()),
                runs: true,
                purging: false,
                size: None,
                known: Some(&known),
                may_purge: true,
            });
            assert_eq!((verdict.act, verdict.ticket, verdict.gone), (None, false, true));
        }
    }

    #[test]
    fn a_standby_volume_has_no_snapshots_of_others() {
        let mut volume = Volume::new("v", VolumeSpec::default());
        volume.status = Some(VolumeStatus { is_standby: Some(true), ..VolumeStatus::default() });
        let snapshot = asked();
        let verdict = decide(&Seen {
            now: now(),
            snapshot: &snapshot,
            volume: Some(&volume),
            engine: None,
            runs: true,
            purging: false,
            size: None,
            known: None,
            may_purge: true,
        });
        assert!(verdict.act.is_none() && !verdict.ticket);
        assert_eq!(
            verdict.status.error.as_deref(),
            Some("failed to create snapshot for standby volume v")
        );
    }
}
