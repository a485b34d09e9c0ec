//! Measurements, printed as tables. Run by `cargo xtask bench`, which builds for release.

#![expect(clippy::print_stdout, reason = "figures are what this prints")]

mod apiserver;
mod backup;
mod block;
mod controllers;
mod engine;
mod etcd;
mod measure;
mod tenants;
mod usage;

use std::path::PathBuf;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "bench", about = "Measurements beside a peer")]
enum Arguments {
    /// The embedded API server.
    Apiserver {
        /// Measure this server too, and compare with it instead of the known figures.
        #[arg(long, requires = "token", requires = "ca")]
        peer: Option<String>,
        /// Bearer token of a user who may do everything there.
        #[arg(long)]
        token: Option<String>,
        /// File with the certificate authority of the peer.
        #[arg(long)]
        ca: Option<PathBuf>,
        /// Process ids of the peer, to see its memory.
        #[arg(long)]
        peer_pid: Vec<u32>,
    },
    /// Replicated volumes.
    Engine(engine::Options),
    /// Backups, restores and deletions.
    Backup(backup::Options),
    /// Snapshots and restores of an etcd.
    Etcd(etcd::Options),
    /// The Block Storage API.
    BlockApi(block::Options),
    /// The controllers of volumes and backups.
    Controllers(controllers::Options),
    /// Tenants' backups.
    Tenants(tenants::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse() {
        Arguments::Apiserver { peer, token, ca, peer_pid } => {
            let peer = match (peer, token, ca) {
                (Some(url), Some(token), Some(ca)) => {
                    Some(apiserver::Peer { url, token, ca, processes: peer_pid })
                }
                _ => None,
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(apiserver::run(peer))
        }
        Arguments::Engine(options) => engine::run(&options),
        Arguments::Backup(options) => backup::run(&options),
        Arguments::Etcd(options) => etcd::run(&options),
        Arguments::BlockApi(options) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(block::run(&options))
        }
        Arguments::Controllers(options) => controllers::run(&options),
        Arguments::Tenants(options) => tenants::run(&options),
    }
}
