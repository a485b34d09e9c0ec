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
    io::Write::write_all(&mut io::stdout().lock(), &script(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

/// All that can be typed. Some parts read their own command line; what can be typed there is added.
pub(crate) fn definition() -> clap::Command {
    crate::cli::Cli::command()
        .mut_subcommand("engine", |_| engine::cli::definition())
        .mut_subcommand("etcd", |_| etcdguard::cli::definition())
}

fn script(shell: Shell) -> Vec<u8> {
    let mut command = definition();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "holdfast", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_the_parts_are_completed() {
        let script = String::from_utf8(script(Shell::Bash)).unwrap();
        for word in ["add-replica", "purge-status", "--nbd-listen", "--freeze-fs", "--to-revision"]
        {
            assert!(script.contains(word), "{word}");
        }
    }
}
