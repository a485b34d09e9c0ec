//! How many bytes a second may be exchanged with a store.

use std::time::Duration;

use tokio::time::Instant;

/// Those who pay wait for their turn, one after the other.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    bytes_per_second: Option<u64>,
    /// When the next byte may come.
    next: tokio::sync::Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// None and 0 are no limit.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        let bytes_per_second = bytes_per_second.filter(|rate| *rate > 0);
        Self { bytes_per_second, next: tokio::sync::Mutex::default() }
    }

    pub(crate) async fn pay(&self, len_bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        #[expect(clippy::cast_precision_loss, reason = "a pause need not be exact")]
        let cost = Duration::from_secs_f64(len_bytes as f64 / rate as f64);
        let mut next = self.next.lock().await;
        let now = Instant::now();
        let from = next.unwrap_or(now).max(now);
        *next = Some(from + cost);
        drop(next);
        tokio::time::sleep_until(from + cost).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_cost_time_whoever_pays() {
        for free in [None, Some(0)] {
            RateLimiter::new(free).pay(u64::MAX).await;
        }
        let began = Instant::now();
        let rate_limiter = RateLimiter::new(Some(1000));
        tokio::join!(rate_limiter.pay(20), rate_limiter.pay(30), rate_limiter.pay(10));
        assert!(began.elapsed() >= Duration::from_millis(60));
    }
}
