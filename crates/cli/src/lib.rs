//! Commands for people: what kubectl can do with these resources, in fewer words, with waiting,
//! progress and hints.
//!
//! Every command is a client of the API like any other, with the rights of the kubeconfig it is
//! given; nothing here reads a data directory or knows a secret. One file a command; what they share
//! is in [`connection`], [`listing`], [`waiting`] and [`output`], what resources say in [`people`].
#![forbid(unsafe_code)]

mod backup;
pub mod connection;
mod demo;
mod dr;
pub mod found;
mod job;
mod listing;
pub mod names;
pub mod node;
pub mod output;
pub mod proxy;
mod restore;
mod retention;
mod snapshot;
pub mod status;
mod target;
mod tenant;
mod volume;
mod waiting;

use std::process::ExitCode;

use futures::future::LocalBoxFuture;

pub(crate) use people::NAMESPACE;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show health, work in progress and what needs attention on one screen.
    Status(status::Args),
    /// Take a tour on a running `up`: volumes, backups, a crash, a standby volume, a tenant, Block
    /// Storage, etcd.
    Demo(demo::Args),
    /// Create, attach, expand and delete volumes.
    #[command(subcommand, visible_alias = "volumes")]
    Volume(volume::Command),
    /// Create, list and delete snapshots of volumes.
    #[command(subcommand, visible_alias = "snapshots")]
    Snapshot(snapshot::Command),
    /// Create, list and delete backups of volumes.
    #[command(subcommand, visible_alias = "backups")]
    Backup(backup::Command),
    /// Restore a backup into a new volume.
    Restore(restore::Args),
    /// Manage standby volumes, which follow the backups of another volume.
    #[command(subcommand)]
    Dr(dr::Command),
    /// Manage backup targets, where backups are stored.
    #[command(subcommand, visible_alias = "targets")]
    Target(target::Command),
    /// Manage recurring snapshots and backups.
    #[command(subcommand, visible_alias = "jobs")]
    Job(job::Command),
    /// Back up and restore namespaces, as a tenant.
    #[command(subcommand, visible_alias = "tenants")]
    Tenant(tenant::Command),
}

/// Boxed: whoever waits for it would otherwise compile all commands anew.
pub fn run(command: Command) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(obey(command))
}

async fn obey(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Status(args) => status::run(&args).await,
        Command::Demo(args) => Box::pin(demo::run(&args)).await,
        Command::Volume(command) => volume::run(command).await,
        Command::Snapshot(command) => snapshot::run(command).await,
        Command::Backup(command) => backup::run(command).await,
        Command::Restore(args) => restore::run(&args).await,
        Command::Dr(command) => dr::run(command).await,
        Command::Target(command) => target::run(command).await,
        Command::Job(command) => job::run(command).await,
        Command::Tenant(command) => tenant::run(command).await,
    }
}
