//! How long to wait after the next failure in a row. Pure.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffConfig {
    pub multiplier: u32,
    pub attempt_limit: u32,
    pub threshold: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { multiplier: 2, attempt_limit: 6, threshold: Duration::from_secs(128) }
    }
}

/// Counts failures in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    config: BackoffConfig,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(config: BackoffConfig) -> Self {
        Self { config, failures: 0 }
    }

    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Nothing after a success; then powers of the multiplier in seconds, up to the threshold.
    pub(super) fn delay(&self) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        if self.failures > self.config.attempt_limit {
            return self.config.threshold;
        }
        let seconds = u64::from(self.config.multiplier).saturating_pow(self.failures);
        Duration::from_secs(seconds).min(self.config.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_threshold_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        assert_eq!(backoff.delay(), Duration::ZERO);
        let mut seen = Vec::new();
        for _ in 0..9 {
            backoff.failed();
            seen.push(backoff.delay().as_secs());
        }
        assert_eq!(seen, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
        backoff.succeeded();
        assert_eq!(backoff.delay(), Duration::ZERO);
    }
}
