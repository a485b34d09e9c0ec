//! Expressions in schemas, as objects come and change.

use serde_json::{Value, json};

use crate::support::*;

/// A world with one type `Foo` whose `spec` has this schema.
async fn world(spec: &Value) -> World {
    let world = World::new().await;
    world.define("foos", "Foo", spec).await;
    world
}

async fn make(world: &World, name: &str, spec: &Value) -> Reply {
    world.post(&world.objects("v1", "foos"), &world.body("v1", "Foo", name, spec)).await
}

async fn change(world: &World, name: &str, spec: &Value) -> Reply {
    world.merge(&format!("{}/{name}", world.objects("v1", "foos")), &json!({"spec": spec})).await
}

fn rule(rule: &Value) -> Value {
    json!([rule])
}

#[tokio::test]
async fn a_failed_rule_speaks_with_its_own_words_at_its_own_place() {
    let spec = json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}},
        "x-kubernetes-validations": rule(&json!({
            "rule": "self.min <= self.max", "message": "unused",
            "messageExpression": "'min %d > max %d'.format([self.min, self.max])",
            "reason": "FieldValueForbidden", "fieldPath": ".max"}))});
    let world = world(&spec).await;
    let (reason, field, message) = make(&world, "a", &json!({"min": 3, "max": 2})).await.cause();
    assert_eq!(reason, "FieldValueForbidden");
    assert_eq!(field, "spec.max");
    assert!(message.ends_with("min 3 > max 2"), "{message}");
}

#[tokio::test]
async fn a_rule_about_the_whole_object_sees_its_name_and_nothing_more_of_metadata() {
    let world = World::new().await;
    let mut definition = world.definition("foos", "Foo", &json!({"type": "object"}));
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["x-kubernetes-validations"] = rule(&json!({"rule": "self.metadata.labels.size() > 0"}));
    world.post(DEFINITIONS, &definition).await.is(422);
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["x-kubernetes-validations"] =
        rule(&json!({"rule": "self.metadata.name.startsWith('a')", "message": "starts with a"}));
    world.post(DEFINITIONS, &definition).await.is(201);
    make(&world, "ab", &json!({})).await.is(201);
    let (reason, field, _) = make(&world, "b", &json!({})).await.cause();
    assert_eq!((reason.as_str(), field.as_str()), ("FieldValueInvalid", "<nil>"));
}

#[tokio::test]
async fn transition_rules_compare_with_what_was_there() {
    let grow = rule(&json!({"rule": "self >= oldSelf", "message": "may not shrink"}));
    let number = json!({"type": "integer", "x-kubernetes-validations": grow});
    let world = world(&json!({"type": "object", "properties": {
        "plain": number,
        "map": {"type": "object", "maxProperties": 9, "additionalProperties": number},
        "list": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": number}}},
        "first": {"type": "integer", "x-kubernetes-validations": rule(&json!({
            "rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true}))}}}))
    .await;
    make(&world, "bad", &json!({"first": 2})).await.is(422);
    let start = json!({"plain": 5, "first": 1, "map": {"a": 5, "b": 5},
        "list": [{"k": "a", "v": 5}, {"k": "b", "v": 5}]});
    make(&world, "x", &start).await.is(201);
    for (spec, field) in [
        (json!({"plain": 4}), "spec.plain"),
        (json!({"map": {"b": 4}}), "spec.map[b]"),
        (json!({"list": [{"k": "b", "v": 4}, {"k": "a", "v": 5}]}), "spec.list[0].v"),
    ] {
        let (_, found, message) = change(&world, "x", &spec).await.cause();
        assert_eq!(found, field);
        assert!(message.ends_with("may not shrink"), "{message}");
    }
    for spec in [
        json!({"plain": null}),
        json!({"plain": 1}),
        json!({"map": {"new": 0}}),
        json!({"list": [{"k": "new", "v": 0}, {"k": "b", "v": 6}]}),
        json!({"first": 7}),
    ] {
        change(&world, "x", &spec).await.is(200);
    }
}

#[tokio::test]
async fn what_was_wrong_before_and_did_not_change_is_no_reason_to_refuse() {
    let number = |maximum: i64| {
        json!({"type": "object", "properties": {
        "n": {"type": "integer", "maximum": maximum}, "s": {"type": "string"}}})
    };
    let world = world(&number(10)).await;
    make(&world, "x", &json!({"n": 9})).await.is(201);
    let place = format!("{DEFINITIONS}/foos.{}", world.group());
    let versions = [version("v1", true, &number(5))];
    world.merge(&place, &json!({"spec": {"versions": versions}})).await.is(200);
    change(&world, "x", &json!({"s": "other"})).await.is(200);
    assert_eq!(change(&world, "x", &json!({"n": 8})).await.cause().1, "spec.n");
}

#[tokio::test]
async fn rules_that_do_not_fit_the_schema_are_refused_with_the_definition() {
    let world = World::new().await;
    for text in ["self.nope > 1", "self.n + 'x' == 2", "self.n", "1 +", "self.n.foo()", ""] {
        let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}},
            "x-kubernetes-validations": rule(&json!({"rule": text}))});
        let refused = world.post(DEFINITIONS, &world.definition("foos", "Foo", &spec)).await;
        let (_, field, message) = refused.cause();
        assert!(field.ends_with(".x-kubernetes-validations[0].rule"), "{text}: {field} {message}");
    }
}
