//! What a watch of all tenants' backups has shown: when each was Created, and its place in the queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use e2e::Endpoint;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{OADP, TIMEOUT};

const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    /// When the watch first said so.
    pub(super) created: Option<Instant>,
    pub(super) position: Option<i64>,
    /// The Velero backup.
    pub(super) velero: String,
}

/// By `namespace/name`.
type Entries = HashMap<String, Entry>;

pub(super) struct Seen {
    entries: Arc<Mutex<Entries>>,
    _task: JoinSet<()>,
}

impl Seen {
    pub(super) fn start(endpoint: &Endpoint) -> Self {
        let entries: Arc<Mutex<Entries>> = Arc::default();
        let (endpoint, shared) = (endpoint.clone(), Arc::clone(&entries));
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                // One that fell behind is cut off: it begins anew, with all that is there.
                let Ok(connection) = endpoint.connect().await else { continue };
                let path = format!("{OADP}/nonadminbackups?watch=true");
                let Ok(mut events) = connection.watch(&path).await else { continue };
                while let Some(event) = events.next().await {
                    note(&shared, &event);
                }
            }
        });
        Self { entries, _task: task }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When one is Created.
    pub(super) async fn created(&self, key: &str) -> Result<Instant> {
        self.until(key, || self.lock().get(key)?.created).await
    }

    /// Until there is something to see.
    pub(super) async fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if began.elapsed() > TIMEOUT {
                bail!("not within {TIMEOUT:?}: {what}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn note(entries: &Mutex<Entries>, event: &Value) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let place = (text("/object/metadata/namespace"), text("/object/metadata/name"));
    let key = format!("{}/{}", place.0, place.1);
    let position = event.pointer("/object/status/queueInfo/estimatedQueuePosition");
    let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = entries.entry(key).or_default();
    entry.position = position.and_then(Value::as_i64);
    text("/object/status/veleroBackup/name").clone_into(&mut entry.velero);
    if entry.created.is_none() && text("/object/status/phase") == "Created" {
        entry.created = Some(Instant::now());
    }
}
