//! `holdfast up` as a process: what it prints, makes and leaves.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use e2e::server::{TIMEOUT, binary};
use e2e::{BOB_TOKEN, Server};
use testkit::process::{Process, poll_until};

#[test]
fn it_starts_and_stops_cleanly_when_asked_and_starts_again() {
    let mut server = Server::start();
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    assert!(server.stop().success());
    server.start_again().unwrap();
    assert!(server.stop().success());
}

#[test]
fn nobody_else_can_read_its_data() {
    let server = Server::start();
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(server.data_dir().to_owned()), 0o700);
    assert_eq!(mode(server.kubeconfig()), 0o600);
}

#[test]
fn a_role_that_is_not_there_is_refused_with_the_one_that_was_meant() {
    let server = Server::start();
    let ask = |role: &str, namespace: &str| {
        let words = ["kubeconfig", "--user", "alice", "--namespace", namespace, "--role", role];
        let output = server.holdfast(&words);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, err) = ask("edti", "team-a");
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(err, "error: there is no ClusterRole \"edti\"\nhint: did you mean edit?\n");
    // What the API refuses is told in its words, not as a printed struct.
    let (code, err) = ask("edit", "Not_A_Namespace");
    assert_eq!(code, Some(1), "{err}");
    assert!(err.starts_with("error: ") && !err.contains('{'), "{err}");
    assert!(err.contains("Not_A_Namespace"), "{err}");
}

#[tokio::test]
async fn health_and_version_are_open_and_nothing_else_is() {
    let server = Server::start();
    let anonymous = server.endpoint().as_user("");
    let bob = server.endpoint().as_user(BOB_TOKEN);
    let stranger = server.endpoint().as_user("no-such-token");
    for (path, expected) in
        [("/livez", 200), ("/readyz", 200), ("/version", 200), ("/api", 403), ("/metrics", 403)]
    {
        let answer = anonymous.connect().await.unwrap().get(path).await.unwrap();
        assert_eq!(answer.code(), expected, "{path}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(bob.connect().await.unwrap().get("/api").await.unwrap().code(), 200);
    assert_eq!(bob.connect().await.unwrap().get(secrets).await.unwrap().code(), 403);
    assert_eq!(stranger.connect().await.unwrap().get("/version").await.unwrap().code(), 401);
}

#[tokio::test]
async fn objects_outlive_a_restart_and_keep_their_versions() {
    let mut server = Server::start();
    let path = "/api/v1/namespaces/default/configmaps";
    let mut connection = server.endpoint().connect().await.unwrap();
    let body = serde_json::json!({"metadata": {"name": "kept"}, "data": {"a": "b"}});
    let created = connection.post(path, &body).await.unwrap();
    assert_eq!(created.code(), 201);
    assert!(server.stop().success());
    server.start_again().unwrap();
    let mut connection = server.endpoint().connect().await.unwrap();
    let found = connection.get(&format!("{path}/kept")).await.unwrap();
    assert_eq!(found.json(), created.json());
}

/// The process that holds the controllers' lease, of `host_process_uuid`.
async fn leader(server: &Server) -> Option<u32> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/holdfast-controllers";
    let lease = server.endpoint().connect().await.ok()?.get(path).await.ok()?.json();
    let holder = lease["spec"]["holderIdentity"].as_str()?;
    holder.rsplit('_').nth(1)?.parse().ok()
}

#[test]
fn controllers_elect_a_leader_and_another_when_it_is_killed() {
    let server = Server::start();
    let kubeconfig = server.kubeconfig();
    let candidate = |name: &str| {
        let mut command = Command::new(binary());
        command.args(["controllers", "--lease-seconds", "8", "--kubeconfig"]).arg(&kubeconfig);
        Process::start(command, server.scratch(), name).unwrap()
    };
    let mut candidates = [candidate("first"), candidate("second")];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let wait = |wanted: &dyn Fn(u32) -> bool| {
        let look = || runtime.block_on(leader(&server)).filter(|holder| wanted(*holder));
        poll_until(TIMEOUT, look).expect("a leader")
    };
    let ids = candidates.each_ref().map(Process::id);
    let first = wait(&|holder| ids.contains(&holder));
    for process in &mut candidates {
        if process.id() == first {
            process.kill().unwrap();
        }
    }
    let second = wait(&|holder| holder != first);
    assert!(ids.contains(&second), "{second} of {ids:?}");
}
