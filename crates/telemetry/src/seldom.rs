//! A limit on how often the same thing is said.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets a message pass at most once in a while, and counts those it held back.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    state: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    pub const fn new(every: Duration) -> Self {
        Self { every, state: Mutex::new((None, 0)) }
    }

    /// Whether to say it now: then how often it was not said since the last time.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, unsaid) = &mut *state;
        if said.is_some_and(|said| now.saturating_duration_since(said) < self.every) {
            *unsaid = unsaid.saturating_add(1);
            return None;
        }
        *said = Some(now);
        Some(std::mem::take(unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_passes_and_the_next_ones_are_counted() {
        let seldom = Seldom::new(Duration::from_mins(1));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(seldom.pass_at(start), Some(0));
        assert_eq!(seldom.pass_at(after(1)), None);
        assert_eq!(seldom.pass_at(after(59)), None);
        assert_eq!(seldom.pass_at(after(60)), Some(2));
        assert_eq!(seldom.pass_at(after(61)), None);
    }
}
