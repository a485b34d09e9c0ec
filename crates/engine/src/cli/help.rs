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
    let _ = write!(text, "\nMore about a command: {program} COMMAND --help\n");
    text
}

fn of(program: &str, path: &[&'static Command], command: &Command) -> String {
    let name = path.iter().map(|command| command.name).collect::<Vec<_>>().join(" ");
    let mut text = format!("{}\n\nUsage: {program} [global flags] {name}", capital(command.about));
    if !command.commands.is_empty() {
        text.push_str(if command.verb.is_some() { " [COMMAND]" } else { " COMMAND" });
    }
    if !command.flags.is_empty() {
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
    section(&mut text, "Flags", &flags(command.flags));
    text
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
        let default = flag.default().map(|it| format!(" (default: {it})")).unwrap_or_default();
        (format!("--{}{value}{}", flag.name, flag.value), format!("{}{default}", flag.about))
    };
    let help = ("--help, -h".to_owned(), "print this".to_owned());
    let mut rows: Vec<_> = flags.iter().map(row).collect();
    rows.push(help);
    rows
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
        assert!(text.contains("Usage: holdfast engine [global flags] controller [flags] VOLUME\n"));
        assert!(text.contains("--listen ADDR"), "{text}");
        assert!(text.contains("(default: localhost:9501)"), "{text}");
        for flag in command.flags {
            assert!(text.contains(&format!("\n  --{}", flag.name)), "{}", flag.name);
        }
    }
}
