//! Renews the lease of the member while it is known what the member is. A renewal may take no
//! longer than the time to the next, so a slow API server never holds anything up.

use std::time::Duration;

use jiff::Timestamp;
use tasks::Stop;
use tokio::time::{Instant, MissedTickBehavior};

use super::leases::{self, Leases};
use crate::etcd::{MemberState, Observation, Subscription};

#[derive(Debug, Clone)]
pub struct HeartbeatConfig {
    /// The lease of the member is called as the member is.
    pub member_name: String,
    pub period: Duration,
    /// Whether all peer URLs of the member are of TLS.
    pub peer_tls: bool,
}

/// Renews every period, the first time after one.
pub(super) async fn run(
    config: HeartbeatConfig,
    leases: Leases,
    mut member: Subscription,
    stop: Stop,
) {
    let mut ticks = tokio::time::interval_at(Instant::now() + config.period, config.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.or_stop(ticks.tick()).await.is_some() {
        let Some(identity) = identity(&member.latest()) else { continue };
        let renewal = leases.change(&config.member_name, config.period, |lease| {
            Some(leases::member(lease, &identity, config.peer_tls, Timestamp::now()))
        });
        if let Some(Err(error)) = stop.or_stop(renewal).await {
            tracing::warn!("the member lease was not renewed: {}", telemetry::Chain(&error));
        }
    }
}

/// Who holds the lease; nobody while the state of the member is not known.
fn identity(seen: &Observation) -> Option<String> {
    let role = match seen.state {
        MemberState::Leader => "Leader",
        MemberState::Follower | MemberState::Learner => "Member",
        MemberState::Unknown => return None,
    };
    Some(format!("{:x}:{:x}:{role}", seen.member_id, seen.cluster_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_member_and_its_part() {
        let seen = |state| Observation {
            state,
            member_id: 0x8e9e_05c5_2164_694d,
            cluster_id: 0x0a,
            leader_id: 1,
            looks: 1,
        };
        let holder = |state| identity(&seen(state));
        assert_eq!(holder(MemberState::Leader).unwrap(), "8e9e05c52164694d:a:Leader");
        assert_eq!(holder(MemberState::Follower).unwrap(), "8e9e05c52164694d:a:Member");
        assert_eq!(holder(MemberState::Learner).unwrap(), "8e9e05c52164694d:a:Member");
        assert_eq!(holder(MemberState::Unknown), None);
    }
}
