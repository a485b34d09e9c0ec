//! Several versions of one type, and schemas that change under stored objects.

use serde_json::{Value, json};

use crate::support::*;

fn spec(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn first() -> Value {
    spec(&json!({"a": {"type": "string"}, "gone": {"type": "string"}}))
}

fn second() -> Value {
    spec(&json!({"a": {"type": "string"}, "new": {"type": "string", "default": "given"}}))
}

#[tokio::test]
async fn every_version_reads_and_writes_the_same_objects() {
    let world = World::new().await;
    let mut definition = world.definition("foos", "Foo", &first());
    let mut beta = version("v1beta1", false, &first());
    beta["additionalPrinterColumns"] =
        json!([{"name": "A", "type": "string", "jsonPath": ".spec.a"}]);
    definition["spec"]["versions"].as_array_mut().unwrap().push(beta);
    world.post(DEFINITIONS, &definition).await.is(201);
    let body = world.body("v1beta1", "Foo", "x", &json!({"a": "1"}));
    world.post(&world.objects("v1beta1", "foos"), &body).await.is(201);
    let group = world.group();
    for name in ["v1", "v1beta1"] {
        let path = world.objects(name, "foos");
        let api_version = format!("{group}/{name}");
        let list = world.get(&path).await.is(200);
        assert_eq!(list["apiVersion"], api_version);
        assert_eq!(list["items"][0]["apiVersion"], api_version);
        let mut lines = world.watch(&format!("{path}?watch=true")).await;
        assert_eq!(lines.next().await.unwrap()["object"]["apiVersion"], api_version);
    }
    let columns = |table: &Value| -> Vec<String> {
        let all = table["columnDefinitions"].as_array().unwrap();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let table = world.get_as(TABLE, &world.objects("v1", "foos")).await.is(200);
    assert_eq!(columns(&table), ["Name", "Age"]);
    let table = world.get_as(TABLE, &world.objects("v1beta1", "foos")).await.is(200);
    assert_eq!(columns(&table), ["Name", "A"]);
    assert_eq!(table["rows"][0]["cells"], json!(["x", "1"]));
}

#[tokio::test]
async fn a_watch_keeps_its_version_when_the_storage_version_and_the_schema_change() {
    let world = World::new().await;
    world.define("foos", "Foo", &first()).await;
    let path = world.objects("v1", "foos");
    let old = world.body("v1", "Foo", "old", &json!({"a": "1", "gone": "x"}));
    world.post(&path, &old).await.is(201);
    let mut lines = world.watch(&format!("{path}?watch=true")).await;
    assert_eq!(lines.next().await.unwrap()["object"]["spec"]["gone"], "x");
    let place = format!("{DEFINITIONS}/foos.{}", world.group());
    let versions = [version("v1", false, &second()), version("v2", true, &second())];
    let changed = world.merge(&place, &json!({"spec": {"versions": versions}})).await.is(200);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    // Stored under the old schema, read under the new one.
    let wanted = json!({"a": "1", "new": "given"});
    for name in ["v1", "v2"] {
        let path = world.objects(name, "foos");
        assert_eq!(world.get(&format!("{path}/old")).await.is(200)["spec"], wanted);
        assert_eq!(world.get(&path).await.is(200)["items"][0]["spec"], wanted);
        let mut lines = world.watch(&format!("{path}?watch=true")).await;
        assert_eq!(lines.next().await.unwrap()["object"]["spec"], wanted);
    }
    let body = world.body("v2", "Foo", "young", &json!({"a": "2"}));
    world.post(&world.objects("v2", "foos"), &body).await.is(201);
    let event = lines.next().await.unwrap();
    assert_eq!(event["object"]["apiVersion"], format!("{}/v1", world.group()));
    assert_eq!(event["object"]["spec"], json!({"a": "2", "new": "given"}));
}

#[tokio::test]
async fn a_version_that_is_no_longer_served_leaves_discovery_and_ends_its_watches() {
    let world = World::new().await;
    let mut definition = world.definition("foos", "Foo", &first());
    let other = version("v1alpha1", false, &first());
    definition["spec"]["versions"].as_array_mut().unwrap().push(other);
    world.post(DEFINITIONS, &definition).await.is(201);
    let group = world.group();
    let path = world.objects("v1alpha1", "foos");
    let mut lines = world.watch(&format!("{path}?watch=true")).await;
    let mut versions = definition["spec"]["versions"].clone();
    versions[1]["served"] = json!(false);
    let place = format!("{DEFINITIONS}/foos.{group}");
    world.merge(&place, &json!({"spec": {"versions": versions}})).await.is(200);
    assert!(lines.next().await.is_none());
    world.get(&path).await.is(404);
    let shown = world.get(&format!("/apis/{group}")).await.is(200);
    assert_eq!(shown["versions"].as_array().unwrap().len(), 1);
    let index = world.get("/openapi/v3").await.is(200);
    assert!(index["paths"].get(format!("apis/{group}/v1alpha1")).is_none());
}

#[tokio::test]
async fn a_stored_version_stays_in_the_definition_until_its_status_lets_it_go() {
    let world = World::new().await;
    world.define("foos", "Foo", &first()).await;
    let place = format!("{DEFINITIONS}/foos.{}", world.group());
    let two = [version("v1", false, &first()), version("v2", true, &first())];
    world.merge(&place, &json!({"spec": {"versions": two}})).await.is(200);
    let one = json!({"spec": {"versions": [version("v2", true, &first())]}});
    let (_, field, _) = world.merge(&place, &one).await.cause();
    assert_eq!(field, "status.storedVersions[0]");
    let status = json!({"status": {"storedVersions": ["v2"]}});
    world.merge(&format!("{place}/status"), &status).await.is(200);
    world.merge(&place, &one).await.is(200);
    world.get(&world.objects("v1", "foos")).await.is(404);
}

#[tokio::test]
async fn scale_reads_and_writes_where_the_definition_says() {
    let world = World::new().await;
    let fields = spec(&json!({"n": {"type": "integer", "maximum": 9},
        "selector": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}));
    let mut definition = world.definition("foos", "Foo", &fields);
    definition["spec"]["versions"][0]["subresources"]["scale"] =
        json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.replicas"});
    world.post(DEFINITIONS, &definition).await.is(201);
    let objects = world.objects("v1", "foos");
    let selector = json!({"selector": {"matchLabels": {"a": "b"}}});
    world.post(&objects, &world.body("v1", "Foo", "x", &selector)).await.is(201);
    let path = format!("{objects}/x/scale");
    let scale = world.get(&path).await.is(200);
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["spec"], json!({"replicas": 0}));
    assert_eq!(scale["status"], json!({"replicas": 0}), "no selector path, no selector");
    let scale = world.merge(&path, &json!({"spec": {"replicas": 3}})).await.is(200);
    assert_eq!(scale["spec"]["replicas"], 3);
    let object = world.get(&format!("{objects}/x")).await.is(200);
    assert_eq!((&object["spec"]["n"], &object["metadata"]["generation"]), (&json!(3), &json!(2)));
    world.merge(&path, &json!({"spec": {"replicas": 10}})).await.is(422);
    let table = world.get_as(TABLE, &path).await.is(200);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("x"), json!(3), json!(0)]);
}

#[tokio::test]
async fn a_deployment_has_a_scale_with_its_selector() {
    let world = World::new().await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", world.name);
    let body = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "Exists"}]},
        "template": {"metadata": {"labels": {"a": "b", "c": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    world.post(&path, &body).await.is(201);
    let scale = world.get(&format!("{path}/d/scale")).await.is(200);
    assert_eq!(scale["status"]["selector"], "a=b,c");
    assert_eq!(scale["spec"]["replicas"], 1);
    let mut next = scale.clone();
    next["spec"]["replicas"] = json!(4);
    world.put(&format!("{path}/d/scale"), &next).await.is(200);
    world.put(&format!("{path}/d/scale"), &next).await.refused(409);
    assert_eq!(world.get(&format!("{path}/d")).await.is(200)["spec"]["replicas"], 4);
}

#[tokio::test]
async fn a_deprecated_version_says_so_with_every_answer() {
    let world = World::new().await;
    let mut definition = world.definition("foos", "Foo", &first());
    let mut old = version("v1beta1", false, &first());
    old["deprecated"] = json!(true);
    let mut oldest = old.clone();
    oldest["name"] = json!("v1alpha1");
    oldest["deprecationWarning"] = json!("do not");
    definition["spec"]["versions"].as_array_mut().unwrap().extend([old, oldest]);
    world.post(DEFINITIONS, &definition).await.is(201);
    let group = world.group();
    for (name, wanted) in [
        ("v1", vec![]),
        (
            "v1beta1",
            vec![format!("299 - \"{group}/v1beta1 Foo is deprecated; use {group}/v1 Foo\"")],
        ),
        ("v1alpha1", vec!["299 - \"do not\"".to_owned()]),
    ] {
        let path = world.objects(name, "foos");
        assert_eq!(world.get(&path).await.warnings, wanted);
        let made = world.post(&path, &world.body(name, "Foo", name, &json!({}))).await;
        assert_eq!((made.code, made.warnings), (201, wanted));
    }
}
