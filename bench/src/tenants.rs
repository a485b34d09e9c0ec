//! Tenants' backups: many of them on the embedded API, and one namespace with much in it beside a real
//! Velero.
#![expect(clippy::indexing_slicing, reason = "of JSON: what an answer lacks is null")]

mod crowd;
mod objects;
mod seen;
mod single;
mod volume;

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Where administrators and executors are.
const ADMIN: &str = e2e::velero::NAMESPACE;
const OADP: &str = "/apis/oadp.openshift.io/v1alpha1";
const VELERO: &str = "/apis/velero.io/v1/namespaces/openshift-adp";
/// Nothing waits for it in vain unless something is broken.
const TIMEOUT: Duration = Duration::from_mins(30);
const CLIENTS: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Namespaces with tenants.
    #[arg(long, default_value_t = 1_000)]
    namespaces: u32,
    /// Backups that each of them asks for.
    #[arg(long, default_value_t = 10)]
    backups: u32,
    /// Backups that are asked for one after the other.
    #[arg(long, default_value_t = 100)]
    alone: u32,
    /// How long the idle processor is watched, in seconds.
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Objects of the namespace that is backed up and restored.
    #[arg(long, default_value_t = 5_000)]
    objects: u32,
    /// Data of its volume, in MiB; 0 for none.
    #[arg(long, default_value_t = 1_024)]
    volume: u64,
    /// How often it is backed up and restored; the middle one counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Many tenants.
    Crowd,
    /// One namespace with many objects, beside Velero.
    Objects,
    /// One namespace with a volume as well.
    Volume,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let takes = |part| options.only.is_none_or(|only| only == part);
    // What is measured has its own process; this one mostly waits.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if takes(Part::Crowd) {
        runtime.block_on(crowd::measure(options)).context("many tenants")?;
    }
    if takes(Part::Objects) {
        single::measure(options, &runtime).context("one namespace")?;
    }
    if takes(Part::Volume) && options.volume > 0 {
        volume::measure(options, &runtime).context("one namespace with a volume")?;
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "sizes shown with three digits")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
