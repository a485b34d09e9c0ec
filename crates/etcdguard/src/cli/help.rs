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
         Usage: {program} COMMAND [flags] [arguments]\n"
    );
    let names = commands().iter().map(|it| (format!("  {}", it.name), it.about.to_owned()));
    section(&mut text, "Commands", &names.collect::<Vec<_>>());
    let version = ("  -v, --version".to_owned(), "print the version".to_owned());
    section(&mut text, "Help", &[help(), version]);
    // Writing to a string cannot fail.
    let _ = write!(text, "\nMore about a command: {program} COMMAND --help\n");
    text
}

fn of_command(program: &str, command: &Command) -> String {
    let mut text = format!("{}\n\nUsage: {program} {}", command.about, command.name);
    let sections = command.sections();
    if !sections.is_empty() {
        text.push_str(" [flags]");
    }
    if !command.arguments.is_empty() {
        let _ = write!(text, " {}", command.arguments);
    }
    text.push('\n');
    for (title, flags) in sections {
        let rows: Vec<_> = flags.iter().map(|flag| (head(flag), about(flag))).collect();
        section(&mut text, title, &rows);
    }
    section(&mut text, "Help", &[help()]);
    text
}

fn help() -> (String, String) {
    ("  -h, --help".to_owned(), "print this".to_owned())
}

fn section(text: &mut String, title: &str, rows: &[(String, String)]) {
    let width = rows.iter().map(|(head, _)| head.len()).max().unwrap_or_default();
    let _ = write!(text, "\n{title}:\n");
    for (head, about) in rows {
        let _ = writeln!(text, "{head:<width$}   {about}");
    }
}

fn head(flag: &Named) -> String {
    let short = flag.short().map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    format!("  {short}--{} {}", flag.name(), flag.value()).trim_end().to_owned()
}

fn about(flag: &Named) -> String {
    let default = flag.shown_default().map(|default| format!("default {default}"));
    let remark = flag.requirement().or(default).map(|remark| format!(" ({remark})"));
    format!("{}{}", flag.flag.about, remark.unwrap_or_default())
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
        assert!(text.starts_with("Guard a member"), "{text}");
        assert!(text.contains("\n\nUsage: etcdbrctl server [flags]\n\nFlags:\n"), "{text}");
    }

    #[test]
    fn options_are_grouped_and_what_must_be_given_is_marked() {
        let text = text("holdfast etcd", Some(Command::find("copy").unwrap()));
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
        let order = [
            "\nFlags:\n",
            "--max-backup-age int",
            "--verify",
            "\nStore:\n",
            "      --storage-provider string",
            "required unless Local, or set STORAGE_CONTAINER)",
            "\nStore to copy from:\n",
            "--source-storage-provider string",
            "required unless Local, or set SOURCE_STORAGE_CONTAINER)",
            "\nHelp:\n",
        ];
        assert!(order.map(place).is_sorted(), "{text}");
    }

    #[test]
    fn every_flag_is_shown_once() {
        for command in commands() {
            let text = super::text("holdfast etcd", Some(command));
            for flag in command.flags() {
                let head = format!("--{} ", flag.name());
                assert_eq!(text.matches(&head).count(), 1, "{} {head}: {text}", command.name);
            }
        }
    }
}
