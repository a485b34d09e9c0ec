//! Virtual time: how long the world has run. It moves only from event to event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clones are the same clock, for code that is handed a clock when it is made.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    nanos: Arc<AtomicU64>,
}

impl Clock {
    /// Since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    pub(crate) fn move_to(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_max(nanos, Ordering::SeqCst);
    }
}
