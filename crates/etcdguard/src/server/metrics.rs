//! What `/metrics` tells, under the names dashboards know. Every combination of labels is there
//! from the start, at zero.
//!
//! The text is written here and not by the house's register: some counters have names that the
//! newer text format forbids. Never: a label that comes from outside.

mod process;
mod text;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use self::text::CONTENT_TYPE;
use crate::control::metrics::{Meter, Object};
use crate::store::Kind;

/// Upper bounds in seconds, those everybody's dashboards expect.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Everything measured; shared by reference.
#[derive(Debug)]
pub struct Metrics {
    families: Mutex<BTreeMap<&'static str, Family>>,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    labels: Vec<&'static str>,
    kind: FamilyKind,
}

#[derive(Debug)]
enum FamilyKind {
    Counter(BTreeMap<Vec<String>, f64>),
    Gauge(BTreeMap<Vec<String>, f64>),
    Histogram(BTreeMap<Vec<String>, Observed>),
}

#[derive(Debug, Clone, Default)]
struct Observed {
    /// How many were not above each bound.
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

fn object(object: Object) -> &'static str {
    match object {
        Object::Snapshot(kind) => kind.as_str(),
        Object::Chunk => "Chunk",
    }
}

/// How a data directory came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restoration {
    /// As one member of a cluster that went on.
    SingleMember,
    /// From a backup.
    SingleNode,
}

impl Restoration {
    fn label(self) -> &'static str {
        match self {
            Self::SingleMember => "single_member",
            Self::SingleNode => "single_node",
        }
    }
}

const ALL_KINDS: &[&str] = &["Full", "Incr", "Chunk"];
const OUTCOMES: &[&str] = &["true", "false"];
const RESTORATIONS: &[&str] = &["single_member", "single_node"];

impl Default for Metrics {
    fn default() -> Self {
        let mut new = Families::default();
        new.counter(
            "etcdbr_snapshot_gc_total",
            "Objects removed from the store by the collector.",
            &[("kind", ALL_KINDS), ("succeeded", OUTCOMES)],
        );
        new.gauge(
            "etcdbr_snapshot_latest_revision",
            "Last revision of the newest snapshot.",
            &[("kind", ALL_KINDS)],
        );
        new.gauge(
            "etcdbr_snapshot_latest_timestamp",
            "When the newest snapshot was taken.",
            &[("kind", ALL_KINDS)],
        );
        new.gauge(
            "etcdbr_snapshot_required",
            "Whether a snapshot would hold anything new.",
            &[("kind", ALL_KINDS)],
        );
        new.histogram(
            "etcdbr_snapshot_duration_seconds",
            "Time to take and save a snapshot.",
            &[("kind", ALL_KINDS), ("succeeded", OUTCOMES)],
        );
        new.histogram(
            "etcdbr_validation_duration_seconds",
            "Time to check the data directory.",
            &[("succeeded", OUTCOMES)],
        );
        new.histogram(
            "etcdbr_restoration_duration_seconds",
            "Time to bring the data directory back.",
            &[("restore", RESTORATIONS), ("succeeded", OUTCOMES)],
        );
        new.histogram(
            "etcdbr_defragmentation_duration_seconds",
            "Time to defragment one member.",
            &[("succeeded", OUTCOMES), ("endpoint", &[""])],
        );
        new.gauge("etcdbr_snapstore_latest_deltas_total", "Deltas after the newest full.", &[]);
        new.gauge(
            "etcdbr_snapstore_latest_deltas_revisions_total",
            "Revisions in the deltas after the newest full.",
            &[],
        );
        new.counter(
            "etcdbr_snapshotter_failure",
            "Failures of the snapshotter, by kind.",
            &[("error", &[""])],
        );
        new.gauge("etcdbr_cluster_size", "Members the configuration names.", &[]);
        new.gauge("etcdbr_is_learner", "Whether this member is a learner.", &[]);
        new.counter(
            "etcdbr_is_learner_count_total",
            "Times this member was a learner.",
            &[("succeeded", OUTCOMES)],
        );
        for (name, help) in [
            ("etcdbr_add_learner_duration_seconds", "Time to add this member as a learner."),
            ("etcdbr_member_remove_duration_seconds", "Time to remove this member."),
            ("etcdbr_member_promote_duration_seconds", "Time to promote this member."),
        ] {
            new.histogram(name, help, &[("succeeded", OUTCOMES)]);
        }
        new.counter(
            "promhttp_metric_handler_requests_total",
            "Total number of scrapes by HTTP status code.",
            &[("code", &["200", "500", "503"])],
        );
        new.gauge(
            "promhttp_metric_handler_requests_in_flight",
            "Current number of scrapes being served.",
            &[],
        );
        Self { families: Mutex::new(new.0) }
    }
}

#[derive(Default)]
struct Families(BTreeMap<&'static str, Family>);

/// A label and the values it starts with.
type Label = (&'static str, &'static [&'static str]);

impl Families {
    fn counter(&mut self, name: &'static str, help: &'static str, labels: &'static [Label]) {
        let values = combinations(labels).into_iter().map(|values| (values, 0.0)).collect();
        self.add(name, help, labels, FamilyKind::Counter(values));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &'static [Label]) {
        let values = combinations(labels).into_iter().map(|values| (values, 0.0)).collect();
        self.add(name, help, labels, FamilyKind::Gauge(values));
    }

    fn histogram(&mut self, name: &'static str, help: &'static str, labels: &'static [Label]) {
        let values = combinations(labels).into_iter().map(|it| (it, Observed::default()));
        self.add(name, help, labels, FamilyKind::Histogram(values.collect()));
    }

    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [Label],
        kind: FamilyKind,
    ) {
        let labels = labels.iter().map(|(name, _)| *name).collect();
        self.0.insert(name, Family { help, labels, kind });
    }
}

fn combinations(labels: &[Label]) -> Vec<Vec<String>> {
    labels.iter().fold(vec![Vec::new()], |known, (_, values)| {
        let longer = |start: &Vec<String>| {
            let start = start.clone();
            values.iter().map(move |value| {
                start.iter().cloned().chain([(*value).to_owned()]).collect::<Vec<_>>()
            })
        };
        known.iter().flat_map(longer).collect()
    })
}

impl Meter for Metrics {
    fn collected(&self, collected: Object, succeeded: bool) {
        self.count("etcdbr_snapshot_gc_total", &[object(collected), outcome(succeeded)]);
    }

    fn snapshot_took(&self, kind: Kind, succeeded: bool, took: Duration) {
        let labels = [kind.as_str(), outcome(succeeded)];
        self.observe("etcdbr_snapshot_duration_seconds", &labels, took);
    }

    fn latest_snapshot(&self, kind: Kind, revision: i64, unix_seconds: i64) {
        self.set("etcdbr_snapshot_latest_revision", &[kind.as_str()], float(revision));
        self.set("etcdbr_snapshot_latest_timestamp", &[kind.as_str()], float(unix_seconds));
    }

    fn snapshot_required(&self, kind: Kind, required: bool) {
        self.set("etcdbr_snapshot_required", &[kind.as_str()], float(i64::from(required)));
    }

    fn latest_deltas(&self, deltas: usize, revisions: i64) {
        let deltas = i64::try_from(deltas).unwrap_or(i64::MAX);
        self.set("etcdbr_snapstore_latest_deltas_total", &[], float(deltas));
        self.set("etcdbr_snapstore_latest_deltas_revisions_total", &[], float(revisions));
    }

    fn snapshotter_failed(&self, kind: &'static str) {
        self.count("etcdbr_snapshotter_failure", &[kind]);
    }

    /// Endpoints come from the list of members, so they are few.
    fn defragmentation_took(&self, endpoint: &str, succeeded: bool, took: Duration) {
        let labels = [outcome(succeeded), endpoint];
        self.observe("etcdbr_defragmentation_duration_seconds", &labels, took);
    }

    fn learner(&self, is_learner: bool) {
        self.set("etcdbr_is_learner", &[], float(i64::from(is_learner)));
    }

    fn learner_counted(&self, succeeded: bool) {
        self.count("etcdbr_is_learner_count_total", &[outcome(succeeded)]);
    }

    fn add_learner_took(&self, succeeded: bool, took: Duration) {
        self.observe("etcdbr_add_learner_duration_seconds", &[outcome(succeeded)], took);
    }

    fn member_remove_took(&self, succeeded: bool, took: Duration) {
        self.observe("etcdbr_member_remove_duration_seconds", &[outcome(succeeded)], took);
    }

    fn member_promote_took(&self, succeeded: bool, took: Duration) {
        self.observe("etcdbr_member_promote_duration_seconds", &[outcome(succeeded)], took);
    }
}

impl Metrics {
    pub fn validation_took(&self, succeeded: bool, took: Duration) {
        self.observe("etcdbr_validation_duration_seconds", &[outcome(succeeded)], took);
    }

    pub fn restoration_took(&self, restoration: Restoration, succeeded: bool, took: Duration) {
        let labels = [restoration.label(), outcome(succeeded)];
        self.observe("etcdbr_restoration_duration_seconds", &labels, took);
    }

    pub fn cluster_size(&self, members: usize) {
        let members = i64::try_from(members).unwrap_or(i64::MAX);
        self.set("etcdbr_cluster_size", &[], float(members));
    }

    /// The text for one who asks over HTTP, who sees itself being served.
    pub fn scraped(&self) -> String {
        self.add("promhttp_metric_handler_requests_in_flight", 1.0);
        let text = self.encode();
        self.add("promhttp_metric_handler_requests_in_flight", -1.0);
        self.count("promhttp_metric_handler_requests_total", &["200"]);
        text
    }

    /// To a gauge without labels.
    fn add(&self, name: &'static str, difference: f64) {
        self.change(name, |kind| {
            if let FamilyKind::Gauge(values) = kind {
                *values.entry(Vec::new()).or_default() += difference;
            }
        });
    }

    fn count(&self, name: &'static str, labels: &[&str]) {
        self.change(name, |kind| {
            if let FamilyKind::Counter(values) = kind {
                *values.entry(owned(labels)).or_default() += 1.0;
            }
        });
    }

    fn set(&self, name: &'static str, labels: &[&str], value: f64) {
        self.change(name, |kind| {
            if let FamilyKind::Gauge(values) = kind {
                values.insert(owned(labels), value);
            }
        });
    }

    fn observe(&self, name: &'static str, labels: &[&str], took: Duration) {
        let seconds = took.as_secs_f64();
        self.change(name, |kind| {
            let FamilyKind::Histogram(values) = kind else { return };
            let observed = values.entry(owned(labels)).or_default();
            observed.count += 1;
            observed.sum += seconds;
            for (bucket, bound) in observed.buckets.iter_mut().zip(BUCKETS) {
                *bucket += u64::from(seconds <= bound);
            }
        });
    }

    fn change(&self, name: &'static str, change: impl FnOnce(&mut FamilyKind)) {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(family) = families.get_mut(name) {
            change(&mut family.kind);
        }
    }
}

fn outcome(succeeded: bool) -> &'static str {
    if succeeded { "true" } else { "false" }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

/// Revisions beyond 2^53 lose their last digits; the text format has no better number.
#[expect(clippy::cast_precision_loss, reason = "the text format has no better number")]
fn float(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
