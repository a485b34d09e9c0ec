//! Where a command writes.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::error::Error;
use super::{Invocation, output};

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Lines of a log, as programs expect them.
    Log,
    /// For somebody at a terminal: `error: …`, `hint: …`.
    Sentences,
}

/// Results, messages, and whether somebody watches.
pub struct Console<'c> {
    pub out: &'c mut dyn Write,
    pub err: &'c mut dyn Write,
    /// Whether to show how far a long command is, on `err`.
    pub shows_progress: bool,
    pub manner: Manner,
}

impl std::fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("shows_progress", &self.shows_progress).finish()
    }
}

impl Console<'_> {
    /// Runs `work` with the streams of this process.
    pub(crate) fn standard<T>(
        invocation: Invocation,
        work: impl FnOnce(&mut Console<'_>) -> T,
    ) -> T {
        let shows_progress = io::stderr().is_terminal();
        let manner = match invocation {
            Invocation::Holdfast if shows_progress => Manner::Sentences,
            Invocation::Holdfast | Invocation::Longhorn => Manner::Log,
        };
        let (out, err) = (&mut io::stdout(), &mut io::stderr());
        work(&mut Console { out, err, shows_progress, manner })
    }

    /// Writes a text as it is.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Error> {
        self.out.write_all(text.as_bytes()).map_err(Error::Output)?;
        self.out.flush().map_err(Error::Output)
    }

    /// Writes a text and a line end.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), Error> {
        self.print(&format!("{text}\n"))
    }

    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        let text = output::json(value).map_err(Error::Output)?;
        self.say(&text)
    }

    /// The same on one line.
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        let text = output::json_line(value).map_err(Error::Output)?;
        self.say(&text)
    }

    /// A line of the log, or the same for people.
    pub(crate) fn log(&mut self, level: &str, message: &str, fields: &[(&str, &str)]) {
        let text = match self.manner {
            Manner::Log => telemetry::logfmt::line(level, message, fields),
            Manner::Sentences => sentence(level, message, fields),
        };
        // There is nobody to tell that the log cannot be written.
        let _ = writeln!(self.err, "{text}");
    }

    /// What went wrong and what to do, for people.
    pub(crate) fn tell(&mut self, error: &str, hint: Option<&str>) {
        let _ = writeln!(self.err, "error: {error}");
        if let Some(hint) = hint {
            let _ = writeln!(self.err, "hint: {hint}");
        }
    }
}

/// `warning: a block is left out (block: a/b, offset: 0)`
fn sentence(level: &str, message: &str, fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let fields =
        if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
    format!("{level}: {message}{fields}")
}
