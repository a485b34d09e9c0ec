//! Commands about the set of replicas, but for adding one: `ls-replica`, `start-with-replicas`,
//! `rm-replica`, `update-replica`, `verify-rebuild-replica`, `replica-rebuild-status`,
//! `sync-agent-server-reset`.

use std::collections::BTreeMap;

use rpc::Deadline;
use rpc::ptypes::{
    ControllerReplica, ReplicaAddress, ReplicaMode, ReplicaRebuildStatusResponse,
    VolumeStartRequest,
};
use serde::Serialize;

use super::console::Console;
use super::error::{Answer as _, Error};
use super::output;
use super::parse::Line;
use super::session::{Member, Session, all_well, each};
use super::table::flags as f;

/// The address the command is about.
pub(crate) fn address(line: &Line) -> Result<String, Error> {
    line.arguments.first().cloned().ok_or_else(|| Error::refused("replica address is required"))
}

/// `--size` and `--current-size`.
pub(crate) fn sizes(line: &Line) -> Result<(i64, i64), Error> {
    let size = line.flags.size(&f::SIZE).ok_or_else(|| Error::refused("--size is required"))?;
    let current = line.flags.size(&f::CURRENT_SIZE);
    Ok((size, current.ok_or_else(|| Error::refused("--current-size is required"))?))
}

pub(crate) async fn ls(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let members = session.members().await?;
    let chains = each(&members, |member| chain(session, member)).await;
    let mut rows = vec![["ADDRESS", "MODE", "CHAIN"].map(str::to_owned)];
    for (member, chain) in chains {
        // A replica that does not answer is still listed.
        let chain = chain.unwrap_or_default();
        rows.push([member.address.clone(), member.mode.as_str_name().to_owned(), chain]);
    }
    console.print(&output::table(&rows))
}

async fn chain(session: &Session, member: &Member) -> Result<String, Error> {
    if member.mode == ReplicaMode::Err {
        return Ok(String::new());
    }
    let replica = session.look(&member.address, "").await?;
    Ok(format!("[{}]", replica.chain.join(" ")))
}

pub(crate) async fn start(session: &Session, line: &Line) -> Result<(), Error> {
    if line.arguments.is_empty() {
        return Err(Error::refused("at least one replica address is required"));
    }
    // The volume has the size of its replicas where none is given.
    let size = line.flags.size(&f::SIZE).unwrap_or_default();
    let current_size = line.flags.size(&f::CURRENT_SIZE).unwrap_or_default();
    let mut controller = session.controller()?;
    let volume = controller.volume_get(()).await.or_failed("failed to get volume")?;
    if volume.replica_count != 0 {
        return Err(Error::refused("cannot add multiple replicas if volume is already up"));
    }
    let replica_addresses = line.arguments.clone();
    let request = VolumeStartRequest { replica_addresses, size, current_size };
    controller.volume_start(request).await.or_failed("failed to start volume")?;
    Ok(())
}

pub(crate) async fn rm(session: &Session, line: &Line) -> Result<(), Error> {
    let address = address(line)?;
    if !line.is_peer() && !session.members().await?.iter().any(|it| it.address == address) {
        let hint = "`holdfast engine ls-replica` lists those that are".to_owned();
        return Err(Error::NotFound { what: format!("the replica {address}"), hint });
    }
    let doing = format!("failed to remove replica {address}");
    let request = ReplicaAddress { address, instance_name: String::new() };
    session.controller()?.replica_delete(request).await.or_failed(doing)
}

pub(crate) async fn update(session: &Session, line: &Line) -> Result<(), Error> {
    let address = address(line)?;
    let word = line.flags.text(&f::MODE);
    let mode = ReplicaMode::from_str_name(&word)
        .ok_or_else(|| Error::refused(format!("invalid replica mode {word:?}: RW, WO or ERR")))?;
    let doing = format!("failed to update replica {address} to mode {word}");
    let mut request = ControllerReplica {
        address: Some(ReplicaAddress { address, instance_name: String::new() }),
        mode: 0,
    };
    request.set_mode(mode);
    session.controller()?.replica_update(request).await.or_failed(doing)?;
    Ok(())
}

pub(crate) async fn verify(session: &Session, line: &Line) -> Result<(), Error> {
    let address = address(line)?;
    let doing = format!("failed to verify the rebuild of replica {address}");
    let instance_name = line.flags.text(&f::REPLICA_INSTANCE_NAME);
    let request = ReplicaAddress { address, instance_name };
    session.controller()?.replica_verify_rebuild(request).await.or_failed(doing)?;
    Ok(())
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RebuildStatus {
    error: String,
    is_rebuilding: bool,
    progress: i32,
    state: String,
    /// No list at all rather than an empty one.
    from_replica_address_list: Option<Vec<String>>,
}

impl From<ReplicaRebuildStatusResponse> for RebuildStatus {
    fn from(status: ReplicaRebuildStatusResponse) -> Self {
        let mut from = status.from_replica_address_list;
        // How agents say it that know of one source only.
        if from.is_empty() && !status.from_replica_address.is_empty() {
            from.push(status.from_replica_address);
        }
        Self {
            error: status.error,
            is_rebuilding: status.is_rebuilding,
            progress: status.progress,
            state: status.state,
            from_replica_address_list: Some(from).filter(|from| !from.is_empty()),
        }
    }
}

pub(crate) async fn rebuild_status(
    session: &Session,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let mut members = session.members().await?;
    members.retain(|member| member.mode == ReplicaMode::Wo);
    let mut statuses = BTreeMap::new();
    for (member, status) in each(&members, |member| rebuilding(session, member)).await {
        match status {
            Ok(Some(status)) => {
                statuses.insert(&member.address, status);
            }
            // The volume is filled from a backup: there is a status for that elsewhere.
            Ok(None) => {
                statuses.clear();
                break;
            }
            Err(error) => {
                let error = error.to_string();
                let status = ReplicaRebuildStatusResponse { error, ..Default::default() };
                statuses.insert(&member.address, status.into());
            }
        }
    }
    console.json(&statuses)
}

/// Nothing if the replica is being restored, or was.
async fn rebuilding(session: &Session, member: &Member) -> Result<Option<RebuildStatus>, Error> {
    let doing = || format!("failed to get replica rebuild status of {}", member.address);
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let restore = agent.restore_status(()).await.or_failed(doing())?;
    if !restore.dest_file_name.is_empty() {
        return Ok(None);
    }
    Ok(Some(agent.replica_rebuild_status(()).await.or_failed(doing())?.into()))
}

pub(crate) async fn reset_agents(session: &Session) -> Result<(), Error> {
    let members = session.working_members().await?;
    all_well(each(&members, |member| is_idle(session, member)).await)?;
    all_well(each(&members, |member| reset(session, member)).await)
}

async fn is_idle(session: &Session, member: &Member) -> Result<(), Error> {
    let address = &member.address;
    if session.look(address, "").await?.rebuilding {
        let text =
            format!("cannot reset sync agent server because replica {address} is rebuilding");
        return Err(Error::refused(text));
    }
    let mut agent = session.agent(address, "", Deadline::Usual)?;
    let status = agent.restore_status(()).await;
    if status.or_failed(format!("failed to get restore status of {address}"))?.is_restoring {
        let text = format!("cannot reset sync agent server because replica {address} is restoring");
        return Err(Error::refused(text));
    }
    Ok(())
}

async fn reset(session: &Session, member: &Member) -> Result<(), Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    agent.reset(()).await.or_failed("failed to reset sync agent server")
}
