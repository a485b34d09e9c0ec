//! A node that is cut off stops to serve: what it would acknowledge, others never see.
//!
//! The lease is what both sides share. One that was not renewed may mean that the API server is away,
//! which is no reason to stop anything; together with a copy on another node that cannot be reached it
//! means that this node is cut off. Then the frontends of its engines go, sooner than an engine gives
//! up a silent copy and goes on with what it has here. They come back when somebody is there to ask.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rpc::Address;
use rpc::ptypes::{ControllerReplica, ReplicaMode};
use tokio::time::{Instant, sleep};

use super::Agent;
use crate::engine::client::{CallError, Reach};
use crate::engine::join;
use crate::instances::{Instance, Kind, State};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A renewal is overdue. With the time it takes to look, shorter than the eight seconds after which an
/// engine gives up a copy that does not answer.
const SILENT: Duration = Duration::from_secs(6);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks for ever.
pub(super) async fn keep(agent: Arc<Agent>) {
    let began = Instant::now();
    loop {
        sleep(LOOK_EVERY).await;
        if agent.lease.renewed_at().unwrap_or(began).elapsed() < SILENT {
            continue;
        }
        let host = agent.host.address();
        let all = agent.host.list();
        let engines =
            all.iter().filter(|it| it.key.kind == Kind::Engine && it.state == State::Running);
        join_all(engines.map(|engine| guard(host, engine))).await;
    }
}

async fn guard(host: IpAddr, engine: &Instance) {
    let Some(address) = join(Some(&host.to_string()), Some(engine.ports.0.into())) else { return };
    let reach = Reach { address, volume: engine.volume.clone(), engine: engine.key.name.clone() };
    match tokio::time::timeout(CALL_TIMEOUT, stop_if_cut_off(host, &reach)).await {
        Ok(Ok(true)) => tracing::warn!(
            engine = %engine.key,
            "this node is cut off: the API server and a copy of volume {} do not answer; the volume is \
             not served here until they do",
            engine.volume
        ),
        Ok(Ok(false)) => {}
        Ok(Err(error)) => tracing::debug!(engine = %engine.key, "{error}"),
        Err(_) => tracing::debug!(engine = %engine.key, "the engine does not answer"),
    }
}

async fn stop_if_cut_off(host: IpAddr, reach: &Reach) -> Result<bool, CallError> {
    let mut controller = reach.controller()?;
    let volume = controller.volume_get(()).await;
    let volume = volume.map_err(|status| CallError::of("get volume", &status))?.into_inner();
    if volume.frontend_state != "up" {
        return Ok(false);
    }
    let listed = controller.replica_list(()).await;
    let listed = listed.map_err(|status| CallError::of("list replicas", &status))?.into_inner();
    let far = elsewhere(host, &listed.replicas);
    let given_up = far.iter().any(|(_, mode)| *mode == ReplicaMode::Err);
    if !given_up {
        let asked = far.into_iter().map(|(at, _)| answers(at));
        if join_all(asked).await.into_iter().all(|answers| answers) {
            return Ok(false);
        }
    }
    // Not even what is under way is answered: the engine would answer it once it gives up the copies that
    // are away, and by then others may have the volume.
    let request = rpc::stop_request(rpc::Stopping::AtOnce);
    let done = controller.volume_frontend_shutdown(request).await;
    done.map_err(|status| CallError::of("stop the frontend", &status))?;
    Ok(true)
}

/// The copies that are on other nodes.
fn elsewhere(host: IpAddr, all: &[ControllerReplica]) -> Vec<(SocketAddr, ReplicaMode)> {
    all.iter()
        .filter_map(|replica| {
            let at: Address = replica.address.as_ref()?.address.parse().ok()?;
            let ip: IpAddr = at.host().parse().ok()?;
            (ip != host).then(|| (SocketAddr::new(ip, at.port()), replica.mode()))
        })
        .collect()
}

async fn answers(at: SocketAddr) -> bool {
    matches!(tokio::time::timeout(CONNECT_TIMEOUT, rpc::dial(at)).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use rpc::ptypes::ReplicaAddress;

    use super::*;

    #[test]
    fn copies_of_this_node_say_nothing_about_the_others() {
        let copy = |at: &str| ControllerReplica {
            address: Some(ReplicaAddress { address: at.into(), instance_name: String::new() }),
            mode: ReplicaMode::Rw.into(),
        };
        let all = [copy("tcp://10.0.0.1:10"), copy("tcp://10.0.0.2:20"), copy("nonsense")];
        let far = elsewhere("10.0.0.1".parse().unwrap(), &all);
        assert_eq!(far, [("10.0.0.2:20".parse().unwrap(), ReplicaMode::Rw)]);
    }
}
