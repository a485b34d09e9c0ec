//! A real Velero with its plugin for S3, where `VELERO_PROGRAM` and `VELERO_AWS_PROGRAM` name them.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use testkit::process::Process;

use super::{NAMESPACE, World};
use crate::volumes::Home;
use crate::write;

/// Its server listens there, whatever it is told: one at a time on a machine.
const ITS_PORT: u16 = 8080;

#[derive(Debug, Clone)]
pub struct Peer {
    velero: PathBuf,
    plugin: PathBuf,
}

impl Peer {
    /// The error says why there is none.
    pub fn find() -> Result<Self, String> {
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let found = named("VELERO_PROGRAM").zip(named("VELERO_AWS_PROGRAM"));
        let (velero, plugin) =
            found.ok_or("VELERO_PROGRAM and VELERO_AWS_PROGRAM name no programs")?;
        Ok(Self { velero, plugin })
    }

    /// As [`Peer::find`], and its server could listen.
    pub fn find_server() -> Result<Self, String> {
        let peer = Self::find()?;
        TcpListener::bind(("0.0.0.0", ITS_PORT)).map_err(|error| {
            format!("Velero listens at port {ITS_PORT}, which is taken: {error}")
        })?;
        Ok(peer)
    }

    /// Its server on a world that has no executor, set up as its own installer would.
    pub fn serve<H: Home>(&self, world: &World<H>, more: &[&str]) -> Process {
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
        command.args(more);
        command.env("KUBECONFIG", world.server.kubeconfig()).env("HOME", &home);
        command.env("TMPDIR", &home).env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("VELERO_NAMESPACE", NAMESPACE).current_dir(&home);
        Process::start(command, world.server.scratch(), "velero-server").unwrap()
    }

    /// Its command line; what it prints.
    #[track_caller]
    pub fn run<H: Home>(&self, world: &World<H>, arguments: &[&str]) -> String {
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

impl<H: Home> World<H> {
    /// A bucket of an S3 service as the storage location `name`.
    pub fn locate(&self, name: &str, service: &str, bucket: &str) {
        let cloud = "[default]\naws_access_key_id=test\naws_secret_access_key=test\n";
        if self.get("secret", NAMESPACE, "cloud-credentials").is_none() {
            self.apply(
                &json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"cloud": cloud},
                "metadata": {"name": "cloud-credentials", "namespace": NAMESPACE}}),
            );
        }
        self.apply(&json!({"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"provider": "aws", "default": name == "default", "backupSyncPeriod": "5s",
                "credential": {"name": "cloud-credentials", "key": "cloud"},
                "objectStorage": {"bucket": bucket, "prefix": "shared"},
                "config": {"region": "us-east-1", "s3ForcePathStyle": "true",
                    "s3Url": format!("http://{service}")}}}));
        self.wait("the location", || {
            self.status("backupstoragelocation", name)["phase"] == "Available"
        });
    }
}
