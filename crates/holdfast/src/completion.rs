//! `holdfast completion`: scripts for shells, from the same definition as `--help`, and the answers
//! these ask for: words of commands, and names of what there is.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;

use ::cli::names::{self, Kind};
use anyhow::Context as _;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

/// Set by the scripts: the program is asked for words instead of being run.
const ASKED: &str = "HOLDFAST_COMPLETE";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for, for example: source <(holdfast completion bash)
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::args_os().next().unwrap_or_else(|| "holdfast".into());
    let script = script(args.shell, &called(&program))?;
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// How a script calls the program again: as it was called, from wherever the shell is then.
fn called(program: &OsStr) -> String {
    let path = std::path::PathBuf::from(program);
    let is_path = path.components().count() > 1;
    let absolute = is_path.then(|| std::path::absolute(&path).ok()).flatten();
    absolute.unwrap_or(path).to_string_lossy().into_owned()
}

/// Answers a shell and ends, if it is one that asks.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| with_names(definition(), &[])).var(ASKED).complete();
}

/// All that can be typed. Some parts read their own command line; what can be typed there is added.
pub(crate) fn definition() -> clap::Command {
    crate::cli::definition()
        .mut_subcommand("engine", |_| enginecli::definition())
        .mut_subcommand("etcd", |_| etcdguard::cli::definition())
}

fn script(shell: Shell, program: &str) -> anyhow::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let found = shells.completer(&shell.to_string());
    let found = found.with_context(|| format!("there is no script for {shell}"))?;
    let mut script = Vec::new();
    found.write_registration(ASKED, "holdfast", "holdfast", program, &mut script)?;
    Ok(script)
}

/// Lets every word that names something be completed by what there is.
fn with_names(command: clap::Command, path: &[String]) -> clap::Command {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    let command = command.mut_args(|arg| match kind_of(&words, arg.get_id().as_str()) {
        Some(kind) => arg.add(ArgValueCandidates::new(move || candidates(kind))),
        None => arg,
    });
    command.mut_subcommands(|below| {
        let path = [path, &[below.get_name().to_owned()]].concat();
        with_names(below, &path)
    })
}

/// What an argument of a command names, if that is something which is there already.
fn kind_of(path: &[&str], argument: &str) -> Option<Kind> {
    Some(match (path, argument) {
        (_, "context") => Kind::Context,
        (["tenant", _], "namespace") => Kind::Namespace,
        (["volume", "show" | "attach" | "detach" | "expand"], "name")
        | (["volume", "rm"], "names")
        | (["volume", "create"], "clone_of")
        | (["snapshot", "ls" | "create"] | ["backup", "ls" | "create" | "forget"], "volume") => {
            Kind::Volume
        }
        (["volume", "attach"], "node") | (["node", "cordon" | "uncordon"], "name") => Kind::Node,
        (["volume" | "backup", "create"], "target")
        | (["target", "set" | "sync"], "name")
        | (["target", "rm"], "names") => Kind::Target,
        (["snapshot", "rm"], "names") | (["backup", "create"], "snapshot") => Kind::Snapshot,
        (["backup", "show" | "retry"], "name")
        | (["backup", "rm"], "names")
        | (["restore"] | ["dr", "create"], "backup") => Kind::Backup,
        (["dr", "activate"], "name") => Kind::Standby,
        (["job", "cancel"], "name") | (["job", "rm"], "names") => Kind::Job,
        (["tenant", "restore"], "backup") | (["tenant", "rm"], "name") => Kind::TenantBackup,
        _ => return None,
    })
}

fn candidates(kind: Kind) -> Vec<CompletionCandidate> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let line: Vec<OsString> = std::env::args_os().collect();
    let names = runtime.map(|it| it.block_on(names::of(kind, &line))).unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    fn offered(line: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let last = words.len() - 1;
        let mut command = definition();
        let found = clap_complete::engine::complete(&mut command, words, last, None).unwrap();
        found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_commands_of_the_parts_are_completed() {
        for (line, wanted) in [
            (&["holdfast", "engine", "add-"][..], "add-replica"),
            (&["holdfast", "engine", "controller", "--nbd-l"], "--nbd-listen"),
            (&["holdfast", "etcd", "restore", "--to-r"], "--to-revision"),
            (&["holdfast", "backup", "for"], "forget"),
            (&["holdfast", "volume", "ls", "-o", "w"], "wide"),
        ] {
            assert!(offered(line).contains(&wanted.to_owned()), "{line:?}: {:?}", offered(line));
        }
    }

    #[test]
    fn every_shell_has_a_script_that_asks_this_program() {
        for shell in Shell::value_variants() {
            let text = String::from_utf8(script(*shell, "/opt/holdfast").unwrap()).unwrap();
            assert!(text.contains("/opt/holdfast") && text.contains(ASKED), "{shell}: {text}");
        }
        assert_eq!(called(OsStr::new("holdfast")), "holdfast");
        assert!(called(OsStr::new("./holdfast")).starts_with('/'));
    }

    /// A new command is to be looked at here, too.
    #[test]
    fn every_word_that_names_something_there_is_completed() {
        fn walk(command: &clap::Command, path: &[&str], missing: &mut Vec<String>) {
            for argument in command.get_positionals() {
                if kind_of(path, argument.get_id().as_str()).is_none() {
                    missing.push(format!("{} {}", path.join(" "), argument.get_id()));
                }
            }
            for below in command.get_subcommands() {
                walk(below, &[path, &[below.get_name()]].concat(), missing);
            }
        }
        let tree = definition();
        let mut missing = Vec::new();
        let commands =
            ["volume", "snapshot", "backup", "restore", "dr", "target", "job", "tenant", "node"];
        for name in commands {
            walk(tree.find_subcommand(name).unwrap(), &[name], &mut missing);
        }
        // Names of what is to be made, and what is no name.
        let wanted = [
            "volume create name",
            "volume expand size",
            "restore volume",
            "dr create name",
            "target set url",
            "job create name",
            "tenant backup name",
        ];
        assert_eq!(missing, wanted);
    }
}
