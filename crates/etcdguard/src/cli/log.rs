//! Log lines on standard error: `time="…" level=… msg="…" actor=…`.
//!
//! Programs that collect the logs of a pod read this form. The actor is the part of the guard that
//! speaks: told by the event itself, or known from the module it comes from.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The level of information, in the numbering of the dialect.
pub(crate) const INFORMATION: i64 = 4;

/// Libraries that are silent below warnings, also when asked for more.
const QUIET: [&str; 9] =
    ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls", "reqwest", "kube_client", "kube"];

/// Who speaks, by the beginning of the module; the first that fits counts.
const ACTORS: [(&str, &str); 11] = [
    ("etcdguard::control::snapshot_lease", "FullSnapLeaseUpdater"),
    ("etcdguard::control::snapshotter", "snapshotter"),
    ("etcdguard::control::heartbeat", "heartbeat"),
    ("etcdguard::control::member", "member-add"),
    ("etcdguard::control::second", "copier"),
    ("etcdguard::etcd::monitor", "leader-elector"),
    ("etcdguard::store::compress", "compressor"),
    ("etcdguard::store::copy", "copier"),
    ("etcdguard::restore", "restorer"),
    ("etcdguard::server::initialize", "restorer"),
    ("etcdguard::server", "backup-restore-server"),
];

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

/// Writes the log of this process in the form above from here on.
pub(crate) fn install(level: i64) {
    // A log that is set up already, as in a test, is as good.
    let _ = tracing::subscriber::set_global_default(Lines {
        level: filter(level),
        spans: AtomicU64::new(1),
    });
}

/// The numbering of the dialect, in which 4 is information.
fn filter(level: i64) -> LevelFilter {
    match level {
        ..=2 => LevelFilter::ERROR,
        3 => LevelFilter::WARN,
        4 => LevelFilter::INFO,
        5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}

struct Lines {
    level: LevelFilter,
    spans: AtomicU64,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let family = metadata.target().split("::").next().unwrap_or_default();
        let level = if QUIET.contains(&family) { LevelFilter::WARN } else { self.level };
        !metadata.is_span() && *metadata.level() <= level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Never 0, which is no id: the count starts at 1 and does not come round.
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed).max(1))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let text = written(event);
        // There is nobody to tell that the log cannot be written.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn written(event: &Event<'_>) -> String {
    let metadata = event.metadata();
    let mut fields = Fields::default();
    event.record(&mut fields);
    if !fields.others.iter().any(|(key, _)| *key == "actor")
        && let Some(actor) = actor(metadata.target())
    {
        fields.others.insert(0, ("actor", actor.to_owned()));
    }
    let all: Vec<(&str, &str)> =
        fields.others.iter().map(|(key, value)| (*key, value.as_str())).collect();
    line(level(*metadata.level()), &fields.message, &all)
}

fn actor(target: &str) -> Option<&'static str> {
    ACTORS.iter().find(|(module, _)| target.starts_with(module)).map(|(_, actor)| *actor)
}

fn level(level: tracing::Level) -> &'static str {
    match level {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warning",
        tracing::Level::INFO => "info",
        tracing::Level::DEBUG => "debug",
        tracing::Level::TRACE => "trace",
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
        let text =
            line("fatal", "no luck today", &[("actor", "snapshotter"), ("error", "a \"b\"\n")]);
        let (time, rest) = text.split_once(" level=").unwrap();
        assert!(time.starts_with("time=\"2") && time.ends_with("Z\""), "{time}");
        assert_eq!(rest, "fatal msg=\"no luck today\" actor=snapshotter error=\"a \\\"b\\\"\\n\"");
    }

    #[test]
    fn the_actor_is_known_from_the_module() {
        assert_eq!(actor("etcdguard::server::http"), Some("backup-restore-server"));
        assert_eq!(actor("etcdguard::server::initialize::run"), Some("restorer"));
        assert_eq!(actor("hyper::proto"), None);
    }

    #[test]
    fn levels_are_those_of_the_dialect() {
        assert_eq!(filter(0), LevelFilter::ERROR);
        assert_eq!(filter(4), LevelFilter::INFO);
        assert_eq!(filter(7), LevelFilter::TRACE);
    }
}
