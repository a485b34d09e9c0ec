//! Where a command writes.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::error::Error;
use super::{log, output};

/// Results, messages, and whether somebody watches.
pub struct Console<'c> {
    pub out: &'c mut dyn Write,
    pub err: &'c mut dyn Write,
    /// Whether to show how far a long command is, on `err`.
    pub shows_progress: bool,
}

impl std::fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("shows_progress", &self.shows_progress).finish()
    }
}

impl Console<'_> {
    /// Runs `work` with the streams of this process.
    pub(crate) fn standard<T>(work: impl FnOnce(&mut Console<'_>) -> T) -> T {
        let shows_progress = io::stderr().is_terminal();
        work(&mut Console { out: &mut io::stdout(), err: &mut io::stderr(), shows_progress })
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

    /// A line of the log.
    pub(crate) fn log(&mut self, level: &str, message: &str, fields: &[(&str, &str)]) {
        // There is nobody to tell that the log cannot be written.
        let _ = writeln!(self.err, "{}", log::line(level, message, fields));
    }
}
