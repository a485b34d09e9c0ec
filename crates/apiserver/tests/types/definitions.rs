//! The life of a definition: names, discovery, deletion.

use serde_json::{Value, json};

use crate::support::*;

fn any() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[tokio::test]
async fn a_definition_is_usable_the_moment_its_creator_hears_of_it() {
    let world = World::new().await;
    let made = world.define("foos", "Foo", &any()).await;
    assert!(is(&made, "NamesAccepted", "True", "NoConflicts"));
    assert!(is(&made, "Established", "True", "InitialNamesAccepted"));
    let names = json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"});
    assert_eq!(made["status"]["acceptedNames"], names);
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let group = world.group();
    let body = world.body("v1", "Foo", "a", &json!({}));
    world.post(&world.objects("v1", "foos"), &body).await.is(201);
    let list = world.get(&format!("/apis/{group}/v1")).await.is(200);
    let resources = list["resources"].as_array().unwrap();
    let found: Vec<_> = resources.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(found, ["foos", "foos/status"]);
    let index = world.get("/openapi/v3").await.is(200);
    assert!(index["paths"].get(format!("apis/{group}/v1")).is_some());
}

#[tokio::test]
async fn a_definition_gets_its_names_when_the_one_that_has_them_goes() {
    let world = World::new().await;
    world.define("foos", "Foo", &any()).await;
    let mut second = world.definition("bars", "Bar", &any());
    second["spec"]["names"]["shortNames"] = json!(["foo"]);
    let second = world.post(DEFINITIONS, &second).await.is(201);
    assert!(is(&second, "NamesAccepted", "False", "ShortNamesConflict"));
    assert!(is(&second, "Established", "False", "NotAccepted"));
    assert_eq!(second["status"]["acceptedNames"]["kind"], "Bar");
    world.get(&world.objects("v1", "bars")).await.is(404);
    let place = format!("{DEFINITIONS}/foos.{}", world.group());
    world.delete(&place).await.is(200);
    let place = format!("{DEFINITIONS}/bars.{}", world.group());
    let settled = world
        .until(&place, |one| is(&one.body, "Established", "True", "InitialNamesAccepted"))
        .await;
    assert_eq!(settled["status"]["acceptedNames"]["shortNames"], json!(["foo"]));
    world.get(&world.objects("v1", "bars")).await.is(200);
}

#[tokio::test]
async fn a_name_that_is_taken_later_is_not_shown_but_the_type_stays() {
    let world = World::new().await;
    let mut first = world.definition("foos", "Foo", &any());
    first["spec"]["names"]["shortNames"] = json!(["f"]);
    world.post(DEFINITIONS, &first).await.is(201);
    world.define("bars", "Bar", &any()).await;
    let place = format!("{DEFINITIONS}/bars.{}", world.group());
    let taken = world.merge(&place, &json!({"spec": {"names": {"shortNames": ["f"]}}})).await;
    let taken = taken.is(200);
    assert!(is(&taken, "NamesAccepted", "False", "ShortNamesConflict"));
    assert!(is(&taken, "Established", "True", "InitialNamesAccepted"));
    let list = world.get(&format!("/apis/{}/v1", world.group())).await.is(200);
    let resources = list["resources"].as_array().unwrap();
    let bars = resources.iter().find(|one| one["name"] == "bars").unwrap();
    assert!(bars.get("shortNames").is_none_or(|names| names == &json!([])), "{bars}");
}

#[tokio::test]
async fn a_deleted_definition_waits_for_its_objects_and_takes_nothing_new() {
    let world = World::new().await;
    let definition = world.define("foos", "Foo", &any()).await;
    let place = format!("{DEFINITIONS}/foos.{}", world.group());
    let objects = world.objects("v1", "foos");
    let mut held = world.body("v1", "Foo", "held", &json!({}));
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    world.post(&objects, &held).await.is(201);
    world.post(&objects, &world.body("v1", "Foo", "free", &json!({}))).await.is(201);
    let mut lines = world.watch(&format!("{objects}?watch=true")).await;
    assert_eq!(lines.next().await.unwrap()["type"], "ADDED");
    assert_eq!(lines.next().await.unwrap()["type"], "ADDED");
    let going = world.delete(&place).await.is(200);
    assert!(is(&going, "Terminating", "True", "InstanceDeletionInProgress"));
    let refused = world.post(&objects, &world.body("v1", "Foo", "new", &json!({}))).await;
    assert!(refused.refused(403).contains("terminating"));
    let again = world.definition("foos", "Foo", &any());
    assert!(world.post(DEFINITIONS, &again).await.refused(409).contains("being deleted"));
    // It can still be written, although its own finalizer has no domain.
    world.merge(&place, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
    world.until(&format!("{objects}/free"), |one| one.code == 404).await;
    world
        .merge(&format!("{objects}/held"), &json!({"metadata": {"finalizers": null}}))
        .await
        .is(200);
    world.until(&place, |one| one.code == 404).await;
    world.get(&objects).await.is(404);
    let mut deleted = Vec::new();
    while let Some(event) = lines.next().await {
        if event["type"] == "DELETED" {
            deleted.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    deleted.sort();
    assert_eq!(deleted, ["free", "held"], "and then the watch ended");
    let anew = world.post(DEFINITIONS, &again).await.is(201);
    assert_ne!(anew["metadata"]["uid"], definition["metadata"]["uid"]);
}

#[tokio::test]
async fn a_definition_held_by_somebody_else_says_that_its_objects_are_gone() {
    let world = World::new().await;
    let mut definition = world.definition("foos", "Foo", &any());
    definition["metadata"]["finalizers"] = json!(["x.io/hold"]);
    world.post(DEFINITIONS, &definition).await.is(201);
    let place = format!("{DEFINITIONS}/foos.{}", world.group());
    world.delete(&place).await.is(200);
    let done = world
        .until(&place, |one| is(&one.body, "Terminating", "False", "InstanceDeletionCompleted"))
        .await;
    assert!(done["metadata"]["deletionTimestamp"].is_string());
    world.merge(&place, &json!({"metadata": {"finalizers": null}})).await.is(200);
    world.until(&place, |one| one.code == 404).await;
}

#[tokio::test]
async fn groups_of_kubernetes_itself_need_an_approval_and_show_it() {
    let world = World::new().await;
    let mut definition = world.definition("foos", "Foo", &any());
    definition["metadata"]["name"] = json!("foos.test.k8s.io");
    definition["spec"]["group"] = json!("test.k8s.io");
    world.post(DEFINITIONS, &definition).await.is(422);
    let kind = "KubernetesAPIApprovalPolicyConformant";
    for (approval, status, reason) in [
        ("https://example.com/1", "True", "ApprovedAnnotation"),
        ("unapproved, a test", "False", "UnapprovedAnnotation"),
    ] {
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": approval});
        let made = world.post(DEFINITIONS, &definition).await.is(201);
        assert!(is(&made, kind, status, reason), "{made}");
        world.delete(&format!("{DEFINITIONS}/foos.test.k8s.io")).await.is(200);
        world.until(&format!("{DEFINITIONS}/foos.test.k8s.io"), |one| one.code == 404).await;
    }
}

/// Nobody can ask for them any more, and yet they are there.
#[tokio::test]
async fn objects_of_a_definition_without_a_served_version_go_with_their_namespace_and_with_it() {
    let world = World::new().await;
    let spec = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let definition = world.define("things", "Thing", &spec).await;
    let place = format!("{DEFINITIONS}/things.{}", world.group());
    world.post("/api/v1/namespaces", &json!({"metadata": {"name": "gone"}})).await.is(201);
    let things =
        |namespace: &str| format!("/apis/{}/v1/namespaces/{namespace}/things", world.group());
    for namespace in ["gone", world.name.as_str()] {
        let body = world.body("v1", "Thing", "one", &json!({"a": "b"}));
        world.post(&things(namespace), &body).await.is(201);
    }
    let mut hidden = definition["spec"]["versions"].clone();
    hidden[0]["served"] = json!(false);
    world.merge(&place, &json!({"spec": {"versions": hidden}})).await.is(200);
    world.get(&things("gone")).await.is(404);
    world.delete("/api/v1/namespaces/gone").await.is(200);
    world.until("/api/v1/namespaces/gone", |reply| reply.code == 404).await;
    // Shown again: what was in the namespace is gone, what was elsewhere is there.
    let shown = json!({"spec": {"versions": definition["spec"]["versions"]}});
    world.merge(&place, &shown).await.is(200);
    let all = world.get(&format!("/apis/{}/v1/things", world.group())).await.is(200);
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
    // Hidden again, the definition takes them along.
    world.merge(&place, &json!({"spec": {"versions": hidden}})).await.is(200);
    world.delete(&place).await.is(200);
    world.until(&place, |reply| reply.code == 404).await;
    world.define("things", "Thing", &spec).await;
    let all = world.get(&format!("/apis/{}/v1/things", world.group())).await.is(200);
    assert_eq!(all["items"], json!([]), "{all}");
}
