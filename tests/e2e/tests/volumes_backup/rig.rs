//! A server with a backup target that is a directory, kubectl, and volumes that can be written to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use e2e::Server;
use e2e::engine::{Endpoint, Nbd, blocking, run, tool};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use testkit::process::poll_until;

pub(crate) const MIB: u64 = 1 << 20;
const NAMESPACE: &str = "longhorn-system";
/// Long enough for a loaded machine, and for the lock of somebody who was killed to run out.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(10);

pub(crate) struct Rig {
    pub(crate) server: Server,
    store: PathBuf,
    watch: Watch,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let store = server.scratch().join("store");
        std::fs::create_dir(&store).unwrap();
        // Who is first makes it: the server's controllers need it, too.
        let _ = kubectl(&server, &["create", "namespace", NAMESPACE]).output().unwrap();
        let watch = Watch::start(&server, 0);
        let rig = Self { server, store, watch };
        // The disk of a test machine may be nearly full; the volumes here are small.
        for (setting, value) in [
            ("storage-minimal-available-percentage", "1"),
            ("storage-over-provisioning-percentage", "500"),
        ] {
            rig.until("the settings are there", || rig.get("lhs", setting).is_some());
            rig.patch("lhs", setting, &json!({ "value": value }));
        }
        rig.until("the default backup target is there", || rig.get("lhbt", "default").is_some());
        rig.patch(
            "lhbt",
            "default",
            &json!({"spec": {
                "backupTargetURL": format!("vfs://{}", rig.store.display()), "pollInterval": "30s",
            }}),
        );
        rig.until("the target is available", || {
            rig.field("lhbt", "default", "/status/available") == Some(Value::Bool(true))
        });
        rig
    }

    /// kill -9 of everything that controls, and a new start.
    pub(crate) fn crash(&mut self) {
        self.server.kill();
        self.server.start_again().unwrap();
        let number = self.watch.files.len();
        self.watch.follow(&self.server, number);
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        run(&mut kubectl(&self.server, arguments))
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = kubectl(&self.server, &["get", kind, name, "-o", "json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn field(&self, kind: &str, name: &str, pointer: &str) -> Option<Value> {
        self.get(kind, name)?.pointer(pointer).cloned()
    }

    pub(crate) fn text(&self, kind: &str, name: &str, pointer: &str) -> String {
        let found = self.field(kind, name, pointer);
        found.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
    }

    pub(crate) fn patch(&self, kind: &str, name: &str, patch: &Value) {
        self.kubectl(&["patch", kind, name, "--type", "merge", "-p", &patch.to_string()]);
    }

    pub(crate) fn delete(&self, kind: &str, name: &str) {
        self.kubectl(&["delete", kind, name, "--wait=false"]);
    }

    fn create(&self, kind: &str, name: &str, labels: &Value, spec: &Value) {
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec,
        });
        let path = self.server.scratch().join(format!("{kind}-{name}.json"));
        e2e::write(&path, &object.to_string());
        self.kubectl(&["create", "-f", &path.display().to_string()]);
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        if poll_until(TIMEOUT, || holds().then_some(())).is_none() {
            let log = self.server.stderr();
            let log: Vec<&str> = log.lines().rev().take(20).collect();
            panic!(
                "waited {} s: {what}\n{}\n{}",
                TIMEOUT.as_secs(),
                self.kubectl(&["get", "lhv,lhe,lhr,lhb,lhbt,lhbv,lhsnap", "-o", "wide"]),
                log.join("\n"),
            );
        }
    }

    /// A volume that is attached and can be written to.
    pub(crate) fn volume(&self, name: &str, mebibytes: u64) {
        let spec = json!({
            "size": (mebibytes * MIB).to_string(), "frontend": "blockdev", "numberOfReplicas": 1,
            "dataEngine": "v1", "accessMode": "rwo", "backupTargetName": "default",
        });
        self.create("Volume", name, &json!({}), &spec);
        self.until("the volume is detached", || {
            self.text("lhv", name, "/status/state") == "detached"
        });
        let ready = || {
            let nodes = self.kubectl(&["get", "lhn", "-o", "jsonpath={.items[*].metadata.name}"]);
            nodes.split_whitespace().next().map(str::to_owned)
        };
        let node = ready().expect("a node");
        let ticket = json!({"id": "test", "type": "longhorn-api", "nodeID": node,
            "parameters": {"disableFrontend": "false"}});
        self.patch("lhva", name, &json!({"spec": {"attachmentTickets": {"test": ticket}}}));
        self.until("the volume is attached", || {
            self.text("lhv", name, "/status/state") == "attached" && !self.endpoint(name).is_empty()
        });
    }

    fn endpoint(&self, volume: &str) -> String {
        self.text("lhe", &format!("{volume}-e-0"), "/status/endpoint")
    }

    /// Writes what no other place of the volume has.
    pub(crate) fn write(&self, volume: &str, at_mib: u64, mebibytes: u64) {
        let endpoint = Endpoint::parse(&self.endpoint(volume));
        blocking(async {
            let nbd = Nbd::connect(&endpoint).await.unwrap();
            for index in 0..mebibytes {
                let offset = (at_mib + index) * MIB;
                nbd.write(offset, noise(offset)).await.unwrap();
            }
            nbd.flush().await.unwrap();
        });
    }

    pub(crate) fn snapshot(&self, volume: &str, name: &str) {
        let spec = json!({"volume": volume, "createSnapshot": true});
        self.create("Snapshot", name, &json!({"longhornvolume": volume}), &spec);
        self.until("the snapshot is ready", || {
            self.field("lhsnap", name, "/status/readyToUse") == Some(Value::Bool(true))
        });
    }

    /// Asks for a backup and does not wait.
    pub(crate) fn ask_for_backup(&self, volume: &str, snapshot: &str, name: &str) {
        let labels = json!({"backup-volume": volume, "backup-target": "default"});
        self.create("Backup", name, &labels, &json!({"snapshotName": snapshot}));
    }

    pub(crate) fn backup(&self, volume: &str, name: &str) {
        let snapshot = format!("snap-{name}");
        self.snapshot(volume, &snapshot);
        self.ask_for_backup(volume, &snapshot, name);
        self.until("the backup is complete", || self.state(name) == "Completed");
    }

    pub(crate) fn state(&self, backup: &str) -> String {
        self.text("lhb", backup, "/status/state")
    }

    #[track_caller]
    pub(crate) fn gone(&self, backup: &str) {
        self.until(&format!("backup {backup} is gone"), || self.get("lhb", backup).is_none());
    }

    /// All that `kubectl get --watch` has shown of a backup, without repetitions.
    pub(crate) fn history(&self, backup: &str) -> Vec<Line> {
        self.watch.of(backup)
    }

    /// Its states, one after the other.
    pub(crate) fn states(&self, backup: &str) -> Vec<String> {
        let mut states: Vec<String> = self.history(backup).into_iter().map(|it| it.state).collect();
        states.dedup();
        states
    }

    pub(crate) fn folder(&self, volume: &str) -> PathBuf {
        let hash = Sha512::digest(volume.as_bytes());
        let hex = |byte: u8| format!("{byte:02x}");
        let volumes = self.store.join("backupstore/volumes");
        volumes.join(hex(hash[0])).join(hex(hash[1])).join(volume)
    }

    pub(crate) fn record(&self, volume: &str, backup: &str) -> PathBuf {
        self.folder(volume).join(format!("backups/backup_{backup}.cfg"))
    }

    /// Blocks in the store that no record names.
    pub(crate) fn orphans(&self, volume: &str) -> Vec<PathBuf> {
        let folder = self.folder(volume);
        let records = files(&folder.join("backups"));
        let named: String =
            records.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let blocks = files(&folder.join("blocks")).into_iter();
        blocks.filter(|it| !named.contains(it.file_stem().unwrap().to_str().unwrap())).collect()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let inside = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    paths.flat_map(inside).collect()
}

/// A mebibyte that differs from that at every other offset, and cannot be packed.
fn noise(offset: u64) -> Bytes {
    let mut state = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.into()
}

fn kubectl(server: &Server, arguments: &[&str]) -> Command {
    let program = std::env::var_os("HOLDFAST_KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut command = Command::new(program);
    command.env("KUBECONFIG", server.kubeconfig()).current_dir(server.scratch());
    command.arg("--cache-dir").arg(server.scratch().join("cache"));
    command.args(["-n", NAMESPACE]).args(arguments);
    command
}

/// What a watcher sees of a backup at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) state: String,
    pub(crate) info: String,
    pub(crate) error: String,
}

/// `kubectl get lhb --watch`, over all starts of the server.
struct Watch {
    child: Option<Child>,
    files: Vec<PathBuf>,
}

const COLUMNS: &str = "custom-columns=NAME:.metadata.name,STATE:.status.state,\
                       INFO:.status.messages.info,ERROR:.status.messages.error";

impl Watch {
    fn start(server: &Server, number: usize) -> Self {
        let mut watch = Self { child: None, files: Vec::new() };
        watch.follow(server, number);
        watch
    }

    fn follow(&mut self, server: &Server, number: usize) {
        self.end();
        let path = server.scratch().join(format!("watch-{number}"));
        let file = std::fs::File::create(&path).unwrap();
        let arguments = ["get", "lhb", "--watch", "--no-headers", "-o", COLUMNS];
        let mut command = kubectl(server, &arguments);
        command.stdout(file).stderr(Stdio::null()).stdin(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        self.files.push(path);
    }

    fn of(&self, backup: &str) -> Vec<Line> {
        let mut lines = Vec::new();
        for file in &self.files {
            let text = std::fs::read_to_string(file).unwrap();
            // A line without its end may still grow.
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            // Columns are three blanks apart, and texts have single ones.
            let seen = whole.filter_map(|line| {
                let mut parts = line.split("   ").map(str::trim).filter(|it| !it.is_empty());
                (parts.next()? == backup).then(|| {
                    let mut next =
                        || parts.next().filter(|it| *it != "<none>").unwrap_or_default().to_owned();
                    Line { state: next(), info: next(), error: next() }
                })
            });
            lines.extend(seen);
        }
        lines.dedup();
        lines
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// A file that nobody can remove until this is dropped; nothing where that cannot be had.
pub(crate) struct Immutable(PathBuf);

impl Immutable {
    pub(crate) fn set(path: PathBuf) -> Option<Self> {
        let tool = tool("chattr", "files that cannot be removed")?;
        let done = Command::new(tool).arg("+i").arg(&path).output().unwrap();
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            e2e::skip(&format!("files that cannot be removed: {why}"));
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").arg(&self.0).output();
    }
}

/// A lock of another system that uses the volume in the store: deletions wait for it.
pub(crate) struct ForeignLock(PathBuf);

impl ForeignLock {
    pub(crate) fn hold(rig: &Rig, volume: &str) -> Self {
        let folder = rig.folder(volume).join("locks");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("lock-0123456789abcdef.lck");
        e2e::write(&path, r#"{"Name":"lock-0123456789abcdef","Type":1,"Acquired":true}"#);
        Self(path)
    }
}

impl Drop for ForeignLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The values come in this order, whatever lies between them.
#[track_caller]
pub(crate) fn in_order(seen: &[String], wanted: &[&str]) {
    let mut rest = seen.iter();
    for one in wanted {
        assert!(rest.any(|it| it == one), "{seen:?} does not go {wanted:?}");
    }
}

/// How often each value was seen.
pub(crate) fn counts(seen: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for one in seen {
        *counts.entry(one.as_str()).or_default() += 1;
    }
    counts
}
