//! Laws that hold for any configurations.

use proptest::prelude::*;

use super::*;
use crate::managed::change::diff;
use crate::managed::entry::{self, Entry};
use crate::managed::shape::At;
use crate::managed::track::stored;
use crate::testing::any_json;

/// Specs of widgets, with few distinct values so that appliers meet.
fn any_spec() -> impl Strategy<Value = Value> {
    let text = || "[ab]".prop_map(Value::from);
    let port = ("[a-c]", prop::option::of(0u8..3));
    (
        prop::option::of(text()),
        prop::option::of(prop::collection::btree_set("[a-c]", 0..3)),
        prop::option::of(prop::collection::btree_map(port.0, port.1, 0..3)),
        prop::option::of(prop::collection::vec(text(), 0..2)),
        prop::option::of(prop::collection::btree_map("[a-c]", "[ab]", 0..3)),
        prop::option::of(prop::collection::btree_map("[a-c]", any_json(), 0..3)),
    )
        .prop_map(|(size, tags, ports, args, attrs, blob)| {
            let mut spec = serde_json::Map::new();
            let mut put = |name: &str, value: Option<Value>| {
                if let Some(value) = value {
                    spec.insert(name.to_owned(), value);
                }
            };
            put("size", size);
            put("tags", tags.map(|tags| json!(tags)));
            put("args", args.map(Value::from));
            put("attrs", attrs.map(|attrs| json!(attrs)));
            put("blob", blob.map(|blob| json!(blob)));
            put(
                "ports",
                ports.map(|ports| {
                    ports
                        .into_iter()
                        .map(|(name, port)| match port {
                            Some(port) => json!({"name": name, "port": port}),
                            None => json!({"name": name}),
                        })
                        .collect()
                }),
            );
            Value::Object(spec)
        })
}

fn forced(live: Option<&Value>, manager: &str, now: &str, spec: &Value) -> Value {
    super::apply(&widget(), live, &full(spec), &writer(manager, now), true).unwrap()
}

fn owned(object: &Value, manager: &str) -> FieldSet {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .filter(|entry| entry["manager"] == manager)
        .fold(FieldSet::default(), |set, entry| {
            set.union(&FieldSet::parse(&entry["fieldsV1"]).unwrap())
        })
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(a in any_spec(), b in any_spec()) {
        let live = forced(None, "a", "t1", &a);
        prop_assert_eq!(&forced(Some(&live), "a", "t2", &a), &live);
        let live = forced(Some(&live), "b", "t3", &b);
        let again = super::apply(&widget(), Some(&live), &full(&b), &writer("b", "t4"), false);
        prop_assert_eq!(again, Ok(live));
    }

    #[test]
    fn an_applier_owns_its_configuration_whatever_was_there(a in any_spec(), b in any_spec()) {
        let live = forced(None, "a", "t1", &a);
        let live = forced(Some(&live), "b", "t2", &b);
        prop_assert_eq!(owned(&live, "b"), FieldSet::of(&widget(), &full(&b)));
    }

    #[test]
    fn without_conflict_force_makes_no_difference(a in any_spec(), b in any_spec()) {
        let live = forced(None, "a", "t1", &a);
        match super::apply(&widget(), Some(&live), &full(&b), &writer("b", "t2"), false) {
            Ok(object) => {
                prop_assert_eq!(&object, &forced(Some(&live), "b", "t2", &b));
                prop_assert_eq!(owned(&object, "a"), FieldSet::of(&widget(), &full(&a)));
            }
            Err(ApplyError::Conflicts(conflicts)) => prop_assert!(!conflicts.is_empty()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    /// Two appliers own a union, and one that withdraws leaves what the other applied.
    #[test]
    fn an_applier_that_withdraws_leaves_no_trace(a in any_spec(), b in any_spec()) {
        let alone = forced(None, "a", "t1", &a);
        let live = forced(None, "b", "t0", &b);
        let live = forced(Some(&live), "a", "t1", &a);
        let nothing = json!({"apiVersion": "x.io/v1", "kind": "Widget"});
        let live = super::apply(&widget(), Some(&live), &nothing, &writer("b", "t2"), false).unwrap();
        prop_assert_eq!(owned(&live, "a"), FieldSet::of(&widget(), &full(&a)));
        prop_assert!(owned(&live, "b").is_empty());
        // Set items keep the order of their arrival; otherwise the objects are alike.
        let sets = |object: &Value| FieldSet::of(&widget(), object);
        if a != json!({}) {
            prop_assert_eq!(sets(&live).difference(&sets(&alone)).paths(), Vec::<String>::new());
        }
    }

    #[test]
    fn an_update_that_changes_nothing_is_not_seen(a in any_spec()) {
        let live = forced(None, "a", "t1", &a);
        let mut same = live.clone();
        track_update(&widget(), Some(&live), &mut same, &writer("b", "t2"));
        prop_assert_eq!(same, live);
    }

    /// After any update nobody owns what is not there, and nothing changed is left to others.
    #[test]
    fn owners_follow_the_object(a in any_spec(), b in any_spec()) {
        let mut live = full(&a);
        track_update(&widget(), None, &mut live, &writer("a", "t1"));
        let mut new = full(&b);
        track_update(&widget(), Some(&live), &mut new, &writer("b", "t2"));
        let mut all = full(&json!({}));
        all["spec"] = new["spec"].clone();
        track_update(&widget(), None, &mut all, &writer("x", "t3"));
        let everything = owned(&all, "x");
        let owners = owned(&new, "a").union(&owned(&new, "b"));
        prop_assert_eq!(owners.difference(&everything).paths(), Vec::<String>::new());
        prop_assert!(owned(&new, "a").intersection(&owned(&new, "b")).is_empty());
    }

    /// Editing the stored form is the same as editing the sets it stands for.
    #[test]
    fn stored_entries_are_edited_like_sets(a in any_spec(), b in any_spec(), c in any_spec(), editor in "[a-c]") {
        let live = forced(None, "a", "t1", &a);
        let mut old = full(&b);
        old["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
        track_update(&widget(), Some(&live), &mut old, &writer("b", "t2"));
        let mut new = full(&c);
        track_update(&widget(), Some(&old), &mut new, &writer(&editor, "t3"));
        let mut entries = stored(&old).and_then(entry::decode).unwrap_or_default();
        let change = diff(At::root(&widget()), &old, &new);
        for entry in &mut entries {
            entry.fields.take(&change.gone);
            entry.fields.take(&change.set);
        }
        let writer = writer(&editor, "t3");
        if !change.set.is_empty() {
            if let Some(own) = entries.iter_mut().find(|entry| entry.is_of(&writer, Operation::Update)) {
                own.fields.absorb(change.set);
                own.time = Some("t3".to_owned());
            } else {
                entries.push(Entry::new(&writer, Operation::Update, change.set));
            }
        }
        if stored(&old).is_some() {
            let expected = entry::encode(entries);
            prop_assert_eq!(stored(&new).cloned().unwrap_or_else(|| json!([])), expected);
        }
    }

    #[test]
    fn noise_never_panics(old in any_json(), new in any_json(), list in any_json()) {
        let node = widget();
        for value in [&old, &new] {
            let mut object = json!({"metadata": value, "spec": value});
            track_update(&node, Some(&old), &mut object, &writer("m", "t"));
            let _ = super::apply(&node, Some(&object), &new, &writer("m", "t"), true);
        }
        let mut object = json!({"metadata": {"managedFields": list.clone()}, "spec": new});
        let stored = json!({"metadata": {"managedFields": [list]}, "spec": old});
        track_update(&node, Some(&stored), &mut object, &writer("m", "t"));
        let _ = super::apply(&node, Some(&stored), &object, &writer("m", "t"), false);
        let mut bare = stored;
        track_update(&node, None, &mut bare, &writer("m", "t"));
    }
}
