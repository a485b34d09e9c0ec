//! From words to a command: `[global flags] command [subcommand] [flags] [arguments]`. Pure.
//!
//! The rules are those of the programs this one stands in for, and scripts rely on them: flags end
//! at the first word that is none, except that a command finds its own flags anywhere behind it,
//! and, called by the peer's name, takes a flag it does not know as an argument once it has seen one.

use std::ffi::OsString;

use super::Invocation;
use super::flag::{Flag, Given};
use super::table::{COMMANDS, Command, Verb, global};

/// What was asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The help of a command, or of all of them.
    Help(Vec<&'static Command>),
    Version,
    Run(Line),
}

/// A command line that is understood.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) verb: Verb,
    /// The command as it was reached, for messages: `snapshots ls`.
    pub(crate) name: String,
    pub(crate) globals: Given,
    pub(crate) flags: Given,
    pub(crate) arguments: Vec<String>,
    /// By which name the program was called: by a peer's it does what the peer does.
    pub(crate) invocation: Invocation,
}

impl Line {
    /// Whether a program of the peer's name was called: then scripts of the peer's read the result.
    pub(crate) fn is_peer(&self) -> bool {
        self.invocation == Invocation::Longhorn
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("unrecognized command: {word}")]
    UnknownCommand { word: String, similar: Option<&'static str> },
    #[error("flag provided but not defined: -{name}")]
    UnknownFlag { name: String, similar: Option<String> },
    #[error("flag needs an argument: -{0}")]
    NoValue(&'static str),
    #[error("bad flag syntax: {0}")]
    BadSyntax(String),
    #[error("{0}")]
    BadValue(String),
    #[error("argument {0:?} is not valid UTF-8")]
    NotText(OsString),
}

pub(crate) fn parse(words: Vec<OsString>, invocation: Invocation) -> Result<Asked, ParseError> {
    let words = words
        .into_iter()
        .map(|word| word.into_string().map_err(ParseError::NotText))
        .collect::<Result<Vec<String>, ParseError>>()?;
    let scanned = scan(words, global::ALL, Order::FlagsFirst, invocation)?;
    match scanned.special {
        Some(Special::Help) => return Ok(Asked::Help(Vec::new())),
        Some(Special::Version) => return Ok(Asked::Version),
        None => {}
    }
    let mut rest = scanned.rest.into_iter();
    match rest.next().as_deref() {
        None => Ok(Asked::Help(Vec::new())),
        Some("help" | "h") => help(rest),
        Some(word) => {
            let command = find(COMMANDS, word)?;
            descend(vec![command], rest.collect(), scanned.given, invocation)
        }
    }
}

/// `help snapshot create`: the help of the command the words lead to.
fn help(words: impl Iterator<Item = String>) -> Result<Asked, ParseError> {
    let mut path: Vec<&'static Command> = Vec::new();
    for word in words {
        let below = path.last().map_or(COMMANDS, |command| command.commands);
        path.push(find(below, &word)?);
    }
    Ok(Asked::Help(path))
}

fn descend(
    mut path: Vec<&'static Command>,
    words: Vec<String>,
    globals: Given,
    invocation: Invocation,
) -> Result<Asked, ParseError> {
    let Some(command) = path.last().copied() else { return Ok(Asked::Help(path)) };
    let order = if command.commands.is_empty() { Order::Mixed } else { Order::FlagsFirst };
    let scanned = scan(words, command.flags, order, invocation)?;
    match scanned.special {
        Some(Special::Help | Special::Version) => return Ok(Asked::Help(path)),
        None => {}
    }
    let mut rest = scanned.rest;
    if !command.commands.is_empty() && !rest.is_empty() {
        let word = rest.remove(0);
        if word == "help" || word == "h" {
            return Ok(Asked::Help(path));
        }
        path.push(find(command.commands, &word)?);
        return descend(path, rest, globals, invocation);
    }
    let Some(verb) = command.verb else { return Ok(Asked::Help(path)) };
    let name = path.iter().map(|command| command.name).collect::<Vec<_>>().join(" ");
    let (flags, arguments) = (scanned.given, rest);
    Ok(Asked::Run(Line { verb, name, globals, flags, arguments, invocation }))
}

fn find(commands: &'static [Command], word: &str) -> Result<&'static Command, ParseError> {
    commands.iter().find(|command| command.answers_to(word)).ok_or_else(|| {
        let names = commands.iter().flat_map(|it| [it.name].into_iter().chain(it.aliases.to_vec()));
        ParseError::UnknownCommand {
            word: word.to_owned(),
            similar: telemetry::nearest(word, names),
        }
    })
}

/// Where flags may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Before the first other word; that word and all behind it are left alone.
    FlagsFirst,
    /// Anywhere.
    Mixed,
}

/// A flag every command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    Help,
    Version,
}

#[derive(Debug, Default)]
struct Scanned {
    given: Given,
    rest: Vec<String>,
    special: Option<Special>,
}

fn scan(
    words: Vec<String>,
    flags: &'static [Flag],
    order: Order,
    invocation: Invocation,
) -> Result<Scanned, ParseError> {
    let mut scanned = Scanned::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match read(&word, flags)? {
            Word::End => {
                scanned.rest.extend(words);
                break;
            }
            Word::Plain if order == Order::FlagsFirst => {
                scanned.rest.push(word);
                scanned.rest.extend(words);
                break;
            }
            Word::Plain => scanned.rest.push(word),
            Word::Special(special) => {
                scanned.special = scanned.special.or(Some(special));
            }
            // Scripts of the peer's may rely on it; for people it hides a typing error.
            Word::Unknown(_) if !scanned.rest.is_empty() && invocation == Invocation::Longhorn => {
                scanned.rest.push(word);
            }
            Word::Unknown(name) => return Err(unknown_flag(name, flags)),
            Word::Flag(flag, value) => {
                let value = match value {
                    Some(value) => value,
                    None if flag.is_switch() => "true".to_owned(),
                    None => words.next().ok_or(ParseError::NoValue(flag.name))?,
                };
                scanned.given.add(flag, value).map_err(ParseError::BadValue)?;
            }
        }
    }
    Ok(scanned)
}

enum Word {
    /// `--`: no flags from here on.
    End,
    Plain,
    Special(Special),
    Flag(&'static Flag, Option<String>),
    Unknown(String),
}

/// One word, for itself.
fn read(word: &str, flags: &'static [Flag]) -> Result<Word, ParseError> {
    if word == "--" {
        return Ok(Word::End);
    }
    let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else {
        return Ok(Word::Plain);
    };
    let name = name.strip_prefix('-').unwrap_or(name);
    if name.starts_with('-') || name.starts_with('=') {
        return Err(ParseError::BadSyntax(word.to_owned()));
    }
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (name, None),
    };
    if let Some(flag) = flags.iter().find(|flag| flag.answers_to(name)) {
        return Ok(Word::Flag(flag, value));
    }
    Ok(match name {
        "help" | "h" => Word::Special(Special::Help),
        "version" | "v" if flags == global::ALL => Word::Special(Special::Version),
        _ => Word::Unknown(name.to_owned()),
    })
}

fn unknown_flag(name: String, flags: &'static [Flag]) -> ParseError {
    let is_global = flags != global::ALL && global::ALL.iter().any(|flag| flag.name == name);
    let similar = if is_global {
        Some(format!("--{name} goes before the command"))
    } else {
        let names = flags.iter().map(|flag| flag.name);
        telemetry::nearest(&name, names).map(|similar| format!("did you mean --{similar}?"))
    };
    ParseError::UnknownFlag { name, similar }
}

#[cfg(test)]
mod tests;
