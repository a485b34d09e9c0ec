//! Who this sidecar's member is: its name, its namespace and what its configuration says.

use crate::etcd::{Etcd, Member};
use crate::store::Environment;

use super::etcd_config::{self, ClusterView, EtcdConfig, EtcdConfigError};

use std::time::Duration;

/// Asking a cluster for its members: each time so long, so often.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
const LIST_ATTEMPTS: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error("the environment variable {0} is not set")]
    Variable(&'static str),
    #[error(transparent)]
    Config(#[from] EtcdConfigError),
}

/// The member beside this sidecar.
#[derive(Debug, Clone)]
pub struct ThisMember {
    pub name: String,
    /// The one it runs in.
    pub pod: String,
    pub namespace: String,
    pub config: EtcdConfig,
    config_path: String,
}

impl ThisMember {
    /// From the environment and the file it names.
    pub fn read(environment: &Environment) -> Result<Self, MemberError> {
        let variable = |name| environment.get(name).ok_or(MemberError::Variable(name));
        let pod = variable("POD_NAME")?;
        let namespace = variable("POD_NAMESPACE")?.to_owned();
        let config_path = config_path(environment);
        let config = EtcdConfig::read(&config_path)?;
        let (name, pod) = (config.member_name(pod), pod.to_owned());
        Ok(Self { name, pod, namespace, config, config_path })
    }

    /// The file this member's etcd is to be started with, as of now.
    pub async fn etcd_config(&self, cluster: &Etcd) -> Result<String, EtcdConfigError> {
        let config = EtcdConfig::read(&self.config_path)?;
        let view = if config.cluster_size() > 1 { view(cluster).await } else { None };
        config.for_member(&self.name, view.as_ref())
    }
}

/// Where the file is.
pub fn config_path(environment: &Environment) -> String {
    let path = environment.get(etcd_config::PATH_VARIABLE);
    path.unwrap_or(etcd_config::DEFAULT_PATH).to_owned()
}

/// What the cluster says about its members, if it answers.
async fn view(cluster: &Etcd) -> Option<ClusterView> {
    for _ in 0..LIST_ATTEMPTS {
        match cluster.members(LIST_TIMEOUT).await {
            Ok(members) => return Some(view_of(&members)),
            Err(error) => tracing::warn!(
                "the cluster does not list its members: {}",
                telemetry::Chain(&error)
            ),
        }
    }
    None
}

fn view_of(members: &[Member]) -> ClusterView {
    ClusterView {
        names: members.iter().map(|member| member.name.clone()).collect(),
        has_learner: members.iter().any(|member| member.is_learner),
    }
}
