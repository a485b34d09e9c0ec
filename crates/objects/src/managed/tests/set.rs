use proptest::prelude::*;

use super::*;
use crate::testing::any_json;

#[test]
fn the_fields_of_an_object_follow_its_description() {
    let cases = [
        (json!({"size": "s", "replicas": 1}), vec![".spec.replicas", ".spec.size"]),
        (json!({"args": ["a", "b"]}), vec![".spec.args"]),
        (json!({"tags": ["a", "b"]}), vec![r#".spec.tags[="a"]"#, r#".spec.tags[="b"]"#]),
        (
            json!({"ports": [{"name": "a", "port": 1}]}),
            vec![
                r#".spec.ports[name="a"]"#,
                r#".spec.ports[name="a"].name"#,
                r#".spec.ports[name="a"].port"#,
            ],
        ),
        (
            json!({"sockets": [{"port": 1}]}),
            vec![
                r#".spec.sockets[port=1,protocol="TCP"]"#,
                r#".spec.sockets[port=1,protocol="TCP"].port"#,
            ],
        ),
        (json!({"attrs": {"a": "1"}}), vec![".spec.attrs.a"]),
        (json!({"attrs": {}}), vec![".spec.attrs"]),
        (json!({"selector": {"a": {"b": "1"}}}), vec![".spec.selector"]),
        (
            json!({"blob": {"a": {"b": 1, "c": [1]}}}),
            vec![".spec.blob.a", ".spec.blob.a.b", ".spec.blob.a.c"],
        ),
        (json!({"nick": null}), vec![".spec.nick"]),
        // Items that do not fit their list make it one field.
        (json!({"ports": ["a"]}), vec![".spec.ports"]),
        (json!({"tags": [{}]}), vec![".spec.tags"]),
    ];
    for (spec, expected) in cases {
        assert_eq!(FieldSet::of(&widget(), &full(&spec)).paths(), expected, "{spec}");
    }
}

#[test]
fn what_names_an_object_is_not_tracked() {
    let object = json!({
        "apiVersion": "x.io/v1", "kind": "Widget",
        "metadata": {
            "name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "t", "resourceVersion": "1",
            "generation": 1, "managedFields": [{}], "selfLink": "s", "deletionTimestamp": "t",
            "deletionGracePeriodSeconds": 0, "labels": {"name": "x"}, "finalizers": ["f"],
        },
    });
    let paths = FieldSet::of(&widget(), &object).paths();
    assert_eq!(paths, [r#".metadata.finalizers[="f"]"#, ".metadata.labels.name"]);
}

#[test]
fn metadata_divides_alike_whatever_the_schema_says() {
    let object = json!({"metadata": {
        "labels": {"a": "1"},
        "finalizers": ["f"],
        "ownerReferences": [{"uid": "u", "kind": "K", "name": "n"}],
    }});
    let expected = [
        r#".metadata.finalizers[="f"]"#,
        ".metadata.labels.a",
        r#".metadata.ownerReferences[uid="u"]"#,
    ];
    let restricted =
        super::object(vec![("metadata", super::object(vec![("name", Node::default())]))]);
    for node in [Node::default(), widget(), restricted] {
        assert_eq!(FieldSet::of(&node, &object).paths(), expected);
        assert!(FieldSet::of(&node, &json!({"metadata": {}})).is_empty());
    }
}

#[test]
fn the_stored_form_is_that_of_kubernetes() {
    let object = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"ports": [{"name": "a", "port": 1}], "tags": ["x"], "size": "s"},
    });
    let expected = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:ports": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:port": {}}},
            "f:size": {},
            "f:tags": {"v:\"x\"": {}},
        },
    });
    let set = FieldSet::of(&widget(), &object);
    assert_eq!(set.to_value(), expected);
    assert_eq!(FieldSet::parse(&expected), Ok(set));
}

#[test]
fn keys_have_one_form_and_unknown_elements_are_skipped() {
    let a = FieldSet::parse(&json!({"f:p": {"k:{ \"b\":1, \"a\":\"x\" }": {}}})).unwrap();
    let b = FieldSet::parse(&json!({"f:p": {"k:{\"a\":\"x\",\"b\":1}": {}}})).unwrap();
    assert_eq!(a, b);
    let odd = json!({".": {}, "z:new": {}, "f:x": {"z:new": {}}, "f:l": {"i:3": {}}});
    assert_eq!(FieldSet::parse(&odd).unwrap().paths(), [".l[3]"]);
    for broken in [
        json!([]),
        json!({"f:a": 1}),
        json!({"k:x": {}}),
        json!({"k:[]": {}}),
        json!({"v:": {}}),
        json!({"i:x": {}}),
    ] {
        assert!(FieldSet::parse(&broken).is_err(), "{broken}");
    }
    let deep = (0..200).fold(json!({}), |inner, _| json!({"f:a": inner}));
    assert_eq!(FieldSet::parse(&deep), Err(FieldSetError::TooDeep));
}

#[test]
fn ownership_of_the_deepest_object_stays_shallow() {
    let deep = (0..crate::json::MAX_DEPTH - 2).fold(json!(1), |inner, _| json!({"a": inner}));
    let mut object = json!({"blob": deep});
    track_update(&Node::default(), None, &mut object, &writer("m", "t"));
    assert!(crate::json::decode(object.to_string().as_bytes()).is_ok());
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    any_json().prop_map(|spec| FieldSet::of(&widget(), &full(&json!({"blob": spec}))))
}

proptest! {
    #[test]
    fn sets_survive_their_stored_form(set in any_set()) {
        prop_assert_eq!(FieldSet::parse(&set.to_value()), Ok(set));
    }

    #[test]
    fn sets_obey_algebra(a in any_set(), b in any_set(), c in any_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert!(a.difference(&a).is_empty());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
        prop_assert_eq!(a.union(&b).paths().len() + a.intersection(&b).paths().len(), a.paths().len() + b.paths().len());
    }

    #[test]
    fn noise_never_panics(value in any_json(), names in prop::collection::vec("(f:|k:|v:|i:|\\.)[a-z{}\":0-9]{0,8}", 0..5)) {
        let _ = FieldSet::parse(&value);
        let members: serde_json::Map<String, Value> = names.into_iter().map(|name| (name, json!({}))).collect();
        if let Ok(set) = FieldSet::parse(&Value::Object(members)) {
            let _ = set.paths();
            prop_assert_eq!(FieldSet::parse(&set.to_value()), Ok(set));
        }
    }
}
