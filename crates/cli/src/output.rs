//! How commands speak: results to stdout, errors with their causes and a hint to stderr.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Columns for reading.
    #[default]
    Table,
    /// More columns.
    Wide,
    Json,
    Yaml,
    /// Names only, as accepted by kubectl.
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
    let is_obeyed = |it: char| (it.is_control() && it != '\n' && it != '\t') || turns(it);
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let shown =
        |it: char| if is_obeyed(it) { it.escape_unicode().to_string() } else { it.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Changes the direction of what stands behind it: a name could be read as another one.
fn turns(it: char) -> bool {
    matches!(it, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A document that a terminal may have and a program still reads: JSON, and YAML in double quotes,
/// write such letters as `\u009b`. They stand inside texts only.
fn escaped(text: &str) -> String {
    let shown = |it: char| {
        if (it.is_control() && it != '\n') || turns(it) {
            format!("\\u{:04x}", u32::from(it))
        } else {
            it.to_string()
        }
    };
    text.chars().map(shown).collect()
}

/// A value for programs.
pub fn machine<T: Serialize>(value: &T, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        // A text with such letters is in double quotes there, and in them already escaped.
        Format::Yaml => escaped(serde_saphyr::to_string(value)?.trim_end()),
        Format::Json | Format::Table | Format::Wide | Format::Name => {
            escaped(&serde_json::to_string_pretty(value)?)
        }
    })
}

/// Columns padded to their widest cell.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    Columns::default().table(head, rows)
}

/// How wide columns are, for rows that come one by one: they only grow.
#[derive(Debug, Default)]
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> String {
        let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| one_line(row)).collect();
        std::iter::once(&head).chain(&rows).for_each(|row| self.fit(row));
        let lines = std::iter::once(&head).chain(&rows).map(|row| self.padded(row));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// One more row below the others.
    pub(crate) fn row(&mut self, row: &[String]) -> String {
        let row = one_line(row);
        self.fit(&row);
        self.padded(&row)
    }

    fn fit(&mut self, row: &[String]) {
        self.0.resize(self.0.len().max(row.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }

    fn padded(&self, row: &[String]) -> String {
        let cells = row.iter().zip(&self.0).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    }
}

/// A cell is one line, whatever was written into it.
fn one_line(row: &[String]) -> Vec<String> {
    let cells = row.iter().map(|cell| plain(&cell.replace(['\n', '\r', '\t'], " ")).into_owned());
    cells.collect()
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
        assert_eq!(plain("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn programs_read_documents_whatever_is_written_in_them() {
        let hostile = "a\u{1b}]0;owned\u{7}b\u{9b}2J\u{202e}c\td\n\"e\" \\u009b: # {x}";
        let value = serde_json::json!([{"name": hostile, "clean": "é"}]);
        for format in [Format::Json, Format::Yaml] {
            let text = machine(&value, format).unwrap();
            assert_eq!(plain(&text), text, "{format:?}");
            let read: serde_json::Value = match format {
                Format::Yaml => serde_saphyr::from_str(&text).unwrap(),
                _ => serde_json::from_str(&text).unwrap(),
            };
            assert_eq!(read, value, "{text}");
        }
    }

    #[test]
    fn rows_that_come_later_stand_under_their_heads() {
        let mut columns = Columns::default();
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        assert_eq!(columns.table(&["NAME", "X"], &[row("ab", "1")]), "NAME   X\nab     1");
        assert_eq!(columns.row(&row("a", "2")), "a      2");
        assert_eq!(columns.row(&row("longer", "3")), "longer   3");
        assert_eq!(columns.row(&row("a", "4")), "a        4");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "long value".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["KEY", "V", "W"], &rows), "KEY   V            W\na     long value   x");
    }
}
