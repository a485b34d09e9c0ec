//! Calls to a running engine and its replicas.
//!
//! Short calls are gRPC; those that take many steps or long are commands of the engine's dialect
//! ([`super::command`]), which end with whoever waits for them.

use std::time::Duration;

use api::longhorn::Engine;
use kube::ResourceExt;
use rpc::ptypes::controller_service_client::ControllerServiceClient;
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::{Address, Deadline, Identity, Peer};

/// How long a short call may take.
const SHORT: Duration = Duration::from_secs(10);

/// Where a running engine is, and who it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// `ip:port`.
    pub address: String,
    pub volume: String,
    pub engine: String,
}

/// Calls to an engine, over one connection.
pub type Controller = ControllerServiceClient<Peer>;

/// A peer cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the address {0:?} is none")]
    Address(String),
    #[error("{doing}: {text}")]
    Call { doing: String, text: String, unreachable: bool },
}

impl CallError {
    pub(crate) fn of(doing: &str, status: &tonic::Status) -> Self {
        let unreachable =
            matches!(status.code(), tonic::Code::Unavailable | tonic::Code::DeadlineExceeded);
        Self::Call { doing: doing.to_owned(), text: status.message().to_owned(), unreachable }
    }
}

impl Reach {
    /// How to reach the engine of this object, if it runs.
    pub fn of(engine: &Engine) -> Option<Self> {
        Some(Self {
            address: super::address(engine)?,
            volume: engine.spec.instance.volume_name.clone()?,
            engine: engine.name_any(),
        })
    }

    /// The engine itself.
    ///
    /// # Errors
    /// If the address is none; one that does not answer is an error of the call.
    pub fn controller(&self) -> Result<Controller, CallError> {
        let expected = Identity { volume: self.volume.clone(), instance: self.engine.clone() };
        Ok(Controller::new(peer(&self.address, 0, expected)?))
    }

    /// A replica of it, by the address the engine lists it with.
    ///
    /// # Errors
    /// If the address is none.
    pub fn replica(&self, address: &str) -> Result<ReplicaServiceClient<Peer>, CallError> {
        let expected = Identity { volume: self.volume.clone(), instance: String::new() };
        Ok(ReplicaServiceClient::new(peer(address, 0, expected)?))
    }

    /// The sync agent of a replica.
    ///
    /// # Errors
    /// If the address is none.
    pub fn agent(&self, address: &str) -> Result<SyncAgentServiceClient<Peer>, CallError> {
        let expected = Identity { volume: self.volume.clone(), instance: String::new() };
        Ok(SyncAgentServiceClient::new(peer(address, 2, expected)?))
    }
}

/// `beside`: how many ports behind the one of the address.
fn peer(address: &str, beside: u16, expected: Identity) -> Result<Peer, CallError> {
    let bad = || CallError::Address(address.to_owned());
    let parsed: Address = address.parse().map_err(|_| bad())?;
    let port = parsed.port().checked_add(beside).ok_or_else(bad)?;
    let at = Address::new(parsed.host(), port);
    rpc::connect(&at, expected, Deadline::After(SHORT)).map_err(|_| bad())
}
