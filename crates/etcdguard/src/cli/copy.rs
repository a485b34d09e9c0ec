//! `copy`: from one store to another.

use std::time::Duration;

use super::error::CommandError;
use super::parse::Line;
use super::{Context, settings, version};
use crate::server::config::{ConfigError, CopierConfig, StoreConfig};
use crate::store::SnapStore;
use crate::store::copy::{Junk, Selection, copy, wait_for_final};

/// Between two looks for a final snapshot.
const POLL: Duration = Duration::from_secs(15);

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    version::tell();
    let target = settings::store(&line.given, "");
    let source = completed(settings::store(&line.given, "source-"), &target, line);
    let asked = settings::copier(&line.given);
    for config in [&target, &source] {
        config.validate().map_err(ConfigError::Store)?;
    }
    let source = SnapStore::open(&source, &context.environment)?;
    let target = SnapStore::open(&target, &context.environment)?;
    if asked.wait_for_final_snapshot {
        wait(&source, &asked).await?;
    }
    let selection = Selection {
        max_backups: usize::try_from(asked.max_backups_to_copy).ok(),
        max_age_days: Some(asked.max_backup_age_days).filter(|days| *days >= 0),
    };
    let at_once = usize::try_from(asked.max_parallel_copy_operations).unwrap_or(usize::MAX);
    let junk = if line.given.switch("verify") { Junk::Refused } else { Junk::Copied };
    let copied = copy(&source, &target, selection, (at_once, junk), |_| {}).await?;
    tracing::info!("{} snapshots were copied", copied.copied.len());
    match copied.failed.len() {
        0 => Ok(()),
        failed => Err(CommandError::Copy { failed }),
    }
}

/// What is not said of the source is as in the target.
fn completed(source: StoreConfig, target: &StoreConfig, line: &Line) -> StoreConfig {
    let or = |own: &String, other: &String| if own.is_empty() { other } else { own }.clone();
    let own_temp_dir = line.given.is_typed("source-snapstore-temp-directory");
    StoreConfig {
        provider: or(&source.provider, &target.provider),
        prefix: or(&source.prefix, &target.prefix),
        temp_dir: if own_temp_dir { source.temp_dir.clone() } else { target.temp_dir.clone() },
        ..source
    }
}

async fn wait(source: &SnapStore, copier: &CopierConfig) -> Result<(), CommandError> {
    let timeout = copier.wait_for_final_snapshot_timeout.duration();
    let timeout = (!timeout.is_zero()).then_some(timeout);
    if !wait_for_final(source, timeout, POLL).await? {
        tracing::warn!("no final snapshot came in time; copying what there is");
    }
    Ok(())
}
