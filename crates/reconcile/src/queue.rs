//! Which key is looked at next. A key is in the queue once, however often it is added, and is never
//! given out while a pass of it runs: then it comes again after that pass.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::Key;

/// Pauses between passes that fail: doubled from the first to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    pub const DEFAULT: Self =
        Self { first: Duration::from_millis(50), longest: Duration::from_secs(30) };

    /// The pause after so many failures in a row.
    pub fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// Pauses after somebody else wrote first.
const AFTER_CONFLICT: Backoff =
    Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// The keys of one controller.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    backoff: Backoff,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Key>,
    waiting: HashSet<Key>,
    running: HashSet<Key>,
    /// Added while they ran.
    again: HashSet<Key>,
    /// To be added later, by time.
    later: BTreeSet<(Instant, Key)>,
    due: HashMap<Key, Instant>,
    failures: HashMap<Key, u32>,
    /// Passes in a row that found that somebody else wrote first.
    conflicts: HashMap<Key, u32>,
}

impl State {
    fn add(&mut self, key: &Key) {
        if self.running.contains(key) {
            self.again.insert(key.clone());
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key.clone());
        }
    }

    fn add_at(&mut self, key: &Key, at: Instant) {
        if let Some(earlier) = self.due.get(key) {
            if *earlier <= at {
                return;
            }
            self.later.remove(&(*earlier, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.later.insert((at, key.clone()));
    }

    /// Whatever was planned for a key is planned anew by the pass that begins.
    fn unplan(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some((at, key)) = self.later.first().cloned() {
            if at > now {
                return;
            }
            self.unplan(&key);
            self.add(&key);
        }
    }
}

impl Queue {
    pub fn new(backoff: Backoff) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), backoff }
    }

    /// Asks for a pass of this key, soon.
    pub fn add(&self, key: &Key) {
        self.lock().add(key);
        self.changed.notify_one();
    }

    /// Asks for a pass after a pause, unless one comes earlier.
    pub fn add_after(&self, key: &Key, pause: Duration) {
        self.lock().add_at(key, Instant::now() + pause);
        self.changed.notify_one();
    }

    /// How many keys wait for a pass now.
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    /// The next key; it is running until [`Queue::done`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a key is taken only when it is returned.
    pub(crate) async fn next(&self) -> Key {
        loop {
            let changed = self.changed.notified();
            let wait = {
                let mut state = self.lock();
                state.wake(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    state.waiting.remove(&key);
                    state.running.insert(key.clone());
                    state.unplan(&key);
                    if !state.ready.is_empty() {
                        // One permit may stand for many additions.
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.later.first().map(|(at, _)| *at)
            };
            match wait {
                None => changed.await,
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
            }
        }
    }

    /// The pass of this key has ended. `next` is when to look again though nothing changes.
    pub(crate) fn done(&self, key: &Key, next: Option<Duration>) {
        let mut state = self.lock();
        state.failures.remove(key);
        state.conflicts.remove(key);
        self.finish(&mut state, key, next);
    }

    /// Somebody else wrote first; says how long the pause is, and after how many such passes in a row. What they
    /// wrote is seen in a moment. Where it is so every time, as with a name that somebody else has, nothing is won
    /// by asking at once.
    pub(crate) fn conflicted(&self, key: &Key) -> (Duration, u32) {
        let mut state = self.lock();
        let conflicts = state.conflicts.entry(key.clone()).or_default();
        *conflicts = conflicts.saturating_add(1);
        let (pause, times) = (AFTER_CONFLICT.after(*conflicts), *conflicts);
        self.finish(&mut state, key, Some(pause));
        (pause, times)
    }

    /// The pass has failed; says how long the pause is.
    pub(crate) fn failed(&self, key: &Key) -> Duration {
        let mut state = self.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let longest = self.backoff.after(*failures);
        // Spread, so that what failed together is not tried together.
        let pause = longest.mul_f64(rand::random_range(0.75..=1.0));
        self.finish(&mut state, key, Some(pause));
        pause
    }

    fn finish(&self, state: &mut State, key: &Key, next: Option<Duration>) {
        state.running.remove(key);
        if state.again.remove(key) {
            state.add(key);
        }
        if let Some(pause) = next {
            state.add_at(key, Instant::now() + pause);
        }
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    fn queue() -> Queue {
        Queue::new(Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_passed_once() {
        let queue = queue();
        queue.add(&key("a"));
        queue.add(&key("b"));
        queue.add(&key("a"));
        assert_eq!(queue.depth(), 2);
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(queue.next().await, key("b"));
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_runs_comes_again_and_never_beside_itself() {
        let queue = queue();
        queue.add(&key("a"));
        assert_eq!(queue.next().await, key("a"));
        queue.add(&key("a"));
        assert!(queue.next().now_or_never().is_none());
        queue.done(&key("a"), None);
        assert_eq!(queue.next().await, key("a"));
        queue.done(&key("a"), None);
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_pass_says_when_to_look_again() {
        let queue = queue();
        queue.add(&key("a"));
        queue.next().await;
        queue.done(&key("a"), Some(Duration::from_secs(30)));
        queue.add(&key("a"));
        queue.next().await;
        let began = Instant::now();
        queue.done(&key("a"), Some(Duration::from_secs(90)));
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(began.elapsed().as_secs(), 90);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_with_success() {
        let queue = queue();
        let mut pauses = Vec::new();
        queue.add(&key("a"));
        for _ in 0..5 {
            queue.next().await;
            pauses.push(queue.failed(&key("a")));
        }
        assert!(pauses.is_sorted() || pauses.last().unwrap() <= &Duration::from_secs(8));
        assert!(pauses[0] >= Duration::from_millis(750) && pauses[4] >= Duration::from_secs(6));
        queue.next().await;
        queue.done(&key("a"), None);
        queue.add(&key("a"));
        queue.next().await;
        assert!(queue.failed(&key("a")) <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_that_comes_again_and_again_is_asked_about_ever_later() {
        let queue = queue();
        queue.add(&key("a"));
        let (began, mut passes) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_mins(10) {
            queue.next().await;
            queue.conflicted(&key("a"));
            passes += 1;
        }
        assert!(passes < 40, "{passes} passes in ten minutes");
        queue.next().await;
        queue.done(&key("a"), None);
        queue.add(&key("a"));
        queue.next().await;
        let (pause, times) = queue.conflicted(&key("a"));
        assert_eq!((pause.as_millis(), times), (20, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_get_what_one_permit_announced() {
        let queue = std::sync::Arc::new(queue());
        let taken = futures::future::join_all((0..3).map(|_| queue.next()));
        let add = async {
            for name in ["a", "b", "c"] {
                queue.add(&key(name));
            }
        };
        let (mut taken, ()) = tokio::join!(taken, add);
        taken.sort();
        assert_eq!(taken, [key("a"), key("b"), key("c")]);
    }

    #[test]
    fn backoffs_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(1) };
        let seconds: Vec<u64> = (1..6).map(|failures| backoff.after(failures).as_secs()).collect();
        assert_eq!(seconds, [10, 20, 40, 60, 60]);
        assert_eq!(backoff.after(u32::MAX), Duration::from_mins(1));
    }
}
