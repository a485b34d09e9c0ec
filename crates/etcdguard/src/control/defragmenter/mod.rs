//! Defragments the members of the cluster after each planned time, while this sidecar leads. Looks
//! anew before every step ([`decide`]), so a change of leadership in between loses nothing: the
//! next leader sees which members still have much to gain.

mod decide;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tasks::Stop;

use self::decide::{Facts, Seen, Sizes, Step};
use super::collector::Duty;
use super::metrics::Meter;
use super::schedule::{Schedule, wait_until};
use crate::etcd::wire::AlarmType;
use crate::etcd::{Etcd, EtcdError, Member};

/// Between a look that asked for patience, or a step that failed, and the next look.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct DefragmenterConfig {
    pub schedule: Schedule,
    /// Of the member beside this sidecar, to see whether its disk has room.
    pub data_dir: Option<PathBuf>,
}

pub(super) struct Defragmenter {
    pub(super) config: DefragmenterConfig,
    pub(super) etcd: Etcd,
    pub(super) metrics: Arc<dyn Meter>,
    pub(super) duty: Duty,
    /// When members were defragmented by this process.
    pub(super) done: BTreeMap<u64, Timestamp>,
}

impl Defragmenter {
    pub(super) async fn run(mut self, stop: Stop) {
        let mut next = self.config.schedule.next(Timestamp::now());
        while stop.or_stop(wait_until(next)).await.is_some() {
            let slot = next.unwrap_or_else(Timestamp::now);
            next = self.config.schedule.next(Timestamp::now());
            // What is not done when the next time comes is done then.
            tokio::select! {
                () = stop.stopping() => return,
                () = self.work_off(slot) => {}
            }
            next = next.max(self.config.schedule.next(slot));
        }
    }

    /// Step after step until nothing is left to do for `slot`, or this sidecar does not lead.
    async fn work_off(&mut self, slot: Timestamp) {
        while self.duty.is_on() {
            let stepped = match self.look(slot).await {
                Ok(facts) => self.step(&facts).await,
                Err(error) => Err(error),
            };
            match stepped {
                Ok(Next::Look) => continue,
                Ok(Next::Rest) => return,
                Ok(Next::Wait(why)) => tracing::info!("defragmentation waits: {why}"),
                Err(error) => tracing::warn!("defragmentation is tried again: {error}"),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn look(&self, slot: Timestamp) -> Result<Facts, EtcdError> {
        let patience = self.etcd.config().connection_timeout;
        let own = self.etcd.status(patience).await?;
        let alarms = self.etcd.alarms().await?;
        let mut members = Vec::new();
        for member in self.etcd.members(patience).await? {
            members.push(self.look_at(&member).await);
        }
        Ok(Facts {
            members,
            leader: own.leader,
            slot,
            is_alarmed: alarms.iter().any(|alarm| alarm.alarm() == AlarmType::Corrupt),
            has_room: self.has_room(own.db_size_in_use),
        })
    }

    async fn look_at(&self, member: &Member) -> Seen {
        let patience = self.etcd.config().connection_timeout;
        let status = async { self.client_of(member)?.status(patience).await };
        let sizes = status
            .await
            .ok()
            .map(|status| Sizes { file_bytes: status.db_size, used_bytes: status.db_size_in_use });
        Seen {
            id: member.id,
            is_learner: member.is_learner,
            sizes,
            done: self.done.get(&member.id).copied(),
        }
    }

    /// Through its own URLs; the one given to us where it is the only member and hides its own.
    fn client_of(&self, member: &Member) -> Result<Etcd, EtcdError> {
        self.etcd.at(&member.client_ur_ls)
    }

    fn has_room(&self, used_bytes: i64) -> bool {
        let Some(dir) = &self.config.data_dir else { return true };
        // A directory that cannot be asked is no reason not to try: etcd says so itself.
        let Ok(disk) = rustix::fs::statvfs(dir) else { return true };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        u64::try_from(used_bytes).is_ok_and(|used| free > used)
    }

    async fn step(&mut self, facts: &Facts) -> Result<Next, EtcdError> {
        match decide::decide(facts) {
            Step::Rest => Ok(Next::Rest),
            Step::Wait(why) => Ok(Next::Wait(why)),
            Step::Defragment(id) => {
                let members = self.etcd.members(self.etcd.config().connection_timeout).await?;
                let member = members.iter().find(|member| member.id == id);
                let Some(member) = member else { return Ok(Next::Look) };
                self.defragment(id, &self.client_of(member)?).await.map(|()| Next::Look)
            }
            Step::DefragmentLeader { hand_to } => {
                if let Some(to) = hand_to
                    && let Err(error) = self.etcd.move_leader(to).await
                {
                    tracing::warn!("the leader is defragmented as it is: {error}");
                }
                self.defragment(facts.leader, &self.etcd.clone()).await.map(|()| Next::Look)
            }
        }
    }

    async fn defragment(&mut self, id: u64, etcd: &Etcd) -> Result<(), EtcdError> {
        let begun = Instant::now();
        let outcome = etcd.defragment().await;
        self.metrics.defragmentation_took(etcd.endpoint(), outcome.is_ok(), begun.elapsed());
        outcome?;
        tracing::info!("defragmented member {id:x} in {:?}", begun.elapsed());
        self.done.insert(id, Timestamp::now());
        Ok(())
    }
}

/// What follows a step.
enum Next {
    Look,
    Rest,
    Wait(&'static str),
}
