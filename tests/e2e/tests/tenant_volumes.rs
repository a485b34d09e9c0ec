//! The data of claims, through backups and restores of a namespace: taken, given back byte by byte,
//! deleted, and never of or to another tenant.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use e2e::engine::{Endpoint, Nbd, blocking};
use e2e::{Server, write};
use serde_json::{Value, json};
use testkit::process::poll_until;

const ADMIN: &str = "openshift-adp";
const VOLUMES: &str = "longhorn-system";
const MIB: u64 = 1 << 20;
/// As lengths of buffers and of requests.
const MIB_LEN: usize = 1 << 20;
const MIB_REQUEST: u32 = 1 << 20;
/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_mins(10);

struct World {
    server: Server,
}

impl World {
    fn start() -> Self {
        let world = Self { server: Server::start() };
        world.until("the default location", || {
            world.text("bsl", (ADMIN, "default"), "/status/phase") == "Available"
        });
        // The disk of a test machine may be nearly full; the volumes here are small.
        for (setting, value) in [
            ("storage-minimal-available-percentage", "1"),
            ("storage-over-provisioning-percentage", "500"),
        ] {
            world
                .until("the settings are there", || world.get("lhs", (VOLUMES, setting)).is_some());
            world.patch("lhs", (VOLUMES, setting), &json!({ "value": value }));
        }
        world
    }

    fn command(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let program = std::env::var_os("HOLDFAST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.env("KUBECONFIG", kubeconfig).current_dir(self.server.scratch());
        command.arg("--cache-dir").arg(self.server.scratch().join("cache")).args(arguments);
        command
    }

    #[track_caller]
    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.command(&self.server.kubeconfig(), arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn apply(&self, kubeconfig: &Path, object: &Value) {
        let mut command = self.command(kubeconfig, &["create", "-f", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn get(&self, kind: &str, (namespace, name): (&str, &str)) -> Option<Value> {
        let arguments =
            ["get", kind, "-n", namespace, name, "-o", "json", "--ignore-not-found=true"];
        let output = self.command(&self.server.kubeconfig(), &arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let text = self.kubectl(&["get", kind, "-n", namespace, "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    fn text(&self, kind: &str, place: (&str, &str), pointer: &str) -> String {
        let found = self.get(kind, place).and_then(|it| it.pointer(pointer).cloned());
        found.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
    }

    #[track_caller]
    fn patch(&self, kind: &str, (namespace, name): (&str, &str), patch: &Value) {
        let text = patch.to_string();
        self.kubectl(&["patch", kind, "-n", namespace, name, "--type", "merge", "-p", &text]);
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        if poll_until(TIMEOUT, || holds().then_some(())).is_none() {
            let log = self.server.stderr();
            let log: Vec<&str> = log.lines().rev().take(20).collect();
            let shown = ["get", "lhv,lhe,lhr,lhb,lhbt,lhsnap,pvc,pv", "-A", "-o", "wide"];
            panic!("waited in vain: {what}\n{}\n{}", self.kubectl(&shown), log.join("\n"));
        }
    }

    /// A namespace, and somebody who may edit it.
    fn tenant(&self, user: &str, namespace: &str) -> PathBuf {
        self.kubectl(&["create", "namespace", namespace]);
        self.kubeconfig(user, namespace)
    }

    /// For where the server listens now.
    fn kubeconfig(&self, user: &str, namespace: &str) -> PathBuf {
        let made = self.server.holdfast(&[
            "kubeconfig",
            "--user",
            user,
            "--namespace",
            namespace,
            "--role",
            "edit",
        ]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = self.server.scratch().join(format!("{user}.kubeconfig"));
        write(&path, &String::from_utf8(made.stdout).unwrap());
        path
    }

    /// A claim of a tenant, and the volume it got.
    #[track_caller]
    fn claim(&self, kubeconfig: &Path, (namespace, name): (&str, &str), mebibytes: u64) -> String {
        self.apply(
            kubeconfig,
            &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"storageClassName": "longhorn", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": format!("{mebibytes}Mi")}}}}),
        );
        self.bound(namespace, name)
    }

    #[track_caller]
    fn bound(&self, namespace: &str, name: &str) -> String {
        self.until(&format!("claim {name} is bound"), || {
            self.text("pvc", (namespace, name), "/status/phase") == "Bound"
        });
        self.text("pvc", (namespace, name), "/spec/volumeName")
    }

    /// Attached, its endpoint; until [`World::detach`].
    #[track_caller]
    fn attach(&self, volume: &str) -> Endpoint {
        self.until("the volume rests", || {
            self.text("lhv", (VOLUMES, volume), "/status/state") == "detached"
        });
        let node = self.list("lhn", VOLUMES)[0]["metadata"]["name"].clone();
        let ticket = json!({"id": "test", "type": "longhorn-api", "nodeID": node,
            "parameters": {"disableFrontend": "false"}});
        let tickets = json!({"spec": {"attachmentTickets": {"test": ticket}}});
        self.patch("lhva", (VOLUMES, volume), &tickets);
        let engine = format!("{volume}-e-0");
        let endpoint = || self.text("lhe", (VOLUMES, &engine), "/status/endpoint");
        self.until("the volume is attached", || {
            self.text("lhv", (VOLUMES, volume), "/status/state") == "attached"
                && !endpoint().is_empty()
        });
        Endpoint::parse(&endpoint())
    }

    #[track_caller]
    fn detach(&self, volume: &str) {
        let tickets = json!({"spec": {"attachmentTickets": {"test": null}}});
        self.patch("lhva", (VOLUMES, volume), &tickets);
        self.until("the volume is detached", || {
            self.text("lhv", (VOLUMES, volume), "/status/state") == "detached"
        });
    }

    #[track_caller]
    fn ask(&self, kubeconfig: &Path, kind: &str, name: &str, spec: &Value) {
        self.apply(
            kubeconfig,
            &json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec}),
        );
    }

    /// What Velero's object came to, as the tenant sees it.
    #[track_caller]
    fn ended(&self, kind: &str, place: (&str, &str), field: &str) -> Value {
        let status = || self.get(kind, place).map(|it| it["status"][field]["status"].clone());
        let phase = || status().and_then(|it| it["phase"].as_str().map(str::to_owned));
        self.until(&format!("the end of {kind} {place:?}"), || {
            phase().is_some_and(|it| {
                ["Completed", "PartiallyFailed", "Failed", "FailedValidation"]
                    .contains(&it.as_str())
            })
        });
        status().unwrap()
    }

    #[track_caller]
    fn backed_up(&self, kubeconfig: &Path, namespace: &str, name: &str) -> (String, Value) {
        self.ask(kubeconfig, "NonAdminBackup", name, &json!({"backupSpec": {}}));
        let status = self.ended("nab", (namespace, name), "veleroBackup");
        (self.text("nab", (namespace, name), "/status/veleroBackup/name"), status)
    }

    #[track_caller]
    fn restored(&self, kubeconfig: &Path, namespace: &str, name: &str, backup: &str) -> Value {
        let spec = json!({"restoreSpec": {"backupName": backup}});
        self.ask(kubeconfig, "NonAdminRestore", name, &spec);
        self.ended("nar", (namespace, name), "veleroRestore")
    }

    fn file(&self, backup: &str, suffix: &str) -> PathBuf {
        let folder = self.server.data_dir().join("locations/backups/backups").join(backup);
        folder.join(format!("{backup}{suffix}"))
    }

    /// A file of a backup, unpacked.
    fn stored(&self, backup: &str, suffix: &str) -> Value {
        let mut text = String::new();
        let packed = std::fs::read(self.file(backup, suffix)).unwrap();
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn forge(&self, backup: &str, suffix: &str, value: &Value) {
        let file = std::fs::File::create(self.file(backup, suffix)).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        packed.write_all(value.to_string().as_bytes()).unwrap();
        packed.finish().unwrap();
    }
}

/// A mebibyte that differs from that at every other offset, and cannot be packed.
fn noise(seed: u64, offset: u64) -> Bytes {
    let mut state = (offset + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.into()
}

fn fill(endpoint: &Endpoint, seed: u64, mebibytes: u64) {
    blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        for index in 0..mebibytes {
            nbd.write(index * MIB, noise(seed, index * MIB)).await.unwrap();
        }
        nbd.flush().await.unwrap();
    });
}

/// Every byte of the volume.
fn contents(endpoint: &Endpoint) -> Vec<u8> {
    blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        let mut all = Vec::new();
        for offset in (0..nbd.size_bytes()).step_by(MIB_LEN) {
            all.extend(nbd.read(offset, MIB_REQUEST).await.unwrap());
        }
        all
    })
}

#[test]
fn a_namespace_comes_back_with_the_bytes_of_its_volumes_and_goes_with_them() {
    let world = World::start();
    let alice = world.tenant("alice", "team-a");
    let resting = world.claim(&alice, ("team-a", "resting"), 16);
    let busy = world.claim(&alice, ("team-a", "busy"), 16);
    fill(&world.attach(&resting), 1, 8);
    world.detach(&resting);
    let endpoint = world.attach(&busy);
    fill(&endpoint, 2, 8);
    let (before_busy, after) = (contents(&endpoint), noise(3, 0));
    world.kubectl(&["create", "configmap", "note", "-n", "team-a", "--from-literal=a=b"]);

    let (velero, status) = world.backed_up(&alice, "team-a", "nightly");
    assert_eq!(status["phase"], "Completed", "{status}");
    assert_eq!(status["volumeSnapshotsAttempted"], 2, "{status}");
    assert_eq!(status["volumeSnapshotsCompleted"], 2, "{status}");
    assert_eq!(world.stored(&velero, "-volumesnapshots.json.gz").as_array().unwrap().len(), 2);
    assert_eq!(world.list("lhb", VOLUMES).len(), 2);
    // What is written after it is not in it.
    blocking(async {
        let nbd = Nbd::connect(&endpoint).await.unwrap();
        nbd.write(0, after).await.unwrap();
        nbd.flush().await.unwrap();
    });
    world.detach(&busy);

    // Wrecked: claims and their volumes are gone.
    for arguments in [["delete", "pvc", "--all"], ["delete", "configmap", "note"]] {
        let output = world.command(&alice, &arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    world.until("the volumes are gone", || world.list("lhv", VOLUMES).is_empty());

    let status = world.restored(&alice, "team-a", "back", "nightly");
    assert_eq!(status["phase"], "Completed", "{status}");
    assert!(world.get("configmap", ("team-a", "note")).is_some());
    let (resting, busy) = (world.bound("team-a", "resting"), world.bound("team-a", "busy"));
    let mut wanted: Vec<u8> = (0..8).flat_map(|index| noise(1, index * MIB)).collect();
    wanted.resize(16 * MIB_LEN, 0);
    assert!(contents(&world.attach(&resting)) == wanted, "the resting volume differs");
    assert!(contents(&world.attach(&busy)) == before_busy, "the busy volume differs");
    assert_eq!(world.text("pvc", ("team-a", "busy"), "/metadata/labels/app"), "busy");
    let label = "/metadata/labels/velero.io~1restore-name";
    assert!(!world.text("pvc", ("team-a", "busy"), label).is_empty());

    // With the backup, its data goes; the restored volumes stay.
    world.patch("nab", ("team-a", "nightly"), &json!({"spec": {"deleteBackup": true}}));
    world.until("the backup is gone", || world.get("nab", ("team-a", "nightly")).is_none());
    assert!(world.list("lhb", VOLUMES).is_empty());
    assert!(!world.file(&velero, ".tar.gz").exists());
    assert_eq!(world.bound("team-a", "busy"), busy);
}

#[test]
fn data_of_others_is_neither_taken_nor_given_nor_deleted() {
    let world = World::start();
    let alice = world.tenant("alice", "team-a");
    let mallory = world.tenant("mallory", "team-m");
    let volume = world.claim(&alice, ("team-a", "data"), 16);
    fill(&world.attach(&volume), 1, 2);
    world.detach(&volume);
    let (of_alice, status) = world.backed_up(&alice, "team-a", "mine");
    assert_eq!(status["phase"], "Completed", "{status}");
    let secret = world.list("lhb", VOLUMES)[0]["metadata"]["name"].as_str().unwrap().to_owned();

    // A claim that names the volume of another.
    world.apply(
        &mallory,
        &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"storageClassName": "longhorn", "accessModes": ["ReadWriteOnce"],
            "volumeName": volume, "resources": {"requests": {"storage": "16Mi"}}}}),
    );
    let (of_mallory, status) = world.backed_up(&mallory, "team-m", "theirs");
    assert_eq!((&status["phase"], &status["warnings"]), (&json!("Completed"), &json!(1)));
    let infos = world.stored(&of_mallory, "-volumeinfo.json.gz");
    assert_eq!(infos[0]["skippedReason"], "its persistent volume belongs to another claim");
    assert_eq!(world.list("lhb", VOLUMES).len(), 1);

    // A list of volumes that names the data of another.
    let mut forged = world.stored(&of_alice, "-volumeinfo.json.gz");
    forged[0]["pvcNamespace"] = json!("team-m");
    world.forge(&of_mallory, "-volumeinfo.json.gz", &forged);
    let deleted = world.command(&mallory, &["delete", "pvc", "data"]).output().unwrap();
    assert!(deleted.status.success());
    let status = world.restored(&mallory, "team-m", "grab", "theirs");
    assert_eq!((&status["phase"], &status["errors"]), (&json!("PartiallyFailed"), &json!(1)));
    assert!(world.get("pvc", ("team-m", "data")).is_none());
    assert_eq!(world.list("lhv", VOLUMES).len(), 1);

    // And nothing of it goes with a backup of somebody else.
    world.patch("nab", ("team-m", "theirs"), &json!({"spec": {"deleteBackup": true}}));
    world.until("the backup is gone", || world.get("nab", ("team-m", "theirs")).is_none());
    assert_eq!(world.text("lhb", (VOLUMES, &secret), "/status/state"), "Completed");
}

#[test]
#[ignore = "minutes: the lock of an upload that was killed has to run out"]
fn a_kill_in_the_middle_ends_in_a_reason_and_leaves_nothing_behind() {
    let mut world = World::start();
    let alice = world.tenant("alice", "team-a");
    let volume = world.claim(&alice, ("team-a", "data"), 64);
    fill(&world.attach(&volume), 1, 48);
    world.detach(&volume);
    let store = world.server.scratch().join("store");
    std::fs::create_dir(&store).unwrap();
    // Slow enough to be met in the middle.
    let target = json!({"spec": {"backupTargetURL": format!("vfs://{}", store.display()),
        "bytesPerSecond": "4194304"}});
    world.until("the target", || world.get("lhbt", (VOLUMES, "default")).is_some());
    world.patch("lhbt", (VOLUMES, "default"), &target);
    world.ask(&alice, "NonAdminBackup", "cut", &json!({"backupSpec": {}}));
    world.until("data is sent", || {
        let all = world.list("lhb", VOLUMES);
        all.first().is_some_and(|it| it["status"]["state"] == "InProgress")
    });
    world.server.kill();
    world.server.start_again().unwrap();
    let alice = world.kubeconfig("alice", "team-a");
    let status = world.ended("nab", ("team-a", "cut"), "veleroBackup");
    assert_eq!(status["phase"], "Failed", "{status}");
    assert!(status["failureReason"].as_str().unwrap().contains("found a backup with status"));
    world.until("nothing is left of it", || world.list("lhb", VOLUMES).is_empty());
    let free = json!({"spec": {"bytesPerSecond": null}});
    world.patch("lhbt", (VOLUMES, "default"), &free);
    let (_, status) = world.backed_up(&alice, "team-a", "whole");
    assert_eq!(status["phase"], "Completed", "{status}");

    // A restore that is cut off leaves no volume without a claim.
    let deleted = world.command(&alice, &["delete", "pvc", "data"]).output().unwrap();
    assert!(deleted.status.success());
    world.until("the volume is gone", || world.list("lhv", VOLUMES).is_empty());
    let spec = json!({"restoreSpec": {"backupName": "whole"}});
    world.ask(&alice, "NonAdminRestore", "cut", &spec);
    world.until("a volume is being restored", || !world.list("lhv", VOLUMES).is_empty());
    world.server.kill();
    world.server.start_again().unwrap();
    let alice = world.kubeconfig("alice", "team-a");
    let status = world.ended("nar", ("team-a", "cut"), "veleroRestore");
    if status["phase"] == "Failed" {
        world.until("no volume is left", || {
            world.list("lhv", VOLUMES).is_empty() && world.list("pv", "").is_empty()
        });
        let status = world.restored(&alice, "team-a", "again", "whole");
        assert_eq!(status["phase"], "Completed", "{status}");
    }
    let volume = world.bound("team-a", "data");
    let mut wanted: Vec<u8> = (0..48).flat_map(|index| noise(1, index * MIB)).collect();
    wanted.resize(64 * MIB_LEN, 0);
    assert!(contents(&world.attach(&volume)) == wanted, "the volume differs");
}
