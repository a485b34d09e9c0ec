//! Delete: at once or marked, with preconditions, policies and grace.

use serde_json::{Value, json};

use crate::support::*;

async fn held_widget(world: &World, name: &str, finalizers: &[&str]) -> Value {
    let mut body = new_widget(name, &json!({}));
    body["metadata"]["finalizers"] = json!(finalizers);
    world.post(&widgets("default"), &body).await.is(201)
}

#[tokio::test]
async fn an_object_nobody_holds_goes_at_once() {
    let world = World::new().await;
    let made = held_widget(&world, "a", &[]).await;
    let path = widget("default", "a");
    let done = world.delete(&path, &json!({"propagationPolicy": "Background"})).await.is(200);
    assert_eq!(done["kind"], "Status");
    assert_eq!(done["status"], "Success");
    assert_eq!(
        done["details"],
        json!({"name": "a", "group": "test.io", "kind": "widgets",
        "uid": made["metadata"]["uid"]})
    );
    world.get(&path).await.is(404);
    world.delete(&path, &Value::Null).await.refused(404);
    let map_path = map("default", "a");
    world.post(&maps("default"), &json!({"metadata": {"name": "a"}})).await.is(201);
    let done = world.delete(&map_path, &Value::Null).await.is(200);
    assert!(done["details"].get("group").is_none());
    for (collection, body) in [
        ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "a"}})),
        (
            "/api/v1/namespaces/default/pods",
            json!({"metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({"metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
    ] {
        let made = world.post(collection, &body).await.is(201);
        let path = format!("{collection}/a");
        let done = world.delete(&path, &Value::Null).await.is(200);
        assert_eq!(done["kind"], made["kind"]);
        assert_eq!(done["metadata"]["uid"], made["metadata"]["uid"]);
        // A claim is protected until somebody has looked whether it is in use.
        if made["kind"] == "PersistentVolumeClaim" {
            world.until_gone(&path).await;
        } else {
            world.get(&path).await.is(404);
        }
    }
}

#[tokio::test]
async fn the_last_finalizer_takes_the_object_along_whoever_removes_it() {
    let world = World::new().await;
    let path = widget("default", "a");
    let removals: [(&str, Value); 3] = [
        (MERGE, json!({"metadata": {"finalizers": null}})),
        (JSON, json!([{"op": "remove", "path": "/metadata/finalizers/0"}])),
        ("PUT", Value::Null),
    ];
    for (form, patch) in removals {
        held_widget(&world, "a", &["x.io/a", "x.io/b"]).await;
        let going = world.delete(&path, &Value::Null).await.is(200);
        assert_eq!(going["kind"], "Widget");
        assert!(going["metadata"]["deletionTimestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
        let again = world.post(&widgets("default"), &new_widget("a", &json!({}))).await.is(409);
        assert_eq!(again["reason"], "AlreadyExists");
        assert!(again["message"].as_str().unwrap().contains("object is being deleted"), "{again}");
        let one =
            world.merge(&path, &json!({"metadata": {"finalizers": ["x.io/b"]}})).await.is(200);
        let last = if form == "PUT" {
            let mut body = one.clone();
            body["metadata"].as_object_mut().unwrap().remove("finalizers");
            world.put(&path, &body).await.is(200)
        } else {
            world.patch(form, &path, &patch).await.is(200)
        };
        assert!(last["metadata"].get("finalizers").is_none(), "{last}");
        assert_eq!(version(&last), version(&one), "{form}");
        world.get(&path).await.is(404);
    }
    // By apply: the applier no longer lists it.
    let body = json!({"apiVersion": "test.io/v1", "kind": "Widget",
        "metadata": {"finalizers": ["x.io/a"]}});
    world.apply(&path, "m", &body).await.is(201);
    world.delete(&path, &Value::Null).await.is(200);
    let body = json!({"apiVersion": "test.io/v1", "kind": "Widget"});
    world.apply(&path, "m", &body).await.is(200);
    world.get(&path).await.is(404);
}

#[tokio::test]
async fn preconditions_are_kept() {
    let world = World::new().await;
    let made = held_widget(&world, "a", &[]).await;
    let path = widget("default", "a");
    for preconditions in [
        json!({"uid": "another"}),
        json!({"resourceVersion": "1"}),
        json!({"uid": made["metadata"]["uid"], "resourceVersion": "1"}),
    ] {
        let body =
            json!({"preconditions": preconditions, "kind": "DeleteOptions", "apiVersion": "v1"});
        let refused = world.delete(&path, &body).await.is(409);
        assert_eq!(refused["reason"], "Conflict");
        assert_eq!(refused["details"]["kind"], "Widget");
    }
    let right = json!({"uid": made["metadata"]["uid"], "resourceVersion": version(&made)});
    world.delete(&path, &json!({"preconditions": right})).await.is(200);
    world.get(&path).await.is(404);
}

#[tokio::test]
async fn options_are_checked_wherever_they_stand() {
    let world = World::new().await;
    held_widget(&world, "a", &["x.io/f"]).await;
    let path = widget("default", "a");
    for (query, body) in [
        ("", json!({"propagationPolicy": "Sideways"})),
        ("", json!({"propagationPolicy": "Orphan", "orphanDependents": true})),
        ("?propagationPolicy=Sideways", Value::Null),
        ("?propagationPolicy=Orphan&orphanDependents=false", Value::Null),
        ("?dryRun=Some", Value::Null),
    ] {
        world.delete(&format!("{path}{query}"), &body).await.refused(422);
    }
    world.delete(&path, &json!([])).await.refused(400);
    let text = "propagationPolicy: Orphan\n";
    let reply = world.send(http::Method::DELETE, &path, "application/yaml", text.into()).await;
    let going = reply.is(200);
    assert!(going["metadata"]["finalizers"].as_array().unwrap().contains(&json!("x.io/f")));
    let query = format!("{path}?propagationPolicy=Foreground&gracePeriodSeconds=0");
    world.delete(&query, &Value::Null).await.is(200);
}

#[tokio::test]
async fn a_scheduled_pod_waits_for_a_second_delete() {
    let world = World::new().await;
    let collection = "/api/v1/namespaces/default/pods";
    let path = format!("{collection}/a");
    let body = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n",
        "containers": [{"name": "c", "image": "i"}]}});
    let made = world.post(collection, &body).await.is(201);
    let going = world.delete(&path, &Value::Null).await.is(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(generation(&going), generation(&made) + 1);
    assert_eq!(world.delete(&path, &Value::Null).await.is(200), going);
    // Writes of others do not end it.
    world.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
    world.get(&path).await.is(200);
    world.delete(&path, &json!({"gracePeriodSeconds": 0})).await.is(200);
    world.get(&path).await.is(404);
}

#[tokio::test]
async fn a_collection_is_deleted_item_by_item() {
    let world = World::new().await;
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let body = json!({"metadata": {"name": name, "labels": {"l": label},
            "finalizers": if name == "b" { json!(["x.io/f"]) } else { json!([]) }}});
        world.post(&maps("default"), &body).await.is(201);
    }
    let path = format!("{}?labelSelector=l%3Dx", maps("default"));
    let list = world.delete(&path, &Value::Null).await.is(200);
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    world.get(&map("default", "a")).await.is(404);
    let held = world.get(&map("default", "b")).await.is(200);
    assert!(held["metadata"].get("deletionTimestamp").is_some());
    world.get(&map("default", "c")).await.is(200);
    world.delete("/api/v1/namespaces", &Value::Null).await.refused(405);
}

#[tokio::test]
async fn what_was_selected_before_is_not_what_has_its_name_now() {
    let world = World::new().await;
    let (old, kept) =
        (json!({"metadata": {"name": "a", "labels": {"l": "x"}}}), map("default", "a"));
    world.post(&maps("default"), &old).await.is(201);
    let changed = json!({"metadata": {"name": "b", "labels": {"l": "x"}}});
    let changed = world.post(&maps("default"), &changed).await.is(201);
    let version = changed["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    world.delete(&kept, &Value::Null).await.is(200);
    world.post(&maps("default"), &json!({"metadata": {"name": "a"}})).await.is(201);
    world.merge(&map("default", "b"), &json!({"metadata": {"labels": null}})).await.is(200);
    let path = format!(
        "{}?labelSelector=l%3Dx&resourceVersionMatch=Exact&resourceVersion={version}",
        maps("default")
    );
    world.delete(&path, &Value::Null).await.is(200);
    world.get(&kept).await.is(200);
    world.get(&map("default", "b")).await.is(200);
}

#[tokio::test]
async fn default_policies_and_finalizers_of_the_client_are_respected() {
    let world = World::new().await;
    // An object created with the finalizer of a policy asks for it whenever it goes.
    let body = json!({"metadata": {"name": "a", "finalizers": ["orphan"]}});
    let parent = world.post(&maps("default"), &body).await.is(201);
    let body = json!({"metadata": {"name": "b", "ownerReferences": [owner(&parent, true)]}});
    world.post(&maps("default"), &body).await.is(201);
    world.delete(&map("default", "a"), &Value::Null).await.is(200);
    world.until_gone(&map("default", "a")).await;
    world.settle().await;
    let child = world.get(&map("default", "b")).await.is(200);
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
}
