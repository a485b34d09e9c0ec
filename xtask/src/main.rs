//! Chores of the workspace that need logic: `cargo xtask <chore>`.

mod codegen;
mod crds;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Chores of the Holdfast workspace")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write the files that are made from other crates' facts.
    Codegen {
        /// Compare instead of writing; fail if a file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Write the definitions of our kinds to `deploy/crds`.
    Crds {
        /// Compare instead of writing; fail if a file is out of date.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Codegen { check } => codegen::run(check),
        Chore::Crds { check } => crds::run(check),
    }
}
