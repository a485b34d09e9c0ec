//! What can be typed.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{self, Settings};
use crate::{
    block, bundle, completion, controllers, doctor, install, kubeconfig, man, node, up, version,
};

/// Backup and disaster recovery in one binary.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version = version::LONG.as_str(), about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything on this machine.
    Up(up::Args),
    /// Start only the embedded API server.
    Apiserver(up::Args),
    /// Run the controllers against any cluster, elected by a Lease.
    Controllers(controllers::Args),
    /// Hold copies of volumes and run their processes on this machine, for any cluster; or list and
    /// manage such machines.
    #[command(args_conflicts_with_subcommands = true)]
    Node {
        #[command(subcommand)]
        of_people: Option<Box<::cli::node::Command>>,
        #[command(flatten)]
        args: Box<node::Args>,
    },
    /// Install the definitions of all resources into a cluster.
    InstallCrds(install::Args),
    /// Make a kubeconfig for a user, with a role in one namespace.
    Kubeconfig(kubeconfig::Args),
    /// Serve and manage replicated block volumes.
    #[command(disable_help_flag = true)]
    Engine {
        /// A command of the engine, as `holdfast engine --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Serve the Block Storage API, and look after its database.
    BlockApi(Box<block::Args>),
    /// Guard an etcd member: snapshots, checks, restores.
    #[command(disable_help_flag = true)]
    Etcd {
        /// A command of the guard, as `holdfast etcd --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    #[command(flatten)]
    People(Box<::cli::Command>),
    /// Check this machine and an installation, and say what to do.
    Doctor(Box<doctor::Args>),
    /// Pack what somebody needs who is asked for help into one file, without secrets.
    SupportBundle(Box<bundle::Args>),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(config::Command),
    /// Print a completion script for a shell.
    Completion(completion::Args),
    /// Print a manual page, or write those of all commands.
    Man(man::Args),
    /// Print the version.
    Version(version::Args),
}

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Up(args) => up::run(&args.settings, up::Role::Everything),
        Command::Apiserver(args) => up::run(&args.settings, up::Role::ApiServer),
        Command::Controllers(args) => controllers::run(&args),
        Command::Node { of_people: Some(command), .. } => {
            runtime()?.block_on(::cli::node::run(*command))
        }
        Command::Node { of_people: None, args } => node::run(&args),
        Command::InstallCrds(args) => install::run(&args),
        Command::Kubeconfig(args) => kubeconfig::run(&args),
        Command::Engine { args } => Ok(enginecli::main(args, enginecli::Invocation::Holdfast)),
        Command::Etcd { args } => {
            Ok(etcdguard::cli::main(args, etcdguard::cli::Invocation::Holdfast))
        }
        Command::BlockApi(args) => block::run(&args),
        Command::People(command) => runtime()?.block_on(::cli::run(*command)),
        Command::Doctor(args) => doctor::run(&args),
        Command::SupportBundle(args) => bundle::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Completion(args) => completion::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Version(args) => version::run(&args),
    }
}

/// The runtime of the control plane: two workers are enough for it, and leave the rest of the
/// machine to the data.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("holdfast")
        .enable_all()
        .build()?)
}

/// Logs and traces as configured.
pub(crate) fn telemetry(settings: &config::Config) -> anyhow::Result<telemetry::Guard> {
    Ok(telemetry::init(&telemetry::Config {
        filter: settings.log_filter.clone(),
        format: settings.log_format,
        otlp_endpoint: settings.otlp_endpoint.clone(),
        service_name: "holdfast".to_owned(),
    })?)
}

/// Settings from file, environment and flags, checked.
pub(crate) fn resolve(settings: &Settings) -> anyhow::Result<config::Config> {
    Ok(config::Resolved::load(settings)?.config()?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
