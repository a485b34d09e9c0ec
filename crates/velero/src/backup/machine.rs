//! The queue of backups: which waits, at which place, which is next. Pure.
//!
//! ```text
//! "" | New -> Queued -> ReadyToStart -> InProgress -> Completed | PartiallyFailed | Failed
//!                                   \-> FailedValidation
//! ```
//!
//! Everything follows from the objects: nothing is remembered that a restart could lose. The order is
//! that of creation, and of names within a second.

use std::collections::{BTreeMap, BTreeSet};

use api::velero::BackupPhase;
use jiff::Timestamp;

use crate::lists::{Lists, is_pattern};

/// One backup as the queue sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) created: Timestamp,
    pub(crate) phase: Option<BackupPhase>,
    pub(crate) position: Option<i64>,
    pub(crate) namespaces: Lists,
    /// The tenant whose own store it is written to.
    pub(crate) tenant: Option<String>,
    /// Whether this process works on it now.
    pub(crate) is_running: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Wait, at this place.
    Queue { name: String, position: i64 },
    /// A place that is not told too often: at the next quiet moment.
    Renumber { name: String, position: i64 },
    /// Leave the queue.
    Release { name: String },
    /// Begin the work.
    Start { name: String },
    /// It was being worked on by a process that is gone.
    Abandoned { name: String },
}

/// Where a backup stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Queued,
    Ready,
    /// Work that only a process that lives can go on with.
    Working,
    Done,
}

pub(super) fn stage(phase: Option<&BackupPhase>) -> Stage {
    use BackupPhase as P;
    match phase {
        None | Some(P::New) => Stage::New,
        Some(P::Other(word)) if word.is_empty() => Stage::New,
        Some(P::Queued) => Stage::Queued,
        Some(P::ReadyToStart) => Stage::Ready,
        Some(
            P::InProgress
            | P::WaitingForPluginOperations
            | P::WaitingForPluginOperationsPartiallyFailed
            | P::Finalizing
            | P::FinalizingPartiallyFailed,
        ) => Stage::Working,
        Some(
            P::FailedValidation
            | P::Completed
            | P::PartiallyFailed
            | P::Failed
            | P::Deleting
            | P::Other(_),
        ) => Stage::Done,
    }
}

/// Backups to stores of tenants' own that run at the same time, one for each tenant. They mostly wait.
const TENANTS_AT_ONCE: usize = 8;

/// Backups that wait for each other.
#[derive(Debug, Default)]
struct Lane<'s> {
    busy: usize,
    before: Vec<&'s Lists>,
}

/// The administrators' lane, and one for each tenant that has a store of its own.
#[derive(Debug, Default)]
struct Lanes<'s>(BTreeMap<Option<&'s str>, Lane<'s>>);

impl<'s> Lanes<'s> {
    fn of(&mut self, it: &'s Seen) -> &mut Lane<'s> {
        self.0.entry(it.tenant.as_deref()).or_default()
    }

    fn busy_tenants(&self) -> usize {
        self.0.iter().filter(|(tenant, _)| tenant.is_some()).map(|(_, lane)| lane.busy).sum()
    }

    /// Whether one more may run in its lane.
    fn has_room(&mut self, it: &'s Seen, at_once: usize) -> bool {
        let busy_tenants = self.busy_tenants();
        match &it.tenant {
            None => self.of(it).busy < at_once,
            Some(_) => self.of(it).busy == 0 && busy_tenants < TENANTS_AT_ONCE,
        }
    }
}

/// What is to be done, for as many as `at_once` at a time. Those that are written to stores of tenants'
/// own come beside: how fast such a store takes them is up to its tenant, and keeps no other waiting.
pub(crate) fn decide(seen: &[Seen], at_once: usize) -> Vec<Action> {
    let mut waiting: Vec<(&Seen, Stage)> =
        seen.iter().map(|it| (it, stage(it.phase.as_ref()))).collect();
    // What is worked on is a deletion where that is what the object says. It takes its time by itself.
    waiting.retain(|(it, stage)| *stage != Stage::Done || it.is_running && !is_deleted(it));
    waiting.sort_by(|(a, _), (b, _)| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut actions = Vec::new();
    let mut lanes = Lanes::default();
    for (it, stage) in &waiting {
        let name = || it.name.clone();
        let lane = lanes.of(it);
        match stage {
            Stage::Working if !it.is_running => actions.push(Action::Abandoned { name: name() }),
            Stage::Ready if !it.is_running => {
                actions.push(Action::Start { name: name() });
                lane.busy += 1;
                lane.before.push(&it.namespaces);
            }
            _ if it.is_running => {
                lane.busy += 1;
                lane.before.push(&it.namespaces);
            }
            _ => {}
        }
    }
    let mut position = 0;
    for (it, stage) in &waiting {
        if !matches!(stage, Stage::New | Stage::Queued) || it.is_running {
            continue;
        }
        let has_room = lanes.has_room(it, at_once);
        let lane = lanes.of(it);
        // Those behind one whose namespaces are in use do not wait for it.
        let is_met = lane.before.iter().any(|other| meet(other, &it.namespaces));
        lane.before.push(&it.namespaces);
        if has_room && !is_met {
            lane.busy += 1;
            actions.push(Action::Release { name: it.name.clone() });
            continue;
        }
        position += 1;
        match (stage, it.position) {
            (Stage::Queued, Some(old)) if old == position => {}
            (Stage::Queued, _) => {
                actions.push(Action::Renumber { name: it.name.clone(), position });
            }
            _ => actions.push(Action::Queue { name: it.name.clone(), position }),
        }
    }
    actions
}

fn is_deleted(it: &Seen) -> bool {
    it.phase == Some(BackupPhase::Deleting)
}

/// Whether two choices of namespaces may have one in common.
fn meet(one: &Lists, other: &Lists) -> bool {
    let plain = |lists: &Lists| {
        let is_plain =
            !lists.includes.is_empty() && lists.includes.iter().all(|it| !is_pattern(it));
        is_plain.then(|| lists.includes.iter().cloned().collect::<BTreeSet<_>>())
    };
    match (plain(one), plain(other)) {
        (Some(one), Some(other)) => one.intersection(&other).next().is_some(),
        (Some(names), None) => names.iter().any(|name| other.holds(name)),
        (None, Some(names)) => names.iter().any(|name| one.holds(name)),
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(name: &str, second: i64, phase: Option<BackupPhase>) -> Seen {
        Seen {
            name: name.to_owned(),
            created: Timestamp::from_second(second).unwrap(),
            phase,
            position: None,
            namespaces: Lists { includes: vec![name.to_owned()], excludes: Vec::new() },
            tenant: None,
            is_running: false,
        }
    }

    fn release(name: &str) -> Action {
        Action::Release { name: name.to_owned() }
    }

    fn queue(name: &str, position: i64) -> Action {
        Action::Queue { name: name.to_owned(), position }
    }

    #[test]
    fn the_oldest_is_next_and_the_others_have_their_places() {
        let all = [seen("c", 3, None), seen("a", 1, None), seen("b", 1, Some(BackupPhase::New))];
        assert_eq!(decide(&all, 1), [release("a"), queue("b", 1), queue("c", 2)]);
        assert_eq!(decide(&all, 2), [release("a"), release("b"), queue("c", 1)]);
    }

    #[test]
    fn one_that_runs_takes_a_place_whatever_its_object_says() {
        let mut running = seen("a", 1, Some(BackupPhase::ReadyToStart));
        running.is_running = true;
        let mut placed = seen("b", 2, Some(BackupPhase::Queued));
        placed.position = Some(1);
        assert_eq!(decide(&[running.clone(), placed], 1), []);
        running.phase = Some(BackupPhase::Completed);
        assert_eq!(decide(&[running, seen("b", 2, None)], 1), [queue("b", 1)]);
    }

    #[test]
    fn a_deletion_that_takes_long_keeps_no_backup_waiting() {
        let mut deleted = seen("a", 1, Some(BackupPhase::Deleting));
        deleted.is_running = true;
        let mut same = seen("b", 2, None);
        same.namespaces.includes = vec!["a".to_owned()];
        assert_eq!(decide(&[deleted, same], 1), [release("b")]);
    }

    #[test]
    fn after_a_restart_ready_ones_start_and_running_ones_are_abandoned() {
        let all = [
            seen("a", 1, Some(BackupPhase::InProgress)),
            seen("b", 2, Some(BackupPhase::ReadyToStart)),
            seen("c", 3, Some(BackupPhase::Queued)),
        ];
        assert_eq!(
            decide(&all, 1),
            [
                Action::Abandoned { name: "a".to_owned() },
                Action::Start { name: "b".to_owned() },
                Action::Renumber { name: "c".to_owned(), position: 1 },
            ]
        );
    }

    #[test]
    fn backups_of_one_namespace_run_one_after_another() {
        let mut running = seen("a", 1, Some(BackupPhase::InProgress));
        running.is_running = true;
        let mut same = seen("b", 2, None);
        same.namespaces.includes = vec!["a".to_owned()];
        let other = seen("c", 3, None);
        assert_eq!(decide(&[running, same, other], 2), [queue("b", 1), release("c")]);
    }

    #[test]
    fn a_backup_to_a_tenants_store_keeps_no_other_waiting() {
        let of = |tenant: &str, it: Seen| Seen { tenant: Some(tenant.to_owned()), ..it };
        let running = |it: Seen| Seen { is_running: true, ..it };
        let slow = running(of("t", seen("a", 1, Some(BackupPhase::InProgress))));
        let everything = Seen { namespaces: Lists::default(), ..seen("all", 3, None) };
        let (next, other) = (of("t", seen("b", 2, None)), of("u", seen("c", 2, None)));
        assert_eq!(
            decide(&[slow, next, other, everything], 1),
            [queue("b", 1), release("c"), release("all")],
            "its own next one waits, nobody else"
        );
        let mut crowd: Vec<Seen> = (0..TENANTS_AT_ONCE)
            .map(|number| {
                let name = format!("r{number}");
                running(of(&name, seen(&name, 1, Some(BackupPhase::InProgress))))
            })
            .collect();
        crowd.extend([of("x", seen("x", 2, None)), seen("ours", 3, None)]);
        assert_eq!(decide(&crowd, 1), [queue("x", 1), release("ours")], "no more than may");
    }

    #[test]
    fn what_is_done_is_left_alone() {
        use BackupPhase as P;
        for phase in [P::Completed, P::Failed, P::PartiallyFailed, P::FailedValidation, P::Deleting]
        {
            assert_eq!(decide(&[seen("a", 1, Some(phase))], 1), []);
        }
        let strange = P::Other("Newer".to_owned());
        assert_eq!(decide(&[seen("a", 1, Some(strange))], 1), []);
    }

    proptest! {
        /// Whatever is there, places are 1, 2, 3… and no more run than may.
        #[test]
        fn places_have_no_gaps(
            seconds in prop::collection::vec((0_i64..5, 0_u8..4), 0..30),
            at_once in 1_usize..4,
        ) {
            let all: Vec<Seen> = seconds.iter().enumerate().map(|(n, (second, phase))| {
                let phase = match phase {
                    0 => None,
                    1 => Some(BackupPhase::Queued),
                    2 => Some(BackupPhase::Completed),
                    _ => Some(BackupPhase::New),
                };
                seen(&format!("b{n}"), *second, phase)
            }).collect();
            let actions = decide(&all, at_once);
            let places: Vec<i64> = actions.iter().filter_map(|it| match it {
                Action::Queue { position, .. } | Action::Renumber { position, .. } => Some(*position),
                _ => None,
            }).collect();
            let wanted: Vec<i64> = (1..=i64::try_from(places.len()).unwrap()).collect();
            prop_assert_eq!(places, wanted);
            let released = actions.iter().filter(|it| matches!(it, Action::Release { .. })).count();
            prop_assert!(released <= at_once);
        }
    }
}
