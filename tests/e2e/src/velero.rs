//! A server whose objects are backed up, seen by kubectl.

pub mod peer;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::poll_until;

use crate::Server;
use crate::volumes::Home;

/// Where administrators and the executor are.
pub const NAMESPACE: &str = "openshift-adp";
/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Phases that are not left any more.
pub const ENDED: [&str; 4] = ["Completed", "PartiallyFailed", "Failed", "FailedValidation"];

#[derive(Debug)]
pub struct World<H = Server> {
    pub server: H,
}

impl World {
    pub fn start() -> Self {
        let world = Self { server: Server::start() };
        world.wait("the default location", || {
            world.status("backupstoragelocation", "default")["phase"] == "Available"
        });
        world
    }

    pub fn folder(&self, backup: &str) -> PathBuf {
        self.server.data_dir().join("locations/backups/backups").join(backup)
    }
}

impl<H: Home> World<H> {
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_as(&self.server.kubeconfig(), arguments)
    }

    pub fn command_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let program = std::env::var_os("HOLDFAST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.env("KUBECONFIG", kubeconfig).current_dir(self.server.scratch());
        command.arg("--cache-dir").arg(self.server.scratch().join("cache")).args(arguments);
        command
    }

    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("cannot run kubectl");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {said}{errors}");
        said
    }

    #[track_caller]
    pub fn apply(&self, object: &Value) {
        self.create(&self.server.kubeconfig(), object);
    }

    #[track_caller]
    pub fn create(&self, kubeconfig: &Path, object: &Value) {
        let mut child = self
            .command_as(kubeconfig, &["create", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cannot run kubectl");
        child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let arguments =
            ["get", kind, "-n", namespace, name, "-o", "json", "--ignore-not-found=true"];
        let output = self.command(&arguments).output().expect("cannot run kubectl");
        serde_json::from_slice(&output.stdout).ok()
    }

    pub fn status(&self, kind: &str, name: &str) -> Value {
        let found = self.get(&format!("{kind}.velero.io"), NAMESPACE, name);
        found.map(|it| it["status"].clone()).unwrap_or_default()
    }

    #[track_caller]
    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let seen = poll_until(TIMEOUT, || is_so().then_some(()));
        let log = self.server.log();
        assert!(seen.is_some(), "{what} did not come about; the server says:\n{log}");
    }

    #[track_caller]
    pub fn ended(&self, kind: &str, name: &str) -> Value {
        let phase = || self.status(kind, name)["phase"].as_str().map(str::to_owned);
        self.wait(&format!("the end of {kind} {name}"), || {
            phase().is_some_and(|it| ENDED.contains(&it.as_str()))
        });
        self.status(kind, name)
    }

    pub fn backup(&self, name: &str, spec: &Value) {
        self.apply(&json!({"apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}));
    }

    pub fn restore(&self, name: &str, spec: &Value) {
        self.apply(&json!({"apiVersion": "velero.io/v1", "kind": "Restore",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}));
    }

    /// A namespace with an application in it.
    pub fn shop(&self, namespace: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"team": "shop"}}}));
        for number in 0..3 {
            self.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("cm-{number}"), "namespace": namespace,
                    "labels": {"n": number.to_string()}},
                "data": {"key": format!("value {number}")}}));
        }
        self.apply(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "w"}}, "template": {
                "metadata": {"labels": {"a": "w"}},
                "spec": {"containers": [{"name": "c", "image": "example.com/web:1"}]}}}}));
        self.apply(&json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"selector": {"a": "w"}, "ports": [{"port": 80}]}}));
    }
}
