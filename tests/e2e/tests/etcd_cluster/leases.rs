//! The leases of the cluster on the embedded API server.

use std::time::Duration;

use e2e::guard::TIMEOUT;
use e2e::{ADMIN_TOKEN, Connection, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns1/leases";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Api {
    pub(crate) server: Server,
}

impl Api {
    /// With empty leases, as an operator makes them.
    pub(crate) async fn start(names: &[&str]) -> Self {
        let api = Self { server: Server::start() };
        let mut connection = api.connect().await;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}});
        connection.post("/api/v1/namespaces", &namespace).await.unwrap();
        for name in names {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                               "metadata": {"name": name, "namespace": "ns1"}, "spec": {}});
            let made = connection.post(LEASES, &lease).await.unwrap();
            assert_eq!(made.code(), 201, "{}", made.json());
        }
        api
    }

    async fn connect(&self) -> Connection {
        self.server.endpoint().as_user(ADMIN_TOKEN).connect().await.unwrap()
    }

    pub(crate) async fn lease(&self, name: &str) -> Value {
        self.connect().await.get(&format!("{LEASES}/{name}")).await.unwrap().json()
    }

    pub(crate) async fn wait_for_holder(&self, name: &str, wanted: impl Fn(&str) -> bool) {
        self.wait_for(name, |lease| lease["spec"]["holderIdentity"].as_str().is_some_and(&wanted))
            .await;
    }

    pub(crate) async fn wait_for_renewal(&self, name: &str, before: &Value) {
        self.wait_for(name, |lease| lease["spec"]["renewTime"] != *before).await;
    }

    async fn wait_for(&self, name: &str, wanted: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let lease = self.lease(name).await;
            if wanted(&lease) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} stayed {lease}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
