//! The table as a definition other tools understand, for completion in shells.

use clap::{Arg, ArgAction};

use super::flag::{Kind, Named};
use super::parse::commands;

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
        Kind::Text | Kind::Integer | Kind::Count | Kind::Duration => argument,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_consistent() {
        super::definition().debug_assert();
    }
}
