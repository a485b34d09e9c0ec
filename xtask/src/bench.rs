//! Measuring: builds what is measured and what measures it for release, then lets it print.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::peers::server::{Audit, KubeApiServer};
use crate::postgres::{ADDRESS_VARIABLE, Postgres};
use crate::{peers, stores, tools, workspace};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Measure this binary, as of another release, instead of building one.
    #[arg(long, global = true, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// The embedded API server, beside the known figures of kube-apiserver and etcd.
    Apiserver {
        /// Build a real kube-apiserver, start it with an etcd, and compare with that.
        #[arg(long, conflicts_with = "peer")]
        beside: bool,
        /// Measure this server too, and compare with it instead.
        #[arg(long, requires = "token", requires = "ca")]
        peer: Option<String>,
        /// Bearer token of a user who may do everything there.
        #[arg(long)]
        token: Option<String>,
        /// File with the certificate authority of the peer.
        #[arg(long)]
        ca: Option<PathBuf>,
        /// Process ids of the peer, to see its memory.
        #[arg(long, value_delimiter = ',')]
        peer_pid: Vec<u32>,
    },
    /// Volumes through NBD and the socket frontend, beside `qemu-nbd` on a raw file.
    Engine {
        /// Seconds of each measurement.
        #[arg(long)]
        seconds: Option<u32>,
        /// Where the volumes lie; on a real disk. Default: the build directory.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Only measurements whose name contains this; `nbd` and `socket` name all of a kind.
        #[arg(long)]
        only: Option<String>,
        /// Volumes without revision counters.
        #[arg(long)]
        no_counters: bool,
    },
    /// Backups, restores and deletions, beside restic and borg.
    Backup {
        /// Where everything lies; on a real disk with 15 GiB free. Default: the build directory.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Further arguments of the measurement, as `--size-mib 512 --backups 10`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// Snapshots and restores of an etcd, beside `etcdctl` and `etcdutl`.
    Etcd {
        /// Where everything lies; on a real disk with 3 GiB free. Default: the build directory.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Further arguments of the measurement, as `--keys 20000 --revisions 10000`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// The Block Storage API on SQLite and `PostgreSQL`.
    BlockApi {
        /// A debug build, where no release build can be had: its figures say little.
        #[arg(long)]
        debug: bool,
        /// Further arguments of the measurement, as `--volumes 1000 --many 10000`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// The controllers of volumes and backups, with simulated engines and replicas.
    Controllers {
        /// Further arguments of the measurement, as `--volumes 100 --backups 1000 --curve 100,1000`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// Tenants' backups, beside a real Velero where Go can build it.
    Tenants {
        /// Further arguments of the measurement, as `--namespaces 50 --objects 500 --volume 64`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let built = if matches!(arguments.subject, Subject::BlockApi { debug: true, .. }) {
        Built::debug()
    } else {
        Built::release(arguments.binary.as_deref())
    }?;
    let mut command = workspace::command(&built.bench);
    command.env("HOLDFAST_BIN", &built.holdfast);
    let target = workspace::metadata()?.target_directory;
    if let Subject::Apiserver { beside: true, .. } = &arguments.subject {
        let peer = KubeApiServer::start(Audit::Off)?;
        command.arg("apiserver").args(peer.arguments());
        return workspace::succeed(&mut command);
    }
    match &arguments.subject {
        Subject::Apiserver { beside: _, peer, token, ca, peer_pid } => {
            command.arg("apiserver");
            if let (Some(peer), Some(token), Some(ca)) = (peer, token, ca) {
                command.args(["--peer", peer, "--token", token, "--ca"]).arg(ca);
            }
            for pid in peer_pid {
                command.args(["--peer-pid", &pid.to_string()]);
            }
        }
        Subject::Engine { seconds, dir, only, no_counters } => {
            tools::block();
            // Everything is made in directories for temporary files.
            command.arg("engine").env("TMPDIR", dir.as_ref().unwrap_or(&target));
            if *no_counters {
                command.arg("--no-counters");
            }
            if let Some(seconds) = seconds {
                command.args(["--seconds", &seconds.to_string()]);
            }
            if let Some(only) = only {
                command.args(["--only", only]);
            }
        }
        Subject::Backup { dir, more } => {
            tools::backup()?;
            command.arg("backup").env("TMPDIR", dir.as_ref().unwrap_or(&target));
            command.args(more);
        }
        Subject::Etcd { dir, more } => {
            command.arg("etcd").env("HOLDFAST_ETCD_DIR", tools::etcd()?);
            command.env("TMPDIR", dir.as_ref().unwrap_or(&target)).args(more);
        }
        Subject::Controllers { more } => {
            tools::kubectl()?;
            command.arg("controllers").args(more);
        }
        Subject::BlockApi { debug: _, more } => return block_api(command, more),
        Subject::Tenants { more } => return tenants(command, more),
    }
    workspace::succeed(&mut command)
}

/// What is measured, and what measures it.
struct Built {
    holdfast: PathBuf,
    bench: PathBuf,
}

impl Built {
    fn release(instead: Option<&Path>) -> Result<Self> {
        Self::build(&["--release"], "release", instead)
    }

    fn debug() -> Result<Self> {
        Self::build(&[], "debug", None)
    }

    fn build(profile: &[&str], folder: &str, instead: Option<&Path>) -> Result<Self> {
        let mut build = workspace::cargo(["build", "--package", "bench"]);
        if instead.is_none() {
            build.args(["--package", "holdfast"]);
        }
        workspace::succeed(build.args(profile))?;
        let target = workspace::metadata()?.target_directory.join(folder);
        let holdfast = match instead {
            Some(binary) => std::path::absolute(binary)?,
            None => target.join("holdfast"),
        };
        Ok(Self { holdfast, bench: target.join("bench") })
    }
}

fn block_api(mut command: Command, more: &[String]) -> Result<()> {
    let database = Postgres::start();
    command.arg("block-api").args(more);
    match &database {
        Ok(database) => drop(command.env(ADDRESS_VARIABLE, database.address())),
        Err(why) => println!("PostgreSQL is not to be had: {why:#}"),
    }
    workspace::succeed(&mut command)
}

fn tenants(mut command: Command, more: &[String]) -> Result<()> {
    tools::kubectl()?;
    command.arg("tenants").args(more);
    match peers::velero() {
        Ok((velero, plugin)) => {
            command.env("VELERO_PROGRAM", velero).env("VELERO_AWS_PROGRAM", plugin);
        }
        Err(why) => println!("no Velero beside it: {why:#}"),
    }
    let store = stores::Started::s3();
    match &store {
        Ok(store) => {
            command.env(stores::ADDRESS_VARIABLE, store.address().to_string());
        }
        Err(why) => println!("no S3 service: {why:#}"),
    }
    workspace::succeed(&mut command)
}
