//! `backup restore` and `backup restore-status`: all replicas begin to restore together, once it is
//! sure that nothing stands in the way of any of them. A controller of ours sees to that by itself,
//! whatever becomes of this command; under another the replicas are asked from here.

use std::collections::BTreeMap;

use backupstore::{BackupInfo, BackupUrl, Environment};
use engine::core::{Mode, ReplicaId};
use engine::machine::outcome::{Asked, Left};
use engine::machine::restore::{Rejection as Refused, Restored, View, Wanted, check_size, target};
use rpc::Deadline;
use rpc::ptypes::{BackupRestoreRequest, Replica, ReplicaMode, RestoreStatusResponse};
use rpc::volume::RestoreRequest;
use serde::Serialize;
use uuid::Uuid;

use super::backup::{bytes_per_second, limit};
use super::backup_store::{argument, environment, open_target, plain_url, told};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Member, Session, beyond, each};
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

impl From<Refused> for Rejection {
    fn from(rejection: Refused) -> Self {
        match rejection {
            Refused::Plain(text) | Refused::Purge(text) => Self::Plain(Error::Refused(text)),
            Refused::Copies(left) => {
                let error = |Left { address, message }| ReplicaError { address, message };
                Self::Replicas(left.into_iter().map(error).collect())
            }
        }
    }
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
    let extra = if line.flags.switch(&b::ENCRYPTED_SIZE) { ENCRYPTION_BYTES } else { 0 };
    let inspected = inspect(&url, &environment).await;
    let inspected = inspected.map(|info| Inspected {
        volume_bytes: info.volume_size.saturating_add(extra),
        backup: info.name,
        volume: info.volume_name,
    });
    if let Ok(info) = &inspected {
        let request = RestoreRequest {
            backup: url.clone(),
            backup_name: info.backup.clone(),
            backup_volume: info.volume.clone(),
            backup_bytes: info.volume_bytes,
            credential: environment.to_pairs().into_iter().collect(),
            concurrent_limit: limit(line),
            bytes_per_second: bytes_per_second(line),
            go_on: line.flags.switch(&b::CONTINUE_ON_ERROR),
        };
        let asked = session.volume(Deadline::Long)?.restore(request).await;
        if let Some(reply) = beyond(asked, "failed to restore backup")? {
            let errors = reply.errors.into_iter();
            return all_begun(errors.map(|it| (it.address, it.message)));
        }
    }
    let members = session.members().await?;
    let working = session.working_members().await?;
    let looks = look_at(session, &working).await?;
    let (purging, statuses) = if looks.values().any(|look| look.rebuilding) {
        // That is told first.
        (BTreeMap::new(), BTreeMap::new())
    } else {
        (purging(session, &working).await?, statuses(session, &working).await?)
    };
    let views = views(&working, looks, &purging, &statuses);
    let fresh = format!("volume-snap-{}.img", Uuid::new_v4());
    let target = match target(&views, &fresh) {
        Err(Refused::Purge(text)) => {
            purge(session, &working).await?;
            return Err(Error::Refused(text).into());
        }
        target => target?,
    };
    let info = match inspected {
        Ok(info) => info,
        Err(error) => {
            let text = format!("failed to get the current restoring backup info: {error}");
            return all_begun(working.into_iter().map(|member| (member.address, text.clone())));
        }
    };
    let wanted = Wanted {
        backup: info.backup,
        backup_volume: info.volume,
        backup_bytes: info.volume_bytes,
        volume: volume.name,
        volume_bytes: u64::try_from(volume.size).unwrap_or(0),
        fresh_disk: fresh,
    };
    check_size(&wanted, target.is_incremental)?;
    let request = BackupRestoreRequest {
        backup: url,
        snapshot_disk_name: target.disk,
        credential: environment.to_pairs().into_iter().collect(),
        concurrent_limit: limit(line),
        holdfast_together: working.iter().map(|member| member.address.clone()).collect(),
        holdfast_own_index: 0,
        holdfast_bytes_per_second: share(bytes_per_second(line), working.len()),
        holdfast_go_on: line.flags.switch(&b::CONTINUE_ON_ERROR),
        holdfast_key: key(),
        // Of what nobody watches over, no account is kept.
        holdfast_companions: vec![],
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
    let failed = asked
        .await
        .into_iter()
        .filter_map(|(member, outcome)| Some((member.address.clone(), outcome.err()?.to_string())));
    all_begun(failed)
}

/// What a backup says of itself.
struct Inspected {
    backup: String,
    volume: String,
    /// So large a volume must be for it.
    volume_bytes: u64,
}

fn all_begun(failed: impl Iterator<Item = (String, String)>) -> Result<(), Rejection> {
    let failed: Vec<ReplicaError> =
        failed.map(|(address, message)| ReplicaError { address, message }).collect();
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

async fn look_at(
    session: &Session,
    members: &[Member],
) -> Result<BTreeMap<String, Replica>, Error> {
    let looked = each(members, |member| session.look(&member.address, "")).await;
    looked.into_iter().map(|(member, look)| Ok((member.address.clone(), look?))).collect()
}

async fn purging(session: &Session, members: &[Member]) -> Result<BTreeMap<String, bool>, Error> {
    let asked = each(members, |member| is_purging(session, member)).await;
    asked.into_iter().map(|(member, is)| Ok((member.address.clone(), is?))).collect()
}

/// The members as the order of a restore sees them.
fn views(
    members: &[Member],
    mut looks: BTreeMap<String, Replica>,
    purging: &BTreeMap<String, bool>,
    statuses: &BTreeMap<String, RestoreStatusResponse>,
) -> Vec<(Asked, View)> {
    let view = |(id, Member { address, mode }): (ReplicaId, &Member)| {
        let mode = match mode {
            ReplicaMode::Rw => Mode::Rw,
            ReplicaMode::Wo => Mode::Wo,
            ReplicaMode::Err => Mode::Err,
        };
        let look = looks.remove(address).unwrap_or_default();
        let status = statuses.get(address);
        let restored = Restored {
            last: status.map(|it| it.last_restored.clone()).unwrap_or_default(),
            disk: status.map(|it| it.dest_file_name.clone()).unwrap_or_default(),
            ..Restored::default()
        };
        let view = View {
            identity: None,
            is_rebuilding: look.rebuilding,
            is_purging: purging.get(address).copied().unwrap_or_default(),
            parent: look.parent,
            disks: look.disks.into_keys().collect(),
            head: look.head,
            restored,
        };
        (Asked { id, mode, address: address.clone() }, view)
    };
    (0..).map(ReplicaId).zip(members).map(view).collect()
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
