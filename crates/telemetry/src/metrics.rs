//! The register of metrics: made in `main`, filled while the parts are wired, read by `/metrics`.
//!
//! Handles are cheap clones that parts keep. Names are whole words with the unit last and without
//! the `_total` of counters, which the text format adds.

use std::fmt;

use prometheus_client::encoding::text;
pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{self, Metric};

/// What [`Registry::encode`] is served as.
pub const OPENMETRICS_CONTENT_TYPE: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The labels of one member of a family. The names are the same in all its members, and the
/// values come from a small set: never from a user.
pub type Labels<const N: usize> = [(&'static str, String); N];

pub type CounterFamily<const N: usize> = Family<Labels<N>, Counter>;
pub type GaugeFamily<const N: usize> = Family<Labels<N>, Gauge>;
pub type HistogramFamily<const N: usize> = Family<Labels<N>, Histogram, Buckets>;

/// Upper bounds of the buckets of a histogram, growing.
#[derive(Debug, Clone, Copy)]
pub struct Buckets(pub &'static [f64]);

impl Buckets {
    /// From a fast local answer to one that a person gives up on.
    pub const LATENCY_SECONDS: Self =
        Self(&[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
    /// From a small object to a large one.
    pub const SIZE_BYTES: Self =
        Self(&[1024.0, 16_384.0, 262_144.0, 1_048_576.0, 4_194_304.0, 67_108_864.0]);
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// All metrics of one process. Passed by `&mut` while parts are wired, then shared to be read.
pub struct Registry {
    inner: registry::Registry,
    prefix: String,
    names: Vec<String>,
}

impl Registry {
    /// `prefix` and an underscore come before every name.
    pub fn new(prefix: &str) -> Self {
        Self {
            inner: registry::Registry::with_prefix(prefix),
            prefix: prefix.to_owned(),
            names: Vec::new(),
        }
    }

    pub fn counter(&mut self, name: &str, help: &str) -> Counter {
        self.register(name, help, Counter::default())
    }

    pub fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.register(name, help, Gauge::default())
    }

    pub fn histogram(&mut self, name: &str, help: &str, buckets: Buckets) -> Histogram {
        self.register(name, help, buckets.new_metric())
    }

    pub fn counters<const N: usize>(&mut self, name: &str, help: &str) -> CounterFamily<N> {
        self.register(name, help, CounterFamily::default())
    }

    pub fn gauges<const N: usize>(&mut self, name: &str, help: &str) -> GaugeFamily<N> {
        self.register(name, help, GaugeFamily::default())
    }

    pub fn histograms<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        buckets: Buckets,
    ) -> HistogramFamily<N> {
        self.register(name, help, Family::new_with_constructor(buckets))
    }

    /// The state of all metrics as `OpenMetrics` text.
    pub fn encode(&self) -> String {
        let mut encoded = String::new();
        // Writing to a string fails only if a metric does; a part is better than no answer, and
        // the missing end mark tells the reader.
        if let Err(error) = text::encode(&mut encoded, &self.inner) {
            tracing::error!("cannot encode the metrics: {error}");
        }
        encoded
    }

    /// The whole name of everything that was registered, also of what has shown nothing yet: without
    /// what the text format adds for counters and histograms.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        // The text format ends the help itself.
        self.names.push(format!("{}_{name}", self.prefix));
        self.inner.register(name, help.trim_end_matches('.'), metric.clone());
        metric
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Registry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_metric_is_encoded() {
        let mut registry = Registry::new("holdfast");
        registry.counter("starts", "Starts of the process.").inc();
        registry.gauge("queue_depth", "Waiting requests").set(3);
        registry.histogram("wait_seconds", "Time in the queue", Buckets(&[0.5])).observe(0.1);
        let calls: CounterFamily<2> = registry.counters("calls", "Calls");
        let labels = [("verb", "get".to_owned()), ("code", "a \"quote\"".to_owned())];
        calls.get_or_create_owned(&labels).inc_by(2);
        let open: GaugeFamily<1> = registry.gauges("open_files", "Open files");
        open.get_or_create_owned(&[("disk", "a".to_owned())]).set(-1);
        let seconds: HistogramFamily<1> =
            registry.histograms("call_seconds", "Time of a call", Buckets::LATENCY_SECONDS);
        seconds.get_or_create_owned(&[("verb", "get".to_owned())]).observe(40.0);

        let text = registry.encode();
        for line in [
            "# HELP holdfast_starts Starts of the process.",
            "# TYPE holdfast_starts counter",
            "holdfast_starts_total 1",
            "holdfast_queue_depth 3",
            "holdfast_wait_seconds_bucket{le=\"0.5\"} 1",
            "holdfast_calls_total{verb=\"get\",code=\"a \\\"quote\\\"\"} 2",
            "holdfast_open_files{disk=\"a\"} -1",
            "holdfast_call_seconds_bucket{le=\"30.0\",verb=\"get\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let names =
            ["starts", "queue_depth", "wait_seconds", "calls", "open_files", "call_seconds"];
        assert_eq!(registry.names(), names.map(|it| format!("holdfast_{it}")));
    }

    #[test]
    fn buckets_grow() {
        for buckets in [Buckets::LATENCY_SECONDS, Buckets::SIZE_BYTES] {
            assert!(buckets.0.is_sorted());
        }
    }
}
