//! Copies the store to a second one while this sidecar leads: once at the start of its leading, and
//! then every period.

use std::time::Duration;

use tasks::Stop;

use super::events::{Site, Troubles};
use crate::etcd::{Observation, Subscription};
use crate::store::SnapStore;
use crate::store::copy::{Junk, Selection, copy};

/// Objects on their way at the same time.
const AT_ONCE: usize = 10;

#[derive(Debug, Clone)]
pub struct SecondSiteConfig {
    pub store: SnapStore,
    pub period: Duration,
}

pub(super) async fn run(
    config: SecondSiteConfig,
    store: SnapStore,
    mut member: Subscription,
    troubles: Troubles,
    stop: Stop,
) {
    while let Some(Some(_)) = stop.or_stop(member.until(Observation::is_leading)).await {
        let lead = async {
            loop {
                if let Err(why) = sync(&store, &config.store).await {
                    tracing::error!("{why}");
                    troubles.tell(Site::SecondSite, why);
                }
                tokio::time::sleep(config.period).await;
            }
        };
        tokio::select! {
            () = stop.stopping() => return,
            _ = member.until(|seen| !seen.is_leading()) => {}
            () = lead => {}
        }
    }
}

/// Why the second site is not equal, if it is not.
async fn sync(store: &SnapStore, second: &SnapStore) -> Result<(), String> {
    match copy(store, second, Selection::default(), (AT_ONCE, Junk::Copied), |_| {}).await {
        Ok(copied) => match copied.failed.first() {
            None => {
                tracing::info!("the second site has {} snapshots more", copied.copied.len());
                Ok(())
            }
            Some((snapshot, error)) => Err(format!(
                "{} of the snapshots did not reach the second site, {} did; {}: {}",
                copied.failed.len(),
                copied.copied.len(),
                snapshot.snap_name,
                error.chain()
            )),
        },
        Err(error) => {
            Err(format!("the second site cannot be compared: {}", telemetry::Chain(&error)))
        }
    }
}
