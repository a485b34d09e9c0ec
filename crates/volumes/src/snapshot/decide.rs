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
/// Every engine has been looked at by then since it was asked to merge, or was last seen at it.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);
/// How often it is written down that an engine still merges.
const STILL: SignedDuration = SignedDuration::from_secs(10);
const KEPT: &str = "the engine keeps the removed snapshot below its head: it is merged when there is another above it";

pub(super) struct Seen<'a> {
    pub(super) now: Timestamp,
    pub(super) snapshot: &'a Snapshot,
    pub(super) volume: Option<&'a Volume>,
    /// Name of the engine, if there is one.
    pub(super) engine: Option<String>,
    /// It answers, and has said what it has.
    pub(super) runs: bool,
    pub(super) purge: Purge,
    /// What is known of merging this one away.
    pub(super) merge: Merge,
    pub(super) size: Option<i64>,
    /// The snapshot as the engine has it, or had it when it last ran.
    pub(super) known: Option<&'a EngineSnapshot>,
    pub(super) may_purge: bool,
}

/// How the last purge of the engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purge {
    /// It has ended, or there was none.
    Over,
    Running,
    Failed,
}

/// How far it is that a removed snapshot is merged away. Kept beside the object: a status others may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// The engine that runs has not been asked.
    Unasked,
    /// It was asked then, or was last seen at it.
    Asked(Timestamp),
    /// It has ended and let the snapshot be: it does not merge what its head is on.
    Refused,
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
    pub(super) merge: Merge,
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
    let merge = Merge::Unasked;
    Verdict { status, act: None, merge, ticket: false, gone: false, next: None }
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
    if known.removed != Some(true) {
        return mark(seen, status);
    }
    merge(seen, known, status)
}

/// It is said to be removed, which takes an engine.
fn mark(seen: &Seen<'_>, status: SnapshotStatus) -> Verdict {
    if !seen.runs {
        return wait_for_engine(status);
    }
    Verdict { act: Some(Act::Remove), ticket: true, next: Some(AGAIN), ..calm(status) }
}

fn wait_for_engine(status: SnapshotStatus) -> Verdict {
    let why = "waiting for the volume to be attached to delete the snapshot".to_owned();
    let status = SnapshotStatus { error: Some(why), ..status };
    Verdict { ticket: true, next: Some(AGAIN), ..calm(status) }
}

/// It is removed, and the engine lists it until it is merged away. The volume is held for that from the first
/// pass to the last one: what asks for an engine and then lets it go attaches the volume for ever.
fn merge(seen: &Seen<'_>, known: &EngineSnapshot, status: SnapshotStatus) -> Verdict {
    let below_head = known.children.iter().flatten().any(|(child, _)| child == "volume-head");
    let held = |status, merge| Verdict { merge, ticket: true, next: Some(AGAIN), ..calm(status) };
    let purge = |status, merge| Verdict { act: Some(Act::Purge), ..held(status, merge) };
    if !seen.may_purge {
        // The next purge that somebody asks for takes it along.
        return Verdict { merge: seen.merge, ..calm(status) };
    }
    if below_head && seen.merge == Merge::Refused && seen.purge != Purge::Running {
        let status = SnapshotStatus { error: Some(KEPT.to_owned()), ..status };
        return Verdict { merge: Merge::Refused, ..calm(status) };
    }
    if !seen.runs {
        // Whoever was asked is gone.
        return wait_for_engine(status);
    }
    let is_within = |at: Timestamp, limit| seen.now.duration_since(at).abs() <= limit;
    match (seen.purge, seen.merge) {
        (Purge::Running, Merge::Asked(at)) if is_within(at, STILL) => held(status, seen.merge),
        (Purge::Running, _) => held(status, Merge::Asked(seen.now)),
        (Purge::Over | Purge::Failed, Merge::Asked(at)) if is_within(at, SETTLED) => {
            held(status, seen.merge)
        }
        // What was asked for at a time that is yet to come was not asked for.
        (Purge::Over, Merge::Asked(at)) if below_head && at < seen.now => {
            let status = SnapshotStatus { error: Some(KEPT.to_owned()), ..status };
            Verdict { merge: Merge::Refused, ..calm(status) }
        }
        (Purge::Over | Purge::Failed, _) => purge(status, Merge::Unasked),
    }
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
        look_at(now(), snapshot, known, runs, (Purge::Over, Merge::Unasked))
    }

    fn look_at(
        now: Timestamp,
        snapshot: &Snapshot,
        known: Option<&EngineSnapshot>,
        runs: bool,
        (purge, merge): (Purge, Merge),
    ) -> Verdict {
        let volume = Volume::new("v", VolumeSpec::default());
        decide(&Seen {
            now,
            snapshot,
            volume: Some(&volume),
            engine: Some("v-e-0".into()),
            runs,
            purge,
            merge,
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
        assert_eq!((below.act, below.ticket, below.gone), (Some(Act::Purge), true, false));
        let closed = look(&going, Some(&listed(false, "t")), false);
        assert_eq!((closed.act, closed.ticket, closed.gone), (None, true, false));
    }

    /// An engine as it is when the volume is held, and as it was when it is not; a purge takes two looks.
    struct Engine {
        runs: bool,
        listed: Option<EngineSnapshot>,
        purge: Purge,
        left: u32,
        /// It merges what is below its head.
        folds: bool,
        /// How often it was started, and asked to purge.
        starts: u32,
        purges: u32,
    }

    impl Engine {
        fn obey(&mut self, verdict: &Verdict) {
            self.starts += u32::from(verdict.ticket && !self.runs);
            self.runs = verdict.ticket;
            if !self.runs {
                (self.purge, self.left) = (Purge::Over, 0);
                return;
            }
            if self.purge == Purge::Running {
                self.left -= 1;
                if self.left == 0 {
                    self.purge = Purge::Over;
                    self.listed = self.listed.take().filter(|_| !self.folds);
                }
            }
            match verdict.act {
                Some(Act::Remove) => {
                    let listed = self.listed.as_mut().unwrap();
                    listed.removed = Some(true);
                }
                Some(Act::Purge) => self.purges += 1,
                Some(Act::Take) | None => return,
            }
            (self.purge, self.left) = (Purge::Running, 2);
        }
    }

    /// Passes until nothing is left to do; says how it ended.
    fn drive(engine: &mut Engine, seconds: i64) -> Verdict {
        let going = deleted(asked());
        let (mut merge, mut at) = (Merge::Unasked, now());
        for _ in 0..40 {
            let state = (engine.purge, merge);
            let verdict = look_at(at, &going, engine.listed.as_ref(), engine.runs, state);
            if verdict.gone {
                return verdict;
            }
            engine.obey(&verdict);
            // As it is written down.
            merge = if verdict.act.is_some() { Merge::Asked(at) } else { verdict.merge };
            at += SignedDuration::from_secs(seconds);
        }
        look_at(at, &going, engine.listed.as_ref(), engine.runs, (engine.purge, merge))
    }

    /// Else a volume that nobody has attached is attached and detached for ever, and the purge cut off half way.
    #[test]
    fn a_volume_is_held_until_the_snapshot_below_its_head_is_merged() {
        for removed in [false, true] {
            for seconds in [1, 5, 20] {
                let mut engine = Engine {
                    runs: false,
                    listed: Some(listed(removed, "volume-head")),
                    purge: Purge::Over,
                    left: 0,
                    folds: true,
                    starts: 0,
                    purges: 0,
                };
                assert!(drive(&mut engine, seconds).gone, "every {seconds} s");
                assert_eq!((engine.starts, engine.purges), (1, u32::from(removed)));
            }
        }
    }

    #[test]
    fn a_volume_whose_engine_keeps_what_is_below_its_head_is_let_go_once() {
        for removed in [false, true] {
            for seconds in [1, 5, 20] {
                let mut engine = Engine {
                    runs: false,
                    listed: Some(listed(removed, "volume-head")),
                    purge: Purge::Over,
                    left: 0,
                    folds: false,
                    starts: 0,
                    purges: 0,
                };
                let end = drive(&mut engine, seconds);
                assert_eq!((end.gone, end.ticket, end.act), (false, false, None));
                assert_eq!(end.status.error.as_deref(), Some(KEPT));
                assert_eq!((engine.starts, engine.purges), (1, u32::from(removed)));
                // There is one above it now, and somebody has attached the volume.
                let above = listed(true, "later");
                let state = (Purge::Over, Merge::Refused);
                let then = look_at(now(), &deleted(asked()), Some(&above), true, state);
                assert_eq!((then.act, then.ticket), (Some(Act::Purge), true));
            }
        }
    }

    #[test]
    fn a_purge_that_failed_or_went_with_its_engine_is_asked_for_again() {
        let going = deleted(asked());
        let below = listed(true, "volume-head");
        let earlier = Merge::Asked(now() - SignedDuration::from_mins(5));
        let failed = look_at(now(), &going, Some(&below), true, (Purge::Failed, earlier));
        assert_eq!((failed.act, failed.ticket), (Some(Act::Purge), true));
        let ended = look_at(now(), &going, Some(&below), false, (Purge::Over, earlier));
        assert_eq!((ended.merge, ended.ticket), (Merge::Unasked, true));
        let ahead = Merge::Asked(now() + SignedDuration::from_hours(9));
        let forged = look_at(now(), &going, Some(&below), true, (Purge::Over, ahead));
        assert_eq!((forged.act, forged.ticket), (Some(Act::Purge), true));
    }

    #[test]
    fn nobody_attaches_a_volume_for_a_purge_that_is_switched_off() {
        let volume = Volume::new("v", VolumeSpec::default());
        let (going, known) = (deleted(asked()), listed(true, "t"));
        for runs in [true, false] {
            let verdict = decide(&Seen {
                now: now(),
                snapshot: &going,
                volume: Some(&volume),
                engine: Some("v-e-0".into()),
                runs,
                purge: Purge::Over,
                merge: Merge::Unasked,
                size: None,
                known: Some(&known),
                may_purge: false,
            });
            assert_eq!((verdict.act, verdict.ticket, verdict.gone), (None, false, false));
        }
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
                purge: Purge::Over,
                merge: Merge::Unasked,
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
            purge: Purge::Over,
            merge: Merge::Unasked,
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
