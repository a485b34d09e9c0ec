//! Tells of snapshots that fail in events of the pod, with their causes, where there is an API to tell.
//!
//! Each trouble is one event; the same again counts it up. Never: waits with snapshots for the API.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tasks::Stop;
use tokio::sync::watch;

const COMPONENT: &str = "etcd-backup-restore";
const REASON: &str = "SnapshotFailed";
/// The API takes no more of a message.
const MESSAGE_MAX: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two of them, however often snapshots fail.
const PAUSE: Duration = Duration::from_secs(10);

/// Whose events they are.
#[derive(Debug, Clone)]
pub struct EventsConfig {
    pub pod: String,
    pub namespace: String,
}

/// The event that was told last.
#[derive(Debug)]
struct Told {
    name: String,
    message: String,
    count: i32,
}

pub(super) async fn run(
    config: EventsConfig,
    client: kube::Client,
    mut trouble: watch::Receiver<Option<String>>,
    stop: Stop,
) {
    let api: Api<Event> = Api::namespaced(client, &config.namespace);
    let mut told: Option<Told> = None;
    while let Some(Ok(())) = stop.or_stop(trouble.changed()).await {
        let Some(message) = trouble.borrow_and_update().as_deref().map(cut) else { continue };
        let telling = tokio::time::timeout(PATIENCE, tell(&config, &api, message, told.take()));
        match stop.or_stop(telling).await {
            Some(Ok(Ok(now))) => told = Some(now),
            // Snapshots go on without it, and the log has the cause.
            Some(Ok(Err(error))) => {
                tracing::warn!("no event tells of it: {}", telemetry::Chain(&error));
            }
            Some(Err(_)) => tracing::warn!("no event tells of it: the API gave no answer"),
            None => return,
        }
        if stop.or_stop(tokio::time::sleep(PAUSE)).await.is_none() {
            return;
        }
    }
}

fn cut(message: &str) -> String {
    let mut end = message.len().min(MESSAGE_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default().to_owned()
}

async fn tell(
    config: &EventsConfig,
    api: &Api<Event>,
    message: String,
    told: Option<Told>,
) -> Result<Told, kube::Error> {
    let now = Timestamp::now();
    if let Some(mut told) = told.filter(|told| told.message == message) {
        told.count = told.count.saturating_add(1);
        let patch = json!({ "count": told.count, "lastTimestamp": Time(now) });
        let patched = api.patch(&told.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        match patched {
            Ok(_) => return Ok(told),
            // Events are let go of after a while.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let name = format!("{}.{:x}", config.pod, now.as_nanosecond());
    let event = event(config, &name, &message, now);
    api.create(&PostParams::default(), &event).await?;
    Ok(Told { name, message, count: 1 })
}

fn event(config: &EventsConfig, name: &str, message: &str, now: Timestamp) -> Event {
    let EventsConfig { pod, namespace } = config;
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.clone()),
            namespace: Some(namespace.clone()),
            ..ObjectReference::default()
        },
        reason: Some(REASON.to_owned()),
        message: Some(message.to_owned()),
        type_: Some("Warning".to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_where_a_letter_ends() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"ü".repeat(1000));
        assert_eq!(long.len(), MESSAGE_MAX);
        assert_eq!(cut(&format!("x{long}")).len(), MESSAGE_MAX - 1);
    }
}
