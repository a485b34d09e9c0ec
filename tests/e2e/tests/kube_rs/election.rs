//! Leader election by Lease, as client-go does it: compare and swap, nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use e2e::Server;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::task::JoinSet;

use super::soon;

const TERMS: u32 = 10;

/// A lease held by nobody.
fn vacant() -> Lease {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "chair"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0},
    });
    serde_json::from_value(lease).unwrap()
}

/// Takes the vacant chair with the resource version it read; losing the race is a 409.
async fn take(api: &Api<Lease>, name: &str) -> bool {
    let mut lease = api.get("chair").await.unwrap();
    let spec = lease.spec.as_mut().unwrap();
    if spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty()) {
        return false;
    }
    spec.holder_identity = Some(name.to_owned());
    spec.lease_transitions = spec.lease_transitions.map(|count| count + 1);
    match api.replace("chair", &PostParams::default(), &lease).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 409 => false,
        Err(error) => panic!("{error}"),
    }
}

async fn leave(api: &Api<Lease>) {
    let mut lease = api.get("chair").await.unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some(String::new());
    api.replace("chair", &PostParams::default(), &lease).await.unwrap();
}

/// Serves some terms, and counts those who believe to lead.
async fn candidate(api: Api<Lease>, name: &'static str, leading: Arc<AtomicU32>) {
    let mut terms = 0;
    while terms < TERMS {
        if take(&api, name).await {
            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead at once");
            tokio::task::yield_now().await;
            assert_eq!(leading.fetch_sub(1, Ordering::SeqCst), 1);
            leave(&api).await;
            terms += 1;
        }
    }
}

#[tokio::test]
async fn two_candidates_never_lead_at_once() {
    let server = Server::start();
    let api: Api<Lease> = Api::default_namespaced(server.client().await);
    api.create(&PostParams::default(), &vacant()).await.unwrap();
    let leading = Arc::new(AtomicU32::new(0));
    let mut candidates = JoinSet::new();
    for name in ["first", "second"] {
        let api: Api<Lease> = Api::default_namespaced(server.client().await);
        candidates.spawn(candidate(api, name, leading.clone()));
    }
    soon("all terms", candidates.join_all()).await;
    let spec = api.get("chair").await.unwrap().spec.unwrap();
    assert_eq!(spec.lease_transitions, i32::try_from(2 * TERMS).ok());
}

#[tokio::test]
async fn a_lease_keeps_its_microseconds() {
    let server = Server::start();
    let api: Api<Lease> = Api::default_namespaced(server.client().await);
    let mut lease = serde_json::to_value(vacant()).unwrap();
    lease["spec"]["renewTime"] = json!("2026-01-02T03:04:05.000600Z");
    let lease: Lease = serde_json::from_value(lease).unwrap();
    api.create(&PostParams::default(), &lease).await.unwrap();
    let stored = serde_json::to_value(api.get("chair").await.unwrap()).unwrap();
    assert_eq!(stored["spec"]["renewTime"], json!("2026-01-02T03:04:05.000600Z"));
    let endpoint = server.endpoint();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/chair";
    let raw = endpoint.connect().await.unwrap().get(path).await.unwrap().json();
    assert_eq!(raw["spec"]["renewTime"], json!("2026-01-02T03:04:05.000600Z"));
}
