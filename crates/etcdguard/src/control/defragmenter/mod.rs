//! Defragments the members of the cluster after each planned time, while this sidecar leads. Looks
//! anew before every step ([`decide`]), and a planned time stays due until all is done for it
//! ([`agenda`]), so a change of leadership in between or at that very time loses nothing: the next
//! leader goes on with those that the leases of the members do not say are done. Without leases it
//! begins with the first, which does no harm.

mod agenda;
mod decide;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tasks::Stop;

use self::agenda::{Agenda, Slot};
use self::decide::{Facts, Seen, Step};
use super::collector::Duty;
use super::events::{Site, Troubles};
use super::leases::Leases;
use super::metrics::Meter;
use super::schedule::{Schedule, wait_until};
use crate::etcd::wire::AlarmType;
use crate::etcd::{Etcd, EtcdError, Member};

/// Between a look that asked for time, or a step that failed, and the next look.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// What is planned is looked at anew so often.
const LOOK_AT_CLOCK: Duration = Duration::from_mins(1);
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The annotation of a member's lease that says when it was defragmented.
const DONE: &str = "etcd.holdfast.io/defragmented";

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
    pub(super) troubles: Troubles,
    pub(super) duty: Duty,
    pub(super) leases: Option<Leases>,
    /// When members were defragmented by this process.
    pub(super) done: BTreeMap<u64, Timestamp>,
}

impl Defragmenter {
    pub(super) async fn run(mut self, stop: Stop) {
        let mut agenda = Agenda::new(self.config.schedule.clone(), Timestamp::now());
        // Dropped in the middle of a step, it leaves nothing half done: etcd ends its own.
        let work = async {
            loop {
                self.turn(&mut agenda).await;
            }
        };
        stop.or_stop(work).await;
    }

    /// One step of what is due while this sidecar leads, or a wait for it to lead or to be due.
    async fn turn(&mut self, agenda: &mut Agenda) {
        let Some(slot) = agenda.due(Timestamp::now()) else {
            // The clock may be put back meanwhile.
            let again = tokio::time::sleep(LOOK_AT_CLOCK);
            return tokio::select! { () = wait_until(agenda.next()) => {}, () = again => {} };
        };
        self.duty.on().await;
        let stepped = match self.look(slot).await {
            Ok(facts) => self.step(&facts).await,
            Err(error) => Err(error),
        };
        match stepped {
            Ok(Next::Look) => return,
            Ok(Next::Rest) => return agenda.done(slot),
            Ok(Next::Wait(why)) => tracing::info!("defragmentation waits: {why}"),
            Err(error) => {
                let why = telemetry::Chain(&error).to_string();
                tracing::warn!("defragmentation is tried again: {why}");
                self.troubles.tell(Site::Defragmentation, why);
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }

    async fn look(&self, slot: Slot) -> Result<Facts, EtcdError> {
        let timeout = self.etcd.config().connection_timeout;
        let own = self.etcd.status(timeout).await?;
        let alarms = self.etcd.alarms().await?;
        let mut members = Vec::new();
        for member in self.etcd.members(timeout).await? {
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
        let timeout = self.etcd.config().connection_timeout;
        let status = async { self.client_of(member)?.status(timeout).await };
        Seen {
            id: member.id,
            is_learner: member.is_learner,
            answers: status.await.is_ok(),
            done: self.done.get(&member.id).copied().max(self.told(&member.name).await),
        }
    }

    /// What the lease of a member says, if it says anything.
    async fn told(&self, name: &str) -> Option<Timestamp> {
        let leases = self.leases.as_ref()?;
        leases.annotation(name, DONE, LEASE_TIMEOUT).await.ok()??.parse().ok()
    }

    /// Says in the lease of a member that it is done. Not being able to is no harm.
    async fn tell(&self, name: &str, time: Timestamp) {
        let Some(leases) = &self.leases else { return };
        if let Err(error) = leases.annotate(name, DONE, &time.to_string(), LEASE_TIMEOUT).await {
            tracing::warn!(
                "that {name} is defragmented is not known to others: {}",
                telemetry::Chain(&error)
            );
        }
    }

    /// Through its own URLs: the one given to us may be of a service in front of all.
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
            Step::Defragment(id) => self.defragment(id, None).await,
            Step::DefragmentLeader { hand_to } => {
                if let Some(to) = hand_to
                    && let Err(error) = self.etcd.move_leader(to).await
                {
                    tracing::warn!(
                        "the leader is defragmented as it is: {}",
                        telemetry::Chain(&error)
                    );
                }
                self.defragment(facts.leader, Some(self.etcd.clone())).await
            }
        }
    }

    /// Defragments a member, through `etcd` or its own URLs.
    async fn defragment(&mut self, id: u64, etcd: Option<Etcd>) -> Result<Next, EtcdError> {
        let members = self.etcd.members(self.etcd.config().connection_timeout).await?;
        let member = members.iter().find(|member| member.id == id);
        let Some(member) = member else { return Ok(Next::Look) };
        let etcd = etcd.map_or_else(|| self.client_of(member), Ok)?;
        let begun = Instant::now();
        let outcome = etcd.defragment().await;
        self.metrics.defragmentation_took(etcd.endpoint(), outcome.is_ok(), begun.elapsed());
        outcome?;
        tracing::info!("defragmented {} in {:?}", member.name, begun.elapsed());
        let now = Timestamp::now();
        self.done.insert(id, now);
        self.tell(&member.name, now).await;
        Ok(Next::Look)
    }
}

/// What follows a step.
enum Next {
    Look,
    Rest,
    Wait(&'static str),
}
