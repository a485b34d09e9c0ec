//! Changes of the cluster's membership for this member: joining as a learner, leaving, and being
//! replaced by itself with an empty data directory. Members are known by their names, which a
//! cluster learns when they first start.

use std::time::{Duration, Instant};

use super::metrics::Meter;
use crate::etcd::{Etcd, EtcdError, Member, Rejection};

const ADD_TIMEOUT: Duration = Duration::from_secs(5);
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);
/// A cluster takes one learner at a time: the wait until the other may have been promoted.
const OTHER_LEARNER_WAIT: Duration = Duration::from_secs(5);

/// A cluster changes nobody until all its members have been in touch for five seconds.
const UNSETTLED_WAIT: Duration = Duration::from_secs(3);

/// Waits between tries: the first, and by how much each is longer than the one before.
#[derive(Debug, Clone, Copy)]
pub struct Tries {
    pub most: u32,
    pub first_wait: Duration,
    pub factor: u32,
}

impl Tries {
    /// To ask a cluster that may not be up yet.
    pub const ASK: Self = Self { most: 4, first_wait: Duration::from_secs(2), factor: 2 };
    /// To join.
    pub const JOIN: Self = Self { most: 6, first_wait: Duration::from_secs(2), factor: 2 };
    /// To change a member of a cluster that is there.
    pub const CHANGE: Self = Self { most: 4, first_wait: Duration::from_millis(10), factor: 5 };

    /// Runs `attempt` until it succeeds or the tries are used up.
    pub(super) async fn run<T, F>(self, mut attempt: impl FnMut() -> F) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let mut wait = self.first_wait;
        let mut tries = 1;
        loop {
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) if tries >= self.most || is_hopeless(&error) => return Err(error),
                Err(error) => {
                    let why = telemetry::Chain(&error).to_string();
                    tracing::warn!("tried {tries} of {} times: {why}", self.most);
                    let unsettled = error.rejection() == Some(Rejection::QuorumAtRisk);
                    let least = if unsettled { UNSETTLED_WAIT } else { Duration::ZERO };
                    tokio::time::sleep(wait.max(least)).await;
                }
            }
            wait = wait.saturating_mul(self.factor);
            tries += 1;
        }
    }
}

/// Trying again does not help against wrong settings.
fn is_hopeless(error: &EtcdError) -> bool {
    matches!(error, EtcdError::Setup(_)) || error.rejection() == Some(Rejection::Denied)
}

/// Whether the cluster, which must answer, lists a member of this name.
pub async fn is_member(cluster: &Etcd, name: &str) -> Result<bool, EtcdError> {
    let found = Tries::ASK
        .run(|| async {
            // A read first: a member alone may list members, but a cluster without quorum reads
            // nothing.
            cluster.revision(LIST_TIMEOUT).await?;
            cluster.members(LIST_TIMEOUT).await
        })
        .await?;
    Ok(find(&found, name).is_some())
}

fn find<'m>(members: &'m [Member], name: &str) -> Option<&'m Member> {
    members.iter().find(|member| member.name == name)
}

/// Joins the cluster as a member that does not vote yet. Done already is done.
pub async fn add_as_learner(
    cluster: &Etcd,
    peer_urls: &[String],
    tries: Tries,
    metrics: &dyn Meter,
) -> Result<(), EtcdError> {
    let begun = Instant::now();
    let added = tries.run(|| add_once(cluster, peer_urls)).await;
    metrics.add_learner_took(added.is_ok(), begun.elapsed());
    metrics.learner_counted(added.is_ok());
    added
}

async fn add_once(cluster: &Etcd, peer_urls: &[String]) -> Result<(), EtcdError> {
    let Err(error) = cluster.add_learner(peer_urls, ADD_TIMEOUT).await else { return Ok(()) };
    match error.rejection() {
        Some(Rejection::PeerUrlExists | Rejection::MemberExists) => Ok(()),
        Some(Rejection::TooManyLearners) => {
            tokio::time::sleep(OTHER_LEARNER_WAIT).await;
            Err(error)
        }
        Some(_) | None => Err(error),
    }
}

/// Leaves the cluster, which need not know of this member.
pub async fn remove(cluster: &Etcd, name: &str, metrics: &dyn Meter) -> Result<(), EtcdError> {
    let begun = Instant::now();
    let removed = Tries::CHANGE
        .run(|| async {
            let members = cluster.members(REMOVE_TIMEOUT).await?;
            let Some(member) = find(&members, name) else { return Ok(()) };
            match cluster.remove_member(member.id, REMOVE_TIMEOUT).await {
                Err(error) if error.rejection() == Some(Rejection::MemberNotFound) => Ok(()),
                other => other,
            }
        })
        .await;
    metrics.member_remove_took(removed.is_ok(), begun.elapsed());
    removed
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn refused(reason: Rejection) -> EtcdError {
        EtcdError::Refused { reason, message: "no".to_owned() }
    }

    async fn tried(reason: Rejection, good_after: u32) -> (u32, bool) {
        let tries = Tries { most: 4, first_wait: Duration::from_millis(1), factor: 1 };
        let count = Cell::new(0);
        let outcome = tries
            .run(|| async {
                count.set(count.get() + 1);
                if count.get() > good_after { Ok(()) } else { Err(refused(reason)) }
            })
            .await;
        (count.get(), outcome.is_ok())
    }

    #[tokio::test]
    async fn tries_end_with_success_or_when_they_are_used_up_or_hopeless() {
        assert_eq!(tried(Rejection::TooManyLearners, 2).await, (3, true));
        assert_eq!(tried(Rejection::TooManyLearners, 9).await, (4, false));
        assert_eq!(tried(Rejection::Denied, 2).await, (1, false));
    }

    #[test]
    fn members_are_found_by_name() {
        let named = |name: &str| Member { name: name.to_owned(), ..Member::default() };
        let members = [named(""), named("a")];
        assert!(find(&members, "a").is_some());
        assert!(find(&members, "b").is_none());
    }
}
