//! The `InstanceManager` of this node: a list of its processes, for people and for those who ask why
//! one failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    DataEngine, InstanceManager, InstanceManagerSpec, InstanceManagerState, InstanceManagerStatus,
    InstanceManagerType, InstanceProcess, InstanceState, ProcessSpec, ProcessStatus,
};
use reconcile::{Failure, Key, Loop, Next, Reconciler};

use super::Agent;
use crate::NAMESPACE;
use crate::instances::{Instance, Kind, State};

/// Changes that come together are written together: the list is one object.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn plan(agent: &Arc<Agent>) -> Loop {
    let own = Key::new(NAMESPACE, &agent.manager);
    let first = own.clone();
    let plan = Loop::new("node-manager", &agent.context).map(&agent.managers, move |key, _, _| {
        if *key == own { vec![key.clone()] } else { Vec::new() }
    });
    plan.queue().add(&first);
    plan
}

pub(super) struct Manager(pub(super) Arc<Agent>);

impl Reconciler for Manager {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let agent = &self.0;
        if !agent.lease.is_held() {
            return Ok(Next::after(Duration::from_millis(200)));
        }
        let found = match agent.managers.get(key) {
            Some(found) => found,
            None if agent.managers.is_broken(key) => return Ok(Next::WAIT),
            None => {
                let spec = InstanceManagerSpec {
                    image: Some(String::new()),
                    node_id: Some(agent.options.name.clone()),
                    kind: Some(InstanceManagerType::AllInOne),
                    data_engine: Some(DataEngine::V1),
                };
                let mut made = InstanceManager::new(&agent.manager, spec);
                made.metadata.namespace = Some(NAMESPACE.to_owned());
                agent.managers.create(&made).await?
            }
        };
        let mut next = found.as_ref().clone();
        let address = agent.host.address().to_string();
        next.status =
            Some(status(found.status.clone(), &agent.options.name, &address, agent.host.list()));
        agent.managers.merge(&found, &next).await?;
        Ok(Next::WAIT)
    }
}

fn status(
    before: Option<InstanceManagerStatus>,
    node: &str,
    address: &str,
    instances: Vec<Instance>,
) -> InstanceManagerStatus {
    let mut status = before.unwrap_or_default();
    status.owner_id = Some(node.to_owned());
    status.current_state = Some(InstanceManagerState::Running);
    status.ip = Some(address.to_owned());
    status.api_version = Some(1);
    status.api_min_version = Some(1);
    status.proxy_api_version = Some(1);
    status.proxy_api_min_version = Some(1);
    let (mut engines, mut replicas) = (BTreeMap::new(), BTreeMap::new());
    for instance in instances {
        let map = match instance.key.kind {
            Kind::Engine => &mut engines,
            Kind::Replica => &mut replicas,
        };
        map.insert(instance.key.name.clone(), shown(instance, address));
    }
    status.instance_engines = Some(engines);
    status.instance_replicas = Some(replicas);
    status
}

fn shown(instance: Instance, address: &str) -> InstanceProcess {
    let state = match instance.state {
        State::Starting => InstanceState::Starting,
        State::Running => InstanceState::Running,
        State::Stopping => InstanceState::Stopping,
        State::Stopped => InstanceState::Stopped,
        State::Failed | State::Lost => InstanceState::Error,
    };
    let spec = ProcessSpec { name: Some(instance.key.name), data_engine: Some(DataEngine::V1) };
    let status = ProcessStatus {
        state: Some(state),
        port_start: Some(i32::from(instance.ports.0)),
        port_end: Some(i32::from(instance.ports.1)),
        error_msg: instance.error,
        uuid: Some(instance.run),
        listen: Some(address.to_owned()),
        kind: Some(instance.key.kind.as_str().to_owned()),
        ..ProcessStatus::default()
    };
    InstanceProcess { spec: Some(spec), status: Some(status) }
}
