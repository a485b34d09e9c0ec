//! What commands print: JSON as Go programs write it, and padded columns.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, PrettyFormatter};

/// JSON indented with tabs, with the letters escaped that Go escapes for the sake of HTML. Maps
/// must come sorted.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<String> {
    let mut bytes = Vec::new();
    let formatter = GoFormatter(PrettyFormatter::with_indent(b"\t"));
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    value.serialize(&mut serializer)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// The same without line ends and blanks.
pub(crate) fn json_line<T: Serialize>(value: &T) -> io::Result<String> {
    let text = serde_json::to_string(value)?;
    // Outside of strings JSON has none of these.
    Ok(text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"))
}

struct GoFormatter(PrettyFormatter<'static>);

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let special = ['&', '<', '>', '\u{2028}', '\u{2029}'];
        for piece in fragment.split_inclusive(special) {
            let last = piece.chars().next_back().filter(|letter| special.contains(letter));
            let plain = last.and_then(|letter| piece.strip_suffix(letter)).unwrap_or(piece);
            writer.write_all(plain.as_bytes())?;
            if let Some(letter) = last {
                write!(writer, "\\u{:04x}", u32::from(letter))?;
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.0.write_char_escape(writer, escape)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

/// Rows whose cells but the last are padded to the widest of their column and one blank more. The
/// padding is there even before an empty last cell.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count() + 1);
        }
    }
    if let Some(last) = widths.last_mut() {
        *last = 0;
    }
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{cell:<width$}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn json_is_that_of_go() {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Line {
            first_key: &'static str,
            list: Vec<u8>,
            none: Option<u8>,
            map: BTreeMap<&'static str, bool>,
            numbers: [i64; 2],
        }
        let value = Line {
            first_key: "a&b<c>&&d\u{2028}\"\\\n\u{1}é",
            list: Vec::new(),
            none: None,
            map: BTreeMap::from([("z", true), ("a", false)]),
            numbers: [1, -2],
        };
        let wanted = "{\n\t\"firstKey\": \"a\\u0026b\\u003cc\\u003e\\u0026\\u0026d\\u2028\\\"\\\\\\n\
                      \\u0001é\",\n\t\"list\": [],\n\t\"none\": null,\n\t\"map\": {\n\t\t\"a\": \
                      false,\n\t\t\"z\": true\n\t},\n\t\"numbers\": [\n\t\t1,\n\t\t-2\n\t]\n}";
        assert_eq!(json(&value).unwrap(), wanted);
        assert_eq!(json(&BTreeMap::<String, u8>::new()).unwrap(), "{}");
    }

    #[test]
    fn columns_are_padded_as_a_tab_writer_does() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [
            row(["ADDRESS", "MODE", "CHAIN"]),
            row(["tcp://a:9502", "RW", "[x y]"]),
            row(["tcp://b:1", "ERR", ""]),
        ];
        assert_eq!(
            table(&rows),
            "ADDRESS      MODE CHAIN\ntcp://a:9502 RW   [x y]\ntcp://b:1    ERR  \n"
        );
    }
}
