use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::any_json;

fn patched(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut target = target.clone();
    json_patch(&mut target, patch).map(|()| target)
}

#[test]
fn operations_follow_the_standard() {
    let cases = [
        // RFC 6902, appendix A
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            json!({"baz": "qux", "foo": "bar"}),
        ),
        (
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            json!({"foo": ["bar", "qux", "baz"]}),
        ),
        (
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "remove", "path": "/baz"}]),
            json!({"foo": "bar"}),
        ),
        (
            json!({"foo": ["bar", "qux", "baz"]}),
            json!([{"op": "remove", "path": "/foo/1"}]),
            json!({"foo": ["bar", "baz"]}),
        ),
        (
            json!({"baz": "qux"}),
            json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
            json!({"baz": "boo"}),
        ),
        (
            json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
            json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
            json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}),
        ),
        (
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
            json!({"foo": ["all", "cows", "eat", "grass"]}),
        ),
        (
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
            json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]),
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
        ),
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
            json!({"foo": "bar", "child": {"grandchild": {}}}),
        ),
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
            json!({"foo": "bar", "baz": "qux"}),
        ),
        (
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            json!({"/": 9, "~1": 10}),
        ),
        (
            json!({"foo": ["bar"]}),
            json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
            json!({"foo": ["bar", ["abc", "def"]]}),
        ),
        (
            json!({"foo": 1}),
            json!([{"op": "replace", "path": "", "value": {"bar": 2}}]),
            json!({"bar": 2}),
        ),
        (json!({"": 1}), json!([{"op": "replace", "path": "/", "value": 2}]), json!({"": 2})),
        (
            json!({"a": {"b": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/a/c"}]),
            json!({"a": {"b": 1, "c": {"b": 1}}}),
        ),
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/a"}]), json!({"a": 1})),
        (json!({"x.io/y": 1}), json!([{"op": "remove", "path": "/x.io~1y"}]), json!({})),
    ];
    for (target, patch, expected) in cases {
        assert_eq!(patched(&target, &patch), Ok(expected), "{target} {patch}");
    }
}

#[test]
fn operations_deviate_as_kubernetes_does() {
    let object = json!({"metadata": {"name": "a"}, "list": [1, 2, 3]});
    let with = |list: Value| json!({"metadata": {"name": "a"}, "list": list});
    let cases = [
        (json!([{"op": "test", "path": "/metadata/finalizers", "value": null}]), object.clone()),
        (json!([{"op": "test", "path": "/metadata/finalizers"}]), object.clone()),
        (
            json!([{"op": "replace", "path": "/extra", "value": 1}]),
            json!({"metadata": {"name": "a"}, "list": [1, 2, 3], "extra": 1}),
        ),
        (json!([{"op": "replace", "path": "/list/-1", "value": 9}]), with(json!([1, 2, 9]))),
        (json!([{"op": "remove", "path": "/list/-3"}]), with(json!([2, 3]))),
        (json!([{"op": "test", "path": "/list/-2", "value": 2}]), object.clone()),
        (json!([{"op": "add", "path": "/list/-1", "value": 9}]), with(json!([1, 2, 3, 9]))),
    ];
    for (patch, expected) in cases {
        assert_eq!(patched(&object, &patch), Ok(expected), "{patch}");
    }
}

#[test]
fn failing_operations_fail_the_patch() {
    let object = json!({"metadata": {"finalizers": ["a"]}, "list": [1, 2], "null": null});
    let cases = [
        json!([{"op": "test", "path": "/metadata/finalizers", "value": null}]),
        json!([{"op": "test", "path": "/metadata/finalizers"}]),
        json!([{"op": "test", "path": "/missing/finalizers", "value": null}]),
        json!([{"op": "test", "path": "/list/7", "value": null}]),
        json!([{"op": "test", "path": "/list/0", "value": "1"}]),
        json!([{"op": "remove", "path": "/missing"}]),
        json!([{"op": "remove", "path": "/list/2"}]),
        json!([{"op": "remove", "path": "/list/-3"}]),
        json!([{"op": "remove", "path": "/list/-"}]),
        json!([{"op": "remove", "path": ""}]),
        json!([{"op": "replace", "path": "/list/2", "value": 1}]),
        json!([{"op": "replace", "path": "/list/-", "value": 1}]),
        json!([{"op": "replace", "path": "/missing/deeper", "value": 1}]),
        json!([{"op": "add", "path": "/list/3", "value": 1}]),
        json!([{"op": "add", "path": "/list/01", "value": 1}]),
        json!([{"op": "add", "path": "/list/x", "value": 1}]),
        json!([{"op": "add", "path": "/list/99999999999999999999", "value": 1}]),
        json!([{"op": "add", "path": "/null/x", "value": 1}]),
        json!([{"op": "add", "path": "/x"}]),
        json!([{"op": "add", "path": "x", "value": 1}]),
        json!([{"op": "add", "value": 1}]),
        json!([{"op": "copy", "from": "/missing", "path": "/x"}]),
        json!([{"op": "copy", "path": "/x"}]),
        json!([{"op": "move", "from": "/metadata", "path": "/metadata/inside"}]),
        json!([{"op": "move", "from": "", "path": "/inside"}]),
        json!([{"op": "frobnicate", "path": "/x"}]),
        json!([{"path": "/x"}]),
        json!([{}]),
    ];
    for patch in cases {
        assert!(matches!(patched(&object, &patch), Err(PatchError::Failed(_))), "{patch}");
    }
}

#[test]
fn a_wrong_form_is_a_bad_request() {
    for patch in [
        json!({}),
        json!(null),
        json!("x"),
        json!([1]),
        json!([{"op": "remove", "path": "/a"}, []]),
    ] {
        assert_eq!(patched(&json!({}), &patch), Err(PatchError::NotAnArray), "{patch}");
    }
    let many = Value::Array(vec![json!({"op": "test", "path": "/a"}); MAX_OPERATIONS + 1]);
    assert_eq!(patched(&json!({}), &many), Err(PatchError::TooManyOperations(MAX_OPERATIONS + 1)));
}

#[test]
fn copies_cannot_double_without_end() {
    let target = json!({"a": ["0123456789"]});
    let copy = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let patch = Value::Array(vec![copy; 60]);
    assert!(matches!(patched(&target, &patch), Err(PatchError::Failed(_))));
}

#[test]
fn moves_cannot_make_an_object_too_deep() {
    let nest = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let deep = "/a".repeat(60);
    let target = json!({"x": nest(60), "y": nest(60)});
    let patch = json!([{"op": "move", "from": "/x", "path": format!("/y{deep}/z")}]);
    assert!(matches!(patched(&target, &patch), Err(PatchError::Failed(_))));
    let patch = json!([{"op": "test", "path": "/a".repeat(100_000), "value": 1}]);
    assert!(matches!(patched(&target, &patch), Err(PatchError::Failed(_))));
}

#[test]
fn shifting_a_long_list_again_and_again_is_stopped() {
    let target = json!({"a": vec![0; 100_000]});
    let push = json!({"op": "add", "path": "/a/0", "value": 1});
    let patch = Value::Array(vec![push; 5_000]);
    assert!(matches!(patched(&target, &patch), Err(PatchError::Failed(_))));
}

#[test]
fn merge_follows_the_standard() {
    // RFC 7386, appendix A
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for (mut target, patch, expected) in cases {
        merge(&mut target, &patch);
        assert_eq!(target, expected, "{patch}");
    }
}

fn any_pointer() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-d]|-?[0-3]|-|~[01]", 0..4)
        .prop_map(|segments| segments.iter().flat_map(|segment| ["/", segment]).collect())
}

fn any_operation() -> impl Strategy<Value = Value> {
    (
        prop_oneof![
            Just("add"),
            Just("remove"),
            Just("replace"),
            Just("move"),
            Just("copy"),
            Just("test"),
            Just("x")
        ],
        any_pointer(),
        any_pointer(),
        any_json(),
    )
        .prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        )
}

proptest! {
    #[test]
    fn merging_twice_is_merging_once(target in any_json(), patch in any_json()) {
        let mut once = target;
        merge(&mut once, &patch);
        let mut twice = once.clone();
        merge(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_was_added_tests_equal_and_removing_it_restores(target in prop::collection::btree_map("[a-d]", any_json(), 0..4), name in "[e-h]", value in any_json()) {
        let target = Value::Object(target.into_iter().collect());
        let path = format!("/{name}");
        let patch = json!([
            {"op": "add", "path": path, "value": value},
            {"op": "test", "path": path, "value": value},
            {"op": "move", "from": path, "path": "/z"},
            {"op": "copy", "from": "/z", "path": path},
            {"op": "remove", "path": "/z"},
            {"op": "remove", "path": path},
        ]);
        prop_assert_eq!(patched(&target, &patch), Ok(target));
    }

    #[test]
    fn any_operations_neither_panic_nor_grow_without_bound(target in any_json(), patch in prop::collection::vec(any_operation(), 0..12), noise in any_json()) {
        let _ = patched(&target, &Value::Array(patch));
        let _ = patched(&target, &noise);
    }
}
