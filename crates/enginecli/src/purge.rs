//! `snapshot purge` and `snapshot purge-status`. A controller of ours has all replicas begin, whatever
//! becomes of this command; under another they are asked from here.

use std::collections::BTreeMap;

use rpc::ptypes::SnapshotPurgeStatusResponse;
use rpc::volume::{PurgeReply, PurgeRequest, ReplicaError};
use rpc::{Deadline, HeadParent, purge_request};
use serde::Serialize;

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Member, Session, all_well, beyond, each};
use super::table::flags as f;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    error: String,
    is_purging: bool,
    progress: i32,
    state: String,
}

pub(crate) async fn run(session: &Session, line: &Line) -> Result<(), Error> {
    let members = session.working_members().await?;
    let skips = line.flags.switch(&f::SKIP_IF_IN_PROGRESS);
    let fold = line.flags.switch(&f::FOLD_HEAD_PARENT);
    let request = PurgeRequest { fold_head_parent: fold, skip_if_in_progress: skips };
    let asked = session.volume(Deadline::Long)?.purge(request).await;
    if let Some(reply) = beyond(asked, "failed to purge snapshots")? {
        return all_begun(reply);
    }
    let looked = each(&members, |member| look(session, member)).await;
    for (member, look) in looked {
        let address = &member.address;
        match look? {
            Look::Idle => {}
            Look::Rebuilding => {
                let text =
                    format!("cannot purge snapshots because replica {address} is rebuilding");
                return Err(Error::Refused(text));
            }
            Look::Purging if skips => return Ok(()),
            Look::Purging => {
                let text = format!("replica {address} is already purging snapshots");
                return Err(Error::Refused(text));
            }
        }
    }
    let head_parent = if fold { HeadParent::Fold } else { HeadParent::Keep };
    all_well(each(&members, |member| start(session, member, head_parent)).await)
}

fn all_begun(reply: PurgeReply) -> Result<(), Error> {
    let text = |it: ReplicaError| format!("{}: {}", it.address, it.message);
    let failed: Vec<String> = reply.errors.into_iter().map(text).collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Refused(failed.join("; "))) }
}

/// What keeps a replica from purging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Idle,
    Rebuilding,
    Purging,
}

async fn look(session: &Session, member: &Member) -> Result<Look, Error> {
    if session.look(&member.address, "").await?.rebuilding {
        return Ok(Look::Rebuilding);
    }
    let purging = asked(session, member).await?.is_purging;
    Ok(if purging { Look::Purging } else { Look::Idle })
}

async fn start(session: &Session, member: &Member, head_parent: HeadParent) -> Result<(), Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    agent.snapshot_purge(purge_request(head_parent)).await.or_failed("failed to purge snapshots")
}

async fn asked(session: &Session, member: &Member) -> Result<SnapshotPurgeStatusResponse, Error> {
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let doing = format!("failed to get snapshot purge status of {}", member.address);
    agent.snapshot_purge_status(()).await.or_failed(doing)
}

pub(crate) async fn status(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let members = session.working_members().await?;
    let mut statuses = BTreeMap::new();
    for (member, status) in each(&members, |member| asked(session, member)).await {
        let status = status.unwrap_or_else(|error| SnapshotPurgeStatusResponse {
            error: error.to_string(),
            ..Default::default()
        });
        let SnapshotPurgeStatusResponse { error, is_purging, progress, state } = status;
        statuses.insert(&member.address, Status { error, is_purging, progress, state });
    }
    console.json(&statuses)
}
