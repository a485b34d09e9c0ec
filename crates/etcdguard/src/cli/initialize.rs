//! `initialize`: brings the data directory into shape once, and ends.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::CommandError;
use super::parse::Line;
use super::{Context, settings};
use crate::etcd::Etcd;
use crate::server::config::{ConfigError, EtcdConnectionConfig};
use crate::server::controllers;
use crate::server::initialize::{Initializer, Mode, Neighbours};
use crate::server::member::{self, ThisMember};
use crate::server::metrics::Metrics;
use crate::store::SnapStore;

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    let given = &line.given;
    let mode = given.text("validation-mode");
    if !["full", "sanity"].contains(&mode.as_str()) {
        return Err(CommandError::Usage(format!("validation-mode: {mode:?} is no mode")));
    }
    let (store, restoration) = (settings::store(given, ""), settings::restoration(given));
    store.validate().map_err(ConfigError::Store)?;
    restoration.check()?;
    let connection = settings::connection(given);
    connection.check()?;
    let initializer = Initializer {
        restoration,
        store_temp_dir: PathBuf::from(&store.temp_dir),
        store: if store.provider.is_empty() {
            None
        } else {
            Some(SnapStore::open(&store, &context.environment)?)
        },
        namespace: context.environment.get("POD_NAMESPACE").map(str::to_owned),
        neighbours: neighbours(&connection, context).await?,
        metrics: Arc::new(Metrics::default()),
        tasks: context.tasks.clone(),
    };
    initializer.initialize(Mode::of(&mode)).await?;
    Ok(())
}

/// The cluster around the member, where a configuration of etcd tells of one.
async fn neighbours(
    connection: &EtcdConnectionConfig,
    context: &Context,
) -> Result<Option<Neighbours>, CommandError> {
    let path = member::config_path(&context.environment);
    if !std::path::Path::new(&path).exists() {
        tracing::warn!("there is no {path}: the member is taken to be alone");
        return Ok(None);
    }
    let member = ThisMember::read(&context.environment)?;
    let cluster_size = member.config.cluster_size();
    let endpoints = member.config.all_client_urls();
    let leases = if cluster_size > 1 {
        Some(controllers::leases_of(&member.namespace).await?)
    } else {
        None
    };
    Ok(Some(Neighbours {
        peer_urls: member.config.peer_urls(&member.name).unwrap_or_default(),
        cluster_size,
        cluster: Etcd::of_cluster(&controllers::connection(connection, endpoints))?,
        leases,
        name: member.name,
    }))
}
