//! The `holdfast` binary: arguments, configuration, wiring, signals. Nothing is decided here that a
//! crate below could decide.

mod cli;
mod completion;
mod config;
mod controllers;
mod kubeconfig;
mod leader;
mod output;
mod up;
mod version;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // One crypto provider for the whole process, before anything opens a connection.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("error: a TLS provider was installed twice");
        return ExitCode::FAILURE;
    }
    let cli = cli::Cli::parse();
    match cli::run(cli) {
        Ok(code) => code,
        Err(error) => output::fail(&error),
    }
}
