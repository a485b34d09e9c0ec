//! Leases, renewed on the embedded API server.

use e2e::guard::{Rig, TIMEOUT};
use e2e::{ADMIN_TOKEN, Connection, Server};
use serde_json::{Value, json};
use testkit::process::poll_until;

use crate::QUIET;

const NAMES: [&str; 3] = ["etcd-main-0", "etcd-main-full-snap", "etcd-main-delta-snap"];

fn path(name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/ns1/leases/{name}")
}

async fn lease(connection: &mut Connection, name: &str) -> Value {
    connection.get(&path(name)).await.unwrap().json()
}

#[tokio::test]
async fn leases_tell_who_leads_and_what_is_saved() {
    let Some(mut rig) = Rig::new("leases") else { return };
    let server = Server::start();
    let mut api = server.endpoint().as_user(ADMIN_TOKEN).connect().await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}});
    api.post("/api/v1/namespaces", &namespace).await.unwrap();
    for name in NAMES {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                           "metadata": {"name": name, "namespace": "ns1"}, "spec": {}});
        let made =
            api.post("/apis/coordination.k8s.io/v1/namespaces/ns1/leases", &lease).await.unwrap();
        assert_eq!(made.code(), 201, "{}", made.json());
    }
    rig.variables.push(("KUBECONFIG".to_owned(), server.kubeconfig().to_str().unwrap().to_owned()));
    rig.put("a", "1");
    let mut arguments = QUIET.to_vec();
    arguments.extend([
        "--enable-member-lease-renewal",
        "--enable-snapshot-lease-renewal",
        "--k8s-heartbeat-duration=1s",
        "--full-snapshot-lease-name=etcd-main-full-snap",
        "--delta-snapshot-lease-name=etcd-main-delta-snap",
    ]);
    let mut sidecar = rig.sidecar(&arguments);
    sidecar.wait_until_healthy();
    rig.wait_for_objects("Full", 1);
    rig.put("b", "2");
    sidecar.json("/snapshot/delta");

    let status = e2e::guard::status(rig.endpoint());
    let id = |key: &str| status["header"][key].as_u64().unwrap();
    let holder = format!("{:x}:{:x}:Leader", id("member_id"), id("cluster_id"));
    for (name, wanted) in NAMES.into_iter().zip([holder.as_str(), "2", "3"]) {
        let mut found = Value::Null;
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while found["spec"]["holderIdentity"] != wanted {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{name}: {found}\n{}",
                sidecar.process.stderr()
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            found = lease(&mut api, name).await;
        }
        assert!(found["spec"]["renewTime"].is_string(), "{found}");
    }
    let member = lease(&mut api, NAMES[0]).await;
    let annotations = &member["metadata"]["annotations"];
    assert_eq!(annotations["member.etcd.gardener.cloud/tls-enabled"], "false");

    // While etcd does not answer, nobody claims to hold anything.
    rig.stop_etcd();
    sidecar.wait_for("/healthz", 503);
    let silent = poll_until(TIMEOUT, || sidecar.process.stderr().contains("Unknown").then_some(()));
    assert!(silent.is_some(), "{}", sidecar.process.stderr());
    assert_eq!(sidecar.stop(), Some(0));
}

/// Whoever looks at the pod sees what does not work, and why.
#[tokio::test]
async fn events_tell_what_fails_and_why() {
    let Some(mut rig) = Rig::new("events") else { return };
    let server = Server::start();
    let mut api = server.endpoint().as_user(ADMIN_TOKEN).connect().await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}});
    api.post("/api/v1/namespaces", &namespace).await.unwrap();
    rig.variables.push(("KUBECONFIG".to_owned(), server.kubeconfig().to_str().unwrap().to_owned()));
    let mut arguments = QUIET.to_vec();
    arguments.extend([
        "--storage-provider=FAILED",
        "--enable-member-lease-renewal",
        "--garbage-collection-period=2s",
    ]);
    let sidecar = rig.sidecar_without_store(&arguments);
    // What it would check first is in the store.
    let begun = || sidecar.try_ask("GET", "/initialization/start?mode=full");
    let begun = testkit::process::poll_until(TIMEOUT, begun).expect("an answer");
    assert_eq!(begun.0, 200);
    for (reason, cause) in [
        ("SnapshotFailed", "this provider always fails"),
        ("CollectionFailed", "this provider always fails"),
        ("InitializationFailed", "this provider always fails"),
    ] {
        let path = format!("/api/v1/namespaces/ns1/events?fieldSelector=reason%3D{reason}");
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        let event = loop {
            let list = api.get(&path).await.unwrap().json();
            if let Some(event) = list["items"].as_array().and_then(|items| items.first()) {
                break event.clone();
            }
            let told = sidecar.process.stderr();
            assert!(tokio::time::Instant::now() < deadline, "no {reason}: {list}\n{told}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        };
        assert_eq!(event["type"], "Warning", "{event}");
        assert_eq!(event["involvedObject"]["kind"], "Pod", "{event}");
        let message = event["message"].as_str().unwrap();
        assert!(!message.is_empty() && message.contains(cause), "{reason}: {message}");
    }
    assert_eq!(sidecar.stop(), Some(0));
}
