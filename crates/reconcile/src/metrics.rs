//! What controllers count, and what they tell of single objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use telemetry::{Buckets, CounterFamily, GaugeFamily, HistogramFamily, Registry};

/// Of each fact so many objects are told singly; all are counted.
const MAX_TOLD: usize = 10_000;

/// Something that is told of single objects of a kind: a metric with one label, their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    pub metric: &'static str,
    pub label: &'static str,
    pub help: &'static str,
}

/// The members of one fact.
#[derive(Debug)]
struct Told {
    label: &'static str,
    family: GaugeFamily<1>,
    names: Mutex<BTreeSet<String>>,
}

impl Told {
    fn new(fact: &Fact, registry: &mut Registry) -> Self {
        let family = registry.gauges(fact.metric, fact.help);
        Self { label: fact.label, family, names: Mutex::default() }
    }

    fn set(&self, object: &str, value: Option<i64>) {
        let labels = [(self.label, object.to_owned())];
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match value {
            Some(value) => {
                if names.len() < MAX_TOLD || names.contains(object) {
                    names.insert(object.to_owned());
                    self.family.get_or_create_owned(&labels).set(value);
                }
            }
            None => {
                if names.remove(object) {
                    self.family.remove(&labels);
                }
            }
        }
    }

    fn clear(&self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.family.clear();
    }
}

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
    /// By [`Fact::metric`].
    facts: Arc<BTreeMap<&'static str, Told>>,
}

impl Metrics {
    /// For controllers that tell these of single objects.
    pub fn new(registry: &mut Registry, facts: &[Fact]) -> Self {
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
            facts: Arc::new(facts.iter().map(|it| (it.metric, Told::new(it, registry))).collect()),
        }
    }

    /// Tells something of one object, or that there is nothing to tell of it any more.
    pub fn tell(&self, fact: &Fact, object: &str, value: Option<i64>) {
        if let Some(told) = self.facts.get(fact.metric) {
            told.set(object, value);
        }
    }

    /// Nobody in this process knows of objects any more.
    pub fn forget_objects(&self) {
        self.objects.clear();
        for told in self.facts.values() {
            told.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Fact = Fact { metric: "whole", label: "thing", help: "Whether it is whole" };

    #[test]
    fn what_is_told_of_an_object_goes_with_it() {
        let mut registry = Registry::new("holdfast");
        let metrics = Metrics::new(&mut registry, &[WHOLE]);
        metrics.tell(&WHOLE, "a", Some(1));
        metrics.tell(&WHOLE, "b", Some(0));
        let has = |line: &str| registry.encode().lines().any(|it| it == line);
        assert!(has("holdfast_whole{thing=\"a\"} 1"));
        metrics.tell(&WHOLE, "a", None);
        assert!(!registry.encode().contains("thing=\"a\""));
        assert!(has("holdfast_whole{thing=\"b\"} 0"));
        metrics.forget_objects();
        assert!(!registry.encode().contains("thing=\"b\""));
    }

    #[test]
    fn objects_beyond_the_limit_are_not_told_singly_until_others_are_gone() {
        let mut registry = Registry::new("holdfast");
        let metrics = Metrics::new(&mut registry, &[WHOLE]);
        for number in 0..=MAX_TOLD {
            metrics.tell(&WHOLE, &format!("n{number}"), Some(1));
        }
        let told = |name: &str| registry.encode().contains(&format!("thing=\"{name}\""));
        let last = format!("n{MAX_TOLD}");
        assert!(told("n0") && !told(&last));
        metrics.tell(&WHOLE, "n0", None);
        metrics.tell(&WHOLE, &last, Some(1));
        assert!(told(&last));
    }
}
