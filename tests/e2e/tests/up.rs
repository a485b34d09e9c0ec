//! `holdfast up` as a process: what it prints, makes and leaves.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use e2e::{BOB_TOKEN, Server};

#[test]
fn it_is_ready_soon_and_stops_cleanly_when_asked() {
    let start = Instant::now();
    let mut server = Server::start();
    // An unoptimised build on a busy machine; the benchmark measures the real thing.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
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
