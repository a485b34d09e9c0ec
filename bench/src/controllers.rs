//! The control plane of volumes: many volumes and backups on the embedded API server, and what one change
//! costs among a hundred times as many.
//!
//! Three thousand copies do not fit into a machine: engines and replicas are simulated. Nodes are the real
//! ones, with simulated processes that answer as engines and replicas do; the API server and the
//! controllers are the real programs, each in a process of its own.
#![expect(clippy::indexing_slicing, reason = "of JSON: what an answer lacks is null")]

mod cluster;
mod curve;
mod fleet;
mod heal;
mod many;
mod memory;
mod processes;
mod seen;
mod stored;

use std::time::Duration;

use anyhow::{Context as _, Result};

const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";
const NAMESPACE: &str = "longhorn-system";
/// Nothing waits for it in vain unless something is broken.
const TIMEOUT: Duration = Duration::from_mins(20);
const CLIENTS: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Volumes with three copies each.
    #[arg(long, default_value_t = 1_000)]
    volumes: usize,
    /// Backups in the store, of a tenth as many volumes.
    #[arg(long, default_value_t = 10_000)]
    backups: usize,
    /// How long the idle processor is watched, in seconds.
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Sizes of the simulation, in volumes.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    curve: Vec<usize>,
    /// Changes at each size of the simulation.
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// Crashes of a copy that follows a backup.
    #[arg(long, default_value_t = 5)]
    crashes: usize,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Many volumes, attached and idle.
    Many,
    /// Many backups in a store, and the deletion of one.
    Backups,
    /// What a change costs among more and more volumes.
    Curve,
    /// A standby volume with real processes, one of which is killed.
    Heal,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let takes = |part| options.only.is_none_or(|only| only == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if takes(Part::Many) {
        runtime.block_on(many::measure(options)).context("many volumes")?;
    }
    if takes(Part::Backups) {
        runtime.block_on(stored::measure(options)).context("many backups")?;
    }
    if takes(Part::Heal) {
        heal::measure(options, &runtime).context("a standby volume")?;
    }
    if takes(Part::Curve) {
        runtime.block_on(curve::measure(options)).context("the simulation")?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes shown with three digits")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "not many")]
fn float(count: usize) -> f64 {
    count as f64
}
