//! The clock that leases are measured by.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};

/// Time that only goes on, from any beginning.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Duration;

    /// At least so long, and longer where the machine is suspended meanwhile.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// Counts on while the machine is suspended, unlike [`std::time::Instant`]: a lease ends for its
/// holder when it ends for everybody else.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(time).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_what_the_machine_was_suspended() {
        let booted = std::fs::read_to_string("/proc/uptime").unwrap();
        let booted: f64 = booted.split_whitespace().next().unwrap().parse().unwrap();
        let now = BootClock.now();
        assert!(now.as_secs_f64() >= booted - 0.02, "{now:?} {booted}");
    }
}
