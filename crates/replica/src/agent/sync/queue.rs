//! The files of a rebuild, and who copies which next. Pure: times are handed in.
//!
//! A file that failed waits, and is then tried from another source first. The third failure of one
//! file ends the rebuild, and so do sources none of which has given anything for a while.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::agent::names::FileName;

/// Failures of one file before all is given up.
const FAILURES_MAX: u32 = 3;
/// Failures in a row before a source counts as dead.
const STREAK_MAX: u32 = 4;
const BACK_OFF: Duration = Duration::from_secs(2);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) from: FileName,
    pub(crate) to: FileName,
    /// Its share of the progress.
    pub(crate) weight_bytes: u64,
}

/// A file that was handed out, to be handed back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) file: File,
    failed_at: BTreeSet<usize>,
    failures: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Copy(Taken),
    /// Nothing for this source before that time, counted from the start.
    WaitUntil(Duration),
    /// Nothing for this source until another is done.
    WaitForOthers,
    Finished,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The source should rest so long.
    Again(Duration),
    GiveUp,
}

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<(Duration, Taken)>,
    running: usize,
    /// Of each source, the failures since its last success.
    streaks: Vec<u32>,
    done_bytes: u64,
    total_bytes: u64,
}

impl Queue {
    pub(crate) fn new(files: Vec<File>, sources: usize) -> Self {
        let total_bytes = files.iter().map(|file| file.weight_bytes).fold(0, u64::saturating_add);
        let fresh =
            |file| (Duration::ZERO, Taken { file, failed_at: BTreeSet::new(), failures: 0 });
        let waiting = files.into_iter().map(fresh).collect();
        Self { waiting, running: 0, streaks: vec![0; sources], done_bytes: 0, total_bytes }
    }

    pub(crate) fn next(&mut self, source: usize, now: Duration) -> Next {
        let may = |taken: &Taken| {
            !taken.failed_at.contains(&source) || taken.failed_at.len() >= self.streaks.len()
        };
        let ready = self.waiting.iter().position(|(from, taken)| *from <= now && may(taken));
        if let Some((_, taken)) = ready.and_then(|place| self.waiting.remove(place)) {
            self.running += 1;
            return Next::Copy(taken);
        }
        let soonest = self.waiting.iter().filter(|(_, taken)| may(taken)).map(|(from, _)| *from);
        match soonest.min() {
            Some(from) => Next::WaitUntil(from),
            None if self.running == 0 && self.waiting.is_empty() => Next::Finished,
            None => Next::WaitForOthers,
        }
    }

    pub(crate) fn done(&mut self, taken: Taken, source: usize) {
        let Taken { file, .. } = taken;
        self.running = self.running.saturating_sub(1);
        self.done_bytes = self.done_bytes.saturating_add(file.weight_bytes);
        if let Some(streak) = self.streaks.get_mut(source) {
            *streak = 0;
        }
    }

    pub(crate) fn failed(&mut self, mut taken: Taken, source: usize, now: Duration) -> Failed {
        self.running = self.running.saturating_sub(1);
        taken.failures += 1;
        taken.failed_at.insert(source);
        let streak = self.streaks.get_mut(source).map_or(1, |streak| {
            *streak += 1;
            *streak
        });
        let is_hopeless = self.streaks.iter().all(|streak| *streak >= STREAK_MAX);
        if taken.failures >= FAILURES_MAX || is_hopeless {
            return Failed::GiveUp;
        }
        // Another source need not wait for what this one could not do.
        let is_new_elsewhere = taken.failed_at.len() < self.streaks.len();
        let wait = if is_new_elsewhere { Duration::ZERO } else { back_off(taken.failures) };
        self.waiting.push_back((now + wait, taken));
        Failed::Again(back_off(streak))
    }

    /// Percent, with so many bytes of files that are being copied.
    pub(crate) fn percent(&self, running_bytes: u64) -> u8 {
        let done = self.done_bytes.saturating_add(running_bytes).min(self.total_bytes);
        let percent = u128::from(done) * 100 / u128::from(self.total_bytes.max(1));
        u8::try_from(percent).unwrap_or(100)
    }
}

fn back_off(failures: u32) -> Duration {
    BACK_OFF.saturating_mul(failures.saturating_mul(failures)).min(BACK_OFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(count: u64, sources: usize) -> Queue {
        let name = |index: u64| FileName::parse(&format!("f{index}")).unwrap();
        let file = |index| File { from: name(index), to: name(index), weight_bytes: 100 };
        Queue::new((0..count).map(file).collect(), sources)
    }

    fn take(queue: &mut Queue, source: usize, now: Duration) -> Taken {
        match queue.next(source, now) {
            Next::Copy(taken) => taken,
            other => panic!("{other:?}"),
        }
    }

    const START: Duration = Duration::ZERO;

    #[test]
    fn every_file_is_handed_out_once_and_the_end_is_the_end_of_the_last() {
        let mut queue = queue(3, 2);
        let one = take(&mut queue, 0, START);
        let two = take(&mut queue, 1, START);
        queue.done(one, 0);
        assert_eq!(queue.percent(0), 33);
        assert_eq!(queue.percent(50), 50);
        let three = take(&mut queue, 0, START);
        assert_eq!(queue.next(1, START), Next::WaitForOthers);
        queue.done(two, 1);
        queue.done(three, 0);
        assert_eq!(queue.next(0, START), Next::Finished);
        assert_eq!(queue.next(1, START), Next::Finished);
        assert_eq!(queue.percent(0), 100);
    }

    #[test]
    fn a_file_that_failed_goes_to_another_source_at_once() {
        let mut queue = queue(1, 2);
        let taken = take(&mut queue, 0, START);
        assert_eq!(queue.failed(taken, 0, START), Failed::Again(BACK_OFF));
        assert_eq!(queue.next(0, START), Next::WaitForOthers);
        let taken = take(&mut queue, 1, START);
        assert_eq!(queue.failed(taken, 1, START), Failed::Again(BACK_OFF));
        let wait = back_off(2);
        assert_eq!(queue.next(0, START), Next::WaitUntil(wait), "both have failed: wait");
        let taken = take(&mut queue, 0, wait);
        assert_eq!(queue.failed(taken, 0, wait), Failed::GiveUp);
    }

    #[test]
    fn a_single_source_tries_three_times() {
        let mut queue = queue(1, 1);
        let mut now = START;
        let mut tries = 0;
        loop {
            match queue.next(0, now) {
                Next::Copy(taken) => {
                    tries += 1;
                    match queue.failed(taken, 0, now) {
                        Failed::Again(wait) => assert!(wait >= BACK_OFF && wait <= BACK_OFF_MAX),
                        Failed::GiveUp => break,
                    }
                }
                Next::WaitUntil(later) => now = later,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(tries, 3);
    }

    #[test]
    fn a_dead_source_does_not_make_many_files_wait_for_each_other() {
        let mut queue = queue(500, 1);
        let mut now = START;
        loop {
            let taken = take(&mut queue, 0, now);
            match queue.failed(taken, 0, now) {
                Failed::Again(rest) => now += rest,
                Failed::GiveUp => break,
            }
        }
        assert!(now >= Duration::from_secs(20) && now <= Duration::from_mins(1), "{now:?}");
    }

    #[test]
    fn a_dead_source_beside_a_good_one_ends_nothing() {
        let mut queue = queue(100, 2);
        for _ in 0..50 {
            let bad = take(&mut queue, 0, START);
            assert!(matches!(queue.failed(bad, 0, START), Failed::Again(_)));
            let good = take(&mut queue, 1, START);
            queue.done(good, 1);
        }
        while let Next::Copy(taken) = queue.next(1, START) {
            queue.done(taken, 1);
        }
        assert_eq!(queue.next(0, START), Next::Finished);
    }

    #[test]
    fn files_without_weight_do_not_divide_by_zero() {
        let name = FileName::parse("a.meta").unwrap();
        let file = File { from: name.clone(), to: name, weight_bytes: 0 };
        let mut queue = Queue::new(vec![file], 1);
        assert_eq!(queue.percent(0), 0);
        let taken = take(&mut queue, 0, START);
        queue.done(taken, 0);
        assert_eq!(queue.next(0, START), Next::Finished);
    }
}
