//! The table as a definition other tools understand, for completion in shells.

use clap::{Arg, ArgAction};

use super::flag::{Flag, Kind};
use super::table::{COMMANDS, Command, global};

/// `holdfast engine` with all its commands and flags. It describes; it is not what parses.
pub fn definition() -> clap::Command {
    below(clap::Command::new("engine"), COMMANDS)
        .about("Replicated block volumes: servers, and commands for a running volume")
        .args(global::ALL.iter().map(argument))
}

fn below(command: clap::Command, commands: &'static [Command]) -> clap::Command {
    command.subcommands(commands.iter().map(|it| {
        let command = clap::Command::new(it.name)
            .about(it.about)
            .visible_aliases(it.aliases)
            .args(it.flags.iter().map(argument));
        let positional = (!it.arguments.is_empty())
            .then(|| Arg::new("arguments").value_name(it.arguments).num_args(0..));
        below(command.args(positional), it.commands)
    }))
}

fn argument(flag: &Flag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).help(flag.about);
    match flag.kind {
        Kind::Switch(_) => argument.action(ArgAction::SetTrue),
        Kind::List(_) => argument.action(ArgAction::Append).value_name(flag.value),
        Kind::Text(_) | Kind::Integer(_) | Kind::Size(_) => argument.value_name(flag.value),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_consistent() {
        super::definition().debug_assert();
    }
}
