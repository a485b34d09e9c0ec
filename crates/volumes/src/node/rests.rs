//! Pauses between the starts of a process that ends as soon as it was started: the longer, the more often it
//! did. All of it may be lost with this manager.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reconcile::Backoff;

use crate::instances::Key;

/// One that ran for longer than this did start.
const SHORT: Duration = Duration::from_secs(10);
/// The first end costs no pause: the process may have been killed.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// So many names are kept; those that were started longest ago go first.
const NAMES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Rests(Mutex<HashMap<Key, Tries>>);

#[derive(Debug, Clone)]
struct Tries {
    begun: Instant,
    /// The run whose end was counted last.
    run: String,
    ends: u32,
    until: Instant,
    why: String,
}

impl Rests {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Tries>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was started now.
    pub(super) fn begun(&self, key: &Key, now: Instant) {
        let mut all = self.lock();
        if all.len() >= NAMES_MAX && !all.contains_key(key) {
            let oldest =
                all.iter().min_by_key(|(_, tries)| tries.begun).map(|(key, _)| key.clone());
            oldest.map(|oldest| all.remove(&oldest));
        }
        let fresh =
            Tries { begun: now, run: String::new(), ends: 0, until: now, why: String::new() };
        all.entry(key.clone()).or_insert(fresh).begun = now;
    }

    /// It ended by itself. Told again of the same run, it is the same end.
    pub(super) fn ended(&self, key: &Key, run: &str, why: &str, now: Instant) {
        let mut all = self.lock();
        let Some(tries) = all.get_mut(key).filter(|it| it.run != run) else { return };
        run.clone_into(&mut tries.run);
        if now.duration_since(tries.begun) > SHORT {
            tries.ends = 0;
            return;
        }
        let pause = if tries.ends == 0 { Duration::ZERO } else { PAUSES.after(tries.ends) };
        tries.ends = tries.ends.saturating_add(1);
        tries.until = now + pause;
        why.clone_into(&mut tries.why);
    }

    /// How long it may not be started yet, and why.
    pub(super) fn left(&self, key: &Key, now: Instant) -> Option<(Duration, String)> {
        let all = self.lock();
        let tries = all.get(key)?;
        let left = tries.until.saturating_duration_since(now);
        let ends = tries.ends;
        (!left.is_zero()).then(|| {
            let why = &tries.why;
            (
                left,
                format!("it ended {ends} times right after its start, the last time with: {why}"),
            )
        })
    }
}

/// An engine waits for so long for the copies that the next one is to go on with.
const REPLACE_WAIT: Duration = Duration::from_secs(30);

/// Since when engines that are to be replaced cannot be.
#[derive(Debug, Default)]
pub(super) struct Timeouts(Mutex<HashMap<Key, Instant>>);

impl Timeouts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It cannot be replaced now. Whether that is so for too long.
    pub(super) fn is_over(&self, key: &Key, now: Instant) -> bool {
        now.duration_since(*self.lock().entry(key.clone()).or_insert(now)) >= REPLACE_WAIT
    }

    /// It was so for too long when it was last looked at, or would be by now.
    pub(super) fn has_run_out(&self, key: &Key, now: Instant) -> bool {
        self.lock().get(key).is_some_and(|since| now.duration_since(*since) >= REPLACE_WAIT)
    }

    /// It is, or is not to be any more.
    pub(super) fn renew(&self, key: &Key) {
        self.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_waits_for_the_next_ones_copies_and_not_for_ever() {
        let (timeouts, key, now) = (Timeouts::default(), Key::engine("v-e-0"), Instant::now());
        assert!(!timeouts.is_over(&key, now));
        assert!(!timeouts.is_over(&key, now + REPLACE_WAIT / 2));
        assert!(timeouts.is_over(&key, now + REPLACE_WAIT));
        // Copies that come only then come too late: it may be taken back already.
        assert!(timeouts.has_run_out(&key, now + REPLACE_WAIT));
        timeouts.renew(&key);
        assert!(!timeouts.has_run_out(&key, now + REPLACE_WAIT));
        assert!(!timeouts.is_over(&key, now + REPLACE_WAIT));
    }

    #[test]
    fn the_more_often_it_ends_at_once_the_longer_it_rests() {
        let (rests, key) = (Rests::default(), Key::engine("v-e-0"));
        let (mut now, mut pauses) = (Instant::now(), Vec::new());
        for run in 0..9 {
            rests.begun(&key, now);
            rests.ended(&key, &run.to_string(), "exit status 1", now);
            // The same end, seen again.
            rests.ended(&key, &run.to_string(), "exit status 1", now);
            let left = rests.left(&key, now).map_or(Duration::ZERO, |(left, _)| left);
            pauses.push(left.as_secs());
            now += left;
            assert_eq!(rests.left(&key, now), None);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        rests.begun(&key, now);
        rests.ended(&key, "last", "exit status 1", now);
        let (_, why) = rests.left(&key, now).unwrap();
        assert_eq!(
            why,
            "it ended 10 times right after its start, the last time with: exit status 1"
        );
        // One that ran for a while begins anew.
        now += Duration::from_mins(2);
        rests.begun(&key, now);
        now += SHORT * 2;
        rests.ended(&key, "late", "killed by signal 9", now);
        assert_eq!(rests.left(&key, now), None);
        rests.begun(&key, now);
        rests.ended(&key, "again", "killed by signal 9", now);
        assert_eq!(rests.left(&key, now), None);
        assert_eq!(rests.left(&Key::replica("v-r-1"), now), None);
    }
}
