//! What is counted and measured, for whoever collects it.

use std::time::Duration;

use telemetry::{Buckets, CounterFamily, GaugeFamily, HistogramFamily, Registry};

use crate::sql::DbError;
use crate::store::{Store, seconds_since};

/// From a backup of little to one of a night.
const BACKUP_SECONDS: Buckets =
    Buckets(&[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0]);

/// Handles of all of them.
#[derive(Debug, Clone)]
pub struct Figures {
    requests: CounterFamily<2>,
    request_seconds: HistogramFamily<1>,
    work: GaugeFamily<2>,
    backup_seconds: HistogramFamily<1>,
}

impl Figures {
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            requests: registry
                .counters("block_requests", "Requests to the Block Storage API that were answered"),
            request_seconds: registry.histograms(
                "block_request_seconds",
                "Time from a request to the Block Storage API to its answer",
                Buckets::LATENCY_SECONDS,
            ),
            work: registry
                .gauges("block_work", "Rows of the Block Storage API that are being worked on"),
            backup_seconds: registry.histograms(
                "block_backup_seconds",
                "Time from the request for a backup of a volume to its end",
                BACKUP_SECONDS,
            ),
        }
    }

    pub(crate) fn answered(&self, method: &http::Method, code: u16, took: Duration) {
        // Whoever calls may invent methods.
        let known = ["GET", "POST", "PUT", "DELETE", "HEAD"];
        let method = known.into_iter().find(|it| *it == method.as_str()).unwrap_or("other");
        let labels = [("method", method.to_owned()), ("code", code.to_string())];
        self.requests.get_or_create_owned(&labels).inc();
        let labels = [("method", method.to_owned())];
        self.request_seconds.get_or_create_owned(&labels).observe(took.as_secs_f64());
    }

    /// A backup came to its end: `available` or `error`.
    pub(crate) fn backed_up(&self, outcome: &'static str, asked_at: &str) {
        let labels = [("outcome", outcome.to_owned())];
        let seconds = Duration::from_secs(seconds_since(asked_at).try_into().unwrap_or_default());
        self.backup_seconds.get_or_create_owned(&labels).observe(seconds.as_secs_f64());
    }

    /// Counts the work of all workers; what there is none of is told as none.
    pub(crate) async fn count_work(&self, store: &Store) -> Result<(), DbError> {
        for ((of, doing), count) in store.work_counts().await? {
            let labels = [("of", of.to_owned()), ("doing", doing.to_owned())];
            self.work.get_or_create_owned(&labels).set(count);
        }
        Ok(())
    }
}
