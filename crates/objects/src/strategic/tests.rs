use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::node::JsonType;
use crate::testing::any_json;

fn by_key(key: &str, retain_keys: bool, item: Node) -> Node {
    Node {
        kind: Some(JsonType::Array),
        items: Some(Arc::new(item)),
        patch: PatchStrategy::MergeByKey { key: key.to_owned(), retain_keys },
        ..Node::default()
    }
}

fn object(members: Vec<(&str, Node)>) -> Node {
    let properties =
        members.into_iter().map(|(name, node)| (name.to_owned(), Arc::new(node))).collect();
    Node { kind: Some(JsonType::Object), properties, ..Node::default() }
}

/// A pod in miniature.
fn pod() -> Node {
    let primitive = Node { patch: PatchStrategy::MergePrimitive, ..Node::default() };
    let container = object(vec![("env", by_key("name", false, Node::default()))]);
    object(vec![
        (
            "metadata",
            object(vec![
                ("finalizers", primitive),
                ("ownerReferences", by_key("uid", false, Node::default())),
            ]),
        ),
        (
            "spec",
            object(vec![
                ("containers", by_key("name", false, container)),
                ("volumes", by_key("name", true, Node::default())),
                ("args", Node::default()),
            ]),
        ),
    ])
}

fn patched(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut target = target.clone();
    apply(&pod(), &mut target, patch).map(|()| target)
}

#[test]
fn members_merge_and_null_removes() {
    let cases = [
        (
            json!({"data": {"a": "1", "b": "2"}}),
            json!({"data": {"a": null, "c": "3"}}),
            json!({"data": {"b": "2", "c": "3"}}),
        ),
        (json!({}), json!({"data": {"a": null, "b": {"c": null}}}), json!({"data": {"b": {}}})),
        (
            json!({"spec": {"args": ["a", "b"]}}),
            json!({"spec": {"args": ["c"]}}),
            json!({"spec": {"args": ["c"]}}),
        ),
        (json!({"a": 1}), json!({"a": {"b": 2}}), json!({"a": {"b": 2}})),
        (json!({"a": {"b": 2}}), json!({"a": 1}), json!({"a": 1})),
    ];
    for (target, patch, expected) in cases {
        assert_eq!(patched(&target, &patch), Ok(expected), "{target} {patch}");
    }
}

#[test]
fn lists_merge_by_key_or_unite() {
    let pod = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"containers": [{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}, {"name": "b", "image": "y"}]}});
    let containers = |patch: Value| {
        patched(&pod, &json!({"spec": {"containers": patch}})).unwrap()["spec"]["containers"]
            .clone()
    };
    assert_eq!(
        containers(
            json!([{"name": "b", "image": "z"}, {"name": "c"}, {"name": "a", "env": [{"name": "F"}]}])
        ),
        json!([{"name": "b", "image": "z"}, {"name": "c"}, {"name": "a", "image": "x", "env": [{"name": "F"}, {"name": "E", "value": "1"}]}])
    );
    // What the patch does not mention keeps its place; what is new comes before it.
    assert_eq!(
        containers(json!([{"name": "c"}])),
        json!([{"name": "c"}, {"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}, {"name": "b", "image": "y"}])
    );
    assert_eq!(
        containers(json!([{"name": "b", "image": "z"}])),
        json!([{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}, {"name": "b", "image": "z"}])
    );
    let finalizers = |patch: Value| {
        patched(&pod, &json!({"metadata": patch})).unwrap()["metadata"]["finalizers"].clone()
    };
    assert_eq!(finalizers(json!({"finalizers": ["b", "c", "c"]})), json!(["a", "b", "c"]));
    assert_eq!(finalizers(json!({"finalizers": ["c"]})), json!(["c", "a", "b"]));
    assert_eq!(
        finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["a", "x"]})),
        json!(["b"])
    );
    assert_eq!(
        finalizers(
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]})
        ),
        json!(["c", "b"])
    );
}

#[test]
fn directives_delete_and_replace() {
    let pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}});
    let cases = [
        (
            json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}),
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "b", "image": "y"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"$patch": "delete", "name": "zz"}, {"$patch": "merge", "name": "a", "image": "q"}]}}),
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a", "image": "q"}, {"name": "b", "image": "y"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c"}]}}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            json!({"metadata": {"labels": {"b": "2"}}, "spec": pod["spec"]}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {}, "spec": pod["spec"]}),
        ),
        (json!({"$patch": "replace", "spec": {"args": []}}), json!({"spec": {"args": []}})),
        (json!({"$patch": "delete"}), json!({})),
    ];
    for (patch, expected) in cases {
        assert_eq!(patched(&pod, &patch), Ok(expected), "{patch}");
    }
}

#[test]
fn retained_keys_clear_the_other_branches_of_a_union() {
    let pod = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let patch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"x": 1}}]}});
    assert_eq!(
        patched(&pod, &patch).unwrap(),
        json!({"spec": {"volumes": [{"name": "v", "secret": {"x": 1}}]}})
    );
    let stray =
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "secret": {}}]}});
    assert!(patched(&pod, &stray).is_err());
}

#[test]
fn an_order_is_kept_and_unlisted_items_stay_near_their_neighbours() {
    let pod = |names: &str| json!({"spec": {"containers": names.chars().map(|name| json!({"name": name.to_string()})).collect::<Vec<_>>()}});
    let cases = [
        // live, patched, order, result
        ("abc", "", "cba", "cba"),
        ("abc", "d", "dabc", "dabc"),
        ("abxc", "", "cab", "xcab"),
        ("abx", "", "ba", "bax"),
        ("abc", "d", "acbd", "acbd"),
        ("ab", "", "abz", "ab"),
        ("ax", "d", "da", "dax"),
    ];
    for (live, changed, order, expected) in cases {
        let mut patch =
            json!({"spec": {"$setElementOrder/containers": pod(order)["spec"]["containers"]}});
        if !changed.is_empty() {
            patch["spec"]["containers"] = pod(changed)["spec"]["containers"].clone();
        }
        let result = patched(&pod(live), &patch).unwrap();
        assert_eq!(result, pod(expected), "{live} {order}");
        assert_eq!(patched(&result, &patch).unwrap(), result, "{live} {order} twice");
    }
    let unlisted = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}});
    assert!(patched(&pod("a"), &unlisted).is_err());
}

#[test]
fn malformed_patches_fail() {
    let pod = json!({"metadata": {"finalizers": "x"}, "spec": {"containers": []}});
    let cases = [
        json!([]),
        json!({"spec": {"$patch": "explode"}}),
        json!({"spec": {"containers": [{"image": "x"}]}}),
        json!({"spec": {"containers": ["x"]}}),
        json!({"spec": {"$retainKeys": "x"}}),
        json!({"spec": {"$setElementOrder/containers": "x"}}),
        json!({"spec": {"$setElementOrder/containers": [{"image": "x"}]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}),
    ];
    for patch in cases {
        assert!(matches!(patched(&pod, &patch), Err(PatchError::Failed(_))), "{patch}");
    }
}

proptest! {
    #[test]
    fn without_lists_and_directives_it_is_a_merge_patch(target in prop::collection::btree_map("[a-d]", any_json(), 0..4), patch in prop::collection::btree_map("[a-d]", any_json(), 0..4)) {
        let target = Value::Object(target.into_iter().collect());
        let patch = Value::Object(patch.into_iter().collect());
        let mut merged = target.clone();
        crate::patch::merge(&mut merged, &patch);
        let mut strategic = target;
        // Items of replaced lists lose their nulls here; a merge patch keeps them.
        prop_assume!(!patch.to_string().contains('['));
        prop_assert!(apply(&Node::default(), &mut strategic, &patch).is_ok());
        prop_assert_eq!(strategic, merged);
    }

    #[test]
    fn noise_never_panics(target in any_json(), patch in any_json(), directive in "\\$(patch|retainKeys|setElementOrder/containers|deleteFromPrimitiveList/containers)", noise in any_json()) {
        let mut target = json!({"spec": target});
        let mut spec = json!({"containers": patch});
        spec[directive] = noise;
        let _ = apply(&pod(), &mut target, &json!({"spec": spec}));
    }
}
