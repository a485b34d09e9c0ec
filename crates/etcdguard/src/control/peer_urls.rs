//! Keeps the peer URLs that the cluster has for this member as its configuration says, so that a
//! member that moved is found. Looks while the state of the member is known.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tasks::Stop;
use tokio::sync::watch;

use super::events::{Site, Troubles};
use super::membership::Tries;
use crate::etcd::{Etcd, EtcdError, Member, MemberState, Observation, Subscription};

const TIMEOUT: Duration = Duration::from_secs(5);
/// How often the configuration and the cluster are compared once they are equal.
const COMPARE_EVERY: Duration = Duration::from_mins(1);

/// Asks whatever runs the etcd to start it anew, which alone makes it listen on new URLs.
pub type Restart = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone)]
pub struct PeerUrlConfig {
    /// As the configuration of this member says.
    pub peer_urls: Vec<String>,
    pub restart: Option<Restart>,
}

impl std::fmt::Debug for PeerUrlConfig {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PeerUrlConfig")
            .field("peer_urls", &self.peer_urls)
            .field("restart", &self.restart.is_some())
            .finish()
    }
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Update,
}

fn decide(member: &Member, wanted: &[String]) -> Step {
    if wanted.iter().all(|url| member.peer_ur_ls.contains(url)) {
        Step::Nothing
    } else {
        Step::Update
    }
}

/// Says in `settled` when the first comparison is over, whatever it came to.
pub(super) async fn run(
    config: PeerUrlConfig,
    cluster: Etcd,
    mut member: Subscription,
    (settled, troubles): (watch::Sender<bool>, Troubles),
    stop: Stop,
) {
    let known = |seen: &Observation| seen.state != MemberState::Unknown;
    let mut restart_due = false;
    while let Some(Some(seen)) = stop.or_stop(member.until(known)).await {
        let round = async {
            match reconcile(&config, &cluster, seen.member_id).await {
                Ok(Step::Nothing) => {}
                Ok(Step::Update) => restart_due = true,
                Err(error) => {
                    let why = telemetry::Chain(&error).to_string();
                    tracing::error!("the peer URLs cannot be compared: {why}");
                    troubles.tell(Site::PeerUrls, why);
                }
            }
            restart_due = restart_due && !restart(&config, &troubles).await;
        };
        if stop.or_stop(round).await.is_none() {
            return;
        }
        settled.send_replace(true);
        if stop.or_stop(tokio::time::sleep(COMPARE_EVERY)).await.is_none() {
            return;
        }
    }
}

async fn reconcile(config: &PeerUrlConfig, cluster: &Etcd, id: u64) -> Result<Step, EtcdError> {
    let members = Tries::ASK.run(|| cluster.members(TIMEOUT)).await?;
    let step = members
        .iter()
        .find(|member| member.id == id)
        .map_or(Step::Nothing, |member| decide(member, &config.peer_urls));
    if step == Step::Update {
        Tries::ASK.run(|| cluster.update_member(id, &config.peer_urls, TIMEOUT)).await?;
        tracing::info!("the peer URLs of this member are now {:?}", config.peer_urls);
    }
    Ok(step)
}

/// False if it is to be tried again.
async fn restart(config: &PeerUrlConfig, troubles: &Troubles) -> bool {
    let Some(restart) = &config.restart else {
        tracing::warn!("etcd must be restarted to listen on its new peer URLs");
        return true;
    };
    match restart().await {
        Ok(()) => tracing::info!("etcd was asked to restart"),
        Err(error) => {
            let why = format!("etcd could not be asked to restart: {error}");
            tracing::error!("{why}");
            troubles.tell(Site::PeerUrls, why);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_url_that_is_missing_asks_for_an_update() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let member =
            Member { peer_ur_ls: urls(&["http://a:1", "http://b:1"]), ..Member::default() };
        assert_eq!(decide(&member, &urls(&["http://b:1"])), Step::Nothing);
        assert_eq!(decide(&member, &[]), Step::Nothing);
        assert_eq!(decide(&member, &urls(&["http://a:1", "http://c:1"])), Step::Update);
    }
}
