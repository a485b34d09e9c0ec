//! Places in the executor's queue.
//!
//! Owns the order: by creation, ties by name, over all Velero objects of one kind, whoever made them.
//! An object that enters or leaves moves those behind it and nobody else, and [`Queue::set`] says where
//! they begin. Noting a change costs the same however many they are; whoever tells them their new places
//! takes them from [`Queue::behind`], once for all changes that came meanwhile.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::scalar::Time;
use api::velero::{BackupPhase, BackupStatus, RestorePhase, RestoreStatus};

/// How far the executor is with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Waiting,
    Running,
    /// Its own work goes on, but it no longer keeps others waiting.
    Passing,
    Done,
}

impl Progress {
    /// Some failed backups never get a completion time; their phase says that they are done.
    pub fn of_backup(status: &BackupStatus) -> Self {
        use BackupPhase as P;
        if status.completion_timestamp.is_some() {
            return Self::Done;
        }
        match &status.phase {
            None | Some(P::New | P::Queued | P::Other(_)) => Self::Waiting,
            Some(P::ReadyToStart | P::InProgress) => Self::Running,
            Some(
                P::WaitingForPluginOperations
                | P::WaitingForPluginOperationsPartiallyFailed
                | P::Finalizing
                | P::FinalizingPartiallyFailed,
            ) => Self::Passing,
            Some(
                P::FailedValidation | P::Failed | P::PartiallyFailed | P::Completed | P::Deleting,
            ) => Self::Done,
        }
    }

    pub fn of_restore(status: &RestoreStatus) -> Self {
        use RestorePhase as P;
        if status.completion_timestamp.is_some() {
            return Self::Done;
        }
        match &status.phase {
            None | Some(P::New | P::Other(_)) => Self::Waiting,
            Some(P::InProgress) => Self::Running,
            Some(
                P::WaitingForPluginOperations
                | P::WaitingForPluginOperationsPartiallyFailed
                | P::Finalizing
                | P::FinalizingPartiallyFailed,
            ) => Self::Passing,
            Some(P::FailedValidation | P::Failed | P::PartiallyFailed | P::Completed) => Self::Done,
        }
    }

    const fn counts(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// Where an object stands in the order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    created: Time,
    name: String,
}

/// Notes how far an object is, as `known` says while the queue is held: what a watch tells and what a write is
/// answered come by different threads, and the older of the two may come last.
pub fn note(
    queue: &Mutex<Queue>,
    name: &str,
    known: impl FnOnce() -> Option<(Time, Progress)>,
) -> Option<Place> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    match known() {
        Some((created, progress)) => queue.set(name, created, progress),
        None => queue.remove(name),
    }
}

/// All objects of one kind that the executor has, and the order of those that keep others waiting.
#[derive(Debug, Default)]
pub struct Queue {
    known: HashMap<String, (Time, Progress)>,
    order: Vec<Place>,
}

impl Queue {
    /// Notes how far an object is; returns the first place whose holder moved by it, beside its own.
    pub fn set(&mut self, name: &str, created: Time, progress: Progress) -> Option<Place> {
        let before = self.known.insert(name.to_owned(), (created, progress));
        if before == Some((created, progress)) {
            return None;
        }
        let left = before.and_then(|(created, progress)| self.leave(name, created, progress));
        let entered = progress.counts().then(|| self.enter(name, created));
        match (left, entered) {
            // It has the same place as before: nobody behind it moved.
            (Some(left), Some(entered)) if left == entered => None,
            (None, Some(entered)) => self.order.get(entered + 1).cloned(),
            (left, entered) => {
                self.order.get([left, entered].into_iter().flatten().min()?).cloned()
            }
        }
    }

    /// Forgets an object; returns the first place whose holder moved by it.
    pub fn remove(&mut self, name: &str) -> Option<Place> {
        let (created, progress) = self.known.remove(name)?;
        let left = self.leave(name, created, progress)?;
        self.order.get(left).cloned()
    }

    /// The names from a place on, so many at most, and the place to go on from.
    pub fn behind(&self, from: &Place, max: usize) -> (Vec<String>, Option<Place>) {
        let first = self.order.partition_point(|place| place < from);
        let names = self.order.iter().skip(first).take(max).map(|place| place.name.clone());
        (names.collect(), self.order.get(first.saturating_add(max)).cloned())
    }

    /// 0: done. 1: running, or next. More: one for itself and one for each that comes before it.
    /// Nothing for an object that is not known.
    pub fn position(&self, name: &str) -> Option<i64> {
        let (created, progress) = self.known.get(name)?;
        match progress {
            Progress::Done => Some(0),
            Progress::Running | Progress::Passing => Some(1),
            Progress::Waiting => {
                let place = Place { created: *created, name: name.to_owned() };
                let before = self.order.binary_search(&place).unwrap_or_else(|at| at);
                Some(i64::try_from(before).unwrap_or(i64::MAX).saturating_add(1))
            }
        }
    }

    fn enter(&mut self, name: &str, created: Time) -> usize {
        let place = Place { created, name: name.to_owned() };
        let at = self.order.binary_search(&place).unwrap_or_else(|at| at);
        self.order.insert(at, place);
        at
    }

    fn leave(&mut self, name: &str, created: Time, progress: Progress) -> Option<usize> {
        if !progress.counts() {
            return None;
        }
        let at = self.order.binary_search(&Place { created, name: name.to_owned() }).ok()?;
        self.order.remove(at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Time {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    /// Everybody who moved beside the one that was set or removed.
    fn moved(queue: &Queue, from: Option<Place>) -> Vec<String> {
        from.map(|from| queue.behind(&from, usize::MAX).0).unwrap_or_default()
    }

    fn set(queue: &mut Queue, name: &str, second: i64, progress: Progress) -> Vec<String> {
        let from = queue.set(name, at(second), progress);
        moved(queue, from)
    }

    #[test]
    fn three_that_wait_are_one_two_three_and_move_up_when_the_first_is_done() {
        let mut queue = Queue::default();
        for (name, second) in [("a", 1), ("b", 2), ("c", 3)] {
            assert!(set(&mut queue, name, second, Progress::Waiting).is_empty());
        }
        let places = |queue: &Queue| ["a", "b", "c"].map(|name| queue.position(name).unwrap());
        assert_eq!(places(&queue), [1, 2, 3]);
        assert!(set(&mut queue, "a", 1, Progress::Running).is_empty());
        assert_eq!(places(&queue), [1, 2, 3]);
        assert_eq!(set(&mut queue, "a", 1, Progress::Done), ["b", "c"]);
        assert_eq!(places(&queue), [0, 1, 2]);
        assert!(set(&mut queue, "a", 1, Progress::Done).is_empty());
        let from = queue.remove("b");
        assert_eq!(moved(&queue, from), ["c"]);
        assert_eq!(queue.position("c"), Some(1));
        assert_eq!(queue.position("b"), None);
    }

    #[test]
    fn the_last_one_to_end_moves_nobody() {
        let mut queue = Queue::default();
        for second in 0..100 {
            queue.set(&format!("n{second:03}"), at(second), Progress::Waiting);
        }
        assert!(set(&mut queue, "n099", 99, Progress::Done).is_empty());
        assert_eq!(set(&mut queue, "n097", 97, Progress::Done), ["n098"]);
        // Those behind are told a few at a time, each once.
        let mut from = queue.set("n000", at(0), Progress::Done);
        let mut told = Vec::new();
        while let Some(place) = from {
            let (names, rest) = queue.behind(&place, 7);
            assert!((1..=7).contains(&names.len()), "{names:?}");
            told.extend(names);
            from = rest;
        }
        assert_eq!(told.len(), 97);
        assert!(told.is_sorted() && told[0] == "n001");
    }

    #[test]
    fn one_that_is_being_finished_keeps_nobody_waiting() {
        let mut queue = Queue::default();
        queue.set("a", at(1), Progress::Running);
        queue.set("b", at(2), Progress::Waiting);
        assert_eq!(queue.position("b"), Some(2));
        queue.set("a", at(1), Progress::Passing);
        assert_eq!((queue.position("a"), queue.position("b")), (Some(1), Some(1)));
    }

    #[test]
    fn what_is_known_is_asked_while_the_queue_is_held() {
        let queue = Mutex::new(Queue::default());
        let known = std::cell::Cell::new(Progress::Waiting);
        let tell = || {
            note(&queue, "a", || {
                assert!(queue.try_lock().is_err(), "another could note what is newer in between");
                Some((at(1), known.get()))
            })
        };
        tell();
        // It ends; then comes the answer to its creation, late.
        known.set(Progress::Done);
        tell();
        tell();
        assert_eq!(queue.lock().unwrap().position("a"), Some(0));
        note(&queue, "a", || None);
        assert_eq!(queue.lock().unwrap().position("a"), None);
    }

    #[test]
    fn of_one_second_the_name_decides() {
        let mut queue = Queue::default();
        queue.set("b", at(1), Progress::Waiting);
        queue.set("a", at(1), Progress::Waiting);
        assert_eq!((queue.position("a"), queue.position("b")), (Some(1), Some(2)));
    }

    #[test]
    fn failed_backups_without_a_completion_time_are_done() {
        for phase in [BackupPhase::FailedValidation, BackupPhase::Failed, BackupPhase::Deleting] {
            let status = BackupStatus { phase: Some(phase), ..BackupStatus::default() };
            assert_eq!(Progress::of_backup(&status), Progress::Done);
        }
        let status = RestoreStatus {
            phase: Some(RestorePhase::FailedValidation),
            ..RestoreStatus::default()
        };
        assert_eq!(Progress::of_restore(&status), Progress::Done);
    }

    const ALL: [Progress; 4] =
        [Progress::Waiting, Progress::Running, Progress::Passing, Progress::Done];

    proptest! {
        /// Against a model that counts anew: the positions are right, and whoever was not named has
        /// not moved.
        #[test]
        fn positions_equal_a_count_and_only_the_named_move(
            changes in prop::collection::vec((0u8..12, 0i64..4, 0usize..5), 0..60)
        ) {
            let mut queue = Queue::default();
            let mut model: std::collections::BTreeMap<String, (Time, Progress)> =
                std::collections::BTreeMap::new();
            for (who, second, what) in changes {
                let name = format!("n{who}");
                let old: HashMap<String, Option<i64>> =
                    model.keys().map(|it| (it.clone(), queue.position(it))).collect();
                let from = if let Some(progress) = ALL.get(what) {
                    let created = model.get(&name).map_or(at(second), |it| it.0);
                    model.insert(name.clone(), (created, *progress));
                    queue.set(&name, created, *progress)
                } else {
                    model.remove(&name);
                    queue.remove(&name)
                };
                let told = moved(&queue, from);
                for (it, (created, progress)) in &model {
                    let before = model.iter().filter(|(other, (made, how))| {
                        how.counts() && (made, *other) < (created, it)
                    }).count();
                    let want = match progress {
                        Progress::Done => 0,
                        Progress::Running | Progress::Passing => 1,
                        Progress::Waiting => i64::try_from(before).unwrap() + 1,
                    };
                    prop_assert_eq!(queue.position(it), Some(want));
                    let was = old.get(it).copied().flatten();
                    let is_said = *it == name || told.contains(it);
                    prop_assert!(was == Some(want) || is_said, "{} moved unsaid", it);
                }
            }
        }
    }
}
