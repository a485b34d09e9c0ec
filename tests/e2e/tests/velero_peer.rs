//! A real Velero with its plugin for S3 and its command line, if `VELERO_PROGRAM` and
//! `VELERO_AWS_PROGRAM` name them: it serves tenants on the embedded server, what it stores and what
//! the executor stores is restored by the other, and its command line works on `up`.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use e2e::backup::Bucket;
use e2e::velero::{ENDED, NAMESPACE, World};
use e2e::{Server, skip, write};
use serde_json::{Value, json};
use testkit::process::Process;

/// Its server listens there, whatever it is told: one at a time on a machine.
const ITS_PORT: u16 = 8080;
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What the programs are; none, after having said so.
struct Peer {
    velero: PathBuf,
    plugin: PathBuf,
}

fn peer() -> Option<Peer> {
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let found = named("VELERO_PROGRAM").zip(named("VELERO_AWS_PROGRAM"));
    if found.is_none() {
        skip("VELERO_PROGRAM and VELERO_AWS_PROGRAM name no programs");
    }
    found.map(|(velero, plugin)| Peer { velero, plugin })
}

/// The programs, for a test that runs the server.
fn server() -> Option<(Peer, Bucket, MutexGuard<'static, ()>)> {
    let peer = peer()?;
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = TcpListener::bind(("0.0.0.0", ITS_PORT)) {
        skip(&format!("Velero listens at port {ITS_PORT}, which is taken: {error}"));
        return None;
    }
    Some((peer, Bucket::make()?, alone))
}

impl Peer {
    /// Its server on a world that has no executor, set up as its own installer would.
    fn serve(&self, world: &World) -> Process {
        let crds = Command::new(&self.velero)
            .args(["install", "--crds-only", "--dry-run", "-o", "yaml"])
            .output()
            .unwrap();
        assert!(crds.status.success(), "{}", String::from_utf8_lossy(&crds.stderr));
        let path = world.server.scratch().join("velero-crds.yaml");
        write(&path, &String::from_utf8(crds.stdout).unwrap());
        let path = path.display().to_string();
        world.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &path]);
        // It reads from its own Deployment which image helps it with volumes.
        world.apply(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "velero", "namespace": NAMESPACE},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"deploy": "velero"}}, "template": {
                "metadata": {"labels": {"deploy": "velero"}},
                "spec": {"containers": [{"name": "velero", "image": "velero/velero:v1.18.3"}]}}}}));
        let home = world.server.scratch().join("velero");
        let plugins = home.join("plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        std::os::unix::fs::symlink(&self.plugin, plugins.join("velero-plugin-for-aws")).unwrap();
        let mut command = Command::new(&self.velero);
        command.args(["server", "-n", NAMESPACE, "--metrics-address", "127.0.0.1:0"]);
        command.args(["--profiler-address", "127.0.0.1:0", "--plugin-dir"]).arg(plugins);
        command.env("KUBECONFIG", world.server.kubeconfig()).env("HOME", &home);
        command.env("TMPDIR", &home).env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("VELERO_NAMESPACE", NAMESPACE).current_dir(&home);
        Process::start(command, world.server.scratch(), "velero-server").unwrap()
    }

    /// Its command line; what it prints.
    #[track_caller]
    fn run(&self, world: &World, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.velero);
        command.env("KUBECONFIG", world.server.kubeconfig()).env("HOME", world.server.scratch());
        command.current_dir(world.server.scratch()).args(["--namespace", NAMESPACE]);
        let output = command.args(["--colorized=false"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "velero {arguments:?}: {said}{errors}");
        format!("{said}{errors}")
    }
}

/// A server without an executor, for a Velero to work on.
fn without_executor() -> World {
    let world = World { server: Server::start_with(&["--no-velero"]) };
    world.wait("the administrators' namespace", || world.get("namespace", "", NAMESPACE).is_some());
    world
}

/// The bucket as storage location `name`.
fn locate(world: &World, name: &str, bucket: &Bucket) {
    let cloud = "[default]\naws_access_key_id=test\naws_secret_access_key=test\n";
    if world.get("secret", NAMESPACE, "cloud-credentials").is_none() {
        world.apply(&json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"cloud": cloud},
            "metadata": {"name": "cloud-credentials", "namespace": NAMESPACE}}));
    }
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"provider": "aws", "default": name == "default", "backupSyncPeriod": "5s",
            "credential": {"name": "cloud-credentials", "key": "cloud"},
            "objectStorage": {"bucket": bucket.name, "prefix": "shared"},
            "config": {"region": "us-east-1", "s3ForcePathStyle": "true",
                "s3Url": format!("http://{}", bucket.at)}}}));
    world.wait("the location", || {
        world.status("backupstoragelocation", name)["phase"] == "Available"
    });
}

/// What of an object a restore has to bring back.
fn essence(world: &World, namespace: &str, kind: &str, name: &str) -> Value {
    let found = world.get(kind, namespace, name);
    let found = found.unwrap_or_else(|| panic!("no {kind} {namespace}/{name}"));
    let mut spec = found["spec"].clone();
    // Given out anew.
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|key, _| !["clusterIP", "clusterIPs"].contains(&key.as_str()));
    }
    let mut labels = found["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.retain(|key, _| !key.starts_with("velero.io/"));
    json!({"labels": labels, "data": found["data"], "spec": spec})
}

const SHOP: [(&str, &str); 5] = [
    ("configmap", "cm-0"),
    ("configmap", "cm-1"),
    ("configmap", "cm-2"),
    ("deployment", "web"),
    ("service", "web"),
];

fn shop_of(world: &World, namespace: &str) -> Vec<Value> {
    SHOP.iter().map(|(kind, name)| essence(world, namespace, kind, name)).collect()
}

#[test]
fn a_real_velero_serves_tenants_on_the_embedded_server() {
    let Some((peer, bucket, _alone)) = server() else { return };
    let world = without_executor();
    let _velero = peer.serve(&world);
    locate(&world, "default", &bucket);
    world.shop("team-a");
    let before = shop_of(&world, "team-a");
    let kind = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "team-a"}, "spec": spec})
    };
    world.apply(&kind("NonAdminBackup", "all", json!({"backupSpec": {}})));
    world.wait("the tenant's backup", || {
        let found = world.get("nonadminbackup", "team-a", "all").unwrap_or_default();
        found["status"]["veleroBackup"]["status"]["phase"] == "Completed"
            && found["status"]["queueInfo"]["estimatedQueuePosition"] == 0
    });
    world.kubectl(&["delete", "configmap,deployment,service", "--all", "-n", "team-a"]);
    world.apply(&kind("NonAdminRestore", "back", json!({"restoreSpec": {"backupName": "all"}})));
    let ended = || {
        let found = world.get("nonadminrestore", "team-a", "back")?;
        let phase = found["status"]["veleroRestore"]["status"]["phase"].as_str()?.to_owned();
        ENDED.contains(&phase.as_str()).then_some(phase)
    };
    world.wait("the tenant's restore", || ended().is_some());
    assert_eq!(ended().unwrap(), "Completed");
    assert_eq!(shop_of(&world, "team-a"), before);

    let patch = r#"{"spec":{"deleteBackup":true}}"#;
    world.kubectl(&["patch", "nonadminbackup", "all", "-n", "team-a", "--type=merge", "-p", patch]);
    world.wait("the deletion of the backup", || {
        world.get("nonadminbackup", "team-a", "all").is_none()
    });
    let left = world.kubectl(&["get", "backup.velero.io", "-n", NAMESPACE, "-o", "name"]);
    assert_eq!(left, "");
}

#[test]
fn what_one_stores_the_other_restores() {
    let Some((peer, bucket, _alone)) = server() else { return };
    let (theirs, ours) = (without_executor(), World::start());
    let _velero = peer.serve(&theirs);
    locate(&theirs, "default", &bucket);
    locate(&ours, "shared", &bucket);
    for (from, to, namespace, location) in
        [(&theirs, &ours, "by-velero", "default"), (&ours, &theirs, "by-holdfast", "shared")]
    {
        from.shop(namespace);
        let before = shop_of(from, namespace);
        from.backup(
            namespace,
            &json!({"includedNamespaces": [namespace],
            "storageLocation": location}),
        );
        let status = from.ended("backup", namespace);
        assert_eq!(status["phase"], "Completed", "{status}");
        to.wait("the other to find the backup", || {
            to.status("backup", namespace)["phase"] == "Completed"
        });
        to.restore(namespace, &json!({"backupName": namespace}));
        let status = to.ended("restore", namespace);
        assert_eq!(status["phase"], "Completed", "{status}");
        assert_eq!(shop_of(to, namespace), before, "{namespace}");
        assert_eq!(
            to.get("namespace", "", namespace).unwrap()["metadata"]["labels"]["team"],
            "shop"
        );
    }
}

#[test]
fn its_command_line_works_on_up() {
    let Some(peer) = peer() else { return };
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
