//! How many calls, how they ended, how long they took.

use std::sync::Arc;
use std::time::Instant;

use telemetry::{Buckets, CounterFamily, GaugeFamily, HistogramFamily, Registry};

use super::{Around, Method, Wrapped};
use crate::error::Error;
use crate::store::Store;

/// The handles, registered once a process and shared by all its stores.
#[derive(Debug, Clone)]
pub struct Metrics {
    calls: CounterFamily<3>,
    seconds: HistogramFamily<2>,
    running: GaugeFamily<1>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            calls: registry.counters("store_calls", "Calls to object stores, by how they ended"),
            seconds: registry.histograms(
                "store_call_seconds",
                "Time that calls to object stores took",
                Buckets::LATENCY_SECONDS,
            ),
            running: registry.gauges("store_running_calls", "Calls to object stores that run now"),
        }
    }
}

#[derive(Debug)]
pub struct Measured {
    metrics: Metrics,
    name: String,
}

impl Measured {
    /// `inner`, counted under `name`, which comes from the configuration and not from its URL.
    pub fn around(inner: Arc<dyn Store>, metrics: Metrics, name: &str) -> Arc<dyn Store> {
        Arc::new(Wrapped { inner, around: Self { metrics, name: name.to_owned() } })
    }
}

/// Counts down also where the call is dropped.
struct Running(telemetry::Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Around for Measured {
    async fn around<T: Send>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let (store, method) = (("store", self.name.clone()), ("method", method.to_string()));
        let running = self.metrics.running.get_or_create_owned(std::array::from_ref(&store));
        running.inc();
        let _running = Running(running);
        let started = Instant::now();
        let outcome = call.await;
        let labels = [store.clone(), method.clone()];
        self.metrics.seconds.get_or_create_owned(&labels).observe(started.elapsed().as_secs_f64());
        let ended = ("outcome", outcome.as_ref().map_or_else(outcome_of, |_| "ok").to_owned());
        self.metrics.calls.get_or_create_owned(&[store, method, ended]).inc();
        outcome
    }
}

fn outcome_of(error: &Error) -> &'static str {
    match error {
        Error::NotFound { .. } => "not_found",
        Error::Exists { .. } | Error::Changed { .. } => "conflict",
        Error::Denied { .. } | Error::Refused { .. } | Error::Locked { .. } => "denied",
        Error::Unavailable { .. } | Error::Disk(_) => "unavailable",
        Error::TooLong { .. }
        | Error::Unsupported { .. }
        | Error::ForeignName { .. }
        | Error::Body { .. }
        | Error::PermitEnded
        | Error::Unusable { .. } => "refused",
    }
}
