//! A real Velero with its plugin for S3 and its command line, if `VELERO_PROGRAM` and
//! `VELERO_AWS_PROGRAM` name them: it serves tenants on the embedded server, what it stores and what
//! the executor stores is restored by the other, and its command line works on `up`. The same on an
//! upstream kube-apiserver, if `HOLDFAST_CLUSTER` names the kubeconfig of its administrator and
//! `HOLDFAST_CLUSTER_AUDIT` the log of its calls. `cargo xtask peers velero` has all of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use e2e::backup::Bucket;
use e2e::velero::peer::Peer;
use e2e::velero::{ENDED, NAMESPACE, World};
use e2e::volumes::Home;
use e2e::{Server, server, skip, write};
use serde_json::{Value, json};
use testkit::process::{Process, Scratch};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// The account of `deploy/rbac.yaml`, and its namespace.
const ACCOUNT: (&str, &str) = ("longhorn-system", "holdfast-controllers");
const END_TIMEOUT: Duration = Duration::from_mins(1);

/// The programs, for a test that runs the server; none, after having said so.
fn its_server() -> Option<(Peer, Bucket, MutexGuard<'static, ()>)> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match Peer::find_server() {
        Ok(peer) => Some((peer, Bucket::make()?, alone)),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

/// A server without an executor, for a Velero to work on.
fn without_executor() -> World {
    let world = World { server: Server::start_with(&["--no-velero"]) };
    world.wait("the administrators' namespace", || world.get("namespace", "", NAMESPACE).is_some());
    world
}

fn locate<H: Home>(world: &World<H>, name: &str, bucket: &Bucket) {
    world.locate(name, &bucket.at.to_string(), &bucket.name);
}

/// What of an object a restore has to bring back.
fn essence<H: Home>(world: &World<H>, namespace: &str, kind: &str, name: &str) -> Value {
    let found = world.get(kind, namespace, name);
    let found = found.unwrap_or_else(|| panic!("no {kind} {namespace}/{name}"));
    let mut spec = without_nulls(&found["spec"]);
    // Given out anew.
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|key, _| !["clusterIP", "clusterIPs"].contains(&key.as_str()));
    }
    let mut labels = found["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.retain(|key, _| !key.starts_with("velero.io/"));
    json!({"labels": labels, "data": found["data"], "spec": spec})
}

/// What says nothing: one server writes it down, the other leaves it out.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let said = map.iter().filter(|(_, value)| !value.is_null());
            said.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

const SHOP: [(&str, &str); 5] = [
    ("configmap", "cm-0"),
    ("configmap", "cm-1"),
    ("configmap", "cm-2"),
    ("deployment", "web"),
    ("service", "web"),
];

fn shop_of<H: Home>(world: &World<H>, namespace: &str) -> Vec<Value> {
    SHOP.iter().map(|(kind, name)| essence(world, namespace, kind, name)).collect()
}

/// A tenant backs up its namespace, loses what is in it, gets it back, and deletes the backup.
fn tenant_lives<H: Home>(world: &World<H>, namespace: &str) {
    world.shop(namespace);
    let before = shop_of(world, namespace);
    let kind = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    };
    world.apply(&kind("NonAdminBackup", "all", json!({"backupSpec": {}})));
    world.wait("the tenant's backup", || {
        let found = world.get("nonadminbackup", namespace, "all").unwrap_or_default();
        found["status"]["veleroBackup"]["status"]["phase"] == "Completed"
            && found["status"]["queueInfo"]["estimatedQueuePosition"] == 0
    });
    world.kubectl(&["delete", "configmap,deployment,service", "--all", "-n", namespace]);
    world.apply(&kind("NonAdminRestore", "back", json!({"restoreSpec": {"backupName": "all"}})));
    let ended = || {
        let found = world.get("nonadminrestore", namespace, "back")?;
        let phase = found["status"]["veleroRestore"]["status"]["phase"].as_str()?.to_owned();
        ENDED.contains(&phase.as_str()).then_some(phase)
    };
    world.wait("the tenant's restore", || ended().is_some());
    assert_eq!(ended().unwrap(), "Completed");
    assert_eq!(shop_of(world, namespace), before);

    let patch = r#"{"spec":{"deleteBackup":true}}"#;
    world.kubectl(&[
        "patch",
        "nonadminbackup",
        "all",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        patch,
    ]);
    world.wait("the deletion of the backup", || {
        world.get("nonadminbackup", namespace, "all").is_none()
    });
    let left = world.kubectl(&["get", "backup.velero.io", "-n", NAMESPACE, "-o", "name"]);
    assert!(!left.contains(namespace), "{left}");
}

/// What the executor of one stores, that of the other finds and restores.
fn crosses<F: Home, T: Home>((from, location): (&World<F>, &str), to: &World<T>, namespace: &str) {
    from.shop(namespace);
    let before = shop_of(from, namespace);
    let spec = json!({"includedNamespaces": [namespace], "storageLocation": location});
    from.backup(namespace, &spec);
    let status = from.ended("backup", namespace);
    assert_eq!(status["phase"], "Completed", "{status}");
    to.wait("the other to find the backup", || {
        to.status("backup", namespace)["phase"] == "Completed"
    });
    to.restore(namespace, &json!({"backupName": namespace}));
    let status = to.ended("restore", namespace);
    assert_eq!(status["phase"], "Completed", "{status}");
    assert_eq!(shop_of(to, namespace), before, "{namespace}");
    let made = to.get("namespace", "", namespace).unwrap();
    assert_eq!(made["metadata"]["labels"]["team"], "shop");
}

#[test]
fn a_real_velero_serves_tenants_on_the_embedded_server() {
    let Some((peer, bucket, _alone)) = its_server() else { return };
    let world = without_executor();
    let _velero = peer.serve(&world, &[]);
    locate(&world, "default", &bucket);
    tenant_lives(&world, "team-a");
}

#[test]
fn what_one_stores_the_other_restores() {
    let Some((peer, bucket, _alone)) = its_server() else { return };
    let (theirs, ours) = (without_executor(), World::start());
    let _velero = peer.serve(&theirs, &[]);
    locate(&theirs, "default", &bucket);
    locate(&ours, "shared", &bucket);
    crosses((&theirs, "default"), &ours, "by-velero");
    crosses((&ours, "shared"), &theirs, "by-holdfast");
}

/// Whether the controllers on a cluster also execute the resources of Velero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Executor {
    Theirs,
    Ours,
}

/// An upstream API server, and our controllers as a process beside it.
#[derive(Debug)]
struct Cluster {
    controllers: Option<Process>,
    kubeconfig: PathBuf,
    scratch: Scratch,
}

impl Home for Cluster {
    fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn log(&self) -> String {
        self.controllers.as_ref().map(Process::stderr).unwrap_or_default()
    }
}

/// With the rights of `deploy/rbac.yaml`, and no controllers yet.
fn cluster(kubeconfig: PathBuf) -> World<Cluster> {
    let scratch = Scratch::new().unwrap();
    let world = World { server: Cluster { controllers: None, kubeconfig, scratch } };
    let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
    world.kubectl(&["apply", "-f", rights]);
    world
}

impl Cluster {
    fn stop(&mut self) {
        let Some(mut process) = self.controllers.take() else { return };
        process.terminate().unwrap();
        assert!(process.wait_for_exit(END_TIMEOUT).unwrap().success());
    }
}

fn start_controllers(world: &mut World<Cluster>, executor: Executor) {
    let (namespace, name) = ACCOUNT;
    if executor == Executor::Ours {
        let (role, account) = (
            "--clusterrole=holdfast:controller:velero",
            format!("--serviceaccount={namespace}:{name}"),
        );
        world.kubectl(&["create", "clusterrolebinding", "holdfast-executor", role, &account]);
    }
    let token = world.kubectl(&["-n", namespace, "create", "token", name]);
    let config = world.kubectl(&["config", "view", "--raw", "-o", "json"]);
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let path = world.server.scratch().join("controllers.kubeconfig");
    write(&path, &config.to_string());
    let mut command = Command::new(server::binary());
    command.arg("controllers").arg("--kubeconfig").arg(path);
    command.arg("--data-dir").arg(world.server.scratch().join("controllers"));
    command.args(["--velero", if executor == Executor::Ours { "true" } else { "false" }]);
    let label = if executor == Executor::Ours { "with-executor" } else { "without-executor" };
    let process = Process::start(command, world.server.scratch(), label).unwrap();
    world.server.controllers = Some(process);
    world.wait("the definitions", || {
        let asked = ["get", "nonadminbackups.oadp.openshift.io,backups.velero.io", "-A"];
        world.command(&asked).output().unwrap().status.success()
    });
}

#[test]
fn on_an_upstream_server_either_executor_serves_and_restores_what_the_other_stored() {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(kubeconfig), Some(audit)) =
        (variable("HOLDFAST_CLUSTER"), variable("HOLDFAST_CLUSTER_AUDIT"))
    else {
        return skip("HOLDFAST_CLUSTER names no kubeconfig of a cluster");
    };
    let Some((peer, bucket, _alone)) = its_server() else { return };
    let mut there = cluster(kubeconfig);
    start_controllers(&mut there, Executor::Theirs);
    let velero = peer.serve(&there, &[]);
    locate(&there, "default", &bucket);
    tenant_lives(&there, "team-a");
    let ours = World::start();
    locate(&ours, "shared", &bucket);
    crosses((&there, "default"), &ours, "velero-there");
    crosses((&ours, "shared"), &there, "holdfast-here");
    drop(velero);
    there.server.stop();
    judge(&std::fs::read_to_string(audit).unwrap());
    // Now ours works there, and a Velero on the embedded server.
    start_controllers(&mut there, Executor::Ours);
    tenant_lives(&there, "team-b");
    let theirs = without_executor();
    let _velero = peer.serve(&theirs, &[]);
    locate(&theirs, "default", &bucket);
    crosses((&there, "default"), &theirs, "holdfast-there");
    crosses((&theirs, "default"), &there, "velero-here");
    let says = |line: &str, wanted: &str| {
        let said = peer.run(&there, &line.split(' ').collect::<Vec<_>>());
        assert!(said.contains(wanted), "velero {line}: no {wanted:?} in\n{said}");
    };
    says("version", "holdfast");
    says("backup create b1 --include-namespaces team-b --wait", "status: Completed");
    says("backup describe b1 --details", "team-b/cm-1");
    says("backup logs b1", "Backed up item");
    let restore = "restore create r1 --from-backup b1 --namespace-mappings team-b:copy --wait";
    says(restore, "status: Completed");
    assert_eq!(shop_of(&there, "copy"), shop_of(&there, "team-b"));
    there.server.stop();
}

/// Every call of the controllers was allowed: they get along with what `deploy/rbac.yaml` gives them.
fn judge(audit: &str) {
    let user = format!("system:serviceaccount:{}:{}", ACCOUNT.0, ACCOUNT.1);
    let mut refused = BTreeSet::new();
    let mut calls = 0;
    for line in audit.lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        if call["user"]["username"] != user.as_str() {
            continue;
        }
        calls += 1;
        if let Some(code @ (401 | 403)) = call["responseStatus"]["code"].as_u64() {
            refused.insert(format!("{} {}: {code}", call["verb"], call["requestURI"]));
        }
    }
    println!("the controllers made {calls} calls");
    assert!(calls > 0 && refused.is_empty(), "{refused:#?}");
}

#[test]
fn its_command_line_works_on_up() {
    let peer = match Peer::find() {
        Ok(peer) => peer,
        Err(why) => return skip(&why),
    };
    let world = World::start();
    world.shop("shop");
    let run = |line: &str| peer.run(&world, &line.split(' ').collect::<Vec<_>>());
    let says = |line: &str, wanted: &[&str]| {
        let said = run(line);
        for wanted in wanted {
            assert!(said.contains(wanted), "velero {line}: no {wanted:?} in\n{said}");
        }
    };
    says("version", &["v1.18.3", "holdfast"]);
    says("backup-location get", &["default", "Available"]);
    says("backup create b1 --include-namespaces shop --wait", &["status: Completed"]);
    says("backup get", &["b1", "Completed"]);
    says(
        "backup describe b1 --details",
        &["Phase:  Completed", "shop/cm-1", "Total items to be backed up", "<none included>"],
    );
    says("backup logs b1", &["Backed up item", "cm-2"]);
    says("backup download b1", &["successfully downloaded"]);
    assert!(world.server.scratch().join("b1-data.tar.gz").is_file());
    says(
        "restore create r1 --from-backup b1 --namespace-mappings shop:copy --wait",
        &["status: Completed"],
    );
    assert_eq!(shop_of(&world, "copy"), shop_of(&world, "shop"));
    says("restore get", &["r1", "Completed"]);
    says("restore describe r1 --details", &["Phase:", "Completed", "copy/cm-1"]);
    says("restore logs r1", &["Restored item", "restore completed"]);
    says("schedule create often --schedule @daily --include-namespaces shop", &["created"]);
    world.wait("the schedule", || world.status("schedule", "often")["phase"] == "Enabled");
    says("schedule get", &["often", "Enabled", "@daily"]);
    says("schedule pause often", &["paused"]);
    says("backup create b2 --from-schedule often --wait", &["status: Completed"]);
    says("schedule unpause often", &["unpaused"]);
    says("schedule delete often --confirm", &["deleted"]);
    says(
        "backup-location create other --provider aws --bucket x --config region=r",
        &["configured"],
    );
    says("backup-location delete other --confirm", &["deleted"]);
    says("restore delete r1 --confirm", &["submitted"]);
    says("backup delete b1 --confirm", &["submitted"]);
    world.wait("the deletion of the backup", || {
        world.get("backup.velero.io", NAMESPACE, "b1").is_none()
    });
}
