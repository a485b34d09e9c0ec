//! Makes this member a voting one as soon as it has caught up. Acts only while it is a learner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tasks::Stop;

use super::events::{Site, Troubles};
use super::metrics::Meter;
use crate::etcd::{Etcd, EtcdError, MemberState, Rejection, Subscription};

const TIMEOUT: Duration = Duration::from_secs(30);

/// What an attempt came to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Voting,
    /// Tried again at the next observation.
    NotYet,
    Failed,
}

/// `cluster` is any members of the cluster: a learner cannot promote itself.
pub(super) async fn run(
    cluster: Etcd,
    mut member: Subscription,
    (metrics, troubles): (Arc<dyn Meter>, Troubles),
    stop: Stop,
) {
    while let Some(Some(seen)) = stop.or_stop(member.next()).await {
        metrics.learner(seen.state == MemberState::Learner);
        if seen.state != MemberState::Learner {
            continue;
        }
        let begun = Instant::now();
        let Some(tried) = stop.or_stop(cluster.promote_member(seen.member_id, TIMEOUT)).await
        else {
            return;
        };
        match outcome(&tried) {
            Outcome::Voting => {
                tracing::info!("this member votes from now on");
                metrics.member_promote_took(true, begun.elapsed());
            }
            Outcome::NotYet => tracing::info!("this member has not caught up with its leader yet"),
            Outcome::Failed => {
                metrics.member_promote_took(false, begun.elapsed());
                if let Err(error) = &tried {
                    let why = telemetry::Chain(&error).to_string();
                    tracing::warn!("this member cannot be promoted: {why}");
                    troubles.tell(Site::Promotion, why);
                }
            }
        }
    }
}

fn outcome(tried: &Result<(), EtcdError>) -> Outcome {
    let Err(error) = tried else { return Outcome::Voting };
    match error.rejection() {
        Some(Rejection::NotLearner) => Outcome::Voting,
        Some(Rejection::LearnerNotReady) => Outcome::NotYet,
        Some(_) | None => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_votes_already_is_promoted() {
        let refused = |reason| Err(EtcdError::Refused { reason, message: String::new() });
        assert_eq!(outcome(&Ok(())), Outcome::Voting);
        assert_eq!(outcome(&refused(Rejection::NotLearner)), Outcome::Voting);
        assert_eq!(outcome(&refused(Rejection::LearnerNotReady)), Outcome::NotYet);
        assert_eq!(outcome(&refused(Rejection::MemberNotFound)), Outcome::Failed);
    }
}
