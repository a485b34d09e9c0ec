//! `add-replica`: from a closed replica to one that serves reads. A controller of ours does it all by
//! itself, whatever becomes of this command; another only ever does one step, and is led through the
//! rest. A caller that dies in between leaves it a replica that takes writes and nothing else, or one
//! that failed: it is removed and added again.

use std::collections::HashMap;
use std::time::Duration;

use rpc::ptypes::{
    ControllerReplica, ControllerReplicaCreateRequest, FilesSyncRequest, RebuildingSetRequest,
    Replica, ReplicaAddress, ReplicaExpandRequest, ReplicaMode, ReplicaOpenRequest, SyncFileInfo,
    VolumeStartRequest,
};
use rpc::{Address, Deadline, Rebuilding};

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Controller, Session};
use super::table::flags as f;
use super::{progress, reach, replicas, server};

/// From this version of its API a controller says how many sources a rebuild may have.
const API_WITH_LIMIT: i64 = 6;

/// What the command line says about the new replica.
#[derive(Debug)]
struct New {
    address: String,
    instance: String,
    restore: bool,
    fast_sync: bool,
    file_sync_timeout_seconds: i32,
    grpc_timeout_seconds: i64,
}

pub(crate) async fn run(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let new = read(line)?;
    let (size, current_size) = replicas::sizes(line)?;
    reach::replica(&new.address, server::replica_wait(line)?, console).await;
    let mut controller = session.controller()?;
    let volume = controller.volume_get(()).await.or_failed("failed to get volume")?;
    if volume.replica_count == 0 {
        let replica_addresses = vec![new.address];
        let request = VolumeStartRequest { replica_addresses, size, current_size };
        controller.volume_start(request).await.or_failed("failed to start volume")?;
        return Ok(());
    }
    if new.restore {
        return add_for_restore(session, &mut controller, &new, volume.size).await;
    }
    prepare(session, &new, volume.size).await?;
    let mode = add_and_fill(session, &new, console).await?;
    match mode {
        // The controller leaves the rest to its callers.
        ReplicaMode::Wo => {}
        ReplicaMode::Rw => return Ok(()),
        ReplicaMode::Err => {
            let text = format!("replica {} has failed: remove it before adding it", new.address);
            return Err(Error::Refused(text));
        }
    }
    rebuild(session, &mut controller, &new, console).await
}

fn read(line: &Line) -> Result<New, Error> {
    Ok(New {
        address: replicas::address(line)?,
        instance: line.flags.text(&f::REPLICA_INSTANCE_NAME),
        restore: line.flags.switch(&f::RESTORE),
        fast_sync: line.flags.switch(&f::FAST_SYNC),
        file_sync_timeout_seconds: file_sync_timeout(line)?,
        grpc_timeout_seconds: line.flags.integer(&f::GRPC_TIMEOUT),
    })
}

/// `--file-sync-http-client-timeout`, for a request.
pub(crate) fn file_sync_timeout(line: &Line) -> Result<i32, Error> {
    let seconds = line.flags.integer(&f::FILE_SYNC_TIMEOUT);
    i32::try_from(seconds).ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
        Error::Refused(format!("invalid --file-sync-http-client-timeout {seconds}: seconds"))
    })
}

/// `--grpc-timeout-seconds`: how long a call that copies data may take.
pub(crate) fn copying(seconds: i64) -> Deadline {
    match u64::try_from(seconds) {
        Ok(0) | Err(_) => Deadline::Long,
        Ok(seconds) => Deadline::After(Duration::from_secs(seconds)),
    }
}

/// Without a snapshot and without copying: a restore will fill it.
async fn add_for_restore(
    session: &Session,
    controller: &mut Controller,
    new: &New,
    volume_size: i64,
) -> Result<(), Error> {
    let size = size_of(&session.look(&new.address, &new.instance).await?)?;
    if size != volume_size {
        let text =
            format!("rebuilding replica size {size} is not the same as volume size {volume_size}");
        return Err(Error::Refused(text));
    }
    let added = controller.controller_replica_create(joining(new, Snapshot::None)).await;
    added.or_failed(format!("failed to add replica {}", new.address))?;
    Ok(())
}

fn size_of(replica: &Replica) -> Result<i64, Error> {
    replica.size.parse().map_err(|_| {
        Error::Refused(format!("the replica says its size is {:?}: no number", replica.size))
    })
}

/// Brings a closed replica to the size of the volume and forgets an earlier rebuild of it. One
/// that is not closed is left alone: the controller will refuse it.
async fn prepare(session: &Session, new: &New, volume_size: i64) -> Result<(), Error> {
    let replica = session.look(&new.address, &new.instance).await?;
    if replica.state != "closed" {
        return Ok(());
    }
    let size = size_of(&replica)?;
    if size > volume_size {
        let text = format!("cannot add new replica larger than size {volume_size}");
        return Err(Error::Refused(text));
    }
    if size == volume_size && !replica.rebuilding {
        return Ok(());
    }
    let address = &new.address;
    let mut client = session.replica(address, &new.instance)?;
    let open = client.replica_open(ReplicaOpenRequest::default()).await;
    open.or_failed(format!("failed to open replica {address}"))?;
    let mended = async {
        if replica.rebuilding {
            let request = RebuildingSetRequest { rebuilding: false };
            let reply = client.rebuilding_set(request).await;
            reply.or_failed(format!("failed to end the earlier rebuild of replica {address}"))?;
        }
        if size < volume_size {
            let reply = client.replica_expand(ReplicaExpandRequest { size: volume_size }).await;
            reply.or_failed(format!("failed to expand replica {address} to {volume_size}"))?;
        }
        Ok::<(), Error>(())
    };
    let mended = mended.await;
    // Closed also after a failure, so that the next try finds it as this one did.
    let closed = client.replica_close(()).await;
    mended?;
    closed.or_failed(format!("failed to close replica {address}"))?;
    Ok(())
}

/// Whether the controller takes a snapshot as it adds the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Snapshot {
    Taken,
    None,
}

/// Has the controller add it, and write to it from there on.
fn joining(new: &New, snapshot: Snapshot) -> ControllerReplicaCreateRequest {
    let mut request = ControllerReplicaCreateRequest {
        address: new.address.clone(),
        snapshot_required: snapshot == Snapshot::Taken,
        mode: 0,
    };
    request.set_mode(ReplicaMode::Wo);
    request
}

/// The same, and fill it if it can: then it can be read when it answers.
async fn add_and_fill(
    session: &Session,
    new: &New,
    console: &mut Console<'_>,
) -> Result<ReplicaMode, Error> {
    let how = Rebuilding {
        fast_sync: new.fast_sync,
        file_sync_timeout_seconds: new.file_sync_timeout_seconds,
        call_timeout_seconds: new.grpc_timeout_seconds,
    };
    let request = rpc::rebuild_request(joining(new, Snapshot::Taken), how);
    let mut controller = session.patient_controller(copying(new.grpc_timeout_seconds))?;
    let status = session.agent(&new.address, &new.instance, Deadline::Usual)?;
    let adding = async move { controller.controller_replica_create(request).await };
    let reply = progress::watch(adding, status, &new.address, console).await;
    Ok(reply.or_failed(format!("failed to add replica {}", new.address))?.mode())
}

async fn rebuild(
    session: &Session,
    controller: &mut Controller,
    new: &New,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let address = &new.address;
    let sources = sources(session, controller, address).await?;
    let mut client = session.replica(address, &new.instance)?;
    let reply = client.rebuilding_set(RebuildingSetRequest { rebuilding: true }).await;
    reply.or_failed(format!("failed to mark replica {address} as rebuilding"))?;
    let name = || ReplicaAddress { address: address.clone(), instance_name: new.instance.clone() };
    let prepared = controller.replica_prepare_rebuild(name()).await;
    let prepared = prepared.or_failed(format!("failed to prepare the rebuild of {address}"))?;
    copy(session, new, sources, prepared.sync_file_info_list, console).await?;
    let reply = client.replica_reload(()).await;
    reply.or_failed(format!("failed to reload replica {address}"))?;
    let reply = controller.replica_verify_rebuild(name()).await;
    let verified: ControllerReplica =
        reply.or_failed(format!("failed to verify the rebuild of replica {address}"))?;
    if verified.mode() != ReplicaMode::Rw {
        let text = format!(
            "replica {address} is in mode {} after its rebuild",
            verified.mode().as_str_name()
        );
        return Err(Error::Refused(text));
    }
    let reply = client.rebuilding_set(RebuildingSetRequest { rebuilding: false }).await;
    reply.or_failed(format!("failed to mark replica {address} as rebuilt"))?;
    Ok(())
}

/// The replicas to copy from, as many as the controller allows.
async fn sources(
    session: &Session,
    controller: &mut Controller,
    new: &str,
) -> Result<Vec<String>, Error> {
    let mut members = session.working_members().await?;
    members.retain(|member| member.mode == ReplicaMode::Rw && member.address != new);
    if members.is_empty() {
        return Err(Error::refused("cannot find any healthy replica to rebuild from"));
    }
    let version = controller.version_detail_get(()).await.or_failed("failed to get version")?;
    if version.version.is_some_and(|it| it.controller_api_version >= API_WITH_LIMIT) {
        let reply = controller.replica_rebuild_concurrent_sync_limit_get(()).await;
        let limit = reply.or_failed("failed to get the limit of rebuild sources")?.limit;
        members.truncate(usize::try_from(limit).unwrap_or_default().max(1));
    }
    Ok(members.into_iter().map(|member| member.address).collect())
}

/// Lets the new replica's agent fetch the files, and says how far it is to whoever watches.
async fn copy(
    session: &Session,
    new: &New,
    sources: Vec<String>,
    files: Vec<SyncFileInfo>,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let host = new.address.parse::<Address>()?.host().to_owned();
    let request = FilesSyncRequest {
        // For agents that know of one source only.
        from_address: sources.first().cloned().unwrap_or_default(),
        to_host: host,
        sync_file_info_list: files,
        fast_sync: new.fast_sync,
        file_sync_http_client_timeout: new.file_sync_timeout_seconds,
        grpc_timeout_seconds: new.grpc_timeout_seconds,
        local_sync: None,
        from_address_map: sources.into_iter().map(|it| (it, true)).collect::<HashMap<_, _>>(),
    };
    let deadline = copying(new.grpc_timeout_seconds);
    let mut agent = session.agent(&new.address, &new.instance, deadline)?;
    let status = session.agent(&new.address, &new.instance, Deadline::Usual)?;
    let copying = async move { agent.files_sync(request).await };
    let reply = progress::watch(copying, status, &new.address, console).await;
    reply.or_failed(format!("failed to copy the files of the volume to {}", new.address))
}
