//! `snapshot clone` and `snapshot clone-status`: a snapshot of another volume as the content of
//! this one.

use std::collections::BTreeMap;

use rpc::ptypes::{ReplicaMode, SnapshotCloneRequest, SnapshotCloneStatusResponse};
use rpc::{Address, Deadline};
use serde::Serialize;

use super::add_replica::{copying, file_sync_timeout};
use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Member, Session, all_well, each};
use super::table::flags as f;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    is_cloning: bool,
    error: String,
    progress: i32,
    state: String,
    from_replica_address: String,
    snapshot_name: String,
}

pub(crate) async fn run(session: &Session, line: &Line) -> Result<(), Error> {
    let snapshot = required(line, &f::SNAPSHOT_NAME)?;
    let from = required(line, &f::FROM_CONTROLLER_ADDRESS)?;
    let from_volume = line.flags.text(&f::FROM_VOLUME_NAME);
    let instance = line.flags.text(&f::FROM_CONTROLLER_INSTANCE_NAME);
    let timeout = file_sync_timeout(line)?;
    let deadline = copying(line.flags.integer(&f::GRPC_TIMEOUT));
    let members = session.members().await?;
    if let Some(other) = members.iter().find(|member| member.mode != ReplicaMode::Rw) {
        let (address, mode) = (&other.address, other.mode.as_str_name());
        let text = format!("cannot clone a snapshot while replica {address} is in mode {mode}");
        return Err(Error::Refused(text));
    }
    let source = source(&Session::other(&from, from_volume.clone(), instance)?).await?;
    let request = |to_host: String| SnapshotCloneRequest {
        from_address: source.clone(),
        to_host,
        snapshot_file_name: snapshot.clone(),
        export_backing_image_if_exist: line.flags.switch(&f::EXPORT_BACKING_IMAGE),
        file_sync_http_client_timeout: timeout,
        from_volume_name: from_volume.clone(),
    };
    all_well(each(&members, |member| clone_to(session, member, &request, deadline)).await)
}

fn required(line: &Line, flag: &super::flag::Flag) -> Result<String, Error> {
    let text = line.flags.text(flag);
    if text.is_empty() {
        return Err(Error::Refused(format!("--{} is required", flag.name)));
    }
    Ok(text)
}

/// The replica of the other volume to copy from.
async fn source(other: &Session) -> Result<String, Error> {
    let members = other.working_members().await?;
    let healthy = members.into_iter().find(|member| member.mode == ReplicaMode::Rw);
    let healthy = healthy.map(|member| member.address);
    healthy.ok_or_else(|| Error::refused("cannot find any healthy replica to clone from"))
}

async fn clone_to(
    session: &Session,
    member: &Member,
    request: &impl Fn(String) -> SnapshotCloneRequest,
    deadline: Deadline,
) -> Result<(), Error> {
    let host = member.address.parse::<Address>()?.host().to_owned();
    let mut agent = session.agent(&member.address, "", deadline)?;
    let reply = agent.snapshot_clone(request(host)).await;
    reply.or_failed("failed to clone the snapshot")?;
    // An agent may answer well and say only in its status that the copy failed.
    let status = asked(session, member).await?;
    if status.error.is_empty() { Ok(()) } else { Err(Error::Refused(status.error)) }
}

async fn asked(session: &Session, member: &Member) -> Result<SnapshotCloneStatusResponse, Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let doing = format!("failed to get snapshot clone status of {}", member.address);
    agent.snapshot_clone_status(()).await.or_failed(doing)
}

pub(crate) async fn status(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let members = session.working_members().await?;
    let mut statuses = BTreeMap::new();
    for (member, status) in each(&members, |member| asked(session, member)).await {
        let status = status.unwrap_or_else(|error| SnapshotCloneStatusResponse {
            error: error.to_string(),
            ..Default::default()
        });
        let status = Status {
            is_cloning: status.is_cloning,
            error: status.error,
            progress: status.progress,
            state: status.state,
            from_replica_address: status.from_replica_address,
            snapshot_name: status.snapshot_name,
        };
        statuses.insert(&member.address, status);
    }
    console.json(&statuses)
}
