//! Fills a replica from the others, from its first call to its last: whoever asked for it may be gone.
//!
//! Owns: the calls that the steps of [`Rebuild`] and [`Join`] stand for. Never: which comes next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use rpc::{Address, Rebuilding, ptypes};

use crate::core::Mode;
use crate::machine::rebuild::{Join, JoinEvent, JoinStep, NotJoined, Rebuild, Step};
use crate::volume::HoldGuard;

use super::drive::{Calls, Driver, Taken, Taking, drive};
use super::each::judge;
use super::engine::{CALL_LIMIT, Engine, Entry, Replica, created_now};
use super::link::{CallError, Link};
use super::probe::Opened;
use super::rebuild::Joined;
use super::replicas::ReplicaError;
use super::snapshot::SnapshotError;
use super::together::of;

/// Why a replica was not filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    #[error(transparent)]
    Add(#[from] ReplicaError),
    #[error("replica {0} has failed: remove it before adding it")]
    Failed(String),
    #[error("replica {0} is being filled by somebody else")]
    Busy(String),
    #[error("replica {address} is not filled: {why}")]
    Broken { address: String, why: String },
}

/// How long the copying may take if nobody says it.
const COPY_LIMIT: Duration = Duration::from_hours(24);

/// Who fills the replica that a call asks for.
#[derive(Debug)]
pub(super) enum Turn {
    /// This call.
    Ours(Filling),
    /// It can be read from already.
    Over(Replica),
}

/// The right to fill a replica: nobody else fills one until it is dropped.
#[derive(Debug)]
pub(super) struct Filling {
    engine: Arc<Engine>,
    address: String,
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.engine.filling.send_replace(None);
    }
}

impl Filling {
    pub(super) async fn run(self, how: Rebuilding) -> Result<Replica, FillError> {
        self.engine.fill(&self.address, how).await
    }
}

impl Engine {
    /// Waits for the end of a call that fills this replica already, and begins nothing then: it may have
    /// been removed meanwhile. There is one at a time; others are refused at once.
    pub(super) async fn turn_to_fill(self: &Arc<Self>, address: &str) -> Result<Turn, FillError> {
        let is_whole = |replica: &Replica| replica.mode == Mode::Rw;
        if let Some(whole) = self.find(address).filter(is_whole) {
            return Ok(Turn::Over(whole));
        }
        let mut filling = self.filling.subscribe();
        let mut filled = None;
        self.filling.send_if_modified(|now| {
            filled.clone_from(now);
            now.get_or_insert_with(|| address.to_owned());
            filled.is_none()
        });
        match filled {
            None => {
                Ok(Turn::Ours(Filling { engine: Arc::clone(self), address: address.to_owned() }))
            }
            Some(other) if other != address => Err(ReplicaError::SecondWo.into()),
            Some(_) => {
                // The sender is this engine's.
                let _ = filling.wait_for(|now| now.as_deref() != Some(address)).await;
                let found = self.find(address).ok_or_else(|| self.not_found(address))?;
                match found.mode {
                    Mode::Rw => Ok(Turn::Over(found)),
                    Mode::Wo => Err(FillError::Busy(found.address)),
                    Mode::Err => Err(FillError::Failed(found.address)),
                }
            }
        }
    }

    /// Adds the replica at `address` and fills it.
    async fn fill(&self, address: &str, how: Rebuilding) -> Result<Replica, FillError> {
        self.check_nobody_fills(address).await?;
        let (mut machine, first) = Rebuild::begin();
        let mut steps = VecDeque::from([first]);
        let mut refused = None;
        let mut files = vec![];
        // All that follows is for the one that joined, and not for another that comes to its address.
        let mut joined: Option<Replica> = None;
        while let Some(step) = steps.pop_front() {
            let ended = match (step, joined.clone()) {
                (Step::Join, _) => match self.add_to_fill(address).await {
                    Ok(replica) => match replica.mode {
                        Mode::Wo => {
                            joined = Some(replica);
                            Ok(())
                        }
                        // It was added before, and is done.
                        Mode::Rw => return Ok(replica),
                        Mode::Err => return Err(FillError::Failed(address.to_owned())),
                    },
                    Err(error) => {
                        let why = error.to_string();
                        refused = Some(error);
                        Err(why)
                    }
                },
                (Step::Prepare, Some(new)) => match self.prepare_filling(&new).await {
                    Ok(wanted) => {
                        files = wanted;
                        Ok(())
                    }
                    Err(why) => Err(why),
                },
                (Step::Copy, Some(new)) => {
                    self.copy_to(&new, std::mem::take(&mut files), how).await
                }
                (Step::Reload, Some(new)) => {
                    self.at(&new, |link| async move { link.reload(CALL_LIMIT).await.map(drop) })
                        .await
                }
                (Step::Verify, Some(new)) => match self.verify_and_unmark(&new).await {
                    Ok(replica) if replica.mode == Mode::Rw => Ok(()),
                    Ok(_) => Err("it failed meanwhile".to_owned()),
                    Err(error) => Err(error.to_string()),
                },
                (Step::Prepare | Step::Copy | Step::Reload | Step::Verify, None) => {
                    Err("it has not joined".to_owned())
                }
                (Step::GiveUp(why), new) => {
                    tracing::error!(replica = address, why, "replica {address} is given up: {why}");
                    if let Some(new) = new {
                        self.fail(&new, &format!("rebuild: {why}")).await;
                    }
                    continue;
                }
                (Step::End(Ok(())), _) => break,
                (Step::End(Err(why)), _) => {
                    let address = address.to_owned();
                    return Err(refused.map_or(FillError::Broken { address, why }, FillError::Add));
                }
            };
            steps.extend(machine.on(ended));
        }
        Ok(self.find(address).ok_or_else(|| self.not_found(address))?)
    }

    /// A caller of the dialect may be at it, call by call: it is not taken from him.
    async fn check_nobody_fills(&self, address: &str) -> Result<(), FillError> {
        let Some(known) = self.find(address).filter(|replica| replica.mode == Mode::Wo) else {
            return Ok(());
        };
        match known.link.rebuild_status(self.hold_limit()).await {
            Ok(status) if status.is_rebuilding => Err(FillError::Busy(address.to_owned())),
            // What cannot be asked now is found out by what comes.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Has the replica do something, unless it fails first.
    async fn at<F>(&self, new: &Replica, call: impl FnOnce(Link) -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), CallError>>,
    {
        let died = self.any_failed(new.member.as_slice());
        tokio::select! {
            done = call(new.link.clone()) => done.map_err(|error| error.to_string()),
            () = died => Err("it failed meanwhile".to_owned()),
        }
    }

    /// What has to be copied to it.
    async fn prepare_filling(&self, new: &Replica) -> Result<Vec<ptypes::SyncFileInfo>, String> {
        // Those that keep a standing are marked as they join.
        let mark =
            |link: Link| async move { link.set_rebuilding(CALL_LIMIT, true).await.map(drop) };
        self.at(new, mark).await?;
        let prepared = self.prepare_rebuild(&new.address, Joined::As(new.member)).await;
        prepared.map(|(_, files)| files).map_err(|error| error.to_string())
    }

    async fn copy_to(
        &self,
        new: &Replica,
        files: Vec<ptypes::SyncFileInfo>,
        how: Rebuilding,
    ) -> Result<(), String> {
        let address = &new.address;
        let mut sources = self.readable();
        sources.retain(|source| source.link.file().is_none());
        let limit = self.state().rebuild_sync_limit;
        sources.truncate(usize::try_from(limit).unwrap_or_default().max(1));
        let sources: Vec<String> = sources.into_iter().map(|source| source.address).collect();
        let Some(first) = sources.first().cloned() else {
            return Err("cannot find any healthy replica to rebuild from".to_owned());
        };
        let host = address.parse::<Address>().map_err(|error| error.to_string())?.host().to_owned();
        let request = ptypes::FilesSyncRequest {
            // For agents that know of one source only.
            from_address: first,
            to_host: host,
            sync_file_info_list: files,
            fast_sync: how.fast_sync,
            file_sync_http_client_timeout: how.file_sync_timeout_seconds,
            grpc_timeout_seconds: how.call_timeout_seconds,
            local_sync: None,
            from_address_map: sources.into_iter().map(|source| (source, true)).collect(),
        };
        let limit = match u64::try_from(how.call_timeout_seconds) {
            Ok(0) | Err(_) => COPY_LIMIT,
            Ok(seconds) => Duration::from_secs(seconds),
        };
        self.at(new, |link| async move { link.sync_files(limit, request).await }).await
    }

    /// Makes an opened replica a member that is written to and not read from, at a snapshot of all.
    pub(super) async fn join_to_be_filled(
        &self,
        address: &str,
        link: &Link,
        opened: &Opened,
        name: String,
    ) -> Result<(), ReplicaError> {
        let request = ptypes::ReplicaSnapshotRequest {
            name: name.clone(),
            user_created: false,
            created: created_now(),
            labels: std::collections::HashMap::new(),
        };
        let (machine, first) = Join::begin();
        let mut joining = Joining {
            engine: self,
            machine,
            new: New { address, link, opened },
            request,
            replicas: vec![],
            guard: None,
        };
        let stuck = || Err(NotJoined::Attach("nothing is left to wait for".to_owned()));
        let ended = drive(&mut joining, vec![first]).await.unwrap_or_else(stuck);
        ended.map_err(|why| not_joined(address, name, why))
    }
}

/// The one that joins.
struct New<'a> {
    address: &'a str,
    link: &'a Link,
    opened: &'a Opened,
}

struct Joining<'a> {
    engine: &'a Engine,
    machine: Join,
    new: New<'a>,
    /// The snapshot from which on it is written to.
    request: ptypes::ReplicaSnapshotRequest,
    /// Those that are in use, as of when changes were kept out.
    replicas: Vec<Replica>,
    guard: Option<HoldGuard>,
}

impl Driver for Joining<'_> {
    type Step = JoinStep;
    type Event = JoinEvent;
    type End = Result<(), NotJoined>;

    fn on(&mut self, event: JoinEvent) -> Vec<JoinStep> {
        self.machine.on(event)
    }

    fn take<'t>(
        &'t mut self,
        step: JoinStep,
        calls: &'t mut Calls<JoinEvent>,
    ) -> Taking<'t, JoinEvent, Result<(), NotJoined>> {
        async move {
            let (engine, New { address, link, opened }) = (self.engine, &self.new);
            let limit = engine.hold_limit();
            Taken::Event(match step {
                JoinStep::Hold(kind) => match engine.hold(kind).await {
                    Ok(held) => {
                        self.guard = Some(held);
                        self.replicas = engine.live();
                        JoinEvent::Held(self.replicas.iter().filter_map(Replica::asked).collect())
                    }
                    Err(busy) => JoinEvent::Busy(busy.to_string()),
                },
                JoinStep::AskNew => {
                    JoinEvent::NewAnswered(judge(link.snapshot(limit, self.request.clone()).await))
                }
                JoinStep::Ask(id) => {
                    let asked = of(&self.replicas, id).map(|replica| replica.link.clone());
                    calls.extend(asked.map(|link| {
                        let request = self.request.clone();
                        let asked = async move { judge(link.snapshot(limit, request).await) };
                        asked.map(move |took| JoinEvent::Answered(id, took)).boxed()
                    }));
                    return Taken::Nothing;
                }
                JoinStep::Fail(id, why) => {
                    let why = format!("snapshot {}: {why}", self.request.name);
                    engine.volume().set_mode(id, Mode::Err, &why).await;
                    return Taken::Nothing;
                }
                JoinStep::Disqualify => {
                    let done = engine.disqualify(link, opened).await;
                    JoinEvent::Disqualified(done.map_err(|error| error.to_string()))
                }
                JoinStep::Attach => {
                    let attached = engine.attach(link, opened, Mode::Wo).await;
                    JoinEvent::Attached(attached.map(|member| {
                        let (address, link) = ((*address).to_owned(), (*link).clone());
                        engine.state().entries.push(Entry { address, link, member: Some(member) });
                    }))
                }
                JoinStep::Release => {
                    self.guard = None;
                    return Taken::Nothing;
                }
                JoinStep::End(ended) => return Taken::End(ended),
            })
        }
        .boxed()
    }
}

fn not_joined(address: &str, name: String, why: NotJoined) -> ReplicaError {
    let address = address.to_owned();
    match why {
        NotJoined::Busy(why) => SnapshotError::Busy(why).into(),
        NotJoined::New(why) => {
            SnapshotError::Replicas { name, detail: format!("{address}: {why}") }.into()
        }
        NotJoined::Others(detail) => SnapshotError::Replicas { name, detail }.into(),
        NotJoined::Disqualify(detail) | NotJoined::Attach(detail) => {
            ReplicaError::Attach { address, detail }
        }
    }
}
