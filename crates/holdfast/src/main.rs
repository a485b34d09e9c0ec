//! The `holdfast` binary: arguments, configuration, wiring, signals. Nothing is decided here that a
//! crate below could decide.

mod block;
mod bundle;
mod cli;
mod completion;
mod config;
mod controllers;
mod dashboard;
mod doctor;
mod health;
mod home;
mod install;
#[cfg(test)]
mod jobs_tests;
mod kubeconfig;
mod leader;
mod man;
mod node;
#[cfg(test)]
mod papers;
mod reference;
mod roles;
mod up;
mod version;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use ::cli::output;

fn main() -> ExitCode {
    // One crypto provider for the whole process, before anything opens a connection.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("error: a TLS provider was installed twice");
        return ExitCode::FAILURE;
    }
    // By some names the binary is one of its parts and nothing else.
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    match Path::new(&program).file_name().and_then(OsStr::to_str) {
        Some("longhorn") => {
            return enginecli::main(args.collect(), enginecli::Invocation::Longhorn);
        }
        Some("etcdbrctl") => {
            return etcdguard::cli::main(args.collect(), etcdguard::cli::Invocation::Etcdbrctl);
        }
        Some(_) | None => {}
    }
    completion::answer();
    let cli = cli::parse();
    match cli::run(cli) {
        Ok(code) => code,
        Err(error) => output::fail(&error),
    }
}
