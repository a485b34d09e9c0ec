//! Log lines of the dialects: `time="…" level=… msg="…" key=value`. Programs that start engines, or
//! collect the logs of a pod, read this form.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// One line, without its end, of what happens now.
pub fn line(level: &str, message: &str, fields: &[(&str, &str)]) -> String {
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let mut text = format!("time=\"{time}\" level={level} msg={}", Quoted(message));
    for (key, value) in fields {
        // Writing to a string cannot fail.
        let _ = write!(text, " {key}={}", Quoted(value));
    }
    text
}

/// Bare if it is a plain word, else quoted as Go quotes.
struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/@^+".contains(&byte);
        if !self.0.is_empty() && self.0.bytes().all(plain) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                control if control.is_control() => write!(f, "\\x{:02x}", u32::from(control))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

/// What an event says.
#[derive(Debug, Default)]
pub struct Said {
    pub message: String,
    /// All else, in its order.
    pub fields: Vec<(&'static str, String)>,
}

impl Said {
    pub fn by(event: &Event<'_>) -> Self {
        let mut said = Self::default();
        event.record(&mut said);
        said
    }

    /// Writes it on standard error, with `first` before its own fields.
    pub fn write(&self, level: Level, first: &[(&str, &str)]) {
        let own = self.fields.iter().map(|(key, value)| (*key, value.as_str()));
        let all: Vec<(&str, &str)> = first.iter().copied().chain(own).collect();
        let text = line(word(level), &self.message, &all);
        // There is nobody to tell that the log cannot be written.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_are_bare_and_the_rest_is_quoted() {
        let text = line(
            "fatal",
            "Error running info command",
            &[("func", "cli.main"), ("error", "a \"b\"\n\tc\\d\u{1}é"), ("empty", "")],
        );
        let (time, rest) = text.split_once(" level=").unwrap();
        assert!(time.starts_with("time=\"2") && time.ends_with("Z\""), "{time}");
        assert_eq!(
            rest,
            "fatal msg=\"Error running info command\" func=cli.main \
             error=\"a \\\"b\\\"\\n\\tc\\\\d\\x01é\" empty=\"\""
        );
    }
}
