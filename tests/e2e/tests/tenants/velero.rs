//! A Velero that is played: slow, careless of other writers, late to delete, and now and then gone.

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{ADMIN, api};

const FINALIZER: &str = "restores.velero.io/external-resources-finalizer";

/// The task that plays, if it does.
pub(crate) struct Played {
    task: JoinSet<()>,
    seed: u64,
}

impl Played {
    /// Hangs in the middle of the backup after so many, if told so.
    pub(crate) fn start(client: Client, seed: u64, hangs_after: Option<usize>) -> Self {
        let mut it = Self { task: JoinSet::new(), seed };
        it.begin(client, hangs_after);
        it
    }

    /// Killed in the middle of whatever it does.
    pub(crate) fn stop(&mut self) {
        self.task.abort_all();
    }

    pub(crate) fn restart(&mut self, client: Client) {
        self.begin(client, None);
    }

    fn begin(&mut self, client: Client, left: Option<usize>) {
        self.stop();
        self.seed += 1;
        let random = StdRng::seed_from_u64(self.seed);
        self.task.spawn(Act { client, random, left }.run());
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Act {
    client: Client,
    random: StdRng,
    /// Backups before it hangs in the middle of one.
    left: Option<usize>,
}

impl Act {
    async fn run(mut self) {
        // What it was at when it was killed has failed, as with the real one.
        for it in self.list("Backup").await {
            if phase(&it) == "InProgress" {
                let status = json!({"phase": "Failed", "failureReason": "found a backup with status \"InProgress\" during the server starting, mark it as \"Failed\"", "completionTimestamp": now()});
                self.patch("Backup", &it, &json!({ "status": status })).await;
            }
        }
        loop {
            self.locations().await;
            self.deletions().await;
            self.one_backup().await;
            self.restores().await;
            self.pause(5).await;
        }
    }

    async fn pause(&mut self, longest_ms: u64) {
        let pause = self.random.random_range(0..=longest_ms);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    async fn list(&self, kind: &str) -> Vec<Value> {
        let list = api(&self.client, kind, ADMIN).list(&ListParams::default()).await;
        let items = list.map(|list| list.items).unwrap_or_default();
        items.into_iter().map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    /// A merge patch without a version: the last writer wins.
    async fn patch(&self, kind: &str, object: &Value, patch: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::default();
        let _gone = api(&self.client, kind, ADMIN).patch(name, &params, &Patch::Merge(patch)).await;
    }

    async fn delete(&self, kind: &str, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let _gone = api(&self.client, kind, ADMIN).delete(name, &DeleteParams::default()).await;
    }

    async fn locations(&mut self) {
        for it in self.list("BackupStorageLocation").await {
            if phase(&it) != "Available" {
                self.pause(20).await;
                let status = json!({"phase": "Available", "lastValidationTime": now()});
                self.patch("BackupStorageLocation", &it, &json!({ "status": status })).await;
            }
        }
    }

    /// The oldest one that waits; one at a time.
    async fn one_backup(&mut self) {
        let mut waiting: Vec<Value> = self.list("Backup").await;
        waiting.retain(|it| phase(it).is_empty() || phase(it) == "New");
        waiting.sort_by_key(|it| {
            let meta = &it["metadata"];
            (meta["creationTimestamp"].to_string(), meta["name"].to_string())
        });
        let Some(it) = waiting.first().cloned() else { return };
        let status = json!({"phase": "InProgress", "version": 1, "formatVersion": "1.1.0",
            "startTimestamp": now(), "expiration": "2036-01-01T00:00:00Z"});
        self.patch("Backup", &it, &json!({"spec": {"ttl": "720h0m0s"}, "status": status})).await;
        match &mut self.left {
            Some(0) => std::future::pending::<()>().await,
            Some(left) => *left -= 1,
            None => {}
        }
        self.pause(10).await;
        for done in [12, 56] {
            let status = json!({"progress": {"totalItems": 56, "itemsBackedUp": done}});
            self.patch("Backup", &it, &json!({ "status": status })).await;
        }
        // Some fail without ever saying when they ended.
        let name = it["metadata"]["annotations"]["openshift.io/oadp-nab-origin-name"].as_str();
        let end = if name.is_some_and(|name| name.starts_with("fails")) {
            json!({"phase": "Failed", "failureReason": "unable to get credentials: unable to get key for secret: Secret \"cloud-credentials\" not found"})
        } else {
            json!({"phase": "Completed", "completionTimestamp": now(), "hookStatus": {}})
        };
        self.patch("Backup", &it, &json!({ "status": end })).await;
    }

    async fn restores(&mut self) {
        for it in self.list("Restore").await {
            if !it["metadata"]["deletionTimestamp"].is_null() {
                // It lets go when it gets round to it.
                self.pause(50).await;
                self.patch("Restore", &it, &json!({"metadata": {"finalizers": null}})).await;
            } else if phase(&it).is_empty() {
                let begun = json!({"metadata": {"finalizers": [FINALIZER]},
                    "status": {"phase": "InProgress", "startTimestamp": now()}});
                self.patch("Restore", &it, &begun).await;
                self.pause(10).await;
                let status = json!({"phase": "Completed", "completionTimestamp": now(),
                    "progress": {"totalItems": 3, "itemsRestored": 3}});
                self.patch("Restore", &it, &json!({ "status": status })).await;
            }
        }
    }

    async fn deletions(&mut self) {
        let backups = self.list("Backup").await;
        for it in self.list("DeleteBackupRequest").await {
            let target = &it["spec"]["backupName"];
            let Some(backup) = backups.iter().find(|it| it["metadata"]["name"] == *target) else {
                self.delete("DeleteBackupRequest", &it).await;
                continue;
            };
            if phase(&it) == "Processed" {
                continue;
            }
            if phase(backup) == "InProgress" {
                let status =
                    json!({"phase": "Processed", "errors": ["backup is still in progress"]});
                self.patch("DeleteBackupRequest", &it, &json!({ "status": status })).await;
                continue;
            }
            self.patch("DeleteBackupRequest", &it, &json!({"status": {"phase": "InProgress"}}))
                .await;
            self.patch("Backup", backup, &json!({"status": {"phase": "Deleting"}})).await;
            self.pause(200).await;
            self.delete("Backup", backup).await;
            self.pause(50).await;
            self.delete("DeleteBackupRequest", &it).await;
        }
    }
}

fn phase(object: &Value) -> String {
    object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn now() -> String {
    let now = k8s_openapi::jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
