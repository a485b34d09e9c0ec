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

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use engine::cli::Invocation;

fn main() -> ExitCode {
    // One crypto provider for the whole process, before anything opens a connection.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("error: a TLS provider was installed twice");
        return ExitCode::FAILURE;
    }
    // By that name the binary is the volume engine and nothing else.
    let mut args = std::env::args_os();
    if args
        .next()
        .is_some_and(|program| Path::new(&program).file_name() == Some("longhorn".as_ref()))
    {
        return engine::cli::main(args.collect(), Invocation::Longhorn);
    }
    let cli = cli::Cli::parse();
    match cli::run(cli) {
        Ok(code) => code,
        Err(error) => output::fail(&error),
    }
}
