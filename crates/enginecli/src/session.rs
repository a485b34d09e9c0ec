//! The servers a command speaks to, and the names it expects them to have.

use std::future::Future;

use futures::future::join_all;
use rpc::ptypes::controller_service_client::ControllerServiceClient;
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::ptypes::{Replica, ReplicaMode};
use rpc::volume::volume_client::VolumeClient;
use rpc::{Address, Deadline, Identity, Peer, connect};
use tonic::{Code, Response, Status};

use super::error::{Answer as _, Error};
use super::parse::Line;
use super::table::global;

pub(crate) type Controller = ControllerServiceClient<Peer>;
pub(crate) type ReplicaClient = ReplicaServiceClient<Peer>;
pub(crate) type Agent = SyncAgentServiceClient<Peer>;

/// The controller of the command line, and how to reach its replicas.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    controller: Address,
    volume: String,
    engine_instance: String,
}

/// A replica as the controller lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// As the controller writes it: that is its name in every list.
    pub(crate) address: String,
    pub(crate) mode: ReplicaMode,
}

impl Session {
    pub(crate) fn new(line: &Line) -> Result<Self, Error> {
        let url = line.globals.text(&global::URL);
        Ok(Self {
            controller: url.trim_end_matches('/').parse()?,
            volume: line.globals.text(&global::VOLUME_NAME),
            engine_instance: line.globals.text(&global::ENGINE_INSTANCE_NAME),
        })
    }

    /// The same for the controller of another volume.
    pub(crate) fn other(address: &str, volume: String, instance: String) -> Result<Self, Error> {
        let controller = address.trim_end_matches('/').parse()?;
        Ok(Self { controller, volume, engine_instance: instance })
    }

    pub(crate) fn controller(&self) -> Result<Controller, Error> {
        Ok(ControllerServiceClient::new(self.controller_peer()?))
    }

    /// For calls that answer when data was copied.
    pub(crate) fn patient_controller(&self, deadline: Deadline) -> Result<Controller, Error> {
        let peer = peer(&self.controller, &self.volume, &self.engine_instance, deadline)?;
        Ok(ControllerServiceClient::new(peer))
    }

    /// What a controller of ours does beyond the dialect.
    pub(crate) fn volume(&self, deadline: Deadline) -> Result<VolumeClient<Peer>, Error> {
        let peer = peer(&self.controller, &self.volume, &self.engine_instance, deadline)?;
        Ok(VolumeClient::new(peer))
    }

    /// The connection itself, for the other services of the controller.
    pub(crate) fn controller_peer(&self) -> Result<Peer, Error> {
        peer(&self.controller, &self.volume, &self.engine_instance, Deadline::Usual)
    }

    pub(crate) fn controller_address(&self) -> &Address {
        &self.controller
    }

    /// The port of the controller.
    pub(crate) fn controller_port(&self) -> u16 {
        self.controller.port()
    }

    pub(crate) fn replica(&self, address: &str, instance: &str) -> Result<ReplicaClient, Error> {
        let address: Address = address.parse()?;
        let peer = peer(&address, &self.volume, instance, Deadline::Usual)?;
        Ok(ReplicaServiceClient::new(peer))
    }

    pub(crate) fn agent(
        &self,
        address: &str,
        instance: &str,
        deadline: Deadline,
    ) -> Result<Agent, Error> {
        let address = address.parse::<Address>()?.sync_agent();
        Ok(SyncAgentServiceClient::new(peer(&address, &self.volume, instance, deadline)?))
    }

    /// The replicas of the volume, in the order they were added.
    pub(crate) async fn members(&self) -> Result<Vec<Member>, Error> {
        let reply = self.controller()?.replica_list(()).await;
        let reply = reply.or_failed("failed to list replicas")?;
        let member = |replica: rpc::ptypes::ControllerReplica| Member {
            mode: replica.mode(),
            address: replica.address.map(|address| address.address).unwrap_or_default(),
        };
        Ok(reply.replicas.into_iter().map(member).collect())
    }

    /// The replica processes that still count: those that did not fail. A raw file the controller
    /// opened itself has nobody to ask.
    pub(crate) async fn working_members(&self) -> Result<Vec<Member>, Error> {
        let mut members = self.members().await?;
        members.retain(|member| {
            member.mode != ReplicaMode::Err && !member.address.starts_with("file://")
        });
        Ok(members)
    }

    /// What a replica says of itself.
    pub(crate) async fn look(&self, address: &str, instance: &str) -> Result<Replica, Error> {
        let reply = self.replica(address, instance)?.replica_get(()).await;
        let reply = reply.or_failed(format!("failed to get replica {address}"))?;
        reply.replica.ok_or_else(|| Error::refused(format!("replica {address} said nothing")))
    }
}

fn peer(
    address: &Address,
    volume: &str,
    instance: &str,
    deadline: Deadline,
) -> Result<Peer, Error> {
    let expected = Identity { volume: volume.to_owned(), instance: instance.to_owned() };
    connect(address, expected, deadline)
        .map_err(|source| Error::Endpoint { address: address.to_string(), source })
}

/// Asks all members at once. Each is asked, also if another failed.
pub(crate) async fn each<'m, T, F>(
    members: &'m [Member],
    ask: impl Fn(&'m Member) -> F,
) -> Vec<(&'m Member, Result<T, Error>)>
where
    F: Future<Output = Result<T, Error>>,
{
    join_all(members.iter().map(|member| {
        let asked = ask(member);
        async move { (member, asked.await) }
    }))
    .await
}

/// What a controller of ours answered to what is beyond the dialect; none if it is of the other kind, or
/// older.
pub(crate) fn beyond<T>(
    reply: Result<Response<T>, Status>,
    doing: &str,
) -> Result<Option<T>, Error> {
    match reply {
        Ok(reply) => Ok(Some(reply.into_inner())),
        Err(status) => match status.code() {
            Code::Unimplemented => Ok(None),
            // Its own words.
            Code::Unknown if std::error::Error::source(&status).is_none() => {
                Err(Error::refused(status.message()))
            }
            _ => Err(status).or_failed(doing),
        },
    }
}

/// Nothing if all went well, or one text with what each of the failed said.
pub(crate) fn all_well(answers: Vec<(&Member, Result<(), Error>)>) -> Result<(), Error> {
    let failed: Vec<String> = answers
        .into_iter()
        .filter_map(|(member, answer)| Some(format!("{}: {}", member.address, answer.err()?)))
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Refused(failed.join("; "))) }
}
