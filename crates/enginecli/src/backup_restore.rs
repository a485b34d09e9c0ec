//! `backup restore` and `backup restore-status`: all replicas begin to restore together, once it is
//! sure that nothing stands in the way of any of them.

use std::collections::BTreeMap;

use backupstore::{BackupInfo, BackupUrl, Environment};
use replica::DiskName;
use rpc::Deadline;
use rpc::ptypes::{BackupRestoreRequest, Replica, ReplicaMode, RestoreStatusResponse, Volume};
use serde::Serialize;
use uuid::Uuid;

use super::backup::{bytes_per_second, limit};
use super::backup_store::{argument, environment, open_target, plain_url, told};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Member, Session, each};
use super::waiting::{Seen, Waiting};

/// What an encrypted volume has beside its data.
const ENCRYPTION_BYTES: u64 = 16 << 20;
const ALREADY_PURGING: &str = "already purging";

/// Why a restore was not begun.
enum Rejection {
    Plain(Error),
    Replicas(Vec<ReplicaError>),
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReplicaError {
    address: String,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReplicaErrors {
    replica_errors: Vec<ReplicaError>,
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Plain(error)
    }
}

pub(crate) async fn run(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let waiting = Waiting::new(line, "restoring")?;
    match restore(session, line).await {
        Ok(()) if line.flags.switch(&b::WAIT) => wait(session, &waiting, console).await,
        Ok(()) => Ok(()),
        Err(Rejection::Plain(error)) => {
            console.say(&error.to_string())?;
            Err(error)
        }
        Err(Rejection::Replicas(replica_errors)) => {
            let texts: Vec<String> =
                replica_errors.iter().map(|it| format!("{}: {}", it.address, it.message)).collect();
            console.json(&ReplicaErrors { replica_errors })?;
            Err(Error::Refused(texts.join("; ")))
        }
    }
}

async fn restore(session: &Session, line: &Line) -> Result<(), Rejection> {
    let url = plain_url(argument(line, 0, "URL")?);
    let environment = environment(line)?;
    let volume = session.controller()?.volume_get(()).await;
    let volume = volume.or_failed("failed to get volume")?;
    if volume.frontend_state == "up" {
        return Err(Error::refused("volume frontend enabled, cannot perform restore").into());
    }
    let members = session.members().await?;
    let working = session.working_members().await?;
    let looks = look_at(session, &working).await?;
    check_idle(session, &working, &looks).await?;
    let statuses = statuses(session, &working).await?;
    let is_incremental = statuses.values().any(|status| !status.last_restored.is_empty());
    let disk = disk(session, &working, &looks, &statuses, is_incremental).await?;
    let info = match inspect(&url, &environment).await {
        Ok(info) => info,
        Err(error) => {
            let text = format!("failed to get the current restoring backup info: {error}");
            return Err(all(&working, &text));
        }
    };
    let extra = if line.flags.switch(&b::ENCRYPTED_SIZE) { ENCRYPTION_BYTES } else { 0 };
    check_size(&info, extra, &volume, is_incremental)?;
    let request = BackupRestoreRequest {
        backup: url,
        snapshot_disk_name: disk,
        credential: environment.to_pairs().into_iter().collect(),
        concurrent_limit: limit(line),
        holdfast_together: working.iter().map(|member| member.address.clone()).collect(),
        holdfast_own_index: 0,
        holdfast_bytes_per_second: share(bytes_per_second(line), working.len()),
        holdfast_go_on: line.flags.switch(&b::CONTINUE_ON_ERROR),
        holdfast_key: key(),
    };
    let asked = each(&members, |member| {
        let index = working.iter().position(|other| other == member);
        // One that is not among them restores for itself.
        let index = index.and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX);
        begin(
            session,
            member,
            BackupRestoreRequest { holdfast_own_index: index, ..request.clone() },
        )
    });
    let asked = asked.await;
    let failed: Vec<ReplicaError> = asked
        .into_iter()
        .filter_map(|(member, outcome)| {
            let message = outcome.err()?.to_string();
            Some(ReplicaError { address: member.address.clone(), message })
        })
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(Rejection::Replicas(failed)) }
}

/// What those who restore together know, and nobody else: another one each time.
fn key() -> Vec<u8> {
    [Uuid::new_v4(), Uuid::new_v4()].iter().flat_map(|half| *half.as_bytes()).collect()
}

/// What each may take of a limit for all. A limit stays one, however small.
fn share(bytes_per_second: u64, members: usize) -> u64 {
    match bytes_per_second {
        0 => 0,
        rate => (rate / u64::try_from(members).unwrap_or(1).max(1)).max(1),
    }
}

fn all(members: &[Member], text: &str) -> Rejection {
    let one = |member: &Member| ReplicaError {
        address: member.address.clone(),
        message: text.to_owned(),
    };
    Rejection::Replicas(members.iter().map(one).collect())
}

async fn look_at(
    session: &Session,
    members: &[Member],
) -> Result<BTreeMap<String, Replica>, Error> {
    let looked = each(members, |member| session.look(&member.address, "")).await;
    looked.into_iter().map(|(member, look)| Ok((member.address.clone(), look?))).collect()
}

/// Nobody is rebuilt, nobody purges.
async fn check_idle(
    session: &Session,
    members: &[Member],
    looks: &BTreeMap<String, Replica>,
) -> Result<(), Rejection> {
    let rebuilding: Vec<Member> = members
        .iter()
        .filter(|member| looks.get(&member.address).is_some_and(|look| look.rebuilding))
        .cloned()
        .collect();
    if !rebuilding.is_empty() {
        return Err(all(&rebuilding, "cannot do restore for normal rebuilding replica"));
    }
    for (member, purging) in each(members, |member| is_purging(session, member)).await {
        if purging? {
            let text = "cannot do restore now since replicas are purging snapshots";
            tracing::debug!(replica = member.address, "is purging");
            return Err(Error::refused(text).into());
        }
    }
    Ok(())
}

async fn is_purging(session: &Session, member: &Member) -> Result<bool, Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let reply = agent.snapshot_purge_status(()).await;
    let reply =
        reply.or_failed(format!("failed to get snapshot purge status of {}", member.address))?;
    Ok(reply.is_purging)
}

async fn statuses(
    session: &Session,
    members: &[Member],
) -> Result<BTreeMap<String, RestoreStatusResponse>, Error> {
    let asked = each(members, |member| asked(session, member)).await;
    asked.into_iter().map(|(member, status)| Ok((member.address.clone(), status?))).collect()
}

async fn asked(session: &Session, member: &Member) -> Result<RestoreStatusResponse, Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let doing = format!("failed to get restore status of {}", member.address);
    agent.restore_status(()).await.or_failed(doing)
}

/// The disk to restore to: the only snapshot there is, or a new one.
async fn disk(
    session: &Session,
    members: &[Member],
    looks: &BTreeMap<String, Replica>,
    statuses: &BTreeMap<String, RestoreStatusResponse>,
    is_incremental: bool,
) -> Result<String, Error> {
    let readable = members.iter().filter(|member| member.mode == ReplicaMode::Rw);
    let widest = readable
        .filter_map(|member| looks.get(&member.address))
        .max_by_key(|look| disks(look).count());
    let names = || members.iter().map(|it| it.address.as_str()).collect::<Vec<_>>().join(", ");
    let Some(look) = widest else {
        let text =
            format!("BUG: replicas {} do not contain any snapshots and volume head", names());
        return Err(Error::Refused(text));
    };
    match disks(look).count() {
        0 => Err(Error::Refused(format!(
            "BUG: replicas {} do not contain any snapshots and volume head",
            names()
        ))),
        1 if is_incremental => Err(Error::Refused(format!(
            "BUG: replicas {} of DR volume should contains at least 2 disk files: the volume head \
             and a snapshot storing restore data",
            names()
        ))),
        1 => {
            // One that is being restored already, or was begun, has its name.
            let begun = statuses.values().map(|status| &status.dest_file_name);
            let begun = begun.filter(|name| !name.is_empty()).min().cloned();
            let new = || format!("volume-snap-{}.img", uuid::Uuid::new_v4());
            Ok(begun.unwrap_or_else(new))
        }
        // Cut short before the head was put on what was restored.
        2 if look.parent.is_empty() => {
            let below = disks(look).find(|name| **name != look.head).cloned();
            below.ok_or_else(|| Error::refused("the replica has two heads"))
        }
        2 => Ok(look.parent.clone()),
        _ => {
            purge(session, members).await?;
            Err(Error::refused(
                "found more than 1 snapshot in the replicas, hence started to purge snapshots \
                 before the restore",
            ))
        }
    }
}

/// The head and the snapshots; a backing file is none of them.
fn disks(look: &Replica) -> impl Iterator<Item = &String> {
    look.disks.keys().filter(|name| DiskName::parse(name).is_ok())
}

async fn purge(session: &Session, members: &[Member]) -> Result<(), Error> {
    for (_, begun) in each(members, |member| begin_purge(session, member)).await {
        match begun {
            Err(error) if !error.to_string().contains(ALREADY_PURGING) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

async fn begin_purge(session: &Session, member: &Member) -> Result<(), Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    agent.snapshot_purge(()).await.or_failed("failed to purge snapshots")
}

async fn inspect(url: &str, environment: &Environment) -> Result<BackupInfo, Error> {
    let url = BackupUrl::parse(url).map_err(told)?;
    let (volume, backup) = url.require_backup().map_err(told)?;
    open_target(&url.target, environment).await?.inspect_backup(volume, backup).await.map_err(told)
}

/// A volume follows its backup in size, and never leads.
fn check_size(
    info: &BackupInfo,
    extra: u64,
    volume: &Volume,
    is_incremental: bool,
) -> Result<(), Error> {
    let (from, name) = (&info.volume_name, &volume.name);
    let backup = info.volume_size.saturating_add(extra);
    let size = u64::try_from(volume.size).unwrap_or(0);
    let text = if backup < size {
        format!(
            "BUG: The backup volume {from} size {backup} cannot be smaller than the DR volume \
             {name} size {size}"
        )
    } else if backup == size {
        return Ok(());
    } else if is_incremental {
        format!(
            "need to expand the DR volume {name} to size {backup} before incremental restoration"
        )
    } else {
        format!(
            "BUG: The backup volume {from} size {backup} cannot be larger than normal restore \
             volume {name} size {size}"
        )
    };
    Err(Error::Refused(text))
}

async fn begin(
    session: &Session,
    member: &Member,
    request: BackupRestoreRequest,
) -> Result<(), Error> {
    if member.mode == ReplicaMode::Err {
        return Err(Error::refused("cannot restore backup from replica in mode ERR"));
    }
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let doing = format!("failed to restore backup on replica {}", member.address);
    agent.backup_restore(request).await.or_failed(doing)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    is_restoring: bool,
    #[serde(skip_serializing_if = "is_zero")]
    progress: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    filename: String,
    state: String,
    #[serde(rename = "backupURL")]
    backup_url: String,
    last_restored: String,
    current_restoring_backup: String,
    /// From here on what only some replicas tell.
    #[serde(skip_serializing_if = "is_none")]
    fetched_bytes: u64,
    #[serde(skip_serializing_if = "is_none")]
    taken_bytes: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    left_out: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_none(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Waits until no replica restores any more, and fails if one of them failed or left something out.
async fn wait(
    session: &Session,
    waiting: &Waiting<'_>,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let ended = waiting.until(console, async || {
        let statuses = statuses(session, &session.working_members().await?).await?;
        if statuses.is_empty() {
            return Err(Error::refused("the restore is not whole: no replica works any more"));
        }
        let running = statuses.values().filter(|status| status.is_restoring);
        // The slowest decides.
        Ok(match running.map(|status| status.progress).min() {
            Some(progress) => Seen::Running(progress),
            None => Seen::Ended(statuses),
        })
    });
    let statuses = ended.await?;
    let failed = failure(&statuses);
    show(statuses, console)?;
    failed.map_or(Ok(()), Err)
}

/// What went wrong, of all replicas.
fn failure(statuses: &BTreeMap<String, RestoreStatusResponse>) -> Option<Error> {
    let why = |status: &RestoreStatusResponse| {
        let left_out = &status.holdfast_left_out;
        let left_out = (!left_out.is_empty()).then(|| format!("left out: {left_out}"));
        (!status.error.is_empty()).then(|| status.error.clone()).or(left_out)
    };
    let of = |(address, status): (&String, &RestoreStatusResponse)| {
        Some(format!("{address}: {}", why(status)?))
    };
    let failed: Vec<String> = statuses.iter().filter_map(of).collect();
    let text = format!("the restore is not whole: {}", failed.join("; "));
    (!failed.is_empty()).then_some(Error::Refused(text))
}

pub(crate) async fn status(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let statuses = statuses(session, &session.working_members().await?).await?;
    // A peer's command succeeds when it could ask.
    let failed = failure(&statuses).filter(|_| !line.is_peer());
    show(statuses, console)?;
    failed.map_or(Ok(()), Err)
}

fn show(
    statuses: BTreeMap<String, RestoreStatusResponse>,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let mut shown = BTreeMap::new();
    for (address, status) in statuses {
        let status = Status {
            is_restoring: status.is_restoring,
            progress: status.progress,
            error: status.error,
            filename: status.dest_file_name,
            state: status.state,
            backup_url: status.backup_url,
            last_restored: status.last_restored,
            current_restoring_backup: status.current_restoring_backup,
            fetched_bytes: status.holdfast_fetched_bytes,
            taken_bytes: status.holdfast_taken_bytes,
            left_out: status.holdfast_left_out,
        };
        shown.insert(address, status);
    }
    console.json_line(&shown)
}
