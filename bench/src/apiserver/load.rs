//! Doing something often, alone or side by side, and how long it took.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::{Connection, Endpoint};
use tokio::task::JoinSet;

/// How long single requests took, and all of them together.
#[derive(Debug)]
pub(crate) struct Load {
    times: Vec<Duration>,
    whole: Duration,
}

impl Load {
    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        let count = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        f64::from(count) / self.whole.as_secs_f64()
    }

    pub(crate) fn median_ms(&mut self) -> Result<f64> {
        Ok(median(&mut self.times).context("nothing was measured")?.as_secs_f64() * 1000.0)
    }
}

pub(crate) fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// Does `count` requests, numbered from `first`, over so many connections at once.
pub(crate) async fn run<F, R>(
    endpoint: &Endpoint,
    connections: usize,
    (first, count): (u32, u32),
    request: F,
) -> Result<Load>
where
    F: Fn(Connection, u32) -> R + Clone + Send + 'static,
    R: Future<Output = Result<Connection>> + Send,
{
    let next = Arc::new(AtomicU32::new(first));
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let mut connection = endpoint.connect().await?;
        let (next, request) = (next.clone(), request.clone());
        clients.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + count {
                    return anyhow::Ok(times);
                }
                let start = Instant::now();
                connection = request(connection, number).await?;
                times.push(start.elapsed());
            }
        });
    }
    let start = Instant::now();
    let mut times = Vec::new();
    for result in clients.join_all().await {
        times.append(&mut result?);
    }
    Ok(Load { times, whole: start.elapsed() })
}
