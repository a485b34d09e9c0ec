//! Measuring: builds what is measured and what measures it for release, then lets it print.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::workspace;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// The embedded API server, beside the known figures of kube-apiserver and etcd.
    Apiserver {
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
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Subject::Apiserver { peer, token, ca, peer_pid } = &arguments.subject;
    workspace::succeed(&mut workspace::cargo(["build", "--release", "--package", "holdfast"]))?;
    let binary = workspace::metadata()?.target_directory.join("release/holdfast");
    let mut command = workspace::cargo(["run", "--release", "--package", "bench", "--"]);
    command.arg("apiserver").env("HOLDFAST_BIN", binary);
    if let (Some(peer), Some(token), Some(ca)) = (peer, token, ca) {
        command.args(["--peer", peer, "--token", token, "--ca"]).arg(ca);
    }
    for pid in peer_pid {
        command.args(["--peer-pid", &pid.to_string()]);
    }
    workspace::succeed(&mut command)
}
