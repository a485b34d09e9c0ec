//! What a schema refuses, with which cause, and what it forgives.

use serde_json::json;

use super::*;
use crate::schema::parse;

fn spec(properties: &Value) -> Node {
    parse(
        &json!({"type": "object", "required": ["spec"],
            "properties": {"spec": {"type": "object", "properties": properties}}}),
        "schema",
    )
    .unwrap_or_else(|causes| panic!("{causes:?}"))
}

fn found(causes: &[Cause]) -> Vec<(&str, &str)> {
    causes.iter().map(|cause| (cause.field.as_str(), cause.reason.as_str())).collect()
}

#[test]
fn each_keyword_refuses_with_its_reason() {
    let table = [
        (json!({"type": "string"}), json!(1), "FieldValueTypeInvalid"),
        (json!({"type": "integer"}), json!("1"), "FieldValueTypeInvalid"),
        (json!({"type": "integer"}), json!(1.5), "FieldValueTypeInvalid"),
        (json!({"type": "integer"}), json!(u64::MAX), "FieldValueTypeInvalid"),
        (json!({"type": "boolean"}), json!("true"), "FieldValueTypeInvalid"),
        (json!({"type": "string"}), json!(null), "FieldValueTypeInvalid"),
        (json!({"x-kubernetes-int-or-string": true}), json!(true), "FieldValueTypeInvalid"),
        (json!({"type": "string", "enum": ["a"]}), json!("b"), "FieldValueNotSupported"),
        (json!({"type": "string", "maxLength": 1}), json!("üü"), "FieldValueTooLong"),
        (json!({"type": "string", "minLength": 2}), json!("ü"), "FieldValueInvalid"),
        (json!({"type": "string", "pattern": "^a"}), json!("b"), "FieldValueInvalid"),
        (json!({"type": "string", "format": "ipv4"}), json!("b"), "FieldValueInvalid"),
        (json!({"type": "integer", "minimum": 1}), json!(0), "FieldValueInvalid"),
        (
            json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}),
            json!(1),
            "FieldValueInvalid",
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.35), "FieldValueInvalid"),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            "FieldValueInvalid",
        ),
        (json!({"type": "object", "minProperties": 1}), json!({}), "FieldValueInvalid"),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": 1}),
            json!({"a": 1, "b": 2}),
            "FieldValueTooMany",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            "FieldValueTooMany",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "FieldValueInvalid",
        ),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}),
            json!(3),
            "FieldValueInvalid",
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 5}, {"minimum": 1}]}),
            json!(6),
            "FieldValueInvalid",
        ),
        (json!({"type": "integer", "not": {"minimum": 5}}), json!(6), "FieldValueInvalid"),
        (json!({"type": "integer", "allOf": [{"minimum": 5}]}), json!(3), "FieldValueInvalid"),
    ];
    for (schema, value, reason) in table {
        let node = spec(&json!({"a": schema}));
        let causes = validate(&node, &json!({"spec": {"a": value}}), None);
        assert_eq!(found(&causes), [("spec.a", reason)], "{schema} {value}");
        assert!(
            causes.iter().all(|cause| cause.message.contains(' ') && cause.message.contains(':')),
            "{causes:?}"
        );
    }
}

#[test]
fn each_keyword_accepts_what_fits() {
    let table = [
        (json!({"type": "integer"}), json!(2.0)),
        (json!({"type": "number"}), json!(2)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("80%")),
        (json!({"x-kubernetes-int-or-string": true}), json!(80)),
        (json!({"type": "string", "maxLength": 2}), json!("üü")),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3)),
        (json!({"type": "integer", "enum": [1, 2]}), json!(1)),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!(null)),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!("a"),
        ),
    ];
    for (schema, value) in table {
        let node = spec(&json!({"a": schema}));
        let causes = validate(&node, &json!({"spec": {"a": value}}), None);
        assert!(causes.is_empty(), "{schema} {value}: {causes:?}");
    }
}

#[test]
fn required_members_are_reported_where_they_are_missing() {
    let node = spec(&json!({"ports": {"type": "array", "items": {"type": "object",
        "required": ["name"], "properties": {"name": {"type": "string"}}}}}));
    assert_eq!(found(&validate(&node, &json!({}), None)), [("spec", "FieldValueRequired")]);
    let causes = validate(&node, &json!({"spec": {"ports": [{"name": "a"}, {}]}}), None);
    assert_eq!(found(&causes), [("spec.ports[1].name", "FieldValueRequired")]);
    let labels =
        spec(&json!({"labels": {"type": "object", "additionalProperties": {"type": "string"}}}));
    let causes = validate(&labels, &json!({"spec": {"labels": {"k": 1}}}), None);
    assert_eq!(found(&causes), [("spec.labels[k]", "FieldValueTypeInvalid")]);
}

#[test]
fn duplicates_are_reported_at_the_second_item() {
    let node = spec(&json!({
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "ports": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "proto"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "proto": {"type": "string", "default": "tcp"}}}}
    }));
    let causes = validate(
        &node,
        &json!({"spec": {"tags": ["a", "b", "a"], "ports": [
            {"name": "x", "proto": "tcp"}, {"name": "x", "proto": "udp"}, {"name": "x", "proto": "tcp"}]}}),
        None,
    );
    let mut fields = found(&causes);
    fields.sort_unstable();
    assert_eq!(
        fields,
        [("spec.ports[2]", "FieldValueDuplicate"), ("spec.tags[2]", "FieldValueDuplicate")]
    );
}

#[test]
fn an_embedded_resource_says_what_it_is() {
    let node = spec(&json!({"res": {"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}}));
    let causes = validate(&node, &json!({"spec": {"res": {"kind": "", "metadata": 1}}}), None);
    let mut fields = found(&causes);
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            ("spec.res.apiVersion", "FieldValueRequired"),
            ("spec.res.kind", "FieldValueRequired"),
            ("spec.res.metadata", "FieldValueTypeInvalid"),
        ]
    );
}

#[test]
fn what_did_not_change_may_keep_violating() {
    let node = spec(&json!({
        "a": {"type": "integer", "maximum": 5},
        "b": {"type": "integer", "maximum": 5},
        "list": {"type": "array", "items": {"type": "integer", "maximum": 5}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "maximum": 5}, "x": {"type": "string"}}}}
    }));
    let old = json!({"spec": {"a": 9, "list": [9], "ports": [{"name": "p", "port": 9}]}});
    let check = |new: &Value| {
        validate(&node, new, Some(&old)).iter().map(|cause| cause.field.clone()).collect::<Vec<_>>()
    };
    assert_eq!(check(&json!({"spec": {"a": 9, "b": 1, "list": [9]}})), Vec::<String>::new());
    assert_eq!(check(&json!({"spec": {"a": 10}})), ["spec.a"]);
    assert_eq!(check(&json!({"spec": {"a": 9, "b": 9}})), ["spec.b"]);
    assert_eq!(
        check(&json!({"spec": {"list": [9, 1]}})),
        ["spec.list[0]"],
        "items of atomic lists have no past"
    );
    let moved = json!({"spec": {"ports": [{"name": "new", "port": 1}, {"name": "p", "port": 9, "x": "y"}]}});
    assert_eq!(check(&moved), Vec::<String>::new(), "items are matched by key");
    assert_eq!(validate(&node, &old, None).len(), 3, "nothing is forgiven on create");
}

#[test]
fn rules_run_where_the_shape_is_right() {
    let node = parse(
        &json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [
                {"rule": "!has(self.max) || self.n <= self.max", "message": "n must not exceed max"},
                {"rule": "self.n != 13", "messageExpression": "'unlucky ' + string(self.n)",
                 "reason": "FieldValueForbidden", "fieldPath": ".n"}],
            "properties": {"n": {"type": "integer", "default": 1}, "max": {"type": "integer", "maximum": 100},
                "frozen": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "frozen is immutable"}]}}}}}),
        "schema",
    )
    .unwrap();
    assert!(validate(&node, &json!({"spec": {"n": 1, "max": 2, "frozen": "a"}}), None).is_empty());
    let causes = validate(&node, &json!({"spec": {"n": 3, "max": 2}}), None);
    assert_eq!(found(&causes), [("spec", "FieldValueInvalid")]);
    assert_eq!(causes[0].message, "Invalid value: n must not exceed max");
    let causes = validate(&node, &json!({"spec": {"n": 13}}), None);
    assert_eq!(found(&causes), [("spec.n", "FieldValueForbidden")]);
    assert_eq!(causes[0].message, "Forbidden: unlucky 13");
    let old = json!({"spec": {"n": 13, "frozen": "a"}});
    let causes = validate(&node, &json!({"spec": {"n": 1, "frozen": "b"}}), Some(&old));
    assert_eq!(found(&causes), [("spec.frozen", "FieldValueInvalid")]);
    assert_eq!(causes[0].message, "Invalid value: \"b\": frozen is immutable");
    assert!(validate(&node, &old, Some(&old)).is_empty(), "an unchanged violation is forgiven");
    let causes = validate(&node, &json!({"spec": {"n": "x", "max": 2}}), None);
    assert_eq!(found(&causes), [("spec.n", "FieldValueTypeInvalid")], "no rules on a wrong shape");
    let causes = validate(&node, &json!({"spec": {"n": 300, "max": 200}}), None);
    assert_eq!(found(&causes), [("spec.max", "FieldValueInvalid"), ("spec", "FieldValueInvalid")]);
}

#[test]
fn items_of_map_lists_are_compared_with_their_past() {
    let node = spec(&json!({"ports": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"],
            "x-kubernetes-validations": [{"rule": "self.port >= oldSelf.port", "message": "ports only grow"}],
            "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}}}));
    let old = json!({"spec": {"ports": [{"name": "a", "port": 5}, {"name": "b", "port": 1}]}});
    let good = json!({"spec": {"ports": [{"name": "b", "port": 2}, {"name": "new", "port": 0}, {"name": "a", "port": 5}]}});
    assert!(validate(&node, &good, Some(&old)).is_empty());
    let bad = json!({"spec": {"ports": [{"name": "b", "port": 1}, {"name": "a", "port": 4}]}});
    assert_eq!(found(&validate(&node, &bad, Some(&old))), [("spec.ports[1]", "FieldValueInvalid")]);
}

#[test]
fn root_rules_see_the_names_of_the_object() {
    let node = parse(
        &json!({"type": "object", "x-kubernetes-validations": [
            {"rule": "self.metadata.name.startsWith('ok-')", "message": "bad name"}]}),
        "schema",
    )
    .unwrap();
    let object =
        |name: &str| json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": name}});
    assert!(validate(&node, &object("ok-1"), None).is_empty());
    assert_eq!(found(&validate(&node, &object("no"), None)), [("", "FieldValueInvalid")]);
}

#[test]
fn a_rule_that_takes_too_long_refuses_the_object_once() {
    let node = spec(&json!({"list": {"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [
            {"rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"}, {"rule": "true"}]}}));
    let list: Vec<u32> = (0..500).collect();
    let causes = validate(&node, &json!({"spec": {"list": list}}), None);
    assert_eq!(found(&causes), [("spec.list", "FieldValueInvalid")]);
}

#[test]
fn types_finds_wrong_json_types_only() {
    let node = spec(&json!({"a": {"type": "string", "maxLength": 1}, "l": {"type": "array",
        "items": {"type": "integer"}}, "p": {"x-kubernetes-int-or-string": true},
        "m": {"type": "object", "additionalProperties": {"type": "string"}}}));
    assert_eq!(
        types(&node, &json!({"spec": {"a": "long", "l": [1], "p": "x", "m": null}})),
        Ok(())
    );
    assert_eq!(types(&node, &json!({})), Ok(()));
    let wrong = types(&node, &json!({"spec": {"m": {"a": 1}}})).unwrap_err();
    assert_eq!(wrong.field, "spec.m.a");
    assert_eq!(wrong.to_string(), "cannot decode integer into field spec.m.a of type string");
    let wrong = types(&node, &json!({"spec": {"l": [1, "2"]}})).unwrap_err();
    assert_eq!(wrong.field, "spec.l[1]");
}

mod noise {
    use proptest::prelude::*;

    use super::*;
    use crate::{defaults, prune};

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-c.]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(
                    prop_oneof![
                        Just("spec".to_owned()),
                        Just("a".to_owned()),
                        Just("list".to_owned()),
                        Just("map".to_owned()),
                        Just("any".to_owned()),
                        "[a-z]{1,2}"
                    ],
                    inner,
                    0..4
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn node() -> Node {
        spec(&json!({
            "a": {"type": "string", "pattern": "^a", "default": "a"},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}},
                    "x-kubernetes-validations": [{"rule": "self.a != oldSelf.a || self.a == 'b'"}]}},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "nullable": true}},
            "any": {"x-kubernetes-preserve-unknown-fields": true}
        }))
    }

    proptest! {
        #[test]
        fn objects_never_panic_and_pruning_settles(value in any_json(), old in any_json()) {
            let node = node();
            let _ = types(&node, &value);
            let _ = validate(&node, &value, Some(&old));
            let mut value = value;
            prune::prune(&node, &mut value);
            prop_assert!(prune::prune(&node, &mut value).is_empty());
            defaults::drop_nulls(&node, &mut value);
            defaults::apply(&node, &mut value);
            let once = value.clone();
            defaults::drop_nulls(&node, &mut value);
            defaults::apply(&node, &mut value);
            prop_assert_eq!(&once, &value, "defaulting is idempotent");
            let _ = validate(&node, &value, None);
            prop_assert!(validate(&node, &value, Some(&value)).iter().all(|c| c.field.contains("list")),
                "an unchanged object breaks transition rules at most");
        }
    }
}

/// Definitions are made by tenants too, where they may; what they ask for is paid by everybody.
#[test]
fn a_schema_cannot_ask_for_more_than_an_object_may_cost() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "pattern": "^(a{1,90}b?){1,90}$"},
        "b": {"type": "string", "pattern": "^[A-Za-z0-9+/=]*$"},
    }});
    let node = parse(&schema, "schema").unwrap();
    let long = "x".repeat(1 << 20);
    let texts = |object: &Value| -> Vec<String> {
        validate(&node, object, None).iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts(&json!({"b": long})), Vec::<String>::new(), "an ordinary pattern is cheap");
    assert_eq!(texts(&json!({"a": "aab"})), Vec::<String>::new());
    let refused = texts(&json!({"a": long}));
    assert!(refused.iter().any(|text| text.contains("takes too long to check")), "{refused:?}");
    // Nor is what was never looked at forgiven because it did not change.
    let same = json!({"a": long});
    assert!(!validate(&node, &same, Some(&same)).is_empty());
}

#[test]
fn looks_at_values_are_counted_too() {
    let branch = json!({"maxLength": 9});
    let branches: Vec<Value> = std::iter::repeat_n(branch, 2_000).collect();
    let schema = json!({"type": "object", "properties": {"list": {"type": "array",
        "items": {"type": "string", "allOf": branches}}}});
    let node = parse(&schema, "schema").unwrap();
    let few = json!({"list": vec!["x"; 100]});
    assert!(validate(&node, &few, None).is_empty());
    let many = json!({"list": vec!["x"; 100_000]});
    assert_eq!(validate(&node, &many, None).len(), 1);
}
