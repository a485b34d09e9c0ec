//! How commands speak: results to stdout, errors with their causes and a hint to stderr.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For people who want everything.
    Wide,
    Json,
    Yaml,
    /// Names only, as kubectl takes them.
    Name,
}

/// What a user can do about an error.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Hinted {
    hint: String,
    #[source]
    error: anyhow::Error,
}

impl Hinted {
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

pub trait Hint<T> {
    /// Adds what to do next.
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Hint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| Hinted { hint: hint.into(), error: error.into() }.into())
    }
}

/// Says what went wrong, why, and what to do; a closed pipe is the reader's choice, not a failure.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    let pipe = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    if pipe.into_iter().any(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", plain(&telemetry::Chain(error.as_ref()).to_string()));
    for cause in error.chain() {
        if let Some(hinted) = cause.downcast_ref::<Hinted>() {
            eprintln!("hint: {}", plain(&hinted.hint));
        }
    }
    ExitCode::FAILURE
}

/// Writes a text and a line end.
pub fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", plain(text))?;
    out.flush()
}

/// A text as a terminal may have it: what others wrote into objects must not move its cursor, change its
/// title or type for its owner.
pub fn plain(text: &str) -> Cow<'_, str> {
    let is_obeyed = |it: char| it.is_control() && it != '\n' && it != '\t';
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let shown =
        |it: char| if is_obeyed(it) { it.escape_unicode().to_string() } else { it.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// A value for programs.
pub fn machine<T: Serialize>(value: &T, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Yaml => serde_saphyr::to_string(value)?.trim_end().to_owned(),
        Format::Json | Format::Table | Format::Wide | Format::Name => {
            serde_json::to_string_pretty(value)?
        }
    })
}

/// Columns padded to their widest cell.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    // A cell is one line, whatever was written into it.
    let one_line = |cell: &String| plain(&cell.replace(['\n', '\r', '\t'], " ")).into_owned();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(one_line).collect()).collect();
    let rows = rows.as_slice();
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("   ").trim_end().to_owned()
    };
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut lines = vec![line(&head)];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(plain("a\u{1b}]0;owned\u{7}b\nc"), "a\\u{1b}]0;owned\\u{7}b\nc");
        assert_eq!(plain("\u{9b}2J"), "\\u{9b}2J");
        let rows = vec![vec!["x\ny\u{1b}[2J".to_owned()]];
        assert_eq!(table(&["K"], &rows), "K\nx y\\u{1b}[2J");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "long value".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["KEY", "V", "W"], &rows), "KEY   V            W\na     long value   x");
    }
}
