//! Which schemas may be installed.

use serde_json::json;

use super::*;

fn property(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"a": schema}})
}

#[test]
fn structural_schemas_parse() {
    for schema in [
        json!({"type": "object"}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
        property(
            &json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ),
        property(&json!({"x-kubernetes-int-or-string": true,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}]})),
        property(&json!({"type": "object", "additionalProperties": true})),
        property(&json!({"type": "string", "default": "x", "enum": ["x"]})),
        property(
            &json!({"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "c"}},
            "required": ["b"]}),
        ),
        property(
            &json!({"type": "string", "uniqueItems": false, "nullable": true, "default": null}),
        ),
        property(
            &json!({"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}},
            "oneOf": [{"required": ["b"]}, {"required": ["c"], "properties": {"b": {"not": {"minLength": 1}}}}]}),
        ),
    ] {
        if let Err(causes) = parse(&schema, "s") {
            panic!("{schema}: {causes:?}");
        }
    }
}

fn refused(table: &[(Value, &str)]) {
    for (schema, field) in table {
        let causes = parse(schema, "s").err().unwrap_or_else(|| panic!("{schema} was accepted"));
        assert!(causes.iter().any(|cause| cause.field == *field), "{schema}: {causes:?}");
    }
}

#[test]
fn other_schemas_are_refused_where_they_are_wrong() {
    let table = [
        (json!(1), "s"),
        (json!({}), "s.type"),
        (json!({"type": "string"}), "s.type"),
        (json!({"type": "object", "default": {}}), "s.default"),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "s.additionalProperties",
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
            "labels": {"type": "object"}}}}}),
            "s.properties[metadata]",
        ),
        (
            json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
            "s.properties[kind].type",
        ),
        (property(&json!({})), "s.properties[a].type"),
        (property(&json!({"type": "strange"})), "s.properties[a].type"),
        (property(&json!({"type": "array"})), "s.properties[a].items"),
        (
            property(&json!({"type": "array", "items": [{"type": "string"}]})),
            "s.properties[a].items",
        ),
        (
            property(&json!({"type": "object", "additionalProperties": false})),
            "s.properties[a].additionalProperties",
        ),
        (
            property(&json!({"type": "object", "properties": {"b": {"type": "string"}},
            "additionalProperties": {"type": "string"}})),
            "s.properties[a].additionalProperties",
        ),
        (property(&json!({"type": "string", "$ref": "#/x"})), "s.properties[a].$ref"),
        (
            property(&json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
            "s.properties[a].uniqueItems",
        ),
        (property(&json!({"type": "string", "default": 1})), "s.properties[a].default"),
        (
            property(&json!({"type": "object", "properties": {}, "default": {"x": 1}})),
            "s.properties[a].default",
        ),
        (property(&json!({"type": "string", "pattern": "("})), "s.properties[a].pattern"),
        (property(&json!({"type": "string", "maxLength": -1})), "s.properties[a].maxLength"),
        (
            property(&json!({"type": "string", "anyOf": [{"type": "string"}]})),
            "s.properties[a].anyOf[0].type",
        ),
        (
            property(&json!({"type": "string", "not": {"default": 1}})),
            "s.properties[a].not.default",
        ),
        (
            property(
                &json!({"type": "object", "allOf": [{"properties": {"z": {"minLength": 1}}}]}),
            ),
            "s.properties[a].allOf[0].properties[z]",
        ),
        (
            property(&json!({"type": "string", "x-kubernetes-int-or-string": true})),
            "s.properties[a].type",
        ),
        (
            property(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
            "s.properties[a].x-kubernetes-preserve-unknown-fields",
        ),
    ];
    refused(&table);
}

#[test]
fn lists_and_rules_are_checked_against_the_schema_below_them() {
    let table = [
        (
            property(&json!({"type": "string", "x-kubernetes-list-type": "set"})),
            "s.properties[a].x-kubernetes-list-type",
        ),
        (
            property(
                &json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "heap"}),
            ),
            "s.properties[a].x-kubernetes-list-type",
        ),
        (
            property(
                &json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            ),
            "s.properties[a].items",
        ),
        (
            property(
                &json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            ),
            "s.properties[a].x-kubernetes-list-map-keys",
        ),
        (
            property(
                &json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "properties": {"n": {"type": "string"}}}}),
            ),
            "s.properties[a].items.properties[n].default",
        ),
        (
            property(
                &json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object"}}),
            ),
            "s.properties[a].items.properties[n]",
        ),
        (
            property(
                &json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.foo > 1"}]}),
            ),
            "s.properties[a].x-kubernetes-validations[0].rule",
        ),
        (
            property(&json!({"type": "string", "x-kubernetes-validations": [{}]})),
            "s.properties[a].x-kubernetes-validations[0].rule",
        ),
        (
            property(
                &json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "Other"}]}),
            ),
            "s.properties[a].x-kubernetes-validations[0].reason",
        ),
        (
            property(
                &json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".x"}]}),
            ),
            "s.properties[a].x-kubernetes-validations[0].fieldPath",
        ),
        (
            property(
                &json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "1"}]}),
            ),
            "s.properties[a].x-kubernetes-validations[0].messageExpression",
        ),
        (
            property(&json!({"type": "array", "items": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}})),
            "s.properties[a].items.x-kubernetes-validations[0].rule",
        ),
    ];
    refused(&table);
}

#[test]
fn deep_schemas_are_refused_without_exhausting_the_stack() {
    let mut schema = json!({"type": "string"});
    for _ in 0..100 {
        schema = json!({"type": "object", "properties": {"a": schema}});
    }
    assert!(parse(&schema, "s").is_err());
}

#[test]
fn what_was_parsed_is_published_again() {
    let schema = json!({"type": "object", "description": "D", "required": ["spec"], "properties": {
        "spec": {"type": "object", "title": "T", "properties": {
            "n": {"type": "integer", "minimum": 0, "maximum": 9, "exclusiveMaximum": true, "default": 1, "format": "int32"},
            "s": {"type": "string", "enum": ["a", "b"], "pattern": "^.$", "minLength": 1, "nullable": true},
            "p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "m": {"type": "object", "additionalProperties": {"type": "number", "multipleOf": 0.5}, "x-kubernetes-map-type": "atomic"},
            "l": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
            "r": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}},
            "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "m", "reason": "FieldValueInvalid",
                "fieldPath": ".n", "optionalOldSelf": true}],
            "not": {"required": ["z"]}}}});
    let node = parse(&schema, "s").unwrap_or_else(|causes| panic!("{causes:?}"));
    assert_eq!(to_openapi(&node), schema);
}

mod noise {
    use proptest::prelude::*;

    use super::*;

    fn keyword() -> impl Strategy<Value = String> {
        proptest::sample::select(vec![
            "type",
            "properties",
            "items",
            "additionalProperties",
            "default",
            "enum",
            "required",
            "pattern",
            "anyOf",
            "not",
            "nullable",
            "format",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-validations",
            "rule",
            "message",
            "metadata",
            "a",
        ])
        .prop_map(str::to_owned)
    }

    fn schemas() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            proptest::sample::select(vec![
                "object", "array", "string", "integer", "map", "set", "a", "self.a", "("
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                4 => proptest::collection::btree_map(keyword(), inner, 0..6).prop_map(|map| {
                    Value::Object(map.into_iter().collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn never_panics(mut schema in schemas(), object in schemas()) {
            if let Some(members) = schema.as_object_mut() {
                members.insert("type".to_owned(), "object".into());
            }
            if let Ok(node) = parse(&schema, "s") {
                let _ = to_openapi(&node);
                let _ = crate::validate::validate(&node, &object, None);
                let mut object = object;
                crate::prune::prune(&node, &mut object);
                crate::defaults::drop_nulls(&node, &mut object);
                crate::defaults::apply(&node, &mut object);
            }
            let crd = json!({"metadata": {"name": "a"}, "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}, schema], "names": schema}});
            let _ = crate::crd::validate(&crd, Some(&crd));
            let _ = crate::crd::Definition::parse(&crd);
            let mut crd = crd;
            crate::crd::default(&mut crd);
        }
    }
}

/// Compiled, a pattern may be a million times as long as it is written.
#[test]
fn patterns_are_charged_for_what_they_take_when_compiled() {
    let schema = |count: usize, pattern: &str| {
        let one = json!({"type": "string", "pattern": pattern});
        let all: serde_json::Map<String, Value> =
            (0..count).map(|number| (format!("p{number}"), one.clone())).collect();
        json!({"type": "object", "properties": all})
    };
    let large = "^(a{1,90}b?){1,90}$";
    assert!(parse(&schema(4, large), "s").is_ok());
    assert!(parse(&schema(1_000, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), "s").is_ok());
    for (count, pattern) in [(200, large), (1, "((a{1,99}){1,99}){1,99}")] {
        let causes = parse(&schema(count, pattern), "s").unwrap_err();
        let text = causes.first().map(ToString::to_string).unwrap_or_default();
        assert!(text.contains("too large a regular expression"), "{text}");
    }
}
