//! From words to a command: `command [flags] [arguments]`. Pure.
//!
//! The rules are those of the program this one stands in for: `--a=b` or `--a b`, a switch takes
//! its value behind `=` only, `-e b`, `-e=b` and `-eb` for letters, `--` ends the flags, and flags
//! and arguments may be mixed.

use std::ffi::OsString;

use super::flag::{Given, Kind, Named};
use super::table::{COMMANDS, Command};

/// What was asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The help of a command, or of all of them.
    Help(Option<&'static Command>),
    Version,
    /// No word at all.
    Nothing,
    Run(Line),
}

/// A command with its flags and arguments.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) command: &'static Command,
    pub(crate) given: Given,
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("unknown command {0:?}")]
    UnknownCommand(String),
    #[error("unknown flag: {name}")]
    UnknownFlag { name: String, similar: Option<String> },
    #[error("flag needs an argument: {0}")]
    NoValue(String),
    #[error("invalid argument {value:?} for --{name}: {why}")]
    BadValue { name: String, value: String, why: &'static str },
    #[error("bad flag syntax: {0}")]
    BadSyntax(String),
    #[error("unexpected argument {0:?}")]
    UnexpectedArgument(String),
    #[error("{0:?} is not readable as text")]
    NotText(OsString),
}

impl ParseError {
    /// What may have been meant.
    pub(crate) fn similar(&self) -> Option<String> {
        match self {
            Self::UnknownCommand(word) => {
                let known = commands().iter().map(|command| command.name);
                telemetry::nearest(word, known).map(str::to_owned)
            }
            Self::UnknownFlag { similar, .. } => similar.clone(),
            Self::NoValue(_)
            | Self::BadValue { .. }
            | Self::BadSyntax(_)
            | Self::UnexpectedArgument(_)
            | Self::NotText(_) => None,
        }
    }
}

fn unknown_flag(word: &str, flags: &[Named]) -> ParseError {
    let bare = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let names: Vec<String> = flags.iter().map(Named::name).collect();
    let similar = telemetry::nearest(bare, names.iter().map(String::as_str));
    ParseError::UnknownFlag { name: word.to_owned(), similar: similar.map(|it| format!("--{it}")) }
}

pub(crate) fn parse(args: Vec<OsString>) -> Result<Asked, ParseError> {
    let words: Result<Vec<String>, _> = args.into_iter().map(OsString::into_string).collect();
    let words = words.map_err(ParseError::NotText)?;
    let Some((first, rest)) = words.split_first() else { return Ok(Asked::Nothing) };
    match first.as_str() {
        "-h" | "--help" => return Ok(Asked::Help(None)),
        "-v" | "--version" | "--version=true" => return Ok(Asked::Version),
        flag if flag.starts_with('-') => return Err(unknown_flag(flag, &[])),
        _ => {}
    }
    let unknown = || ParseError::UnknownCommand(first.clone());
    let command = Command::find(first).ok_or_else(unknown)?;
    command_line(command, rest)
}

fn command_line(command: &'static Command, words: &[String]) -> Result<Asked, ParseError> {
    let flags = command.flags();
    let mut line =
        Line { command, given: Given::defaults(flags.iter().copied()), arguments: Vec::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let taken = match Word::of(word)? {
            Word::End => {
                line.arguments.extend(words.by_ref().cloned());
                continue;
            }
            Word::Argument => {
                line.arguments.push(word.clone());
                continue;
            }
            Word::Help => return Ok(Asked::Help(Some(command))),
            Word::Long { name, value } => {
                let flag = flags.iter().find(|flag| flag.name() == name);
                (flag, value.map(str::to_owned))
            }
            Word::Short { letter, value } => {
                let flag = flags.iter().find(|flag| flag.short() == Some(letter));
                (flag, value.map(str::to_owned))
            }
        };
        let (Some(flag), value) = taken else { return Err(unknown_flag(word, &flags)) };
        let value = match value {
            Some(value) => value,
            None if flag.flag.kind == Kind::Switch => "true".to_owned(),
            None => words.next().cloned().ok_or_else(|| ParseError::NoValue(word.clone()))?,
        };
        line.take(flag, value)?;
    }
    line.check()
}

impl Line {
    fn take(&mut self, flag: &Named, value: String) -> Result<(), ParseError> {
        self.given.add(flag, &value).map_err(|why| ParseError::BadValue {
            name: flag.name(),
            value,
            why,
        })
    }

    /// A command that takes no arguments must have got none.
    fn check(self) -> Result<Asked, ParseError> {
        match self.arguments.first() {
            Some(argument) if self.command.arguments.is_empty() => {
                Err(ParseError::UnexpectedArgument(argument.clone()))
            }
            Some(name) if self.command.verb == super::table::Verb::Help => {
                let unknown = || ParseError::UnknownCommand(name.clone());
                Ok(Asked::Help(Some(Command::find(name).ok_or_else(unknown)?)))
            }
            None if self.command.verb == super::table::Verb::Help => Ok(Asked::Help(None)),
            Some(_) | None => Ok(Asked::Run(self)),
        }
    }
}

enum Word<'w> {
    End,
    Argument,
    Help,
    Long { name: &'w str, value: Option<&'w str> },
    Short { letter: char, value: Option<&'w str> },
}

impl<'w> Word<'w> {
    fn of(word: &'w str) -> Result<Self, ParseError> {
        match word {
            "--" => return Ok(Self::End),
            "-" => return Ok(Self::Argument),
            "-h" | "--help" => return Ok(Self::Help),
            _ => {}
        }
        if let Some(long) = word.strip_prefix("--") {
            if long.starts_with(['-', '=']) {
                return Err(ParseError::BadSyntax(word.to_owned()));
            }
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            return Ok(Self::Long { name, value });
        }
        let Some(short) = word.strip_prefix('-') else { return Ok(Self::Argument) };
        let mut letters = short.chars();
        let Some(letter) = letters.next() else { return Ok(Self::Argument) };
        let rest = letters.as_str();
        let value = rest.strip_prefix('=').or((!rest.is_empty()).then_some(rest));
        Ok(Self::Short { letter, value })
    }
}

/// The commands, for the help of all.
pub(crate) fn commands() -> &'static [Command] {
    COMMANDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Result<Line, ParseError> {
        match parse(words.iter().map(OsString::from).collect())? {
            Asked::Run(line) => Ok(line),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_form_of_a_flag_is_taken() {
        for words in [
            ["server", "--endpoints=a,b", "--endpoints=c"].as_slice(),
            &["server", "--endpoints", "a,b", "--endpoints", "c"],
            &["server", "-e", "a,b", "-ec"],
            &["server", "-e=a,b", "-e=c"],
        ] {
            assert_eq!(line(words).unwrap().given.texts("endpoints"), ["a", "b", "c"], "{words:?}");
        }
        let given = line(&["restore", "--skip-hash-check", "-d", "x"]).unwrap().given;
        assert!(given.switch("skip-hash-check"));
        assert_eq!(given.text("data-dir"), "x");
        let given = line(&["server", "--compress-snapshots=false", "-p", "1"]).unwrap().given;
        assert!(!given.switch("compress-snapshots"));
        assert_eq!(given.count("server-port"), 1);
    }

    #[test]
    fn mistakes_are_named() {
        for (words, wanted) in [
            (["serve"].as_slice(), "unknown command \"serve\""),
            (&["server", "--no-such"], "unknown flag: --no-such"),
            (&["restore", "-x"], "unknown flag: -x"),
            (&["restore", "--data-dir"], "flag needs an argument: --data-dir"),
            (&["restore", "--=x"], "bad flag syntax: --=x"),
            (&["restore", "there"], "unexpected argument \"there\""),
            (&["--no-such"], "unknown flag: --no-such"),
            (
                &["server", "--reelection-period=soon"],
                "invalid argument \"soon\" for --reelection-period: write a duration as in 1h30m \
                 or 20s",
            ),
        ] {
            assert_eq!(line(words).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn help_is_found_everywhere() {
        let help = |words: &[&str]| parse(words.iter().map(OsString::from).collect()).unwrap();
        assert!(matches!(help(&["--help"]), Asked::Help(None)));
        assert!(matches!(help(&["help"]), Asked::Help(None)));
        for words in [
            ["help", "copy"].as_slice(),
            &["copy", "-h"],
            &["copy", "--max-backup-age", "3", "--help"],
        ] {
            assert!(
                matches!(help(words), Asked::Help(Some(command)) if command.name == "copy"),
                "{words:?}"
            );
        }
        assert!(matches!(help(&[]), Asked::Nothing));
        assert!(matches!(help(&["-v"]), Asked::Version));
    }

    #[test]
    fn what_may_have_been_meant_is_suggested() {
        let similar = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            parse(words).unwrap_err().similar()
        };
        assert_eq!(similar(&["retsore"]).as_deref(), Some("restore"));
        assert_eq!(similar(&["restore", "--data-dri=x"]).as_deref(), Some("--data-dir"));
        assert_eq!(similar(&["restore", "--no-such"]), None);
    }
}
