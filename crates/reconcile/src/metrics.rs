//! What controllers count.

use std::time::Duration;

use telemetry::{Buckets, CounterFamily, GaugeFamily, HistogramFamily, Registry};

/// The handles of all controllers of a process, one member a controller.
#[derive(Debug, Clone)]
pub struct Metrics {
    passes: CounterFamily<2>,
    seconds: HistogramFamily<1>,
    depth: GaugeFamily<1>,
    broken: GaugeFamily<1>,
    dropped_events: CounterFamily<1>,
    objects: GaugeFamily<2>,
    work: CounterFamily<2>,
    made_seconds: HistogramFamily<1>,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            passes: registry.counters(
                "reconciles",
                "Passes of controllers by their outcome: done, conflict or error",
            ),
            seconds: registry.histograms(
                "reconcile_seconds",
                "Time a pass took",
                Buckets::LATENCY_SECONDS,
            ),
            depth: registry.gauges("reconcile_queue_depth", "Keys that wait for a pass"),
            broken: registry.gauges(
                "undecodable_objects",
                "Objects that controllers leave alone because they cannot read them",
            ),
            dropped_events: registry
                .counters("dropped_events", "Events that were too many to be recorded"),
            objects: registry.gauges("objects", "Objects by their kind and state"),
            work: registry.counters(
                "work",
                "What controllers did outside of their passes, by its sort and its outcome",
            ),
            made_seconds: registry.histograms(
                "made_seconds",
                "Time from the creation of an object until what it asks for was made",
                Buckets::LATENCY_SECONDS,
            ),
        }
    }

    /// How many objects of a kind are in a state; both come from small sets.
    pub fn objects(&self, kind: &str, state: &str, count: usize) {
        let labels = [("kind", kind.to_owned()), ("state", state.to_owned())];
        self.objects.get_or_create_owned(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So much more of this sort of work had this outcome.
    pub fn work(&self, sort: &str, outcome: &str, more: u64) {
        let labels = [("sort", sort.to_owned()), ("outcome", outcome.to_owned())];
        self.work.get_or_create_owned(&labels).inc_by(more);
    }

    /// What an object asks for was made, so long after its creation.
    pub fn made(&self, kind: &str, took: Duration) {
        let labels = [("kind", kind.to_owned())];
        self.made_seconds.get_or_create_owned(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn pass(&self, controller: &str, outcome: &str, took: Duration) {
        let labels = [("controller", controller.to_owned()), ("outcome", outcome.to_owned())];
        self.passes.get_or_create_owned(&labels).inc();
        let labels = [("controller", controller.to_owned())];
        self.seconds.get_or_create_owned(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn depth(&self, controller: &str, waiting: usize) {
        let labels = [("controller", controller.to_owned())];
        self.depth.get_or_create_owned(&labels).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    pub(crate) fn broken(&self, kind: &str, count: usize) {
        let labels = [("kind", kind.to_owned())];
        self.broken.get_or_create_owned(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn event_dropped(&self, controller: &str) {
        self.dropped_events.get_or_create_owned(&[("controller", controller.to_owned())]).inc();
    }
}
