//! `snapshot`: takes snapshots of an etcd, whoever leads, until stopped.

use std::sync::Arc;

use super::error::CommandError;
use super::parse::Line;
use super::{Context, settings, version};
use crate::control::{self, metrics::Unmetered};
use crate::etcd::Etcd;
use crate::server::controllers;
use crate::store::SnapStore;

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    version::tell();
    let given = &line.given;
    let connection = settings::connection(given);
    let (snapshotter, compression) = (settings::snapshotter(given), settings::compression(given));
    let (store, backoff) = (settings::store(given, ""), settings::backoff(given));
    connection.check()?;
    snapshotter.check()?;
    compression.check()?;
    store.validate().map_err(crate::server::config::ConfigError::Store)?;
    let etcd = Etcd::connect(&controllers::connection(&connection, Vec::new()))?;
    let snapshots = SnapStore::open(&store, &context.environment)?;
    let dirs = controllers::Directories { temp: &store.temp_dir, data: None };
    let store = controllers::store(snapshots, None, &snapshotter, &compression, &backoff, dirs)?;
    let defragmenter = controllers::defragmenter(&settings::defragmentation(given).0, None)?;
    control::run_alone(etcd, store, defragmenter, Arc::new(Unmetered), &context.tasks).await?;
    Ok(())
}
