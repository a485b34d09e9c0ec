//! `compact`: folds the newest backup into one full snapshot.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use super::error::CommandError;
use super::parse::Line;
use super::{Context, Invocation, settings};
use crate::restore::{self, Compaction, PlanError, Progress, RestoreError};
use crate::server::config::{CompactorConfig, ConfigError};
use crate::server::controllers;
use crate::store::{SnapStore, Snapshot};

/// For the lease, which is not worth failing for.
const LEASE_TIMEOUT: Duration = Duration::from_mins(1);
const COMPACTED: &str = "required revision has been compacted";

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    let store = settings::store(&line.given, "");
    let restoration = settings::restoration(&line.given);
    let config = settings::compactor(&line.given);
    store.validate().map_err(ConfigError::Store)?;
    restoration.check()?;
    let store = SnapStore::open(&store, &context.environment)?;
    let how = Compaction {
        data_dir: PathBuf::from(&restoration.data_dir),
        temp_dir: PathBuf::from(&restoration.temp_dir),
        max_fetchers: usize::try_from(restoration.max_fetchers).unwrap_or(usize::MAX),
        skip_hash_check: restoration.skip_hash_check,
    };
    match restore::compact(&store, &how, Timestamp::now(), &Progress::default()).await {
        Ok(compacted) => {
            tracing::info!("compacted into {}", compacted.snapshot.snap_name);
            tell(&compacted.snapshot, &config, context).await;
        }
        Err(RestoreError::Plan(PlanError::Empty)) => {
            if context.invocation == Invocation::Holdfast {
                return Err(CommandError::Nothing("compacted"));
            }
            tracing::info!("no base snapshot found: nothing is compacted");
        }
        Err(error) if telemetry::Chain(&error).to_string().contains(COMPACTED) => {
            tracing::warn!("nothing is compacted: {}", telemetry::Chain(&error));
        }
        Err(error) => return Err(error.into()),
    }
    tokio::time::sleep(config.metrics_scrape_wait_duration.duration()).await;
    Ok(())
}

/// Renews the lease of full snapshots, if that is asked for.
async fn tell(snapshot: &Snapshot, config: &CompactorConfig, context: &Context) {
    if !config.snapshot_lease_renewal_enabled {
        return;
    }
    let Some(namespace) = context.environment.get("POD_NAMESPACE") else {
        return tracing::warn!("the lease is not renewed: POD_NAMESPACE is not set");
    };
    let told = match controllers::leases_of(namespace).await {
        Ok(leases) => {
            let name = &config.full_snapshot_lease_name;
            let told = leases.tell_full(name, snapshot, LEASE_TIMEOUT).await;
            told.map_err(|error| telemetry::Chain(&error).to_string())
        }
        Err(error) => Err(telemetry::Chain(&error).to_string()),
    };
    if let Err(why) = told {
        tracing::warn!("the lease is not renewed: {why}");
    }
}
