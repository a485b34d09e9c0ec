//! An upstream kube-controller-manager with all its controllers on `up`, if
//! `HOLDFAST_KUBE_CONTROLLER_MANAGER` names one: every informer must find what it lists, and some of
//! the controllers are seen to work.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{MANAGER_TOKEN, Server, skip, write};
use serde_json::{Value, json};
use testkit::process::{Process, free_port, poll_until};

/// What its controllers may take to start, and then to do their work, on a loaded machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Words in its log that say an informer, or a right, is missing.
const COMPLAINTS: &[&str] = &[
    "Failed to watch",
    "failed to list",
    "forbidden",
    "Forbidden",
    "could not find the requested resource",
    "no matches for kind",
    "unable to decode",
];

/// Lines that say so of something that no server has here.
const EXPECTED: &[&str] = &[
    // Metrics of pods come from an addon.
    "metrics.k8s.io",
];

fn kubeconfig(server: &Server) -> PathBuf {
    let path = server.scratch().join("manager.kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster":
            {"server": server.url(), "certificate-authority": server.ca()}}],
        "users": [{"name": "u", "user": {"token": MANAGER_TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    write(&path, &config.to_string());
    path
}

fn start(program: &Path, server: &Server) -> Process {
    let config = kubeconfig(server);
    let pki = server.data_dir().join("pki");
    let port = free_port().unwrap().to_string();
    let mut command = Command::new(program);
    let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
    command.args(["--controllers=*,bootstrap-signer-controller,token-cleaner-controller"]);
    command.args(["--use-service-account-credentials", "--bind-address=127.0.0.1"]);
    command.args(["--secure-port", &port, "--leader-elect=true", "--v=2"]);
    command.arg(path("cert-dir", &server.scratch().join("manager")));
    for name in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(path(name, &config));
    }
    command.arg(path("root-ca-file", &server.ca()));
    command.arg(path("cluster-signing-cert-file", &server.ca()));
    command.arg(path("cluster-signing-key-file", &pki.join("ca.key")));
    command.arg(path("service-account-private-key-file", &pki.join("sa.key")));
    Process::start(command, server.scratch(), "manager").unwrap()
}

fn complaints(log: &str) -> Vec<&str> {
    let complains = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
    let expected = |line: &&str| EXPECTED.iter().any(|word| line.contains(word));
    log.lines().filter(complains).filter(|line| !expected(line)).collect()
}

/// Names between the first pair of quotes after a word, as in `Started controller" controller="x"`.
fn names<'a>(log: &'a str, word: &str) -> Vec<&'a str> {
    let after = |line: &'a str| Some(line.split_once(word)?.1.split_once("controller=\"")?.1);
    log.lines().filter_map(after).filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_of_upstream_finds_what_it_lists() {
    let Some(program) = std::env::var_os("HOLDFAST_KUBE_CONTROLLER_MANAGER") else {
        return skip("HOLDFAST_KUBE_CONTROLLER_MANAGER names no program");
    };
    let server = Server::start();
    let manager = start(Path::new(&program), &server);
    let endpoint = server.endpoint();
    let mut client = endpoint.connect().await.unwrap();
    for (path, object) in work() {
        let made = client.post(&path, &object).await.unwrap();
        assert_eq!(made.code(), 201, "{path}: {}", made.json());
    }
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    for (path, done) in results() {
        loop {
            let seen = client.get(&path).await.unwrap().json();
            if done(&seen) {
                break;
            }
            let log = manager.stderr();
            let late = tokio::time::Instant::now() > deadline;
            assert!(!late, "{path}: {seen}\n{}\n{}", complaints(&log).join("\n"), tail(&log));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    let synced = || {
        let log = manager.stderr();
        let waiting = log.matches("Waiting for caches to sync").count();
        (waiting > 0 && log.matches("Caches are synced").count() >= waiting).then_some(())
    };
    let synced = poll_until(TIMEOUT, synced);
    let log = manager.stderr();
    assert!(synced.is_some(), "caches that never filled:\n{}", tail(&log));
    let started = names(&log, "Started controller");
    println!("controllers started: {}", started.len());
    assert!(started.len() > 30, "{started:?}");
    let complaints = complaints(&log);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// What the controllers are given to do.
fn work() -> Vec<(String, Value)> {
    let containers = json!([{"name": "c", "image": "i"}]);
    let labels = json!({"app": "web"});
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let once = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    let selector = json!({"matchLabels": labels});
    let set = json!({"serviceName": "web", "replicas": 1, "selector": selector, "template": pods});
    vec![
        (
            "/apis/apps/v1/namespaces/default/deployments".to_owned(),
            json!({"metadata": {"name": "web"}, "spec":
                {"replicas": 2, "selector": selector, "template": pods}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets".to_owned(),
            json!({"metadata": {"name": "db"}, "spec": set}),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs".to_owned(),
            json!({"metadata": {"name": "pi"}, "spec": {"template": once}}),
        ),
        (
            "/api/v1/namespaces/default/services".to_owned(),
            json!({"metadata": {"name": "web"}, "spec": {"selector": labels,
                "ports": [{"port": 80}]}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
            json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}}),
        ),
    ]
}

type Done = fn(&Value) -> bool;

/// Where to see that they have done it.
fn results() -> Vec<(String, Done)> {
    vec![
        ("/apis/apps/v1/namespaces/default/deployments/web".to_owned(), |deployment| {
            deployment["status"]["replicas"] == 2
        }),
        ("/apis/apps/v1/namespaces/default/controllerrevisions".to_owned(), |revisions| {
            revisions["items"].as_array().is_some_and(|all| !all.is_empty())
        }),
        ("/apis/batch/v1/namespaces/default/jobs/pi".to_owned(), |job| {
            job["status"]["active"] == 1
        }),
        ("/api/v1/namespaces/default/endpoints/web".to_owned(), |endpoints| {
            endpoints["kind"] == "Endpoints"
        }),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned(), |slices| {
            slices["items"].as_array().is_some_and(|all| !all.is_empty())
        }),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web".to_owned(), |budget| {
            budget["status"]["expectedPods"] == 2 || budget["status"]["expectedPods"] == 3
        }),
        ("/api/v1/namespaces/default/configmaps/kube-root-ca.crt".to_owned(), |authority| {
            authority["data"]["ca.crt"].is_string()
        }),
    ]
}
