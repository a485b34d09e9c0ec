//! Tells in events of the pod what fails, with its causes, where there is an API to tell.
//!
//! Each trouble is one event; the same again counts it up. Never: makes those who have it wait.

use std::collections::BTreeMap;
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
/// The API takes no more of a message.
const MESSAGE_MAX: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks, however often things fail.
const PAUSE: Duration = Duration::from_secs(10);

/// Whose events they are.
#[derive(Debug, Clone)]
pub struct EventsConfig {
    pub pod: String,
    pub namespace: String,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    Snapshot,
    Collection,
    Defragmentation,
    Initialization,
    SecondSite,
    Promotion,
    PeerUrls,
    Leftovers,
}

impl Site {
    fn reason(self) -> &'static str {
        match self {
            Self::Snapshot => "SnapshotFailed",
            Self::Collection => "CollectionFailed",
            Self::Defragmentation => "DefragmentationFailed",
            Self::Initialization => "InitializationFailed",
            Self::SecondSite => "SecondSiteFailed",
            Self::Promotion => "PromotionFailed",
            Self::PeerUrls => "PeerUrlsFailed",
            Self::Leftovers => "LeftoversStay",
        }
    }
}

/// What failed last at each site, and how often something has failed there.
type Failed = BTreeMap<Site, (u64, String)>;

/// Where everything that fails is told, for whoever tells it on.
#[derive(Debug, Clone)]
pub struct Troubles(watch::Sender<Failed>);

impl Default for Troubles {
    fn default() -> Self {
        Self(watch::channel(Failed::new()).0)
    }
}

impl Troubles {
    /// `why` with all its causes.
    pub fn tell(&self, site: Site, why: impl std::fmt::Display) {
        self.0.send_modify(|failed| {
            let last = failed.entry(site).or_default();
            *last = (last.0.saturating_add(1), cut(&why.to_string()));
        });
    }
}

/// What has failed anew since `told`.
fn news(failed: &Failed, told: &BTreeMap<Site, u64>) -> Vec<(Site, u64, String)> {
    let is_new = |(site, (times, _)): &(&Site, &(u64, String))| told.get(site) != Some(times);
    let all = failed.iter().filter(is_new);
    all.map(|(site, (times, why))| (*site, *times, why.clone())).collect()
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
    troubles: Troubles,
    stop: Stop,
) {
    let api: Api<Event> = Api::namespaced(client, &config.namespace);
    let mut failed = troubles.0.subscribe();
    // What failed before anybody looked is told too.
    failed.mark_changed();
    let mut events: BTreeMap<Site, Told> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    while let Some(Ok(())) = stop.or_stop(failed.changed()).await {
        let news = news(&failed.borrow_and_update(), &seen);
        for (site, times, message) in news {
            seen.insert(site, times);
            let told = tell(&config, &api, (site, message), events.remove(&site));
            match stop.or_stop(tokio::time::timeout(TIMEOUT, told)).await {
                Some(Ok(Ok(now))) => {
                    events.insert(site, now);
                }
                // The work goes on without it, and the log has the cause.
                Some(Ok(Err(error))) => {
                    tracing::warn!("no event tells of it: {}", telemetry::Chain(&error));
                }
                Some(Err(_)) => tracing::warn!("no event tells of it: the API gave no answer"),
                None => return,
            }
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
    (site, message): (Site, String),
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
    let event = event(config, &name, (site, &message), now);
    api.create(&PostParams::default(), &event).await?;
    Ok(Told { name, message, count: 1 })
}

fn event(
    config: &EventsConfig,
    name: &str,
    (site, message): (Site, &str),
    now: Timestamp,
) -> Event {
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
        reason: Some(site.reason().to_owned()),
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

    #[test]
    fn the_newest_trouble_of_each_site_is_told_once() {
        let troubles = Troubles::default();
        troubles.tell(Site::Collection, "503");
        troubles.tell(Site::Snapshot, "no space left on device");
        troubles.tell(Site::Snapshot, "503");
        let failed = troubles.0.borrow().clone();
        let mut told = BTreeMap::new();
        let first = news(&failed, &told);
        assert_eq!(
            first,
            [(Site::Snapshot, 2, "503".to_owned()), (Site::Collection, 1, "503".to_owned())]
        );
        told.extend(first.into_iter().map(|(site, times, _)| (site, times)));
        assert!(news(&failed, &told).is_empty());
        troubles.tell(Site::Snapshot, "503");
        let again = troubles.0.borrow().clone();
        assert_eq!(news(&again, &told), [(Site::Snapshot, 3, "503".to_owned())]);
    }
}
