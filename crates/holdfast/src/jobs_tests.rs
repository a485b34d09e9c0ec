//! Recurring jobs on the embedded server, with nobody who takes snapshots: a run lasts until somebody
//! says that its snapshots are there. Whether a job is due is set by hand.

use std::path::Path;
use std::time::Duration;

use api::longhorn::{RecurringJob, Snapshot, Volume};
use apiserver::auth::tokens::StaticTokens;
use apiserver::{ApiServer, Options, ServiceRanges};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use reconcile::Metrics;
use serde_json::{Value, json};

use crate::controllers::{all, identity};

const TIMEOUT: Duration = Duration::from_mins(2);
const TRIES: usize = 12;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
const JOB: &str = "j";

struct Rig {
    server: ApiServer,
    tasks: tasks::Tasks,
    jobs: Api<RecurringJob>,
    volumes: Api<Volume>,
    snapshots: Api<Snapshot>,
}

impl Rig {
    async fn start(folder: &Path) -> Self {
        let options = Options {
            data_dir: folder.to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            tls_sans: Vec::new(),
            tokens: StaticTokens::default(),
            audit: false,
            definitions: api::crds(),
            services: ServiceRanges::default(),
            controllers: all().iter().map(identity).collect(),
            near: Vec::new(),
        };
        let tasks = tasks::Tasks::new();
        let mut metrics = telemetry::Registry::new("test");
        let server = ApiServer::start(options, tasks.clone(), &mut metrics).await.unwrap();
        let as_user = |name: &str| {
            let user = all().iter().map(identity).find(|it| it.name == name).unwrap().user();
            Client::new(server.client_service(user), volumes::NAMESPACE)
        };
        // They may do all that this test does.
        let client = as_user("volumes");
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(volumes::NAMESPACE.to_owned());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let controller = all().into_iter().find(|it| it.name == "recurring-jobs").unwrap();
        controller.spawn(as_user(controller.name), &tasks, Metrics::new(&mut metrics, &[]));
        Self {
            jobs: Api::default_namespaced(as_user("system-backups")),
            volumes: Api::default_namespaced(client.clone()),
            snapshots: Api::default_namespaced(client),
            server,
            tasks,
        }
    }

    async fn stop(self) {
        let _ = self.tasks.stop(Duration::from_secs(10)).await;
        self.server.close(Duration::from_secs(10)).await;
    }

    async fn volume(&self, name: &str) {
        let made = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
            "metadata": {"name": name, "labels": {format!("recurring-job.longhorn.io/{JOB}"): "enabled"}},
            "spec": {"size": "16777216"},
        });
        let made: Volume = serde_json::from_value(made).unwrap();
        self.volumes.create(&PostParams::default(), &made).await.unwrap();
        let attached =
            Patch::Merge(json!({"status": {"state": "attached", "robustness": "healthy"}}));
        self.volumes.patch_status(name, &PatchParams::default(), &attached).await.unwrap();
    }

    async fn make_job(&self, more: Value) {
        let mut spec =
            json!({"task": "snapshot", "cron": "0 0 1 1 *", "retain": 9, "concurrency": 5});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "RecurringJob",
            "metadata": {"name": JOB}, "spec": spec,
        });
        let made: RecurringJob = serde_json::from_value(made).unwrap();
        self.jobs.create(&PostParams::default(), &made).await.unwrap();
    }

    /// The job is due now: its last run was years ago.
    async fn ring(&self, owner: &Api<RecurringJob>) {
        let long_ago = Patch::Merge(json!({"status": {"lastRunAt": "2020-05-01T00:00:00Z"}}));
        owner.patch_status(JOB, &PatchParams::default(), &long_ago).await.unwrap();
    }

    async fn status(&self) -> api::longhorn::RecurringJobStatus {
        self.jobs.get(JOB).await.unwrap().status.unwrap_or_default()
    }

    async fn until(&self, what: &str, holds: impl Fn(&api::longhorn::RecurringJobStatus) -> bool) {
        let all = async {
            while !holds(&self.status().await) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let done = tokio::time::timeout(TIMEOUT, all).await;
        assert!(done.is_ok(), "{what}: {:?}", self.status().await);
    }

    /// Snapshots of a volume that are not there yet.
    async fn pending(&self, volume: &str) -> Vec<String> {
        let listed = self.snapshots.list(&ListParams::default()).await.unwrap();
        let is_pending = |it: &&Snapshot| {
            it.spec.volume.as_deref() == Some(volume)
                && it.status.as_ref().and_then(|it| it.ready_to_use) != Some(true)
        };
        listed.items.iter().filter(is_pending).map(kube::ResourceExt::name_any).collect()
    }

    async fn first_pending(&self, volume: &str) -> String {
        let all = async {
            loop {
                if let Some(found) = self.pending(volume).await.pop() {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, all).await;
        found.unwrap_or_else(|_| panic!("no snapshot of {volume} was asked for"))
    }

    /// The snapshot is there.
    async fn take(&self, snapshot: &str) {
        let ready = Patch::Merge(json!({"status": {"readyToUse": true,
            "creationTime": "2026-01-01T00:00:00Z", "size": 0, "restoreSize": 0}}));
        self.snapshots.patch_status(snapshot, &PatchParams::default(), &ready).await.unwrap();
    }

    /// Whoever may write the status of jobs.
    fn clock(&self) -> Api<RecurringJob> {
        let user =
            all().iter().map(identity).find(|it| it.name == "recurring-jobs").unwrap().user();
        Api::default_namespaced(Client::new(self.server.client_service(user), volumes::NAMESPACE))
    }
}

#[tokio::test]
async fn one_stuck_run_never_silences_the_next_and_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::start(folder.path()).await;
    let clock = rig.clock();
    rig.volume("vol-a").await;
    rig.make_job(json!({})).await;
    rig.ring(&clock).await;
    rig.until("it runs", |it| it.execution_count == Some(1) && it.running == Some(true)).await;
    let stuck = rig.first_pending("vol-a").await;
    // The next run comes all the same, and volumes that nobody works on have their turn.
    rig.volume("vol-b").await;
    // A run that comes before the controller has heard of the volume has nothing to do for it.
    let mut of_b = None;
    for _ in 0..TRIES {
        rig.ring(&clock).await;
        let found = tokio::time::timeout(BETWEEN_TRIES, rig.first_pending("vol-b")).await;
        of_b = found.ok();
        if of_b.is_some() {
            break;
        }
    }
    rig.take(&of_b.expect("no run works on the other volume")).await;
    rig.until("a later run has ended", |it| {
        it.execution_count.is_some_and(|count| count > 1)
            && it.last_message.as_deref().is_some_and(|text| {
                text.contains("done for 1, failed for 1")
                    && text.contains("a: an earlier run still works on it")
            })
    })
    .await;
    assert_eq!(rig.status().await.running, Some(true), "the first one still runs");
    assert_eq!(rig.pending("vol-a").await, [stuck]);
    // Whoever asks for it ends what is under way.
    let asked = Patch::Merge(json!({"metadata": {"annotations": {"holdfast.io/cancel": "now"}}}));
    clock.patch(JOB, &PatchParams::default(), &asked).await.unwrap();
    rig.until("the first run is canceled", |it| {
        it.running == Some(false) && it.last_result.as_deref() == Some("Canceled")
    })
    .await;
    assert!(!rig.jobs.get(JOB).await.unwrap().annotations().contains_key("holdfast.io/cancel"));
    // Nothing keeps the next one from working on both.
    let runs = rig.status().await.execution_count;
    rig.ring(&clock).await;
    rig.until("another run begins", |it| it.execution_count > runs).await;
    let of_b = rig.first_pending("vol-b").await;
    rig.take(&of_b).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_run_ends_at_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::start(folder.path()).await;
    rig.volume("vol-a").await;
    rig.make_job(json!({"parameters": {"deadline": "1s"}})).await;
    rig.ring(&rig.clock()).await;
    rig.until("the run is over", |it| {
        it.running == Some(false) && it.last_result.as_deref() == Some("DeadlineExceeded")
    })
    .await;
    assert!(rig.status().await.last_message.unwrap().contains("not done within 1 s"));
    rig.stop().await;
}

#[tokio::test]
async fn a_job_works_on_as_many_volumes_at_once_as_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::start(folder.path()).await;
    for name in ["vol-a", "vol-b", "vol-c"] {
        rig.volume(name).await;
    }
    rig.make_job(json!({"concurrency": 1})).await;
    rig.ring(&rig.clock()).await;
    for done in 0..3 {
        let mut pending = Vec::new();
        while pending.is_empty() {
            for name in ["vol-a", "vol-b", "vol-c"] {
                pending.extend(rig.pending(name).await);
            }
            assert!(pending.len() <= 1, "after {done}: {pending:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        rig.take(&pending[0]).await;
    }
    rig.until("the run is over", |it| it.last_result.as_deref() == Some("Succeeded")).await;
    assert!(rig.status().await.last_message.unwrap().contains("done for 3, failed for 0"));
    rig.stop().await;
}
