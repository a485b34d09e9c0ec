//! Cells of Events, from their stored form.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use crate::access::{at, integer, text};

pub(super) fn cells(obj: &Value, now: Timestamp) -> Vec<Value> {
    let first_of = |paths: &[&str]| {
        let time = paths.iter().map(|path| text(obj, path)).find(|time| !time.is_empty());
        time.unwrap_or_default()
    };
    let last =
        first_of(&["series.lastObservedTime", "lastTimestamp", "eventTime", "firstTimestamp"]);
    let first = first_of(&["firstTimestamp", "eventTime"]);
    let count = if at(obj, "series").is_some() {
        integer(obj, "series.count")
    } else {
        integer(obj, "count")
    };
    vec![
        age(last, now).into(),
        text(obj, "type").into(),
        text(obj, "reason").into(),
        target(obj).into(),
        text(obj, "involvedObject.fieldPath").into(),
        source(obj).into(),
        text(obj, "message").trim().into(),
        age(first, now).into(),
        // An event written without a count happened once.
        count.filter(|count| *count > 0).unwrap_or(1).into(),
        text(obj, "metadata.name").into(),
    ]
}

fn target(obj: &Value) -> String {
    let kind = text(obj, "involvedObject.kind").to_lowercase();
    match text(obj, "involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// Component and host; newer events name a controller and its instance instead.
fn source(obj: &Value) -> String {
    let either = |old: &str, new: &str| match text(obj, old) {
        "" => text(obj, new).to_owned(),
        given => given.to_owned(),
    };
    let component = either("source.component", "reportingComponent");
    let host = either("source.host", "reportingInstance");
    if host.is_empty() { component } else { format!("{component}, {host}") }
}
