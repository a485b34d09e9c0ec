//! `holdfast man`: manual pages, from the same definition as `--help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap_mangen::Man;

use crate::completion;
use ::cli::output::{self, Hint};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command, as in `holdfast man backup create | man -l -`; without one, holdfast itself.
    command: Vec<String>,
    /// Write the pages of all commands into this directory, as holdfast-backup-create.1.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    all: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut root = completion::definition();
    root.build();
    if let Some(dir) = &args.all {
        let written = write_all(&root, dir)?;
        output::say(&format!("{written} pages are in {}", dir.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = &root;
    for word in &args.command {
        command = command
            .find_subcommand(word)
            .with_context(|| format!("no such command: {word:?}"))
            .hint("list the commands with `holdfast --help`")?;
    }
    let page = page(command)?;
    std::io::Write::write_all(&mut std::io::stdout().lock(), &page)?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source = format!("holdfast {}", crate::version::NUMBER);
    Man::new(command.clone()).source(source).manual("Holdfast").render(&mut text)?;
    Ok(text)
}

/// The page of a command and those of all below it.
fn write_all(command: &clap::Command, dir: &Path) -> anyhow::Result<usize> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    durable::replace(dir.join(format!("{name}.1")), &page(command)?)?;
    let mut written = 1;
    for below in command.get_subcommands().filter(|it| it.get_name() != "help") {
        written += write_all(below, dir)?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let mut root = completion::definition();
        root.build();
        let written = write_all(&root, dir.path()).unwrap();
        assert!(written > 50, "{written}");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("holdfast.1").contains("support\\-bundle"));
        assert!(read("holdfast-backup-forget.1").contains("keep\\-daily"));
    }
}
