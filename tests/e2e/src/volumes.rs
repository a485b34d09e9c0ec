//! A server with a backup target that is a directory, and volumes whose every byte is known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Server;
use crate::engine::{Endpoint, Nbd, blocking, run};
use bytes::Bytes;
use serde_json::{Value, json};
use testkit::process::poll_until;

pub const MIB: u64 = 1 << 20;
const NAMESPACE: &str = "longhorn-system";
/// Long enough for a loaded machine, and for the lock of somebody who was killed to run out.
const TIMEOUT: Duration = Duration::from_mins(10);

/// What each mebibyte of a volume was last written with: a seed; 0 is zeroes.
pub type Content = BTreeMap<u64, u64>;

/// Where the resources are that a rig works with.
pub trait Home {
    /// Of somebody who may do everything.
    fn kubeconfig(&self) -> PathBuf;
    /// A directory for the test's own files.
    fn scratch(&self) -> &Path;
    /// What controllers and nodes have logged.
    fn log(&self) -> String;
}

impl Home for Server {
    fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig()
    }

    fn scratch(&self) -> &Path {
        self.scratch()
    }

    fn log(&self) -> String {
        self.stderr()
    }
}

#[derive(Debug)]
pub struct Rig<H = Server> {
    pub server: H,
}

impl Rig {
    pub fn start() -> Self {
        let rig = Self::start_with(&[]);
        // The disk of a loaded machine may take longer than the usual time to flush.
        rig.patch("lhs", "engine-replica-timeout", &json!({"value": "30"}));
        rig
    }

    /// With more arguments of the server.
    pub fn start_with(more: &[&str]) -> Self {
        Self::at(Server::start_with(more))
    }

    /// kill -9 of everything that controls, and a new start.
    pub fn restart_server(&mut self) {
        self.server.kill();
        self.server.start_again().unwrap();
    }
}

impl<H: Home> Rig<H> {
    /// Waits for a node, and gives it a target.
    pub fn at(server: H) -> Self {
        let store = server.scratch().join("store");
        std::fs::create_dir(&store).unwrap();
        let rig = Self { server };
        // They are made one after the other: the last one says that all are there.
        let last = "storage-reserved-percentage-for-default-disk";
        rig.until("a node, the default target and the settings are there", || {
            rig.node().is_some()
                && rig.get("lhbt", "default").is_some()
                && rig.get("lhs", last).is_some()
        });
        rig.patch("lhs", "replica-soft-anti-affinity", &json!({"value": "true"}));
        // Whatever the machine has left is enough for these.
        rig.patch("lhs", "storage-minimal-available-percentage", &json!({"value": "1"}));
        rig.patch("lhs", "storage-over-provisioning-percentage", &json!({"value": "1000"}));
        let url = format!("vfs://{}", store.display());
        rig.patch(
            "lhbt",
            "default",
            &json!({"spec": {"backupTargetURL": url, "pollInterval": "10s"}}),
        );
        rig.until("the target is available", || {
            rig.field("lhbt", "default", "/status/available") == Some(Value::Bool(true))
        });
        rig
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        run(&mut kubectl(&self.server, arguments))
    }

    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = kubectl(&self.server, &["get", kind, name, "-o", "json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub fn field(&self, kind: &str, name: &str, pointer: &str) -> Option<Value> {
        self.get(kind, name)?.pointer(pointer).cloned()
    }

    pub fn text(&self, kind: &str, name: &str, pointer: &str) -> String {
        let found = self.field(kind, name, pointer);
        found.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
    }

    pub fn patch(&self, kind: &str, name: &str, patch: &Value) {
        self.kubectl(&["patch", kind, name, "--type", "merge", "-p", &patch.to_string()]);
    }

    pub fn create(&self, kind: &str, name: &str, labels: &Value, spec: &Value) {
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec,
        });
        let path = self.server.scratch().join(format!("{kind}-{name}.json"));
        crate::write(&path, &object.to_string());
        self.kubectl(&["create", "-f", &path.display().to_string()]);
    }

    /// Whether the server would take it, or what it says.
    pub fn try_create(&self, kind: &str, name: &str, spec: &Value) -> Result<(), String> {
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        let path = self.server.scratch().join("tried.json");
        crate::write(&path, &object.to_string());
        self.try_run(&["create", "--dry-run=server", "-f", &path.display().to_string()])
    }

    /// As [`Rig::try_create`], of a change.
    pub fn try_patch(&self, kind: &str, name: &str, patch: &Value) -> Result<(), String> {
        let patch = patch.to_string();
        self.try_run(&["patch", kind, name, "--dry-run=server", "--type", "merge", "-p", &patch])
    }

    fn try_run(&self, arguments: &[&str]) -> Result<(), String> {
        let done = kubectl(&self.server, arguments).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(told) }
    }

    #[track_caller]
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        if poll_until(TIMEOUT, || holds().then_some(())).is_none() {
            let log = self.server.log();
            let log: Vec<&str> = log.lines().rev().take(20).collect();
            panic!(
                "waited {} s: {what}\n{}\n{}",
                TIMEOUT.as_secs(),
                self.kubectl(&["get", "lhn,lhv,lhe,lhr,lhb,lhbv,lhsnap", "-o", "wide"]),
                log.join("\n"),
            );
        }
    }

    /// A node that is ready.
    pub fn node(&self) -> Option<String> {
        self.ready_nodes().into_iter().next()
    }

    pub fn ready_nodes(&self) -> Vec<String> {
        self.find_ready_nodes().unwrap_or_default()
    }

    fn find_ready_nodes(&self) -> Option<Vec<String>> {
        let nodes = kubectl(&self.server, &["get", "lhn", "-o", "json"]).output().unwrap();
        let nodes: Value = serde_json::from_slice(&nodes.stdout).ok()?;
        let is_ready = |node: &&Value| {
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
            conditions
                .into_iter()
                .flatten()
                .any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        let ready = nodes["items"].as_array()?.iter().filter(is_ready);
        ready.map(|it| it.pointer("/metadata/name")?.as_str().map(str::to_owned)).collect()
    }

    pub fn volume(&self, name: &str, mebibytes: u64, replicas: u64) {
        let spec = json!({"size": (mebibytes * MIB).to_string(), "frontend": "blockdev",
            "numberOfReplicas": replicas});
        self.create("Volume", name, &json!({}), &spec);
        self.until("the volume is detached", || self.state(name) == "detached");
    }

    /// A volume from a backup: once, or to follow its source.
    pub fn make_from_backup(&self, name: &str, backup: &str, replicas: u64, standby: bool) {
        let frontend = if standby { "" } else { "blockdev" };
        let spec = json!({"size": "0", "frontend": frontend, "numberOfReplicas": replicas,
            "fromBackup": self.text("lhb", backup, "/status/url"), "Standby": standby});
        self.create("Volume", name, &json!({}), &spec);
    }

    pub fn state(&self, volume: &str) -> String {
        self.text("lhv", volume, "/status/state")
    }

    pub fn robustness(&self, volume: &str) -> String {
        self.text("lhv", volume, "/status/robustness")
    }

    /// Asks for it, and does not wait.
    pub fn ask_attach(&self, volume: &str) {
        self.move_to(volume, &self.node().expect("a node"));
    }

    /// Wants it there, and does not wait.
    pub fn move_to(&self, volume: &str, node: &str) {
        let ticket = json!({"id": "test", "type": "longhorn-api", "nodeID": node,
            "parameters": {"disableFrontend": "false"}});
        self.patch("lhva", volume, &json!({"spec": {"attachmentTickets": {"test": ticket}}}));
    }

    pub fn attach(&self, volume: &str) {
        self.attach_at(volume, &self.node().expect("a node"));
    }

    pub fn attach_at(&self, volume: &str, node: &str) {
        self.move_to(volume, node);
        self.until("the volume is attached, healthy and served", || self.is_served(volume));
    }

    pub fn is_served(&self, volume: &str) -> bool {
        self.is_healthy(volume) && !self.endpoint(volume).is_empty()
    }

    pub fn is_healthy(&self, volume: &str) -> bool {
        self.state(volume) == "attached" && self.robustness(volume) == "healthy"
    }

    pub fn detach(&self, volume: &str) {
        self.patch("lhva", volume, &json!({"spec": {"attachmentTickets": {"test": null}}}));
        self.until("the volume is detached", || self.state(volume) == "detached");
    }

    pub fn endpoint(&self, volume: &str) -> String {
        self.text("lhe", &format!("{volume}-e-0"), "/status/endpoint")
    }

    pub fn write(&self, volume: &str, content: &mut Content, at: u64, count: u64, seed: u64) {
        let endpoint = Endpoint::parse(&self.endpoint(volume));
        blocking(async {
            let nbd = Nbd::connect(&endpoint).await.unwrap();
            for place in at..at + count {
                nbd.write(place * MIB, noise(place, seed)).await.unwrap();
                content.insert(place, seed);
            }
            nbd.flush().await.unwrap();
        });
    }

    /// Every byte of the volume is as expected.
    #[track_caller]
    pub fn holds(&self, volume: &str, content: &Content, mebibytes: u64) {
        let endpoint = Endpoint::parse(&self.endpoint(volume));
        blocking(async {
            let nbd = Nbd::connect(&endpoint).await.unwrap();
            for place in 0..mebibytes {
                let found = nbd.read(place * MIB, u32::try_from(MIB).unwrap()).await.unwrap();
                let wanted = noise(place, content.get(&place).copied().unwrap_or(0));
                assert!(found == wanted, "mebibyte {place} of {volume} differs");
            }
        });
    }

    /// A volume that is to be a copy of another.
    pub fn copy(&self, name: &str, source: &str, mebibytes: u64, replicas: u64) {
        let spec = json!({"size": (mebibytes * MIB).to_string(), "frontend": "blockdev",
            "numberOfReplicas": replicas, "dataSource": source});
        self.create("Volume", name, &json!({}), &spec);
    }

    pub fn copy_state(&self, name: &str) -> String {
        self.text("lhv", name, "/status/cloneStatus/state")
    }

    #[track_caller]
    pub fn is_copied(&self, name: &str) {
        self.until("the copy is complete and detached", || {
            self.copy_state(name) == "completed" && self.state(name) == "detached"
        });
    }

    pub fn ask_snapshot(&self, volume: &str, name: &str) {
        let spec = json!({"volume": volume, "createSnapshot": true});
        self.create("Snapshot", name, &json!({"longhornvolume": volume}), &spec);
    }

    pub fn snapshot(&self, volume: &str, name: &str) {
        self.ask_snapshot(volume, name);
        self.is_taken(name);
    }

    #[track_caller]
    pub fn is_taken(&self, name: &str) {
        self.until("the snapshot is ready", || {
            self.field("lhsnap", name, "/status/readyToUse") == Some(Value::Bool(true))
        });
    }

    /// How many want it attached.
    pub fn tickets(&self, volume: &str) -> usize {
        let tickets = self.field("lhva", volume, "/spec/attachmentTickets");
        tickets.and_then(|it| it.as_object().map(serde_json::Map::len)).unwrap_or(0)
    }

    pub fn backup(&self, volume: &str, name: &str) {
        let snapshot = format!("snap-{name}");
        self.snapshot(volume, &snapshot);
        self.ask_backup(volume, name);
        self.is_backed_up(name);
    }

    /// Of the snapshot that is named after it.
    pub fn ask_backup(&self, volume: &str, name: &str) {
        let labels = json!({"backup-volume": volume, "backup-target": "default"});
        let spec = json!({"snapshotName": format!("snap-{name}")});
        self.create("Backup", name, &labels, &spec);
    }

    #[track_caller]
    pub fn is_backed_up(&self, name: &str) {
        self.until("the backup is complete", || {
            self.text("lhb", name, "/status/state") == "Completed"
        });
    }

    #[track_caller]
    pub fn is_restored(&self, name: &str) {
        self.until("the restore is over and the volume detached", || {
            self.field("lhv", name, "/status/restoreRequired") == Some(json!(false))
                && self.state(name) == "detached"
        });
    }

    #[track_caller]
    pub fn is_gone(&self, kind: &str, name: &str) {
        self.until("it is gone", || self.get(kind, name).is_none());
    }

    /// The names of the replicas of a volume.
    pub fn replicas(&self, volume: &str) -> Vec<String> {
        let selector = format!("longhornvolume={volume}");
        let names = self.kubectl(&[
            "get",
            "lhr",
            "-l",
            &selector,
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ]);
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// kill -9 of the process of a replica, if it has one.
    pub fn kill_replica_that_may_run(&self, replica: &str) -> bool {
        kill_replica_in(&self.folder(replica))
    }

    /// The name of the directory of a replica.
    pub fn folder(&self, replica: &str) -> String {
        self.text("lhr", replica, "/spec/dataDirectoryName")
    }

    /// kill -9 of the process of an engine, if it has one.
    pub fn kill_engine_that_may_run(&self, volume: &str) -> bool {
        let name = format!("{volume}-e-0");
        let port = self.field("lhe", &name, "/status/port").unwrap_or_default();
        let place = format!(":{port} ");
        let mut found = processes().into_iter();
        let found = found.find(|(_, line)| {
            line.contains("controller") && line.contains(&name) && line.contains(&place)
        });
        let Some((pid, _)) = found else { return false };
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success()
    }

    pub fn kill_replica(&self, replica: &str) {
        self.until("the replica runs and is killed", || self.kill_replica_that_may_run(replica));
    }

    pub fn last_restored(&self, volume: &str) -> String {
        self.text("lhe", &format!("{volume}-e-0"), "/status/lastRestoredBackup")
    }
}

/// kill -9 of the replica whose directory has this name, if it runs.
pub fn kill_replica_in(folder: &str) -> bool {
    let mut found = processes().into_iter();
    let found = found.find(|(_, line)| line.contains(folder) && line.contains("replica"));
    let Some((pid, _)) = found.filter(|_| !folder.is_empty()) else { return false };
    Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success()
}

/// Writes until something goes wrong: whether nothing did. What was acknowledged by a flush is noted.
pub fn try_write(endpoint: &str, content: &mut Content, at: u64, count: u64, seed: u64) -> bool {
    let endpoint = Endpoint::parse(endpoint);
    let done = blocking(async {
        let nbd = Nbd::connect(&endpoint).await.ok()?;
        for place in at..at + count {
            nbd.write(place * MIB, noise(place, seed)).await.ok()?;
        }
        nbd.flush().await.ok()
    });
    if done.is_some() {
        content.extend((at..at + count).map(|place| (place, seed)));
    }
    done.is_some()
}

/// Every process of this machine: its number and its command line.
fn processes() -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let line = std::fs::read(PathBuf::from(format!("/proc/{pid}/cmdline"))).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    })
    .collect()
}

fn noise(place: u64, seed: u64) -> Bytes {
    let length = usize::try_from(MIB).unwrap();
    if seed == 0 {
        return vec![0; length].into();
    }
    let mut state = ((place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed) | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.into()
}

fn kubectl(server: &impl Home, arguments: &[&str]) -> Command {
    let program = std::env::var_os("HOLDFAST_KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut command = Command::new(program);
    command.env("KUBECONFIG", server.kubeconfig()).current_dir(server.scratch());
    command.arg("--cache-dir").arg(server.scratch().join("cache"));
    command.args(["-n", NAMESPACE]).args(arguments);
    command
}
