//! The metrics as text.

use std::fmt::Write as _;
use std::sync::PoisonError;

use super::{BUCKETS, Family, FamilyKind, Metrics, Observed, process};

/// What the text is served as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Metrics {
    /// All of them, and what the operating system tells about this process.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, family) in families.iter() {
            write_family(&mut text, name, family);
        }
        drop(families);
        for (name, help, kind, value) in process::read() {
            head(&mut text, name, help, kind);
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn write_family(text: &mut String, name: &str, family: &Family) {
    match &family.kind {
        FamilyKind::Counter(values) => {
            head(text, name, family.help, "counter");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{} {value}", braces(&pairs(family, labels)));
            }
        }
        FamilyKind::Gauge(values) => {
            head(text, name, family.help, "gauge");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{} {value}", braces(&pairs(family, labels)));
            }
        }
        FamilyKind::Histogram(values) => {
            head(text, name, family.help, "histogram");
            for (labels, observed) in values {
                write_histogram(text, name, &pairs(family, labels), observed);
            }
        }
    }
}

fn write_histogram(text: &mut String, name: &str, pairs: &[String], observed: &Observed) {
    let bounds = BUCKETS.iter().map(f64::to_string).zip(observed.buckets);
    for (bound, count) in bounds.chain([("+Inf".to_owned(), observed.count)]) {
        let mut pairs = pairs.to_vec();
        pairs.push(format!("le=\"{bound}\""));
        let _ = writeln!(text, "{name}_bucket{} {count}", braces(&pairs));
    }
    let braces = braces(pairs);
    let _ = writeln!(text, "{name}_sum{braces} {}", observed.sum);
    let _ = writeln!(text, "{name}_count{braces} {}", observed.count);
}

fn pairs(family: &Family, values: &[String]) -> Vec<String> {
    // The names come sorted, whatever order the family declares them in.
    let mut pairs: Vec<String> = family
        .labels
        .iter()
        .zip(values)
        .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
        .collect();
    pairs.sort();
    pairs
}

fn braces(pairs: &[String]) -> String {
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
