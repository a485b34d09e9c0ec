//! What the server counts.

use std::sync::OnceLock;
use std::time::Duration;

use telemetry::{Buckets, CounterFamily, Gauge, HistogramFamily, Registry};

use crate::store::Store;

/// Handles made once and passed in; nothing here is global.
#[derive(Debug)]
pub struct Metrics {
    requests: CounterFamily<3>,
    latency_seconds: HistogramFamily<1>,
    pub in_flight: Gauge,
    store: StoreGauges,
    /// Given when everything has been registered; what `/metrics` shows.
    published: OnceLock<Registry>,
}

/// The store counts by itself; these are set when somebody looks.
#[derive(Debug)]
struct StoreGauges {
    store: Store,
    objects: Gauge,
    bytes: Gauge,
    writes: Gauge,
    commits: Gauge,
    failed: Gauge,
    commit_milliseconds: Gauge,
    history_events: Gauge,
    history_bytes: Gauge,
    revision: Gauge,
}

impl Metrics {
    pub fn new(registry: &mut Registry, store: Store) -> Self {
        Self {
            requests: registry
                .counters("apiserver_requests", "Requests answered, by verb, resource and code"),
            latency_seconds: registry.histograms(
                "apiserver_request_seconds",
                "Time from a request's head to its answer's head",
                Buckets::LATENCY_SECONDS,
            ),
            in_flight: registry.gauge("apiserver_requests_in_flight", "Requests being worked on"),
            store: StoreGauges::new(registry, store),
            published: OnceLock::new(),
        }
    }

    /// `resource` must be a served type: labels never come from a stranger's path.
    pub fn answered(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        let labels = [
            ("verb", verb.to_owned()),
            ("resource", resource.to_owned()),
            ("code", code.to_string()),
        ];
        self.requests.get_or_create_owned(&labels).inc();
        let labels = [("verb", verb.to_owned())];
        self.latency_seconds.get_or_create_owned(&labels).observe(took.as_secs_f64());
    }

    pub fn publish(&self, registry: Registry) {
        // A second registry would hide the first: keep the first.
        let _ = self.published.set(registry);
    }

    /// The page for whoever collects metrics.
    pub fn text(&self) -> String {
        self.store.refresh();
        self.published.get().map_or_else(|| "# EOF\n".to_owned(), Registry::encode)
    }
}

impl StoreGauges {
    fn new(registry: &mut Registry, store: Store) -> Self {
        Self {
            store,
            objects: registry.gauge("store_objects", "Objects stored"),
            bytes: registry.gauge("store_bytes", "What these objects take, encoded"),
            writes: registry.gauge("store_writes", "Writes made durable since the start"),
            commits: registry.gauge("store_commits", "Commits since the start"),
            failed: registry.gauge("store_failed_writes", "Writes the disk refused"),
            commit_milliseconds: registry
                .gauge("store_commit_milliseconds", "Time spent in commits since the start"),
            history_events: registry
                .gauge("store_history_events", "Changes kept for watches to resume from"),
            history_bytes: registry.gauge("store_history_bytes", "Memory those changes take"),
            revision: registry.gauge("store_revision", "The newest resourceVersion"),
        }
    }

    fn refresh(&self) {
        let figures = self.store.stats().figures();
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.objects.set(number(figures.objects));
        self.bytes.set(i64::try_from(self.store.total().bytes).unwrap_or(i64::MAX));
        self.writes.set(number(figures.writes));
        self.commits.set(number(figures.batches));
        self.failed.set(number(figures.failed));
        let milliseconds = u64::try_from(figures.commit_time.as_millis()).unwrap_or(u64::MAX);
        self.commit_milliseconds.set(number(milliseconds));
        self.history_events.set(number(figures.log_events));
        self.history_bytes.set(number(figures.log_bytes));
        self.revision.set(number(self.store.revision()));
    }
}
