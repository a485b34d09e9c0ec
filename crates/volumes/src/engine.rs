//! The engine of a volume as it reports itself, and what is asked of it while it runs.
//!
//! Owns the part of `Engine.status` that an engine tells: modes of its copies, snapshots, size,
//! endpoint, rebuilds, restores, purges. Never the part about its process, and never `spec`. What is
//! asked of an engine is decided in [`decide`], from the resource and from one look at the engine;
//! [`monitor`] has one task for each engine that runs.

pub mod client;
pub(crate) mod command;
pub(crate) mod decide;
mod look;
pub(crate) mod monitor;
mod refused;
mod work;

use std::sync::Arc;

use api::longhorn::{Engine, InstanceState};
use reconcile::Store;

/// Engines by the name of their volume.
pub const BY_VOLUME: &str = "volume";

/// The value of [`BY_VOLUME`].
pub fn volume_of(engine: &Engine) -> Vec<String> {
    engine.spec.instance.volume_name.clone().into_iter().collect()
}

/// The engine in use of a volume, from a store that is indexed by [`BY_VOLUME`].
pub fn active(engines: &Store<Engine>, volume: &str) -> Option<Arc<Engine>> {
    let all = engines.by(BY_VOLUME, volume);
    let active = all.iter().find(|engine| engine.spec.active == Some(true)).cloned();
    active.or_else(|| all.into_iter().next())
}

/// `ip:port` of an engine, while it runs.
pub fn address(engine: &Engine) -> Option<String> {
    let status = &engine.status.as_ref()?.instance;
    if status.current_state != Some(InstanceState::Running) {
        return None;
    }
    join(status.ip.as_deref(), status.port)
}

/// `ip:port`, if both are there.
pub(crate) fn join(ip: Option<&str>, port: Option<i32>) -> Option<String> {
    let ip = ip.filter(|ip| !ip.is_empty())?;
    let port = port.filter(|port| *port > 0)?;
    Some(if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") })
}

/// Runs a command of the engine's dialect, and gives what it printed.
pub(crate) async fn run(
    reach: &client::Reach,
    arguments: &[String],
    timeout: std::time::Duration,
) -> Result<String, command::CommandError> {
    command::run(reach, arguments, &[], timeout).await
}
