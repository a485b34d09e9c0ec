//! The sign of life of a node: a lease that it renews, and that others see grow old. It also says which
//! machine the node is: two machines of one name would each take the other's engines for their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use reconcile::{Key, Queue};
use serde_json::json;
use tokio::time::Instant;

use super::{Agent, LEASE, lease_name};
use crate::NAMESPACE;

const RENEW_EVERY: Duration = Duration::from_secs(4);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A renewal that takes longer is begun anew.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the lease of another machine is looked at, to see whether that lives.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// On the lease: whose it is.
const MACHINE: &str = "holdfast.io/machine";

/// The name of this node is another machine's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "another machine is node {node} and lives (its identity is {machine}); choose another name with --node-name, or stop the node there"
)]
pub struct Taken {
    pub node: String,
    pub machine: String,
}

/// When the lease was last renewed.
#[derive(Debug, Default)]
pub(super) struct Held {
    at: Mutex<Option<Instant>>,
    lost: AtomicBool,
}

impl Held {
    /// Whether others still count this node as alive.
    pub(super) fn is_held(&self) -> bool {
        self.renewed_at().is_some_and(|at| at.elapsed() < LEASE)
    }

    /// When it was last renewed by this process.
    pub(super) fn renewed_at(&self) -> Option<Instant> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another machine is this node by now.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn renewed(&self, at: Instant) -> bool {
        let was_held = self.is_held();
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        self.lost.store(false, Ordering::Relaxed);
        !was_held
    }
}

/// What is to be made of a lease that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Mine,
    /// Another machine's, of which nothing was heard yet.
    Wait,
    /// Another machine's, and that is gone.
    Left,
    /// Another machine's, and that lives.
    Taken,
}

/// Clocks of two machines are not compared: one that lives renews while it is looked at.
fn judge(owner: Option<&str>, me: &str, has_changed: bool, watched: Duration) -> Claim {
    match owner {
        None => Claim::Mine,
        Some(owner) if owner == me => Claim::Mine,
        Some(_) if has_changed => Claim::Taken,
        Some(_) if watched > LEASE => Claim::Left,
        Some(_) => Claim::Wait,
    }
}

fn machine_of(lease: &Lease) -> Option<&str> {
    lease.annotations().get(MACHINE).map(String::as_str).filter(|it| !it.is_empty())
}

/// Until the name is this machine's, or is known to be another's.
pub(super) async fn claim(agent: &Agent) -> Result<(), Taken> {
    let api: Api<Lease> = Api::namespaced(agent.context.client.clone(), NAMESPACE);
    let (node, me) = (&agent.options.name, &agent.options.machine);
    let mut first: Option<(String, Instant)> = None;
    loop {
        let lease = match tokio::time::timeout(CALL_TIMEOUT, api.get_opt(&lease_name(node))).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(lease))) => lease,
            // Whoever it is, nothing can be done meanwhile.
            Ok(Err(_)) | Err(_) => {
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        let version = lease.resource_version().unwrap_or_default();
        let (known, since) = first.get_or_insert_with(|| (version.clone(), Instant::now()));
        match judge(machine_of(&lease), me, *known != version, since.elapsed()) {
            Claim::Mine => return Ok(()),
            Claim::Wait => {}
            Claim::Left => {
                let whole = json!({ "metadata": {
                    "resourceVersion": version, "annotations": { MACHINE: me },
                } });
                let (name, how) = (lease_name(node), PatchParams::default());
                if api.patch(&name, &how, &Patch::Merge(whole)).await.is_ok() {
                    return Ok(());
                }
                first = None;
            }
            Claim::Taken => {
                let machine = machine_of(&lease).unwrap_or_default().to_owned();
                return Err(Taken { node: node.clone(), machine });
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Renews for ever. Asks for a pass of the node when the lease is held again.
pub(super) async fn keep(agent: Arc<Agent>, node: Arc<Queue>) {
    let api: Api<Lease> = Api::namespaced(agent.context.client.clone(), NAMESPACE);
    let said = telemetry::Seldom::new(Duration::from_mins(1));
    let mut version = None;
    loop {
        let began = Instant::now();
        let renewal = renew(&api, &agent.options.name, &agent.options.machine, &mut version);
        let renewal = tokio::time::timeout(CALL_TIMEOUT, renewal).await;
        let pause = match renewal {
            Ok(Ok(())) => {
                // From before the call: the server may have noted it at its very beginning.
                if agent.lease.renewed(began) {
                    node.add(&Key::new(NAMESPACE, &agent.options.name));
                }
                RENEW_EVERY
            }
            Ok(Err(error)) => {
                version = None;
                if matches!(error, RenewError::Taken(_)) {
                    agent.lease.lost.store(true, Ordering::Relaxed);
                }
                if let Some(unsaid) = said.pass() {
                    tracing::warn!(unsaid, error = %telemetry::Chain(&error),
                        "cannot renew the lease of this node; others will count it as gone");
                }
                RETRY_AFTER
            }
            Err(_) => {
                version = None;
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

#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Taken(#[from] Taken),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// `version` is that of the last renewal: a lease that somebody else has written since is looked at
/// first, since it may be another machine's by now.
async fn renew(
    api: &Api<Lease>,
    node: &str,
    machine: &str,
    version: &mut Option<String>,
) -> Result<(), RenewError> {
    let name = lease_name(node);
    if version.is_none()
        && let Some(found) = api.get_opt(&name).await?
    {
        if let Some(other) = machine_of(&found).filter(|other| *other != machine) {
            return Err(Taken { node: node.to_owned(), machine: other.to_owned() }.into());
        }
        *version = found.resource_version();
    }
    // Micro seconds, no finer: that is how a lease has them.
    let now = MicroTime(jiff::Timestamp::now());
    let spec = json!({
        "holderIdentity": node,
        "leaseDurationSeconds": LEASE.as_secs(),
        "renewTime": now,
    });
    let own = json!({ MACHINE: machine });
    if let Some(known) = version.take() {
        let metadata = json!({ "resourceVersion": known, "annotations": own });
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
        *version = api.patch(&name, &PatchParams::default(), &patch).await?.resource_version();
        return Ok(());
    }
    let made = serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name, "namespace": NAMESPACE, "annotations": own }, "spec": spec,
    }));
    let made: Lease = made.map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return Ok(other.map(drop)?),
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
    Ok(api.create(&PostParams::default(), &made).await.map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_the_machine_that_lives() {
        let second = Duration::from_secs(1);
        for (owner, changed, watched, wanted) in [
            (None, false, second, Claim::Mine),
            (Some("me"), false, second, Claim::Mine),
            (Some("me"), true, second, Claim::Mine),
            (Some("other"), false, second, Claim::Wait),
            (Some("other"), true, second, Claim::Taken),
            (Some("other"), false, LEASE + second, Claim::Left),
            (Some("other"), true, LEASE + second, Claim::Taken),
        ] {
            assert_eq!(judge(owner, "me", changed, watched), wanted, "{owner:?} {changed}");
        }
    }
}
