//! What the server counts.

use std::time::Duration;

use telemetry::{Buckets, CounterFamily, Gauge, HistogramFamily, Registry};

/// Handles made once and passed in; nothing here is global.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: CounterFamily<3>,
    latency_seconds: HistogramFamily<1>,
    pub watches: Gauge,
    pub in_flight: Gauge,
}

const LATENCY: Buckets =
    Buckets(&[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            requests: registry.counters(
                "apiserver_requests",
                "Requests answered, by verb, resource and code",
            ),
            latency_seconds: registry.histograms(
                "apiserver_request_seconds",
                "Time from the request's last byte to the answer's first",
                LATENCY,
            ),
            watches: registry.gauge("apiserver_watches", "Watches open now"),
            in_flight: registry.gauge("apiserver_requests_in_flight", "Requests being worked on"),
        }
    }

    pub fn answered(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        let code = code.to_string();
        self.requests.with([("verb", verb), ("resource", resource), ("code", &code)]).inc();
        self.latency_seconds.with([("verb", verb)]).observe(took.as_secs_f64());
    }
}
