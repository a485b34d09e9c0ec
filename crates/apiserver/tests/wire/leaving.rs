//! Callers that hang up as soon as they have asked: what follows from a write follows all the same.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::sockets::{TIMEOUT, connect, read_until, request};
use crate::support::{MAPS, World};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const ROUNDS: usize = 60;
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(1);

/// Asks, and closes its side as soon as the last byte is sent. The server is at work then: it has
/// asked for the body. What is returned keeps the socket from being reset.
async fn ask_and_leave(
    world: &World,
    method: &str,
    path: &str,
    body: &str,
) -> TlsStream<TcpStream> {
    let mut stream = connect(world, &["http/1.1"]).await;
    let more = format!("content-length: {}\r\nexpect: 100-continue\r\n", body.len());
    stream.write_all(request(method, path, &more).as_bytes()).await.unwrap();
    read_until(&mut stream, "100 Continue").await;
    stream.write_all(body.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    stream
}

/// Asks, and is gone: the server may see the request, or the end of the connection first.
async fn ask_and_vanish(world: &World, method: &str, path: &str) {
    let mut stream = connect(world, &["http/1.1"]).await;
    stream.write_all(request(method, path, "").as_bytes()).await.unwrap();
    drop(stream);
    let is_at_work = || {
        let tasks = world.tasks.list();
        tasks.iter().any(|task| matches!(task.name.as_str(), "connection" | "write"))
    };
    let deadline = Instant::now() + TIMEOUT;
    while is_at_work() {
        assert!(Instant::now() < deadline, "a request without a caller does not end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn until(world: &World, path: &str, code: u16) {
    let deadline = Instant::now() + TIMEOUT;
    while world.get(path).await.code != code {
        assert!(Instant::now() < deadline, "{path} never answered {code}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn may_read(world: &World) -> Value {
    let review = json!({"spec": {"user": "ada", "resourceAttributes": {
        "namespace": "default", "verb": "get", "resource": "configmaps"}}});
    world.post(REVIEWS, &review).await.is(201)["status"]["allowed"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_go_with_their_binding_although_nobody_waits_for_the_answer() {
    let world = World::start().await;
    let binding = json!({"metadata": {"name": "one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "ada"}]});
    let path = format!("{BINDINGS}/one");
    for round in 0..ROUNDS {
        world.post(BINDINGS, &binding).await.is(201);
        assert_eq!(may_read(&world).await, true, "round {round}");
        ask_and_vanish(&world, "DELETE", &path).await;
        let is_gone = world.get(&path).await.code == 404;
        assert_eq!(may_read(&world).await, !is_gone, "round {round}");
        if is_gone {
            continue;
        }
        let _kept = ask_and_leave(&world, "DELETE", &path, "{}").await;
        until(&world, &path, 404).await;
        assert_eq!(may_read(&world).await, false, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_in_the_audit_log_although_nobody_waits_for_the_answer() {
    let world = World::start().await;
    for number in 0..ROUNDS {
        let name = format!("cut-{number}");
        let body = json!({"metadata": {"name": name}}).to_string();
        let _kept = ask_and_leave(&world, "POST", MAPS, &body).await;
        until(&world, &format!("{MAPS}/{name}"), 200).await;
    }
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let log = std::fs::read_to_string(world.directory().join("audit.log")).unwrap();
        let is_there = |number: &usize| log.contains(&format!("\"name\":\"cut-{number}\""));
        let missing = (0..ROUNDS).filter(|number| !is_there(number)).count();
        if missing == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{missing} of {ROUNDS} are not in the audit log");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
