//! Has all replicas begin to restore a backup: takes the steps of [`Restore`].

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use rpc::ptypes::{self, BackupRestoreRequest, RestoreStatusResponse};
use rpc::volume::RestoreRequest;
use wire::membership::Standing;

use crate::core::{Mode, ReplicaId};
use crate::machine::outcome::Left;
use crate::machine::restore::{
    Event, Order, Rejection, Restore, Restored, Step, View, Wanted, doing,
};

use super::drive::{Calls, Driver, Taken, Taking, drive};
use super::engine::{CALL_LIMIT, Engine, Replica};
use super::link::{CallError, Link};
use super::probe;
use super::together::of;

/// Its name until it is filled anew.
pub(super) fn identity(standing: &Standing) -> String {
    format!("{}@{}", standing.id, standing.adoption)
}

pub(super) fn restored(status: RestoreStatusResponse) -> Restored {
    Restored {
        running: status.is_restoring.then_some(status.current_restoring_backup),
        last: status.last_restored,
        companions: status.holdfast_companions,
        unfinished: status.holdfast_unfinished,
        has_failed: status.state == "error",
        disk: status.dest_file_name,
    }
}

fn view(replica: ptypes::Replica, status: RestoreStatusResponse, is_purging: bool) -> View {
    let standing = probe::standing(&replica).ok().flatten();
    View {
        identity: standing.map(|standing| identity(&standing)),
        is_rebuilding: replica.rebuilding,
        is_purging,
        parent: replica.parent,
        disks: replica.disks.into_keys().collect(),
        head: replica.head,
        restored: restored(status),
    }
}

async fn look(link: Link, address: String) -> Result<View, String> {
    // A raw file holds what it holds.
    if link.file().is_some() {
        return Ok(View::default());
    }
    let told = |doing: String| move |error: CallError| format!("{doing}: {}", error.answered());
    let replica = link.get(CALL_LIMIT).await;
    let replica = replica.map_err(told(format!("failed to get replica {address}")))?;
    let purging = link.purge_status(CALL_LIMIT).await;
    let purging =
        purging.map_err(told(format!("failed to get snapshot purge status of {address}")))?;
    let status = link.restore_status(CALL_LIMIT).await;
    let status = status.map_err(told(format!("failed to get restore status of {address}")))?;
    Ok(view(replica, status, purging.is_purging))
}

async fn look_again(link: Link) -> Result<Restored, String> {
    if link.file().is_some() {
        return Ok(Restored::default());
    }
    let status = link.restore_status(CALL_LIMIT).await;
    status.map(restored).map_err(|error| error.to_string())
}

/// What those who restore together know, and nobody else: another one each time.
fn key() -> Vec<u8> {
    [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].iter().flat_map(|half| *half.as_bytes()).collect()
}

/// What each may take of a limit for all. A limit stays one, however small.
fn share(bytes_per_second: u64, members: usize) -> u64 {
    match bytes_per_second {
        0 => 0,
        rate => (rate / u64::try_from(members).unwrap_or(1).max(1)).max(1),
    }
}

impl Engine {
    /// Has all replicas restore the backup; gives those that did not begin, and why. Nothing is shown to
    /// clients before all have it: see [`Self::check_restored`].
    pub(super) async fn restore(
        self: &Arc<Self>,
        wish: RestoreRequest,
    ) -> Result<Vec<Left>, Rejection> {
        let _order = self.order.lock().await;
        if self.frontend_is_up() {
            let text = "volume frontend enabled, cannot perform restore";
            return Err(Rejection::Plain(text.to_owned()));
        }
        let all = self.replicas();
        let replicas = self.live();
        let wanted = Wanted {
            backup: wish.backup_name.clone(),
            backup_volume: wish.backup_volume.clone(),
            backup_bytes: wish.backup_bytes,
            volume: self.options.volume.clone(),
            volume_bytes: self.state().size,
            fresh_disk: format!("volume-snap-{}.img", uuid::Uuid::new_v4()),
        };
        let members = replicas.iter().filter_map(Replica::asked).collect();
        let (machine, first) = Restore::begin(wanted, members);
        let mut restoring =
            Restoring { engine: Arc::clone(self), machine, wish, key: key(), replicas };
        let ended = drive(&mut restoring, first).await;
        let stuck = || Err(Rejection::Plain("nothing is left to wait for".to_owned()));
        let mut left: BTreeMap<String, String> = ended
            .unwrap_or_else(stuck)?
            .into_iter()
            .map(|left| (left.address, left.message))
            .collect();
        let failed = all.iter().filter(|replica| replica.mode == Mode::Err);
        let text = "cannot restore backup from replica in mode ERR";
        left.extend(failed.map(|replica| (replica.address.clone(), text.to_owned())));
        let in_order = all.into_iter().filter_map(|Replica { address, .. }| {
            let message = left.remove(&address)?;
            Some(Left { address, message })
        });
        Ok(in_order.collect())
    }
}

struct Restoring {
    engine: Arc<Engine>,
    machine: Restore,
    wish: RestoreRequest,
    key: Vec<u8>,
    replicas: Vec<Replica>,
}

impl Restoring {
    fn request(&self, id: ReplicaId, order: Order) -> BackupRestoreRequest {
        let agents = order.together.iter().filter_map(|other| {
            let replica = of(&self.replicas, *other)?;
            replica.link.file().is_none().then(|| (*other, replica.address.clone()))
        });
        let (ids, together): (Vec<ReplicaId>, Vec<String>) = agents.unzip();
        let own = ids.iter().position(|other| *other == id);
        BackupRestoreRequest {
            backup: self.wish.backup.clone(),
            snapshot_disk_name: order.disk,
            credential: self.wish.credential.clone(),
            concurrent_limit: self.wish.concurrent_limit,
            holdfast_bytes_per_second: share(self.wish.bytes_per_second, together.len()),
            holdfast_together: together,
            holdfast_own_index: own.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX),
            holdfast_go_on: self.wish.go_on,
            holdfast_key: self.key.clone(),
            holdfast_companions: order.companions,
        }
    }
}

impl Driver for Restoring {
    type Step = Step;
    type Event = Event;
    type End = Result<Vec<Left>, Rejection>;

    fn on(&mut self, event: Event) -> Vec<Step> {
        self.machine.on(event)
    }

    fn take<'t>(
        &'t mut self,
        step: Step,
        calls: &'t mut Calls<Event>,
    ) -> Taking<'t, Event, Result<Vec<Left>, Rejection>> {
        async move {
            let engine = Arc::clone(&self.engine);
            match step {
                Step::Look(id) => {
                    let Some(replica) = of(&self.replicas, id).cloned() else {
                        return Taken::Nothing;
                    };
                    calls.push(
                        async move {
                            let gone = format!("replica {} failed meanwhile", replica.address);
                            let look = look(replica.link, replica.address);
                            Event::Looked(
                                id,
                                engine.unless_failed(id, look).await.unwrap_or(Err(gone)),
                            )
                        }
                        .boxed(),
                    );
                    Taken::Nothing
                }
                Step::Ask(id, order) => {
                    let Some(replica) = of(&self.replicas, id).cloned() else {
                        return Taken::Nothing;
                    };
                    let (request, doing) = (self.request(id, order), doing(&replica.address));
                    calls.push(
                        async move {
                            let asked = replica.link.restore(CALL_LIMIT, request);
                            let answer = match engine.unless_failed(id, asked).await {
                                Some(Ok(())) => Ok(()),
                                Some(Err(error)) => Err(format!("{doing}: {}", error.answered())),
                                None => Err(format!("{doing}: it failed meanwhile")),
                            };
                            Event::Answered(id, answer)
                        }
                        .boxed(),
                    );
                    Taken::Nothing
                }
                Step::LookAgain(id) => {
                    let Some(replica) = of(&self.replicas, id).cloned() else {
                        return Taken::Nothing;
                    };
                    calls.push(
                        async move {
                            let gone = Err("it failed meanwhile".to_owned());
                            let again = engine.unless_failed(id, look_again(replica.link)).await;
                            Event::LookedAgain(id, again.unwrap_or(gone))
                        }
                        .boxed(),
                    );
                    Taken::Nothing
                }
                Step::Purge => {
                    let purged = engine.purge_before_restore().await;
                    Taken::Event(Event::Purging(purged))
                }
                Step::Fail(id, why) => {
                    engine.volume().set_mode(id, Mode::Err, &format!("restore: {why}")).await;
                    Taken::Nothing
                }
                Step::Record => {
                    let recorded = engine.record().await;
                    Taken::Event(Event::Recorded(recorded.map_err(|fault| fault.to_string())))
                }
                Step::End(ended) => Taken::End(ended),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shared_and_stays_one() {
        assert_eq!([share(0, 3), share(9, 3), share(2, 3), share(5, 0)], [0, 3, 1, 5]);
    }
}
