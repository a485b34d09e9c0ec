//! `holdfast restore`.

use std::process::ExitCode;

use api::longhorn::{Backup, Volume, VolumeSpec};
use kube::Api;

use crate::connection::{Connection, explained};
use crate::output::Hint;
use crate::waiting::Wait;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name of the backup, as in `holdfast backup ls`.
    backup: String,
    /// The name of the new volume.
    volume: String,
    /// Number of copies.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=20))]
    replicas: i32,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: Connection,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.at.client().await?;
    let backups: Api<Backup> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let spec = from(&backups, &args.backup, args.replicas).await?;
    let volumes: Api<Volume> = Api::namespaced(client, crate::NAMESPACE);
    crate::volume::made(&volumes, &Volume::new(&args.volume, spec), &args.wait).await?;
    Ok(ExitCode::SUCCESS)
}

/// What a volume made of a backup is to be.
pub(crate) async fn from(
    backups: &Api<Backup>,
    name: &str,
    replicas: i32,
) -> anyhow::Result<VolumeSpec> {
    let found = backups.get(name).await;
    let found = found.map_err(|error| explained(error, &format!("find backup {name}")))?;
    people::backup::as_volume(&found, replicas)
        .hint("wait for it, or choose another with `holdfast backup ls`")
}
