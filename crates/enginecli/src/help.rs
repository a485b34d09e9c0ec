//! What `--help` prints, from the table.

use std::fmt::Write as _;

use super::flag::Flag;
use super::table::{COMMANDS, Command, global};

/// The help of the command `path` leads to; of the whole dialect if it is empty.
pub(crate) fn text(program: &str, path: &[&'static Command]) -> String {
    match path.last() {
        None => overview(program),
        Some(command) => of(program, path, command),
    }
}

fn overview(program: &str) -> String {
    let mut text = format!(
        "Replicated block volumes: servers, and commands for a running volume.\n\n\
         Usage: {program} [global flags] COMMAND [flags] [arguments]\n"
    );
    section(&mut text, "Commands", &commands(COMMANDS));
    section(&mut text, "Global flags", &flags(global::ALL));
    section(&mut text, "Help", &[("--help, -h".to_owned(), "print this".to_owned())]);
    let _ = write!(text, "\nMore about a command: {program} COMMAND --help\n");
    text
}

fn of(program: &str, path: &[&'static Command], command: &Command) -> String {
    let name = path.iter().map(|command| command.name).collect::<Vec<_>>().join(" ");
    let mut text = format!("{}\n\nUsage: {program} [global flags] {name}", capital(command.about));
    if !command.commands.is_empty() {
        text.push_str(if command.verb.is_some() { " [COMMAND]" } else { " COMMAND" });
    }
    for flag in command.flags.iter().filter(|flag| flag.is_required) {
        let _ = write!(text, " --{} {}", flag.name, flag.value);
    }
    if command.flags.iter().any(|flag| !flag.is_required) {
        text.push_str(" [flags]");
    }
    if !command.arguments.is_empty() {
        let _ = write!(text, " {}", command.arguments);
    }
    text.push('\n');
    if !command.aliases.is_empty() {
        let _ = writeln!(text, "Aliases: {}", command.aliases.join(", "));
    }
    section(&mut text, "Commands", &commands(command.commands));
    for group in groups(command.flags) {
        let title = if group.is_empty() { "Flags" } else { group };
        let of_group: Vec<Flag> =
            command.flags.iter().filter(|flag| flag.group == group).copied().collect();
        section(&mut text, title, &flags(&of_group));
    }
    section(&mut text, "Help", &[("--help, -h".to_owned(), "print this".to_owned())]);
    text
}

/// The parts of the help, in the order of the table; that without a name comes first.
fn groups(flags: &[Flag]) -> Vec<&'static str> {
    let mut groups: Vec<&'static str> = Vec::new();
    for flag in flags {
        if !groups.contains(&flag.group) {
            groups.push(flag.group);
        }
    }
    groups.sort_by_key(|group| !group.is_empty());
    groups
}

fn commands(commands: &[Command]) -> Vec<(String, String)> {
    let row = |command: &Command| {
        let names: Vec<&str> =
            [command.name].into_iter().chain(command.aliases.iter().copied()).collect();
        (names.join(", "), command.about.to_owned())
    };
    commands.iter().map(row).collect()
}

fn flags(flags: &[Flag]) -> Vec<(String, String)> {
    let row = |flag: &Flag| {
        let value = if flag.value.is_empty() { "" } else { " " };
        let short = if flag.short.is_empty() { "" } else { ", -" };
        let name = format!("--{}{short}{}{value}{}", flag.name, flag.short, flag.value);
        let remark = match flag.default() {
            _ if flag.is_required => " (required)".to_owned(),
            Some(default) => format!(" (default: {default})"),
            None => String::new(),
        };
        (name, format!("{}{remark}", flag.about))
    };
    flags.iter().map(row).collect()
}

fn section(text: &mut String, title: &str, rows: &[(String, String)]) {
    let width = rows.iter().map(|(left, _)| left.len()).max().unwrap_or_default();
    if rows.is_empty() {
        return;
    }
    let _ = write!(text, "\n{title}:\n");
    for (left, right) in rows {
        let _ = writeln!(text, "  {left:<width$}  {right}");
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_names_every_command() {
        let text = text("longhorn", &[]);
        for command in COMMANDS {
            assert!(text.contains(&format!("\n  {}", command.name)), "{}", command.name);
        }
        assert!(text.contains("--url ADDR"), "{text}");
    }

    #[test]
    fn a_command_shows_its_flags_with_their_defaults() {
        let command = COMMANDS.iter().find(|command| command.name == "controller").unwrap();
        let text = text("holdfast engine", &[command]);
        let usage = "Usage: holdfast engine [global flags] controller --size SIZE \
                     --current-size SIZE [flags] VOLUME\n";
        assert!(text.contains(usage), "{text}");
        assert!(text.contains("size of the volume (required)"), "{text}");
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
        assert!(place("\nFlags:\n") < place("\nReplicas:\n"));
        assert!(place("\nFrontend nbd:\n") < place("--nbd-listen"));
        assert!(text.contains("--listen ADDR"), "{text}");
        assert!(text.contains("(default: localhost:9501)"), "{text}");
        for flag in command.flags {
            assert!(text.contains(&format!("\n  --{}", flag.name)), "{}", flag.name);
        }
    }
}
