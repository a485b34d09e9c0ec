//! `backup create` and `backup status`: a replica makes the backup, and is asked how far it is.

use std::collections::HashMap;

use replica::DiskName;
use rpc::Deadline;
use rpc::ptypes::{BackupCreateRequest, BackupStatusRequest, BackupStatusResponse, ReplicaMode};
use serde::Serialize;

use super::backup_store::{environment, plain_url};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::Session;
use super::snapshot::{self, HEAD};
use super::table::flags as f;
use super::value;
use super::waiting::{Seen, Waiting};

const IN_PROGRESS: &str = "in_progress";

#[derive(Debug, Serialize)]
struct Created {
    #[serde(rename = "backupID")]
    backup: String,
    #[serde(rename = "isIncremental")]
    is_incremental: bool,
    #[serde(rename = "replicaAddress")]
    replica: String,
}

pub(crate) async fn create(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let snapshot = snapshot::name(line)?;
    let what = format!("backing up {snapshot}");
    // What cannot be waited for is not begun.
    let waiting = Waiting::new(line, &what)?;
    let request = request(session, line, &snapshot).await?;
    let members = session.working_members().await?;
    let first = members.into_iter().find(|member| member.mode == ReplicaMode::Rw);
    let replica = first.map(|member| member.address);
    let replica =
        replica.ok_or_else(|| Error::refused("cannot find any healthy replica to back up from"))?;
    let disk = DiskName::of_snapshot(&snapshot).map_err(|it| Error::refused(it.to_string()))?;
    if !session.look(&replica, "").await?.disks.contains_key(disk.as_str()) {
        let text = format!("snapshot disk {disk} not found on replica {replica}");
        return Err(Error::Refused(text));
    }
    let mut agent = session.agent(&replica, "", Deadline::Usual)?;
    let reply = agent.backup_create(request).await;
    let reply = reply.or_failed(format!("failed to create backup of {snapshot} on {replica}"))?;
    let (backup, is_incremental) = (reply.backup, reply.is_incremental);
    if !line.flags.switch(&b::WAIT) {
        return console.json_line(&Created { backup, is_incremental, replica });
    }
    let ended = waiting.until(console, async || {
        let status = asked(session, &replica, "", &backup).await?;
        let progress = status.progress;
        Ok(if status.state == IN_PROGRESS { Seen::Running(progress) } else { Seen::Ended(status) })
    });
    let status = ended.await?;
    let failed = failure(&backup, &status);
    show(status, &replica, console)?;
    failed.map_or(Ok(()), Err)
}

/// The error of a backup that failed.
fn failure(backup: &str, status: &BackupStatusResponse) -> Option<Error> {
    let why = if status.error.is_empty() { &status.state } else { &status.error };
    let is_well = status.error.is_empty() && status.state != "error";
    (!is_well).then(|| Error::Refused(format!("backup {backup} failed: {why}")))
}

async fn request(
    session: &Session,
    line: &Line,
    snapshot: &str,
) -> Result<BackupCreateRequest, Error> {
    let dest = plain_url(&line.flags.text(&b::DEST));
    if dest.is_empty() {
        return Err(Error::refused("missing required parameter --dest"));
    }
    if snapshot == HEAD {
        return Err(Error::refused("cannot backup the head disk in the chain"));
    }
    let labels = line.flags.list(&f::LABEL);
    value::labels(&labels).map_err(Error::Refused)?;
    let bad = || Error::refused("--backup-block-size is not a number of MiB that can be used");
    let mebibytes = u64::try_from(line.flags.integer(&b::BACKUP_BLOCK_SIZE)).map_err(|_| bad())?;
    let block_bytes = mebibytes.checked_mul(1 << 20).ok_or_else(bad)?;
    let volume = session.controller()?.volume_get(()).await;
    let volume = volume.or_failed("failed to get volume")?;
    Ok(BackupCreateRequest {
        snapshot_file_name: snapshot.to_owned(),
        backup_target: dest,
        volume_name: volume.name,
        labels,
        credential: environment(line)?.to_pairs().into_iter().collect(),
        backing_image_name: line.flags.text(&b::BACKING_IMAGE_NAME),
        backing_image_checksum: line.flags.text(&b::BACKING_IMAGE_CHECKSUM),
        backup_name: line.flags.text(&b::BACKUP_NAME),
        compression_method: line.flags.text(&b::COMPRESSION_METHOD),
        concurrent_limit: limit(line),
        // A number by its declaration; what is stored without one is "0".
        storage_class_name: line.flags.integer(&b::STORAGE_CLASS_NAME).to_string(),
        parameters: parameters(block_bytes, &line.flags.text(&b::BACKUP_MODE))?,
        holdfast_bytes_per_second: bytes_per_second(line),
    })
}

fn parameters(block_bytes: u64, mode: &str) -> Result<HashMap<String, String>, Error> {
    let mut parameters = HashMap::from([("backup-block-size".to_owned(), block_bytes.to_string())]);
    match mode {
        "" => {}
        "full" | "incremental" => {
            drop(parameters.insert("backup-mode".to_owned(), mode.to_owned()));
        }
        other => {
            let text = format!("--backup-mode is full or incremental, not {other:?}");
            return Err(Error::Refused(text));
        }
    }
    Ok(parameters)
}

/// 0 is no limit.
pub(super) fn bytes_per_second(line: &Line) -> u64 {
    line.flags.size(&b::BANDWIDTH_LIMIT).and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
}

pub(super) fn limit(line: &Line) -> i32 {
    i32::try_from(line.flags.integer(&b::CONCURRENT_LIMIT)).unwrap_or(i32::MAX).max(1)
}

#[derive(Debug, Serialize)]
struct Status {
    progress: i32,
    #[serde(rename = "backupURL", skip_serializing_if = "String::is_empty")]
    url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(rename = "snapshotName")]
    snapshot: String,
    state: String,
    #[serde(rename = "replicaAddress")]
    replica: String,
}

pub(crate) async fn status(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let backup = line.arguments.first().cloned();
    let backup = backup.ok_or_else(|| Error::refused("missing required parameter backupID"))?;
    let instance = line.flags.text(&f::REPLICA_INSTANCE_NAME);
    let wanted = line.flags.text(&b::REPLICA);
    let mut members = session.working_members().await?;
    members.retain(|member| member.mode == ReplicaMode::Rw);
    if !wanted.is_empty() {
        members.retain(|member| member.address == wanted);
        if members.is_empty() {
            let text =
                format!("failed to get backup status on {wanted} for {backup}: unknown replica");
            return Err(Error::Refused(text));
        }
    }
    let mut failed = None;
    for member in &members {
        match asked(session, &member.address, &instance, &backup).await {
            Ok(status) => {
                // A peer's command succeeds when it could ask.
                let failed = failure(&backup, &status).filter(|_| !line.is_peer());
                show(status, &member.address, console)?;
                return failed.map_or(Ok(()), Err);
            }
            Err(error) => failed = Some(error),
        }
    }
    let nobody = || Error::refused(format!("cannot find backup {backup} on any replica"));
    Err(failed.unwrap_or_else(nobody))
}

async fn asked(
    session: &Session,
    address: &str,
    instance: &str,
    backup: &str,
) -> Result<BackupStatusResponse, Error> {
    let mut agent = session.agent(address, instance, Deadline::Usual)?;
    let reply = agent.backup_status(BackupStatusRequest { backup: backup.to_owned() }).await;
    reply.or_failed(format!("failed to get backup status on {address} for {backup}"))
}

fn show(
    status: BackupStatusResponse,
    address: &str,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    console.json_line(&Status {
        progress: status.progress,
        url: status.backup_url,
        error: status.error,
        snapshot: status.snapshot_name,
        state: status.state,
        replica: address.to_owned(),
    })
}
