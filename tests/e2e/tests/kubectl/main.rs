//! kubectl, unmodified, used as people use it.

mod access;
mod change;
mod look;
mod remove;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::{Server, write};

/// kubectl with one kubeconfig and a cache of its own.
struct Kubectl<'a> {
    server: &'a Server,
    kubeconfig: PathBuf,
}

impl<'a> Kubectl<'a> {
    fn admin(server: &'a Server) -> Self {
        Self { server, kubeconfig: server.kubeconfig() }
    }

    fn with(server: &'a Server, kubeconfig: &Path) -> Self {
        Self { server, kubeconfig: kubeconfig.to_owned() }
    }

    fn command(&self, line: &str) -> Command {
        let program = std::env::var_os("HOLDFAST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig).current_dir(self.server.scratch());
        command.arg("--cache-dir").arg(self.server.scratch().join("cache"));
        command.args(words(line));
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().expect("cannot run kubectl")
    }

    /// What a command that must succeed prints.
    #[track_caller]
    fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let (said, errors) = texts(&output);
        assert!(output.status.success(), "kubectl {line}: {}\n{said}{errors}", output.status);
        said
    }

    /// What a command that must fail complains about.
    #[track_caller]
    fn fail(&self, line: &str) -> String {
        let output = self.output(line);
        let (said, errors) = texts(&output);
        assert!(!output.status.success(), "kubectl {line} succeeded:\n{said}");
        errors
    }

    /// Writes a manifest beside the server and gives its name.
    fn file(&self, name: &str, text: &str) -> String {
        write(&self.server.scratch().join(name), text);
        name.to_owned()
    }
}

/// A server whose controllers of tenants leave everything alone: their kinds are then kinds as any
/// others.
fn still() -> Server {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let until = |line: &str, part: &str| {
        let began = std::time::Instant::now();
        while !texts(&kubectl.output(line)).0.contains(part) {
            assert!(began.elapsed() < e2e::server::TIMEOUT, "in vain: {line}");
        }
    };
    until("get namespaces -o name", "namespace/openshift-adp");
    let text = "apiVersion: v1\nkind: ConfigMap\n\
                metadata: {name: non-admin-config, namespace: openshift-adp}\n\
                data: {config.yaml: 'nonAdmin: {enable: false}'}\n";
    kubectl.run(&format!("apply -f {}", kubectl.file("still.yaml", text)));
    until("get configmap -n openshift-adp -o yaml non-admin-config-last-good", "enable: false");
    drop(kubectl);
    server
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Splits at spaces, except inside single quotes, as a shell would.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  colour: green
  size: small
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: example.com/web:1
        ports:
        - containerPort: 80
";

const BACKUP: &str = "\
apiVersion: oadp.openshift.io/v1alpha1
kind: NonAdminBackup
metadata:
  name: nightly
spec:
  backupSpec:
    ttl: 24h0m0s
";
