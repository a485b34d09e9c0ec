//! The `Node` object of this machine: made if it is not there, and kept true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::condition::{self, Verdict};
use api::longhorn::{Disk, DiskStatus, DiskType, Node, NodeSpec};
use api::scalar::Time;
use kube::{Api, ResourceExt};
use reconcile::{Failure, Key, Loop, Next, OrFail as _, Reconciler};

use super::disk::{self, Reading};
use super::{Agent, process};
use crate::NAMESPACE;
use crate::schedule::Rules;

/// How often space is looked at, though nothing else changes.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Replicas that come and go together are counted together.
const SETTLE: Duration = Duration::from_millis(200);
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn plan(agent: &Arc<Agent>) -> Loop {
    let me = agent.key();
    let own = me.clone();
    let plan = Loop::new("node", &agent.context)
        .map(
            &agent.nodes,
            move |key, _, _| if *key == own { vec![key.clone()] } else { Vec::new() },
        )
        .needs(&agent.replicas)
        .needs(&agent.settings);
    let (queue, name) = (plan.queue(), agent.options.name.clone());
    let own = me.clone();
    agent.replicas.listen(move |_, before, now| {
        let is_mine = |replica: &api::longhorn::Replica| {
            replica.spec.instance.node_id.as_deref() == Some(name.as_str())
        };
        let counted = |replica: Option<&api::longhorn::Replica>| {
            replica
                .filter(|it| is_mine(it))
                .map(|it| (it.spec.disk_id.clone(), it.spec.instance.volume_size))
        };
        if counted(before) != counted(now) {
            queue.add_after(&own, SETTLE);
        }
    });
    let queue = plan.queue();
    agent.settings.listen(move |_, _, _| queue.add_after(&me, SETTLE));
    plan.queue().add(&agent.key());
    plan
}

pub(super) struct Registrar(pub(super) Arc<Agent>);

impl Reconciler for Registrar {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let agent = &self.0;
        // Nobody is told that this node is there before others can see it live.
        if !agent.lease.is_held() {
            return Ok(Next::after(Duration::from_millis(200)));
        }
        let node = match agent.nodes.get(key) {
            Some(node) => node,
            None if agent.nodes.is_broken(key) => return Ok(Next::WAIT),
            None => {
                let made = agent.first();
                agent.nodes.create(&made).await?
            }
        };
        let readings = agent.read_disks(&node).await?;
        let next = agent.described(&node, &readings);
        agent.nodes.merge(&node, &next).await?;
        Ok(Next::after(LOOK_EVERY))
    }
}

impl Agent {
    /// What a node is when it first comes.
    fn first(&self) -> Node {
        let path = &self.options.disk;
        let made = durable::create_dir_private(path);
        let reserved = match made.is_ok().then(|| rustix::fs::statvfs(path)) {
            Some(Ok(found)) => {
                let used = found.f_blocks.saturating_sub(found.f_bfree);
                let all = used.saturating_add(found.f_bavail).saturating_mul(found.f_frsize);
                let percent = self.number("storage-reserved-percentage-for-default-disk", 30);
                let percent = u64::try_from(percent.clamp(0, 100)).unwrap_or(0);
                i64::try_from(all / 100 * percent).unwrap_or(i64::MAX)
            }
            Some(Err(_)) | None => 0,
        };
        let disk = Disk {
            disk_type: Some(DiskType::Filesystem),
            path: Some(path.display().to_string()),
            disk_driver: Some(String::new()),
            allow_scheduling: Some(true),
            eviction_requested: Some(false),
            storage_reserved: Some(reserved),
            tags: Some(Vec::new()),
        };
        let spec = NodeSpec {
            name: Some(self.options.name.clone()),
            disks: Some(BTreeMap::from([("default-disk".to_owned(), disk)])),
            allow_scheduling: Some(true),
            eviction_requested: Some(false),
            tags: Some(Vec::new()),
            instance_manager_cpu_request: None,
        };
        let mut node = Node::new(&self.options.name, spec);
        node.metadata.namespace = Some(NAMESPACE.to_owned());
        node
    }

    /// The number a setting holds, or what it is without one.
    pub(super) fn number(&self, name: &str, default: i64) -> i64 {
        let setting = self.settings.get(&Key::new(NAMESPACE, name));
        setting.as_deref().and_then(crate::setting::number).unwrap_or(default)
    }

    /// Looks at every disk.
    async fn read_disks(&self, node: &Node) -> Result<Readings, Failure> {
        let statuses = node.status.as_ref().and_then(|it| it.disk_status.clone());
        let statuses = statuses.unwrap_or_default();
        let disks = node.spec.disks.clone().unwrap_or_default();
        let look = move || {
            let read = |(name, disk): (String, Disk)| {
                let known = statuses.get(&name).and_then(|it| it.disk_uuid.as_deref());
                let known = known.filter(|it| !it.is_empty());
                let path = disk.path.unwrap_or_default();
                let found = disk::read(&name, &path, known);
                (name, found.map_err(|error| telemetry::Chain(&error).to_string()))
            };
            disks.into_iter().map(read).collect()
        };
        self.context.tasks.blocking("disks", look).await.or_fail(|| "look at the disks".to_owned())
    }

    fn described(&self, node: &Node, readings: &Readings) -> Node {
        let now = Time::new(jiff::Timestamp::now());
        let mut next = node.clone();
        let mut status = next.status.take().unwrap_or_default();
        let before = status.disk_status.take().unwrap_or_default();
        let rules = Rules {
            over_provisioning_percent: self.number("storage-over-provisioning-percentage", 100),
            minimal_available_percent: self.number("storage-minimal-available-percentage", 25),
        };
        let described = |(name, disk): (&String, &Disk)| {
            let reading = readings.get(name).cloned();
            let reading = reading.unwrap_or_else(|| Err("it was not looked at yet".to_owned()));
            let known = before.get(name);
            let uuid = known.and_then(|it| it.disk_uuid.clone()).filter(|it| !it.is_empty());
            let uuid = uuid.or_else(|| reading.as_ref().ok().map(|it| it.uuid.clone()));
            let seen = disk::Seen {
                node: &self.options.name,
                name,
                disk,
                reading: reading.as_ref().map_err(Clone::clone),
                before: known,
                replicas: self.replicas_on(uuid.as_deref().unwrap_or_default()),
                twin: twin(name, uuid.as_deref(), readings),
                rules: &rules,
                manager: &self.manager,
                now,
            };
            (name.clone(), disk::status(&seen))
        };
        let disks: BTreeMap<String, DiskStatus> =
            node.spec.disks.iter().flatten().map(described).collect();
        status.disk_status = Some(disks);
        let mut conditions = status.conditions.take().unwrap_or_default();
        for verdict in verdicts(&self.options.name) {
            condition::set(&mut conditions, &verdict, now);
        }
        status.conditions = Some(conditions);
        let label = |name: &str| node.labels().get(name).cloned().unwrap_or_default();
        status.zone = Some(label("topology.kubernetes.io/zone"));
        status.region = Some(label("topology.kubernetes.io/region"));
        status.auto_evicting = Some(false);
        next.status = Some(status);
        next
    }

    fn replicas_on(&self, disk: &str) -> BTreeMap<String, i64> {
        if disk.is_empty() {
            return BTreeMap::new();
        }
        let size = |replica: &api::longhorn::Replica| {
            replica.spec.instance.volume_size.map_or(0, |it| it.0)
        };
        let replicas = self.replicas.by(process::BY_DISK, disk);
        // Of two on one directory, as in a live upgrade, one takes the space.
        let counted = replicas.iter().filter(|it| it.spec.active != Some(false));
        counted.map(|replica| (replica.name_any(), size(replica))).collect()
    }
}

type Readings = BTreeMap<String, Result<Reading, String>>;

/// A disk of an earlier name with the same identity.
fn twin<'a>(name: &str, uuid: Option<&str>, readings: &'a Readings) -> Option<&'a str> {
    let uuid = uuid?;
    readings
        .iter()
        .take_while(|(other, _)| other.as_str() < name)
        .find(|(_, reading)| reading.as_ref().is_ok_and(|it| it.uuid == uuid))
        .map(|(other, _)| other.as_str())
}

fn verdicts(node: &str) -> [Verdict; 3] {
    let ready = format!("Node {node} is ready");
    [
        Verdict::new("Ready", true, "", ready),
        Verdict::new("Schedulable", true, "", ""),
        Verdict::new("MountPropagation", true, "", "volumes are served over NBD and need none"),
    ]
}

/// Tells that a node left on purpose. Nobody waits long for it: its lease says the same, later.
pub(super) async fn say_left(client: kube::Client, name: &str) {
    let api: Api<Node> = Api::namespaced(client, NAMESPACE);
    let said = async {
        let node = api.get(name).await?;
        let conditions = node.status.and_then(|it| it.conditions).unwrap_or_default();
        let why = format!("the instance manager of node {name} was stopped");
        let verdict = Verdict::new("Ready", false, "ManagerPodMissing", why);
        super::watch::set_ready(&api, name, conditions, &verdict).await
    };
    match tokio::time::timeout(FAREWELL_TIMEOUT, said).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = %telemetry::Chain(&error), "cannot say that this node left");
        }
        Err(_) => tracing::warn!("cannot say that this node left: no answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_disks_with_one_identity_the_first_is_used() {
        let reading = |uuid: &str| {
            Ok(Reading {
                uuid: uuid.to_owned(),
                maximum_bytes: 1,
                available_bytes: 1,
                filesystem: String::new(),
            })
        };
        let readings: Readings = [("a", reading("u")), ("b", reading("u")), ("c", reading("w"))]
            .map(|(name, it)| (name.to_owned(), it))
            .into();
        assert_eq!(twin("a", Some("u"), &readings), None);
        assert_eq!(twin("b", Some("u"), &readings), Some("a"));
        assert_eq!(twin("c", Some("w"), &readings), None);
    }
}
