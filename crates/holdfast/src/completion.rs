//! `holdfast completion`: scripts for shells, from the same definition as `--help`.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for, for example: source <(holdfast completion bash)
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    let mut command = crate::cli::Cli::command();
    clap_complete::generate(args.shell, &mut command, "holdfast", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(ExitCode::SUCCESS)
}
