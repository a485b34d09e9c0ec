//! A copy of the objects, kept by list and watch alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::connection::revision;
use e2e::{Connection, Endpoint};
use serde_json::Value;

use crate::MAPS;

pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// Revision and counter by name.
    objects: BTreeMap<String, (u64, Option<u64>)>,
    revision: u64,
    /// Revisions of all events since the list.
    seen: BTreeSet<u64>,
}

#[derive(Debug)]
pub(crate) enum Resumed {
    /// Every event up to the mark came.
    Caught { seen: BTreeSet<u64> },
    /// History was compacted: the client has to list again.
    Expired,
}

impl Mirror {
    pub(crate) async fn list(connection: &mut Connection) -> Self {
        let list = connection.get(MAPS).await.unwrap().json();
        let mut mirror = Self { revision: revision(&list), ..Self::default() };
        for object in list["items"].as_array().unwrap() {
            mirror.put(object);
        }
        mirror
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        self.objects.get(name).and_then(|(_, counter)| *counter)
    }

    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.objects == other.objects
    }

    /// What a watch showed before the kill is durable, and it showed everything up to where it
    /// was cut off.
    pub(crate) fn contradictions(&self, found: &Self, acknowledged: &[u64]) -> Vec<String> {
        let missed = acknowledged
            .iter()
            .filter(|revision| **revision <= self.revision && !self.seen.contains(revision))
            .map(|revision| format!("the watch left out revision {revision}"));
        let unknown = found
            .objects
            .iter()
            .filter(|(name, there)| {
                there.0 <= self.revision && self.objects.get(*name) != Some(there)
            })
            .map(|(name, there)| format!("{name} is {there:?}, and the watch never showed that"));
        let undone = self
            .objects
            .iter()
            .filter(|(name, seen)| found.objects.get(*name).is_some_and(|there| there.0 < seen.0))
            .map(|(name, seen)| format!("{name} was seen as {seen:?} and went back"));
        missed.chain(unknown).chain(undone).collect()
    }

    fn put(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let counter = object["data"]["counter"].as_str().and_then(|it| it.parse().ok());
        self.objects.insert(name, (revision(object), counter));
    }

    /// Takes one event in; false if the stream has nothing more to say.
    fn take(&mut self, event: &Value) -> bool {
        let object = &event["object"];
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => self.put(object),
            Some("DELETED") => {
                self.objects.remove(object["metadata"]["name"].as_str().unwrap());
            }
            Some("BOOKMARK") => return true,
            _ => return false,
        }
        let now = revision(object);
        assert!(now > self.revision, "event {now} after {}", self.revision);
        self.revision = now;
        self.seen.insert(now);
        true
    }

    fn path(&self) -> String {
        format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={}", self.revision)
    }

    /// Watches until the server is gone.
    pub(crate) async fn follow(mut self, endpoint: Endpoint) -> Self {
        let Ok(connection) = endpoint.connect().await else { return self };
        let Ok(mut events) = connection.watch(&self.path()).await else { return self };
        while let Some(line) = events.line().await {
            // The last line may be cut off by the kill.
            let Ok(event) = serde_json::from_slice(&line) else { break };
            if !self.take(&event) {
                break;
            }
        }
        self
    }

    /// Goes on from the last event it saw, up to the one at `until`.
    pub(crate) async fn resume(&mut self, endpoint: &Endpoint, until: u64) -> Resumed {
        let connection = endpoint.connect().await.unwrap();
        let mut events = connection.watch(&self.path()).await.unwrap();
        while self.revision < until {
            let event = tokio::time::timeout(TIMEOUT, events.next()).await;
            let event = event.unwrap_or_else(|_| {
                panic!("a gap: nothing came between {} and {until}", self.revision)
            });
            let event = event.expect("the resumed watch ended early");
            if event["object"]["code"] == 410 {
                return Resumed::Expired;
            }
            assert!(self.take(&event), "{event}");
        }
        Resumed::Caught { seen: std::mem::take(&mut self.seen) }
    }
}
