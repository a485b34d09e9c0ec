//! What is said about one backup or restore while it runs: the log that is kept with it, and the
//! warnings and errors by namespace.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::Serialize;

/// More than this many messages of one kind are counted and logged, but not listed.
const LISTED_MAX: u64 = 10_000;

/// Messages by where they belong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Findings {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) velero: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cluster: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) namespaces: BTreeMap<String, Vec<String>>,
    #[serde(skip)]
    pub(crate) count: u64,
}

/// Where a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'p> {
    /// To no object.
    Server,
    /// To an object without a namespace.
    Cluster,
    Namespace(&'p str),
}

impl<'p> Place<'p> {
    pub(crate) fn of(namespace: Option<&'p str>) -> Self {
        namespace.map_or(Self::Cluster, Self::Namespace)
    }
}

impl Findings {
    fn add(&mut self, place: Place<'_>, message: String) {
        self.count += 1;
        if self.count > LISTED_MAX {
            return;
        }
        match place {
            Place::Server => self.velero.push(message),
            Place::Cluster => self.cluster.push(message),
            Place::Namespace(name) => {
                self.namespaces.entry(name.to_owned()).or_default().push(message);
            }
        }
    }

    pub(crate) fn counted(&self) -> Option<i64> {
        (self.count > 0).then(|| i64::try_from(self.count).unwrap_or(i64::MAX))
    }
}

/// Both, as they are kept in the store.
#[derive(Debug, Serialize)]
struct Results<'j> {
    errors: &'j Findings,
    warnings: &'j Findings,
}

/// The log of one run. It is packed as it is written, so that it stays small in memory.
pub(crate) struct Journal {
    /// As in `backup=namespace/name`.
    subject: String,
    log: GzEncoder<Vec<u8>>,
    pub(crate) errors: Findings,
    pub(crate) warnings: Findings,
}

impl fmt::Debug for Journal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Journal").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Journal {
    pub(crate) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            subject: format!("{kind}={namespace}/{name}"),
            log: GzEncoder::new(Vec::new(), Compression::fast()),
            errors: Findings::default(),
            warnings: Findings::default(),
        }
    }

    pub(crate) fn info(&mut self, source: &str, message: &str, more: &[(&str, &str)]) {
        self.line("info", source, message, more);
    }

    pub(crate) fn warn(&mut self, place: Place<'_>, source: &str, message: &str) {
        self.line("warning", source, message, &fields(place));
        self.warnings.add(place, message.to_owned());
    }

    pub(crate) fn error(&mut self, place: Place<'_>, source: &str, message: &str) {
        self.line("error", source, message, &fields(place));
        self.errors.add(place, message.to_owned());
    }

    fn line(&mut self, level: &str, source: &str, message: &str, more: &[(&str, &str)]) {
        let now = api::scalar::Time::new(Timestamp::now());
        let mut line = format!("time=\"{now}\" level={level} msg={}", quote(message));
        let _ = write!(line, " {} logSource=\"{source}\"", self.subject);
        for (key, value) in more {
            let _ = write!(line, " {key}={}", word(value));
        }
        line.push('\n');
        // Into memory: it cannot fail.
        let _ = self.log.write_all(line.as_bytes());
    }

    /// `{"errors":…,"warnings":…}`, packed.
    pub(crate) fn results(&self) -> Vec<u8> {
        packed(&Results { errors: &self.errors, warnings: &self.warnings })
    }

    /// The log, packed; nothing can be said after.
    pub(crate) fn into_log(self) -> Vec<u8> {
        self.log.finish().unwrap_or_default()
    }
}

fn fields(place: Place<'_>) -> Vec<(&'static str, &str)> {
    match place {
        Place::Server | Place::Cluster => Vec::new(),
        Place::Namespace(name) => vec![("namespace", name)],
    }
}

/// A JSON document with a newline behind it, packed.
pub(crate) fn packed(document: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = out.write_all(&text);
    out.finish().unwrap_or_default()
}

/// A message about one item of a backup, as its results list it.
pub(crate) fn about(resource: &str, name: &str, message: &str, error: Option<&str>) -> String {
    let error = error.map(|error| format!(" error: /{error}")).unwrap_or_default();
    format!(" resource: /{resource} name: /{name} message: /{message}{error}")
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/@^+".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { quote(text) }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn unpacked(bytes: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_log_has_a_line_for_each_message_whatever_is_in_it() {
        let mut journal = Journal::new("backup", "adm", "b1");
        journal.info("a", "one\ntwo \"three\"", &[("name", "x y")]);
        journal.error(Place::Namespace("n"), "a", "bad");
        assert_eq!(journal.errors.counted(), Some(1));
        assert_eq!(journal.warnings.counted(), None);
        let results = unpacked(&journal.results());
        assert_eq!(results, "{\"errors\":{\"namespaces\":{\"n\":[\"bad\"]}},\"warnings\":{}}\n");
        let log = unpacked(&journal.into_log());
        assert_eq!(log.lines().count(), 2);
        assert!(log.contains(r#"level=info msg="one\ntwo \"three\"" backup=adm/b1"#), "{log}");
        assert!(log.contains(r#"name="x y""#), "{log}");
    }
}
