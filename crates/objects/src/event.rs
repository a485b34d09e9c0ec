//! The two forms of an Event: `v1` as it is stored, and `events.k8s.io/v1`.
//!
//! Owns: the renaming, lossless both ways. Never: invents or drops a member.

use serde_json::{Map, Value};

/// Members with two names: in `v1`, in `events.k8s.io/v1`. All others are called alike.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The `events.k8s.io/v1` form of a `v1` Event.
pub fn to_events_v1(core: &Value) -> Value {
    renamed(core, "events.k8s.io/v1", |name| {
        RENAMED.iter().find(|(core, _)| *core == name).map(|(_, events)| *events)
    })
}

/// The `v1` form of an `events.k8s.io/v1` Event.
pub fn to_core(events: &Value) -> Value {
    renamed(events, "v1", |name| {
        RENAMED.iter().find(|(_, events)| *events == name).map(|(core, _)| *core)
    })
}

fn renamed(event: &Value, version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Some(event) = event.as_object() else { return event.clone() };
    let mut result = Map::new();
    for (member, value) in event {
        let value = if member == "apiVersion" { version.into() } else { value.clone() };
        result.insert(name(member).unwrap_or(member).to_owned(), value);
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn every_renamed_member_moves() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"},
            "involvedObject": {"kind": "Widget"}, "message": "m", "source": {"component": "c"},
            "firstTimestamp": "1", "lastTimestamp": "2", "count": 3, "reportingComponent": "r",
            "reportingInstance": "i", "reason": "R", "type": "Normal", "action": "A",
            "eventTime": "t", "series": {"count": 2}, "related": {"kind": "X"}});
        let events = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "a"}, "regarding": {"kind": "Widget"}, "note": "m",
            "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": "1",
            "deprecatedLastTimestamp": "2", "deprecatedCount": 3, "reportingController": "r",
            "reportingInstance": "i", "reason": "R", "type": "Normal", "action": "A",
            "eventTime": "t", "series": {"count": 2}, "related": {"kind": "X"}});
        assert_eq!(to_events_v1(&core), events);
        assert_eq!(to_core(&events), core);
    }

    proptest! {
        #[test]
        fn there_and_back_is_the_same(members in prop::collection::btree_map(
            prop::sample::select(vec!["message", "source", "count", "reason", "type", "action",
                "involvedObject", "reportingComponent", "firstTimestamp", "lastTimestamp", "series"]),
            crate::noise::json(), 0..11)) {
            let core: Map<_, _> = members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            let core = Value::Object(core);
            prop_assert_eq!(to_core(&to_events_v1(&core)), core);
        }
    }
}
