//! What the guarded etcd member is now: one poller for all who want to know.
//!
//! Subscribers get the last observation, never a queue of them, and cannot slow the poller. A
//! poll that fails is an observation like any other ([`MemberState::Unknown`]), so
//! [`EtcdMonitor::run`] has no way to fail.
//!
//! ```text
//!   Status fails, or names no leader ──────────▶ Unknown
//!   the member is the leader ──────────────────▶ Leader
//!   the member does not vote ──────────────────▶ Learner
//!   otherwise ─────────────────────────────────▶ Follower
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tasks::Stop;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::{Etcd, EtcdError, StatusResponse};

/// So many looks there must have been before anybody acts as a leader's guard.
const LOOKS_TO_LEAD: u64 = 2;

/// The part a member plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    Leader,
    Follower,
    Learner,
    /// It cannot be told.
    Unknown,
}

/// One look at the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub state: MemberState,
    /// 0 until the member has answered once; then kept, as they do not change.
    pub member_id: u64,
    pub cluster_id: u64,
    /// The leader the member knows of, 0 if none.
    pub leader_id: u64,
    /// How many looks there have been; 0 before the first.
    pub looks: u64,
}

impl Observation {
    const NOTHING: Self =
        Self { state: MemberState::Unknown, member_id: 0, cluster_id: 0, leader_id: 0, looks: 0 };

    /// Whether the member leads, and has been seen to more than once: the first look after a start
    /// may be at an etcd that is just about to end.
    pub fn is_leading(&self) -> bool {
        self.state == MemberState::Leader && self.looks >= LOOKS_TO_LEAD
    }

    fn after(self, answer: Result<&StatusResponse, &EtcdError>) -> Self {
        let looks = self.looks + 1;
        let Ok(status) = answer else {
            return Self { state: MemberState::Unknown, leader_id: 0, looks, ..self };
        };
        let header = status.header.unwrap_or_default();
        Self {
            state: state_of(status),
            member_id: header.member_id,
            cluster_id: header.cluster_id,
            leader_id: status.leader,
            looks,
        }
    }
}

fn state_of(status: &StatusResponse) -> MemberState {
    let own = status.header.map_or(0, |header| header.member_id);
    if status.leader == 0 {
        MemberState::Unknown
    } else if status.leader == own {
        MemberState::Leader
    } else if status.is_learner {
        MemberState::Learner
    } else {
        MemberState::Follower
    }
}

/// Whoever can say what the member is.
#[async_trait::async_trait]
pub trait StatusSource: Send + Sync + 'static {
    async fn status(&self, deadline: Duration) -> Result<StatusResponse, EtcdError>;
}

#[async_trait::async_trait]
impl StatusSource for Etcd {
    async fn status(&self, deadline: Duration) -> Result<StatusResponse, EtcdError> {
        Etcd::status(self, deadline).await
    }
}

/// Polls the member and tells its subscribers. Clones are the same monitor.
#[derive(Clone)]
pub struct EtcdMonitor {
    source: Arc<dyn StatusSource>,
    period: Duration,
    deadline: Duration,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    last: Observation,
    /// None once the monitor is closed.
    subscribers: Option<BTreeMap<String, watch::Sender<Observation>>>,
}

/// Tells one subscriber of the member.
#[derive(Debug, Clone)]
pub struct Subscription(watch::Receiver<Observation>);

impl Subscription {
    /// The last observation.
    pub fn latest(&mut self) -> Observation {
        *self.0.borrow_and_update()
    }

    /// The next observation after those already seen, or none when the subscription has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: an observation that was not given counts as not seen.
    pub async fn next(&mut self) -> Option<Observation> {
        self.0.changed().await.ok()?;
        Some(self.latest())
    }

    /// Ends when the last observation is as wanted, or with none when the subscription ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub async fn until(&mut self, wanted: impl Fn(&Observation) -> bool) -> Option<Observation> {
        self.0.wait_for(|seen| wanted(seen)).await.ok().map(|seen| *seen)
    }
}

impl EtcdMonitor {
    /// Looks every `period`, and takes no answer within `deadline` for an answer.
    pub fn new(source: Arc<dyn StatusSource>, period: Duration, deadline: Duration) -> Self {
        let shared = Shared { last: Observation::NOTHING, subscribers: Some(BTreeMap::new()) };
        Self { source, period, deadline, shared: Arc::new(Mutex::new(shared)) }
    }

    /// Polls until told to stop or closed. Never fails.
    pub async fn run(&self, stop: &Stop) {
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.or_stop(ticks.tick()).await.is_some() {
            let looked = stop.or_stop(self.look()).await;
            if looked != Some(true) {
                return;
            }
        }
    }

    /// Looks once and tells; false if there is nobody to tell any more.
    async fn look(&self) -> bool {
        let asked = tokio::time::timeout(self.deadline, self.source.status(self.deadline)).await;
        let answer = asked.unwrap_or_else(|_| {
            Err(EtcdError::Timeout { endpoint: "the member".to_owned(), after: self.deadline })
        });
        let mut shared = self.lock();
        let before = shared.last;
        shared.last = before.after(answer.as_ref());
        let now = shared.last;
        if now.state != before.state || before.looks == 0 {
            match &answer {
                Ok(_) => tracing::info!("the etcd member is {:?}", now.state),
                Err(error) => {
                    tracing::warn!("the etcd member is Unknown: {}", telemetry::Chain(&error));
                }
            }
        }
        let Some(subscribers) = &shared.subscribers else { return false };
        for sender in subscribers.values() {
            sender.send_replace(now);
        }
        true
    }

    /// Begins to tell a subscriber, whose first observation is the last one made. A name that is
    /// taken is taken over: the older subscription ends.
    pub fn subscribe(&self, name: &str) -> Subscription {
        let mut shared = self.lock();
        let (sender, receiver) = watch::channel(shared.last);
        if let Some(subscribers) = &mut shared.subscribers
            && subscribers.insert(name.to_owned(), sender).is_some()
        {
            tracing::warn!("subscription {name} was taken over");
        }
        Subscription(receiver)
    }

    /// Ends a subscription. Not there is not an error.
    pub fn unsubscribe(&self, name: &str) {
        if let Some(subscribers) = &mut self.lock().subscribers {
            subscribers.remove(name);
        }
    }

    /// Ends all subscriptions and the polling, for good.
    pub fn close(&self) {
        self.lock().subscribers = None;
    }

    /// Who is told, for a status page.
    pub fn subscribers(&self) -> Vec<String> {
        let shared = self.lock();
        shared.subscribers.iter().flatten().map(|(name, _)| name.clone()).collect()
    }

    /// The last observation, for those who want no more than that.
    pub fn latest(&self) -> Observation {
        self.lock().last
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for EtcdMonitor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EtcdMonitor")
            .field("period", &self.period)
            .field("latest", &self.latest())
            .field("subscribers", &self.subscribers())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
