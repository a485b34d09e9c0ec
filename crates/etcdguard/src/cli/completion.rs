//! The table as a definition other tools understand, for completion in shells.

use std::process::ExitCode;

use clap::{Arg, ArgAction};
use clap_complete::Shell;

use super::flag::{Kind, Named};
use super::parse::{Line, commands};

/// Prints the script for the shell that is named.
pub(crate) fn run(line: &Line, program: &str) -> ExitCode {
    let shell = line.arguments.first().map(|name| name.parse::<Shell>());
    let Some(Ok(shell)) = shell else {
        super::print("Error: name a shell: bash, fish, powershell or zsh\n");
        return ExitCode::FAILURE;
    };
    let mut script = Vec::new();
    let name = program.split(' ').next_back().unwrap_or(program);
    clap_complete::generate(shell, &mut definition(), name, &mut script);
    super::print(&String::from_utf8_lossy(&script))
}

/// `holdfast etcd` with all its commands and flags. It describes; it is not what parses.
pub fn definition() -> clap::Command {
    let below = commands().iter().map(|it| {
        let positional = (!it.arguments.is_empty())
            .then(|| Arg::new("arguments").value_name(it.arguments).num_args(0..));
        clap::Command::new(it.name)
            .about(it.about)
            .args(it.flags().iter().map(argument))
            .args(positional)
    });
    clap::Command::new("etcd")
        .about("Guard an etcd member: snapshots, checks, restores")
        .disable_help_subcommand(true)
        .subcommands(below)
}

fn argument(flag: &Named) -> Arg {
    // Made once, just before the process ends; the definition keeps only static names.
    let name: &'static str = flag.name().leak();
    let argument = Arg::new(name).long(name).help(flag.flag.about);
    let argument = flag.short().map_or(argument.clone(), |letter| argument.short(letter));
    match flag.flag.kind {
        Kind::Switch => argument.action(ArgAction::SetTrue),
        Kind::Texts | Kind::TextArray => argument.action(ArgAction::Append),
        Kind::Text | Kind::Integer | Kind::Count | Kind::Port | Kind::Duration => argument,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_consistent() {
        super::definition().debug_assert();
    }
}
