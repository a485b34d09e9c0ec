//! What is in `deploy/` is taken by an API server: every manifest, and the chart as it is rendered. By
//! the embedded one; by another if `HOLDFAST_CLUSTER` names the kubeconfig of its administrator, as
//! `cargo xtask peers deploy` does. `HOLDFAST_HELM` names a helm.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::server::{TIMEOUT, binary};
use e2e::{Server, skip, write};
use serde_json::Value;
use testkit::process::{Process, Scratch, free_port, poll_until};

const NAMESPACE: &str = "longhorn-system";
const TENANTS_NAMESPACE: &str = "openshift-adp";
/// As the embedded server says it is.
const KUBERNETES: &str = "1.33.13";

/// Ours, or one that is there already.
enum Cluster {
    Ours(Box<Server>),
    Theirs(PathBuf),
}

impl Cluster {
    fn start() -> Self {
        let cluster = match std::env::var_os("HOLDFAST_CLUSTER") {
            None => Self::Ours(Box::new(Server::start())),
            Some(kubeconfig) => Self::Theirs(kubeconfig.into()),
        };
        // What is only tried makes no namespace for what comes after it. On one of theirs they are ours to
        // make; another test may have.
        for namespace in [NAMESPACE, TENANTS_NAMESPACE] {
            let made = cluster.kubectl(&["create", "namespace", namespace]);
            let said = text(&made.stderr);
            assert!(made.status.success() || said.contains("AlreadyExists"), "{said}");
        }
        cluster
    }

    fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Ours(server) => server.kubeconfig(),
            Self::Theirs(path) => path.clone(),
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", self.kubeconfig()).args(arguments).output().unwrap()
    }

    /// What the server would have made of it.
    #[track_caller]
    fn takes(&self, more: &[&str], path: &Path) -> String {
        let path = path.display().to_string();
        let asked = [&["apply", "--dry-run=server", "-f", &path], more].concat();
        let output = self.kubectl(&asked);
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{path}\n{said}\n{complained}");
        said
    }

    fn install(&self) -> Output {
        let mut command = Command::new(binary());
        command.args(["install-crds", "--timeout", "600", "--kubeconfig"]).arg(self.kubeconfig());
        command.env_remove("KUBECONFIG").output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").canonicalize().unwrap()
}

#[test]
fn every_manifest_is_taken_once_the_definitions_are_installed() {
    let cluster = Cluster::start();
    let deploy = deploy();
    let first = cluster.install();
    assert!(first.status.success(), "{}", text(&first.stderr));
    let again = cluster.install();
    assert!(text(&again.stdout).contains("0 created, 0 changed"), "{}", text(&again.stdout));
    // An apply by the client keeps a copy of it in an annotation, and the definitions are too large.
    let said = cluster.takes(&["--server-side"], &deploy.join("crds"));
    assert_eq!(said.lines().count(), std::fs::read_dir(deploy.join("crds")).unwrap().count());
    cluster.takes(&[], &deploy.join("rbac.yaml"));
    let said = cluster.takes(&[], &deploy.join("manifests"));
    for object in [
        "deployment.apps/holdfast-controllers",
        "daemonset.apps/holdfast-node",
        "deployment.apps/holdfast-block-api",
        "service/holdfast-block-api",
        "poddisruptionbudget.policy/holdfast-controllers",
    ] {
        assert!(said.contains(object), "{object} in:\n{said}");
    }
    for name in ["secrets.yaml", "postgres.yaml", "target.yaml"] {
        cluster.takes(&[], &deploy.join("example").join(name));
    }
}

#[test]
fn a_cluster_that_is_not_there_is_told_with_what_to_do() {
    let scratch = Scratch::new().unwrap();
    let nobody = scratch.path().join("kubeconfig");
    let port = free_port().unwrap();
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    write(&nobody, &config.to_string());
    let output = Cluster::Theirs(nobody).install();
    let said = text(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("hint: is the cluster up") && said.contains("definition"), "{said}");
}

/// Runs helm on the chart; none where there is no helm.
fn helm(arguments: &[&str]) -> Option<Output> {
    let program = std::env::var_os("HOLDFAST_HELM")?;
    let mut command = Command::new(program);
    command.args(arguments).arg(deploy().join("chart/holdfast"));
    command.args(["--namespace", NAMESPACE]);
    Some(command.output().unwrap())
}

fn rendered(more: &[&str]) -> String {
    let asked = [&["template", "holdfast", "--kube-version", KUBERNETES], more].concat();
    let output = helm(&asked).unwrap();
    assert!(output.status.success(), "{more:?}\n{}", text(&output.stderr));
    text(&output.stdout)
}

/// Containers of ours anywhere in an object.
fn containers<'a>(object: &'a Value, found: &mut Vec<&'a Value>) {
    match object {
        Value::Object(fields) => {
            if fields.contains_key("image") && fields.contains_key("args") {
                found.push(object);
            }
            fields.values().for_each(|it| containers(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| containers(it, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_chart_is_taken_as_it_is_and_with_all_its_options() {
    let Some(lint) = helm(&["lint", "--strict", "--kube-version", KUBERNETES]) else {
        return skip("HOLDFAST_HELM names no helm; `cargo xtask peers deploy` builds one");
    };
    assert!(lint.status.success(), "{}\n{}", text(&lint.stdout), text(&lint.stderr));
    let cluster = Cluster::start();
    let scratch = Scratch::new().unwrap();
    let example = deploy().join("example/values.yaml").display().to_string();
    let options = "blockApi.enabled=true,blockApi.publicEndpoint=https://volume.example.org,\
                   controllers.velero=true,controllers.backupRate=10Mi,controllers.replicas=1,\
                   otlpEndpoint=http://traces:4317,monitoring.grafanaDashboard=true";
    let mut started = 0;
    let alone = "createNamespace=true";
    for more in [&[][..], &["--set", options], &["--values", &example], &["--set", alone]] {
        let manifests = rendered(more);
        let path = scratch.path().join("rendered.yaml");
        write(&path, &manifests);
        cluster.takes(&[], &path);
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
        for container in objects.iter().flat_map(|it| {
            let mut found = Vec::new();
            containers(it, &mut found);
            found
        }) {
            let words = container["args"].as_array().unwrap().iter();
            let words: Vec<&str> = words.map(|it| it.as_str().unwrap()).collect();
            // What is wrong with an argument is said before help is given.
            let output = Command::new(binary()).args(&words).arg("--help").output().unwrap();
            assert!(output.status.success(), "{words:?}\n{}", text(&output.stderr));
            started += 1;
        }
    }
    // Controllers and node; those and twice the Block Storage API; the same; the first again.
    assert_eq!(started, 2 + 4 + 4 + 2);
}

#[test]
fn values_that_make_no_sense_are_refused_by_the_chart() {
    if std::env::var_os("HOLDFAST_HELM").is_none() {
        return skip("HOLDFAST_HELM names no helm; `cargo xtask peers deploy` builds one");
    }
    for (wrong, why) in [
        ("controllers.replicas=0", "replicas"),
        ("controllers.replica=2", "replica"),
        ("logFormat=xml", "logFormat"),
        ("node.dataPath=here", "dataPath"),
        ("controllers.backupRate=fast", "backupRate"),
    ] {
        let asked = ["template", "holdfast", "--kube-version", KUBERNETES, "--set", wrong];
        let output = helm(&asked).unwrap();
        assert!(!output.status.success(), "{wrong} is taken");
        assert!(text(&output.stderr).contains(why), "{wrong}: {}", text(&output.stderr));
    }
    // Whoever applies what is rendered gets the namespaces as the manifests have them.
    let whole: Vec<Value> =
        serde_saphyr::from_multiple(&rendered(&["--set", "createNamespace=true"])).unwrap();
    let plain = std::fs::read_to_string(deploy().join("rbac.yaml")).unwrap();
    let plain: Vec<Value> = serde_saphyr::from_multiple(&plain).unwrap();
    let spaces = |of: &[Value]| -> Vec<(Value, Value)> {
        let found = of.iter().filter(|it| it["kind"] == "Namespace").map(|it| &it["metadata"]);
        found.map(|it| (it["name"].clone(), it["labels"].clone())).collect()
    };
    assert_eq!(spaces(&whole), spaces(&plain));
    let rights = rendered(&[]);
    let stored = std::fs::read_to_string(deploy().join("rbac.yaml")).unwrap();
    for document in stored.split("---\n").skip(1).filter(|it| !it.contains("kind: Namespace\n")) {
        assert!(rights.contains(document.trim_end()), "the chart lacks\n{document}");
    }
}

/// The body of an answer in the clear, if it is a good one.
fn fetched(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

#[test]
fn controllers_of_a_cluster_show_that_they_live_and_lead() {
    let scratch = Scratch::new().unwrap();
    let data = scratch.path().join("data");
    let mut command = Command::new(binary());
    command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let mut server = Process::start(command, scratch.path(), "apiserver").unwrap();
    server.wait_for_line("https://", TIMEOUT).unwrap();
    let port = free_port().unwrap();
    let mut command = Command::new(binary());
    command.args(["controllers", "--metrics-listen", &format!("127.0.0.1:{port}")]);
    command.arg("--kubeconfig").arg(data.join("kubeconfig"));
    command.current_dir(scratch.path()).env_remove("KUBECONFIG");
    let mut controllers = Process::start(command, scratch.path(), "controllers").unwrap();
    let leads = || fetched(port, "/metrics").filter(|it| it.contains("holdfast_leader 1\n"));
    assert!(poll_until(TIMEOUT, leads).is_some(), "{}", controllers.stderr());
    for path in ["/livez", "/readyz"] {
        assert_eq!(fetched(port, path).as_deref(), Some("ok\n"), "{path}");
    }
    controllers.terminate().unwrap();
    assert!(controllers.wait_for_exit(TIMEOUT).unwrap().success());
    server.terminate().unwrap();
    server.wait_for_exit(TIMEOUT).unwrap();
}

#[test]
fn what_alerts_look_at_is_told_of_a_volume_and_goes_with_it() {
    let server = Server::start();
    let holdfast = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.args(arguments).arg("--kubeconfig").arg(server.kubeconfig());
        let output = command.env_remove("KUBECONFIG").output().unwrap();
        assert!(output.status.success(), "{arguments:?}\n{}", text(&output.stderr));
    };
    let cluster = Cluster::Theirs(server.kubeconfig());
    let metrics = || text(&cluster.kubectl(&["get", "--raw", "/metrics"]).stdout);
    let line = "holdfast_volume_degraded{volume=\"told\"} 0";
    holdfast(&["volume", "create", "told", "--size", "16MiB", "--replicas", "1"]);
    let shown = poll_until(TIMEOUT, || metrics().lines().any(|it| it == line).then_some(()));
    assert!(shown.is_some(), "{}", metrics());
    let ready = || metrics().contains("holdfast_node_ready{node=").then_some(());
    assert!(poll_until(TIMEOUT, ready).is_some(), "{}", metrics());
    holdfast(&["volume", "rm", "told"]);
    let gone = poll_until(TIMEOUT, || (!metrics().contains("volume=\"told\"")).then_some(()));
    assert!(gone.is_some(), "{}", metrics());
}
