//! A script that checks any Kubernetes API server from outside, if `HOLDFAST_CONFORM` names one.

use std::process::{Command, Stdio};

use e2e::{ADMIN_TOKEN, BOB_TOKEN, Endpoint, Server, skip};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_check_of_the_conformance_script_passes() {
    let Some(script) = std::env::var_os("HOLDFAST_CONFORM") else {
        return skip("HOLDFAST_CONFORM names no conformance script");
    };
    let server = Server::start();
    let list = server.endpoint().connect().await.unwrap().get("/api/v1/namespaces").await.unwrap();
    let mut command = Command::new("python3");
    command.arg(script).args(["--server", server.url(), "--token", ADMIN_TOKEN]);
    command.args(["--token2", BOB_TOKEN, "--ca"]).arg(server.ca());
    let script = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    grant(&server.endpoint(), script.id(), list.revision()).await;
    let output = script.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(last) = text.lines().rfind(|line| !line.is_empty()) {
        println!("conform: {last}");
    }
    let failed: Vec<&str> = text.lines().filter(|line| !line.starts_with("PASS")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", failed.join("\n"));
}

/// Some checks look at what the second user may do in the script's namespace, and expect these two
/// roles to have been bound to its group. They are bound as soon as the namespace is there: it is
/// looked for from a revision before the script began.
async fn grant(endpoint: &Endpoint, script: u32, from: u64) {
    let run = format!("c{script}");
    let namespace = format!("conf-{run}");
    let watch = format!("/api/v1/namespaces?watch=true&resourceVersion={from}");
    let mut events = endpoint.connect().await.unwrap().watch(&watch).await.unwrap();
    while let Some(event) = events.next().await {
        if event["object"]["metadata"]["name"] == namespace.as_str() {
            break;
        }
    }
    let widgets = json!([{
        "apiGroups": [format!("{run}.conform.example.com")],
        "resources": ["widgets"],
        "verbs": ["list", "watch"],
    }]);
    let only = json!([{
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["only"],
        "verbs": ["get", "list", "watch"],
    }]);
    for (name, rules) in [("wr", widgets), ("only", only)] {
        bind(endpoint, &namespace, name, &rules).await;
    }
}

async fn bind(endpoint: &Endpoint, namespace: &str, name: &str, rules: &Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let root = format!("/apis/{GROUP}/v1/namespaces/{namespace}");
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "team-b"}],
    });
    let mut connection = endpoint.connect().await.unwrap();
    for (path, object) in [("roles", role), ("rolebindings", binding)] {
        let made = connection.post(&format!("{root}/{path}"), &object).await.unwrap();
        assert_eq!(made.code(), 201, "{}", made.json());
    }
}
