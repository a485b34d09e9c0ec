//! Objects of one kind as a watch tells of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use e2e::Endpoint;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{LONGHORN, TIMEOUT};

#[derive(Debug, Clone)]
pub(super) struct Seen {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    changed: Arc<Notify>,
    watching: Arc<JoinSet<()>>,
}

impl Seen {
    /// Keeps of each object what `keep` makes of it.
    pub(super) async fn start(
        endpoint: &Endpoint,
        plural: &str,
        keep: fn(&Value) -> Value,
    ) -> Result<Self> {
        let mut seen =
            Self { objects: Arc::default(), changed: Arc::default(), watching: Arc::default() };
        let list = endpoint.connect().await?.get(&format!("{LONGHORN}/{plural}")).await?.json();
        for object in list["items"].as_array().into_iter().flatten() {
            seen.take("ADDED", object, keep);
        }
        let from = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let path = format!("{LONGHORN}/{plural}?watch=true&resourceVersion={from}");
        let mut events = endpoint.connect().await?.watch(&path).await?;
        let told = seen.clone();
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while let Some(event) = events.next().await {
                told.take(event["type"].as_str().unwrap_or_default(), &event["object"], keep);
            }
        });
        seen.watching = Arc::new(watching);
        Ok(seen)
    }

    fn take(&self, kind: &str, object: &Value, keep: fn(&Value) -> Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match kind {
            "DELETED" => drop(self.lock().remove(&name)),
            _ => drop(self.lock().insert(name, keep(object))),
        }
        self.changed.notify_waiters();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it holds of all that was seen.
    pub(super) async fn until(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let changed = self.changed.notified();
            if holds(&self.lock()) {
                return Ok(());
            }
            if began.elapsed() > TIMEOUT {
                bail!("waited for {what}: {:?}", self.lock().iter().take(3).collect::<Vec<_>>());
            }
            let pause = std::time::Duration::from_secs(1);
            let _ = tokio::time::timeout(pause, changed).await;
        }
    }
}
