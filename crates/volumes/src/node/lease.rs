//! The sign of life of a node: a lease that it renews, and that others see grow old.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use reconcile::{Key, Queue};
use serde_json::json;
use tokio::time::Instant;

use super::{Agent, LEASE, lease_name};
use crate::NAMESPACE;

const RENEW_EVERY: Duration = Duration::from_secs(4);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A renewal that takes longer is begun anew.
const CALL_PATIENCE: Duration = Duration::from_secs(5);

/// When the lease was last renewed.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Option<Instant>>);

impl Held {
    /// Whether others still count this node as alive.
    pub(super) fn is_held(&self) -> bool {
        let renewed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.is_some_and(|at| at.elapsed() < LEASE)
    }

    /// When it was last renewed by this process.
    pub(super) fn renewed_at(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewed(&self, at: Instant) -> bool {
        let was_held = self.is_held();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        !was_held
    }
}

/// Renews for ever. Asks for a pass of the node when the lease is held again.
pub(super) async fn keep(agent: Arc<Agent>, node: Arc<Queue>) {
    let api: Api<Lease> = Api::namespaced(agent.context.client.clone(), NAMESPACE);
    let said = telemetry::Seldom::new(Duration::from_mins(1));
    loop {
        let began = Instant::now();
        let renewal = tokio::time::timeout(CALL_PATIENCE, renew(&api, &agent.options.name)).await;
        let pause = match renewal {
            Ok(Ok(())) => {
                // From before the call: the server may have noted it at its very beginning.
                if agent.lease.renewed(began) {
                    node.add(&Key::new(NAMESPACE, &agent.options.name));
                }
                RENEW_EVERY
            }
            Ok(Err(error)) => {
                if let Some(unsaid) = said.pass() {
                    tracing::warn!(unsaid, error = %telemetry::Chain(&error),
                        "cannot renew the lease of this node; others will count it as gone");
                }
                RETRY_AFTER
            }
            Err(_) => {
                if let Some(unsaid) = said.pass() {
                    tracing::warn!(
                        unsaid,
                        "the API server does not answer this node; others will \
                        count it as gone"
                    );
                }
                RETRY_AFTER
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn renew(api: &Api<Lease>, node: &str) -> Result<(), kube::Error> {
    let name = lease_name(node);
    // Micro seconds, no finer: that is how a lease has them.
    let now = MicroTime(jiff::Timestamp::now());
    let spec = json!({
        "holderIdentity": node,
        "leaseDurationSeconds": LEASE.as_secs(),
        "renewTime": now,
    });
    let patch = Patch::Merge(json!({ "spec": spec }));
    match api.patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error),
    }
    let made = serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    }));
    let made: Lease = made.map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(drop),
    }
    // The first of all nodes finds nothing, not even the namespace.
    let namespace = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    }));
    let namespace: Namespace = namespace.map_err(kube::Error::SerdeError)?;
    let namespaces: Api<Namespace> = Api::all(api.clone().into_client());
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    api.create(&PostParams::default(), &made).await.map(drop)
}
