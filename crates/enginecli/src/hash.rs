//! `hash`, `hash-cancel`, `hash-status`: checksums of snapshots.

use std::collections::BTreeMap;

use rpc::Deadline;
use rpc::ptypes::{
    ReplicaMode, SnapshotHashCancelRequest, SnapshotHashRequest, SnapshotHashStatusRequest,
    SnapshotHashStatusResponse,
};
use serde::Serialize;

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Member, Session, all_well, each};
use super::snapshot;
use super::table::flags as f;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    state: String,
    checksum: String,
    error: String,
    silently_corrupted: bool,
}

pub(crate) async fn start(session: &Session, line: &Line) -> Result<(), Error> {
    let name = snapshot::name(line)?;
    let rehash = line.flags.switch(&f::REHASH);
    let members = session.working_members().await?;
    // Files of a replica that is being filled are not what they will be.
    if let Some(other) = members.iter().find(|member| member.mode != ReplicaMode::Rw) {
        let address = &other.address;
        let text =
            format!("cannot request hashing snapshot {name}: replica {address} is rebuilding");
        return Err(Error::Refused(text));
    }
    all_well(each(&members, |member| start_in(session, member, &name, rehash)).await)
}

async fn start_in(
    session: &Session,
    member: &Member,
    name: &str,
    rehash: bool,
) -> Result<(), Error> {
    let request = SnapshotHashRequest { snapshot_name: name.to_owned(), rehash };
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    agent.snapshot_hash(request).await.or_failed(format!("failed to hash snapshot {name}"))
}

pub(crate) async fn cancel(session: &Session, line: &Line) -> Result<(), Error> {
    let name = snapshot::name(line)?;
    let members = session.working_members().await?;
    all_well(each(&members, |member| cancel_in(session, member, &name)).await)
}

async fn cancel_in(session: &Session, member: &Member, name: &str) -> Result<(), Error> {
    let request = SnapshotHashCancelRequest { snapshot_name: name.to_owned() };
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let reply = agent.snapshot_hash_cancel(request).await;
    reply.or_failed(format!("failed to stop hashing snapshot {name}"))
}

pub(crate) async fn status(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let name = snapshot::name(line)?;
    let members = session.working_members().await?;
    let mut statuses = BTreeMap::new();
    for (member, status) in each(&members, |member| asked(session, member, &name)).await {
        let status = status.unwrap_or_else(|error| SnapshotHashStatusResponse {
            error: error.to_string(),
            ..Default::default()
        });
        let SnapshotHashStatusResponse { state, checksum, error, silently_corrupted } = status;
        let status = Status { state, checksum, error, silently_corrupted };
        statuses.insert(&member.address, status);
    }
    console.json(&statuses)
}

async fn asked(
    session: &Session,
    member: &Member,
    name: &str,
) -> Result<SnapshotHashStatusResponse, Error> {
    let request = SnapshotHashStatusRequest { snapshot_name: name.to_owned() };
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let doing = format!("failed to get snapshot hash status of {}", member.address);
    agent.snapshot_hash_status(request).await.or_failed(doing)
}
