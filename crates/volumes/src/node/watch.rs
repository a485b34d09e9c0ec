//! Who says that a node is gone: a controller that watches leases grow old.
//!
//! A node says of itself that it is ready. When it falls silent, this says that it is not, that its
//! processes are in a state nobody knows, and of those that are not wanted there any more that they
//! are stopped, so that they can go on elsewhere: an engine that still runs there is cut off by its
//! replicas once another comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::condition::{self, Verdict};
use api::longhorn::{
    Condition, Engine, InstanceManager, InstanceManagerState, InstanceSpec, InstanceState,
    InstanceStatus, Node, Replica,
};
use api::scalar::Time;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use reconcile::{
    Context, Controller, EVENT_RIGHTS, Failure, Grant, Key, Loop, Next, Reconciler, Store,
};
use serde_json::json;
use tokio::time::Instant;

use super::{LEASE, LeaseStore, lease_name, manager_name};
use crate::replica::is_leaving;
use crate::{FINALIZER, NAMESPACE};

/// Watches the nodes.
pub const CONTROLLER: Controller = Controller {
    name: "volumes-nodes",
    grants: &[
        Grant {
            groups: &["longhorn.io"],
            resources: &[
                "nodes",
                "nodes/status",
                "instancemanagers",
                "instancemanagers/status",
                "engines",
                "engines/status",
                "replicas",
                "replicas/status",
            ],
            verbs: &["get", "list", "watch", "patch"],
        },
        Grant {
            groups: &["coordination.k8s.io"],
            resources: &["leases"],
            verbs: &["get", "list", "watch"],
        },
        EVENT_RIGHTS,
    ],
    acts_on: super::ACTS_ON,
    run: |context| Box::pin(run(context)),
};

const BY_OWNER: &str = "owner";

async fn run(context: Context) {
    let watcher = Arc::new(Watcher {
        nodes: Store::<Node>::within(NAMESPACE).start(&context),
        managers: Store::<InstanceManager>::within(NAMESPACE).start(&context),
        engines: Store::<Engine>::within(NAMESPACE)
            .index(BY_OWNER, |it: &Engine| {
                owners(&it.spec.instance, it.status.as_ref().map(|it| &it.instance))
            })
            .start(&context),
        replicas: Store::<Replica>::within(NAMESPACE)
            .index(BY_OWNER, |it: &Replica| {
                owners(&it.spec.instance, it.status.as_ref().map(|it| &it.instance))
            })
            .start(&context),
        leases: LeaseStore::within(NAMESPACE).start(&context),
        heard: Mutex::default(),
        client: context.client.clone(),
    });
    let owners_of_engine =
        |it: &Engine| keys(&it.spec.instance, it.status.as_ref().map(|it| &it.instance));
    let owners_of_replica =
        |it: &Replica| keys(&it.spec.instance, it.status.as_ref().map(|it| &it.instance));
    Loop::new("volumes-nodes", &context)
        .on(&watcher.nodes)
        .on_related(&watcher.engines, owners_of_engine)
        .on_related(&watcher.replicas, owners_of_replica)
        .on_related(&watcher.leases, |lease: &Lease| {
            let holder = lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref());
            let name = holder.filter(|holder| lease.name_any() == lease_name(holder));
            name.map(|name| Key::new(NAMESPACE, name)).into_iter().collect()
        })
        .needs(&watcher.managers)
        .run(watcher)
        .await;
}

/// The node it is to be on and the one it is on. One that is on none is somebody's, too.
fn owners(spec: &InstanceSpec, status: Option<&InstanceStatus>) -> Vec<String> {
    let mut names: Vec<String> = [spec.node_id.clone(), status.and_then(|it| it.owner_id.clone())]
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty())
        .collect();
    names.dedup();
    if names.is_empty() { vec![NOBODY.to_owned()] } else { names }
}

/// Stands for the node of what was never given one.
const NOBODY: &str = "-";

fn keys(spec: &InstanceSpec, status: Option<&InstanceStatus>) -> Vec<Key> {
    owners(spec, status).iter().map(|name| Key::new(NAMESPACE, name)).collect()
}

struct Watcher {
    nodes: Store<Node>,
    managers: Store<InstanceManager>,
    engines: Store<Engine>,
    replicas: Store<Replica>,
    leases: LeaseStore,
    /// The version of each lease, and since when it is known: by this clock, not by the node's.
    heard: Mutex<HashMap<String, (String, Instant)>>,
    client: kube::Client,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It may be silent for so long yet.
    Alive(Duration),
    Silent,
    /// There is no such node.
    Missing,
}

/// A node whose object somebody has deleted makes it anew, while it lives: nothing is taken from it.
fn judge(exists: bool, has_lease: bool, left: Duration) -> Life {
    match (exists, left.is_zero()) {
        (false, _) if !has_lease => Life::Missing,
        (_, false) => Life::Alive(left),
        (true, true) => Life::Silent,
        (false, true) => Life::Missing,
    }
}

impl Reconciler for Watcher {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let node = self.nodes.get(key);
        // One that cannot be read is there all the same, and renews its lease or does not.
        let life = self.life(&key.name, node.is_some() || self.nodes.is_broken(key));
        if let Life::Alive(left) = life {
            return Ok(Next::after(left));
        }
        if let (Life::Silent, Some(node)) = (life, &node) {
            self.say_silent(node).await?;
        }
        for engine in self.engines.by(BY_OWNER, &key.name) {
            let now = engine.status.as_ref().map(|it| it.instance.clone()).unwrap_or_default();
            let deleting = engine.metadata.deletion_timestamp.is_some();
            let seen =
                Orphaned { node: &key.name, spec: &engine.spec.instance, status: &now, deleting };
            let said = seen.said();
            if let Some(said) = said {
                let mut next = engine.as_ref().clone();
                let mut status = next.status.take().unwrap_or_default();
                status.instance = said;
                next.status = Some(status);
                self.engines.update(&engine, &next).await?;
            }
            if seen.lets_go() {
                self.engines.remove_finalizer(&engine, FINALIZER).await?;
            }
        }
        for replica in self.replicas.by(BY_OWNER, &key.name) {
            let now = replica.status.as_ref().map(|it| it.instance.clone()).unwrap_or_default();
            let deleting = is_leaving(&replica);
            let seen =
                Orphaned { node: &key.name, spec: &replica.spec.instance, status: &now, deleting };
            if let Some(said) = seen.said() {
                let mut next = replica.as_ref().clone();
                next.status = Some(api::longhorn::ReplicaStatus { instance: said });
                self.replicas.update(&replica, &next).await?;
            }
            if seen.lets_go() {
                self.replicas.remove_finalizer(&replica, FINALIZER).await?;
            }
        }
        Ok(Next::WAIT)
    }
}

impl Watcher {
    fn life(&self, node: &str, exists: bool) -> Life {
        let lease = self.leases.get(&Key::new(NAMESPACE, &lease_name(node)));
        let has_lease = lease.is_some();
        let version = lease.and_then(|it| it.resource_version()).unwrap_or_default();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let entry = heard.entry(node.to_owned()).or_insert_with(|| (version.clone(), now));
        if entry.0 != version {
            *entry = (version, now);
        }
        judge(exists, has_lease, LEASE.saturating_sub(now.duration_since(entry.1)))
    }

    async fn say_silent(&self, node: &Node) -> Result<(), Failure> {
        let name = node.name_any();
        let conditions = node.status.as_ref().and_then(|it| it.conditions.clone());
        let conditions = conditions.unwrap_or_default();
        // One that left on purpose said so itself.
        if condition::get(&conditions, "Ready")
            .is_none_or(|it| it.status != api::condition::Status::False)
        {
            let why = format!(
                "Kubernetes node {name} not ready: it has not renewed its lease for {} s",
                LEASE.as_secs()
            );
            let verdict = Verdict::new("Ready", false, "KubernetesNodeNotReady", why);
            let api: Api<Node> = Api::namespaced(self.client.clone(), NAMESPACE);
            set_ready(&api, &name, conditions, &verdict)
                .await
                .map_err(|error| Failure::other(format!("say that node {name} is gone"), error))?;
            tracing::warn!(node = name, "node {name} fell silent and counts as gone");
        }
        if let Some(manager) = self.managers.get(&Key::new(NAMESPACE, &manager_name(&name))) {
            let mut next = manager.as_ref().clone();
            let mut status = next.status.take().unwrap_or_default();
            status.current_state = Some(InstanceManagerState::Unknown);
            next.status = Some(status);
            self.managers.update(&manager, &next).await?;
        }
        Ok(())
    }
}

/// Writes the condition `Ready`, and of the disks that they are not ready either.
pub(super) async fn set_ready(
    api: &Api<Node>,
    name: &str,
    mut conditions: Vec<Condition>,
    verdict: &Verdict,
) -> Result<(), kube::Error> {
    let now = Time::new(jiff::Timestamp::now());
    condition::set(&mut conditions, verdict, now);
    let node = api.get(name).await?;
    let disks = node.status.and_then(|it| it.disk_status).unwrap_or_default();
    let mut patched = serde_json::Map::new();
    for (disk, status) in disks {
        let mut conditions = status.conditions.unwrap_or_default();
        for kind in ["Ready", "Schedulable"] {
            let why = format!("Disk {disk} on node {name} is not ready: the node is not");
            let verdict = Verdict::new(kind, false, "NodeNotReady", why);
            condition::set(&mut conditions, &verdict, now);
        }
        patched.insert(disk, json!({ "conditions": conditions }));
    }
    let patch = json!({ "status": { "conditions": conditions, "diskStatus": patched } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// An engine or replica of a node that is gone.
#[derive(Debug, Clone, Copy)]
struct Orphaned<'a> {
    node: &'a str,
    spec: &'a InstanceSpec,
    status: &'a InstanceStatus,
    deleting: bool,
}

impl Orphaned<'_> {
    fn is_owned(&self) -> bool {
        self.status.owner_id.as_deref() == Some(self.node)
    }

    /// What is to be said of it, if that differs from what is said.
    fn said(&self) -> Option<InstanceStatus> {
        let started = matches!(
            self.status.current_state,
            Some(
                InstanceState::Running
                    | InstanceState::Starting
                    | InstanceState::Stopping
                    | InstanceState::Unknown
                    | InstanceState::Error
            )
        );
        if !self.is_owned() || !started {
            return None;
        }
        let wanted = self.spec.node_id.as_deref() == Some(self.node)
            && self.spec.desire_state == Some(InstanceState::Running)
            && !self.deleting;
        let mut status = self.status.clone();
        if wanted {
            // What ended before the node went has ended.
            if self.status.current_state != Some(InstanceState::Error) {
                status.current_state = Some(InstanceState::Unknown);
            }
        } else {
            status.current_state = Some(InstanceState::Stopped);
            status.started = Some(false);
            status.starting = Some(false);
            status.ip = Some(String::new());
            status.storage_ip = Some(String::new());
            status.port = Some(0);
        }
        (status != *self.status).then_some(status)
    }

    /// Nobody else will: the node that would, is gone. Its data stays where it is, and is an orphan
    /// there should the node come back.
    fn lets_go(&self) -> bool {
        let here = self.spec.node_id.as_deref().is_none_or(|it| it.is_empty() || it == self.node);
        self.deleting && here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_lives_is_there_also_without_its_object() {
        let left = Duration::from_secs(3);
        for (exists, has_lease, left, wanted) in [
            (true, true, left, Life::Alive(left)),
            (true, false, left, Life::Alive(left)),
            (true, true, Duration::ZERO, Life::Silent),
            (false, true, left, Life::Alive(left)),
            (false, true, Duration::ZERO, Life::Missing),
            (false, false, left, Life::Missing),
        ] {
            assert_eq!(judge(exists, has_lease, left), wanted, "{exists} {has_lease} {left:?}");
        }
    }

    fn spec(node: &str, desire: InstanceState) -> InstanceSpec {
        InstanceSpec {
            node_id: Some(node.into()),
            desire_state: Some(desire),
            ..InstanceSpec::default()
        }
    }

    fn status(owner: &str, state: InstanceState) -> InstanceStatus {
        InstanceStatus {
            owner_id: Some(owner.into()),
            current_state: Some(state),
            started: Some(true),
            ..InstanceStatus::default()
        }
    }

    fn said(spec: &InstanceSpec, status: &InstanceStatus, deleting: bool) -> Option<InstanceState> {
        Orphaned { node: "gone", spec, status, deleting }.said().and_then(|it| it.current_state)
    }

    #[test]
    fn what_runs_on_a_node_that_is_gone_is_unknown_and_what_is_not_wanted_there_stopped() {
        use InstanceState as S;
        for (node, desire, owner, state, deleting, wanted) in [
            ("gone", S::Running, "gone", S::Running, false, Some(S::Unknown)),
            ("gone", S::Running, "gone", S::Starting, false, Some(S::Unknown)),
            ("gone", S::Running, "gone", S::Unknown, false, None),
            ("gone", S::Running, "gone", S::Error, false, None),
            ("gone", S::Stopped, "gone", S::Unknown, false, Some(S::Stopped)),
            ("", S::Stopped, "gone", S::Running, false, Some(S::Stopped)),
            ("other", S::Running, "gone", S::Running, false, Some(S::Stopped)),
            ("gone", S::Running, "gone", S::Running, true, Some(S::Stopped)),
            ("gone", S::Running, "other", S::Running, false, None),
            ("gone", S::Stopped, "gone", S::Stopped, false, None),
        ] {
            let found = said(&spec(node, desire.clone()), &status(owner, state.clone()), deleting);
            assert_eq!(found, wanted, "{node} {desire} {owner} {state} {deleting}");
        }
    }

    #[test]
    fn a_deleted_object_waits_for_no_node_that_is_gone() {
        let status = status("gone", InstanceState::Unknown);
        let lets_go = |node: &str, deleting| {
            let spec = spec(node, InstanceState::Stopped);
            Orphaned { node: "gone", spec: &spec, status: &status, deleting }.lets_go()
        };
        assert!(lets_go("gone", true) && lets_go("", true));
        assert!(!lets_go("other", true) && !lets_go("gone", false));
    }

    #[test]
    fn what_was_never_given_a_node_is_somebodys() {
        assert_eq!(owners(&InstanceSpec::default(), None), [NOBODY]);
        let both =
            owners(&spec("a", InstanceState::Running), Some(&status("b", InstanceState::Running)));
        assert_eq!(both, ["a", "b"]);
    }
}
