//! What can be typed.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

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
    /// Start all of Holdfast on this machine.
    Up(up::Args),
    /// Start only the embedded API server.
    Apiserver(up::Args),
    /// Run the controllers for a Kubernetes cluster, with leader election.
    Controllers(controllers::Args),
    /// Run this machine as a node that stores volumes; or list and manage nodes.
    #[command(args_conflicts_with_subcommands = true)]
    Node {
        #[command(subcommand)]
        of_people: Option<Box<::cli::node::Command>>,
        #[command(flatten)]
        args: Box<node::Args>,
    },
    /// Install the definitions of all resources (CRDs) into a cluster.
    InstallCrds(install::Args),
    /// Create a kubeconfig for a user, with a role in one namespace.
    Kubeconfig(kubeconfig::Args),
    /// The volume engine: serve and manage replicated block volumes.
    #[command(disable_help_flag = true)]
    Engine {
        /// A command of the engine, as `holdfast engine --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Serve the OpenStack Block Storage API, and manage its database.
    BlockApi(Box<block::Args>),
    /// Back up, check and restore an etcd member.
    #[command(disable_help_flag = true)]
    Etcd {
        /// A command of the guard, as `holdfast etcd --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    #[command(flatten)]
    People(Box<::cli::Command>),
    /// Check this machine and an installation, and report how to fix what is wrong.
    Doctor(Box<doctor::Args>),
    /// Collect diagnostics into one archive, without secrets.
    SupportBundle(Box<bundle::Args>),
    /// Show the configuration.
    #[command(subcommand)]
    Config(config::Command),
    /// Print a completion script for a shell.
    Completion(completion::Args),
    /// Print a man page, or write all of them to a directory.
    Man(man::Args),
    /// Print the version.
    Version(version::Args),
}

/// What was typed; what cannot be is said, and ends the process.
pub(crate) fn parse() -> Cli {
    let typed = Cli::from_arg_matches(&definition().get_matches());
    typed.unwrap_or_else(|error| error.exit())
}

/// The command line, with help that is about the command.
pub(crate) fn definition() -> clap::Command {
    let shared = Settings::augment_args(clap::Command::new("shared"));
    let is_shared = |arg: &clap::Arg| shared.get_arguments().any(|it| it.get_id() == arg.get_id());
    SETTINGS_READ.iter().fold(Cli::command(), |all, (command, read)| {
        all.mut_subcommand(command, |it| {
            it.mut_args(|arg| {
                let is_read = read.contains(&arg.get_id().as_str());
                if is_shared(&arg) && !is_read { arg.hide(true) } else { arg }
            })
        })
    })
}

const LOGS: [&str; 3] = ["log", "log_format", "otlp_endpoint"];

/// Which settings a command reads. It accepts the others as well, since roles may share their
/// configuration; its help is shorter without them.
const SETTINGS_READ: [(&str, &[&str]); 7] = [
    (
        "apiserver",
        &[
            "config",
            "data_dir",
            "listen",
            "tls_san",
            "token_auth_file",
            "audit",
            "service_cluster_ip_range",
            "service_node_port_range",
            LOGS[0],
            LOGS[1],
            LOGS[2],
        ],
    ),
    (
        "controllers",
        &[
            "config",
            "velero",
            "no_velero",
            "admin_namespace",
            "concurrent_backups",
            "backup_rate",
            LOGS[0],
            LOGS[1],
            LOGS[2],
        ],
    ),
    (
        "node",
        &[
            "config",
            "data_dir",
            "node_name",
            "node_address",
            "nbd_tls_cert",
            "nbd_tls_key",
            "nbd_tls_client_ca",
            LOGS[0],
            LOGS[1],
            LOGS[2],
        ],
    ),
    (
        "block-api",
        &["config", "data_dir", "block_listen", "nbd_ca_file", LOGS[0], LOGS[1], LOGS[2]],
    ),
    ("kubeconfig", &["config", "data_dir", "listen"]),
    ("doctor", &["config", "data_dir", "listen", "block_listen", "dashboard_listen"]),
    ("support-bundle", &["config", "data_dir", "listen", "block_listen", "dashboard_listen"]),
];

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
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        definition().debug_assert();
    }

    fn help_of(command: &str) -> String {
        definition().find_subcommand_mut(command).unwrap().render_long_help().to_string()
    }

    #[test]
    fn help_shows_the_settings_that_a_command_reads_and_no_others() {
        for (command, read) in SETTINGS_READ {
            let help = help_of(command);
            for setting in read {
                let flag = format!("--{} ", setting.replace('_', "-"));
                assert!(help.replace('\n', " \n").contains(&flag), "{command}: {flag}\n{help}");
            }
            assert!(!help.contains("--service-cluster-ip-range") || command == "apiserver");
        }
        assert!(!help_of("kubeconfig").contains("--dashboard-listen"));
        assert!(help_of("up").contains("--dashboard-listen"));
        // What was hidden before stays so: the password comes from the environment.
        assert!(help_of("block-api").contains("--auth-user"));
        assert!(!help_of("block-api").contains("--auth-password"));
        // What is not shown is accepted all the same.
        let typed = ["holdfast", "controllers", "--listen", "127.0.0.1:1"];
        assert!(definition().try_get_matches_from(typed).is_ok());
    }
}
