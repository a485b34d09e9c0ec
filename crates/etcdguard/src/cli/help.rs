//! What `--help` prints. Pure.

use std::fmt::Write as _;

use super::flag::Named;
use super::parse::commands;
use super::table::Command;

pub(crate) fn text(program: &str, command: Option<&Command>) -> String {
    command.map_or_else(|| overview(program), |command| of_command(program, command))
}

fn overview(program: &str) -> String {
    let mut text = format!(
        "Guards an etcd member: snapshots it, checks it, restores it.\n\n\
         Usage:\n  {program} [command]\n\nCommands:\n"
    );
    let width = commands().iter().map(|command| command.name.len()).max().unwrap_or_default();
    for command in commands() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<width$}  {}", command.name, command.about);
    }
    let _ = write!(
        text,
        "\nFlags:\n  -h, --help      explain\n  -v, --version   print the version\n\n\
         See {program} [command] --help for the flags of a command.\n"
    );
    text
}

fn of_command(program: &str, command: &Command) -> String {
    let mut text = format!("{}\n\nUsage:\n  {program} {}", command.about, command.name);
    let flags = command.flags();
    if !flags.is_empty() {
        text.push_str(" [flags]");
    }
    if !command.arguments.is_empty() {
        let _ = write!(text, " {}", command.arguments);
    }
    text.push_str("\n\nFlags:\n");
    let mut heads: Vec<(String, String)> =
        flags.iter().map(|flag| (head(flag), about(flag))).collect();
    heads.push(("  -h, --help".to_owned(), "explain".to_owned()));
    let width = heads.iter().map(|(head, _)| head.len()).max().unwrap_or_default();
    for (head, about) in heads {
        let _ = writeln!(text, "{head:<width$}   {about}");
    }
    text
}

fn head(flag: &Named) -> String {
    let short = flag.short().map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    format!("  {short}--{} {}", flag.name(), flag.value()).trim_end().to_owned()
}

fn about(flag: &Named) -> String {
    let default = flag.shown_default().map(|default| format!(" (default {default})"));
    format!("{}{}", flag.flag.about, default.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_line_with_its_default() {
        let server = Command::find("server").unwrap();
        let text = text("etcdbrctl", Some(server));
        for line in [
            "  -e, --endpoints strings",
            "(default [http://127.0.0.1:2379])",
            "      --reelection-period duration",
            "(default \"0 */1 * * *\")",
            "      --enable-profiling   ",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
        assert!(super::text("etcdbrctl", None).contains("\n  initialize  "));
    }
}
