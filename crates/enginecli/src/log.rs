//! Log lines on standard error: `time="…" level=… msg="…" func=… file="…" error="…"`.
//!
//! Programs that start engines read this form; so it is written here, and not by the logs of the
//! rest of the house. Spans are not written, as every process of the dialect does one thing; they go to
//! a collector where one is configured.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use jiff::Timestamp;
use telemetry::{Filter, Guard, Layer, LayerContext};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};

/// Libraries that are silent below warnings, also when asked for more.
const QUIET: [&str; 6] = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls"];

/// One line, without its end.
pub(crate) fn line(level: &str, message: &str, fields: &[(&str, &str)]) -> String {
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

/// The module that speaks, by a name that stays: whoever picks lines by it does not care which of our
/// crates it is in.
pub(crate) fn func(module: &str) -> Cow<'_, str> {
    match module.strip_prefix(env!("CARGO_PKG_NAME")) {
        Some(rest) if rest.is_empty() || rest.starts_with("::") => {
            Cow::Owned(format!("engine::cli{rest}"))
        }
        Some(_) | None => Cow::Borrowed(module),
    }
}

/// Where traces are sent, as the rest of the house is told.
const OTLP_VARIABLE: &str = "HOLDFAST_OTLP_ENDPOINT";

/// Writes the log of this process in the form above from here on, and sends traces where the environment
/// says so. On a runtime.
pub(crate) fn install(debug: bool, service_name: &str) -> Option<Guard> {
    let level = if debug { Level::DEBUG } else { Level::INFO };
    let endpoint = std::env::var(OTLP_VARIABLE).ok().filter(|it| !it.is_empty());
    let lines = || Lines.with_filter(Wanted { level });
    let Some(endpoint) = endpoint else {
        // A log that is set up already, as in a test, is as good.
        return telemetry::init_with(lines(), None, service_name).ok();
    };
    match telemetry::init_with(lines(), Some(&endpoint), service_name) {
        Ok(guard) => Some(guard),
        Err(error) => {
            // A volume is served without traces rather than not at all.
            let guard = telemetry::init_with(lines(), None, service_name).ok();
            tracing::warn!(error = %telemetry::Chain(&error), "no traces are sent");
            guard
        }
    }
}

/// Sends the spans that wait, while the runtime goes on.
pub(crate) async fn end(guard: Option<Guard>) {
    if let Some(guard) = guard {
        guard.end().await;
    }
}

struct Wanted {
    level: Level,
}

impl Wanted {
    fn takes(&self, target: &str, level: Level) -> bool {
        let family = target.split("::").next().unwrap_or_default();
        level <= if QUIET.contains(&family) { Level::WARN } else { self.level }
    }
}

impl<S: Subscriber> Filter<S> for Wanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &LayerContext<'_, S>) -> bool {
        !metadata.is_span() && self.takes(metadata.target(), *metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let place = match (metadata.file(), metadata.line()) {
            (Some(file), Some(line)) => {
                format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
            }
            (_, _) => String::new(),
        };
        let func = func(metadata.target());
        let mut all = vec![("func", func.as_ref()), ("file", place.as_str())];
        all.extend(fields.others.iter().map(|(key, value)| (*key, value.as_str())));
        let text = line(level(*metadata.level()), &fields.message, &all);
        // There is nobody to tell that the log cannot be written.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}

impl Fields {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.others.push((name, value)),
        }
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

    #[test]
    fn modules_are_called_what_they_always_were() {
        assert_eq!(func(module_path!()), "engine::cli::log::tests");
        assert_eq!(func("enginecli"), "engine::cli");
        assert_eq!(func("engine::control"), "engine::control");
        assert_eq!(func("engineclient::x"), "engineclient::x");
    }

    #[test]
    fn libraries_are_heard_from_warnings_on() {
        let wanted = Wanted { level: Level::DEBUG };
        assert!(wanted.takes("engine::control", Level::DEBUG));
        assert!(!wanted.takes("engine::control", Level::TRACE));
        assert!(!wanted.takes("h2::client", Level::INFO));
        assert!(wanted.takes("h2::client", Level::WARN));
    }
}
