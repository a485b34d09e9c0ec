//! Server-side apply: who owns what after every kind of write.

use http::Method;
use serde_json::{Value, json};

use crate::support::*;

fn config(spec: &Value) -> Value {
    json!({"apiVersion": "test.io/v1", "kind": "Widget", "spec": spec})
}

/// The managers of an object as (manager, operation, subresource).
fn managers(object: &Value) -> Vec<(String, String, String)> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (text(one, "manager"), text(one, "operation"), text(one, "subresource")))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn requests_must_say_who_applies_what() {
    let world = World::new().await;
    let path = widget("default", "a");
    let body = config(&json!({"size": 2}));
    world.patch(APPLY, &path, &body).await.refused(422);
    world.patch(APPLY, &format!("{path}?fieldManager="), &body).await.refused(422);
    world.apply(&path, &"x".repeat(129), &body).await.refused(422);
    world.apply(&path, "a%07b", &body).await.refused(422);
    for body in [
        json!({"kind": "Widget"}),
        json!({"apiVersion": "test.io/v1"}),
        json!({"apiVersion": "test.io/v2", "kind": "Widget"}),
        json!({"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": "b"}}),
        json!({"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"namespace": "b"}}),
        json!({"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": "a",
            "managedFields": [{"manager": "x"}]}}),
        json!([]),
    ] {
        world.apply(&path, "m", &body).await.refused(400);
    }
    let mut with_uid = body.clone();
    with_uid["metadata"] = json!({"name": "a", "uid": "u"});
    world.apply(&path, "m", &with_uid).await.refused(409);
    world.apply(&format!("{path}/status"), "m", &body).await.refused(404);
    world.get(&path).await.is(404);
    let yaml = "apiVersion: test.io/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: 3\n";
    let target = format!("{path}?fieldManager=m");
    let made = world.send(Method::PATCH, &target, APPLY, yaml.into()).await.is(201);
    assert_eq!(made["spec"]["size"], 3);
    let mut stale = body.clone();
    stale["metadata"] = json!({"name": "a", "resourceVersion": "1"});
    world.apply(&path, "m", &stale).await.refused(409);
    stale["metadata"]["resourceVersion"] = version(&made).into();
    let now = world.apply(&path, "m", &stale).await.is(200);
    assert_eq!(now["spec"]["size"], 2);
    assert!(entry(&now, "m", "Apply", "")["fieldsV1"].get("f:metadata").is_none());
}

#[tokio::test]
async fn a_conflict_names_the_field_and_its_owner() {
    let world = World::new().await;
    let path = widget("default", "a");
    world.apply(&path, "first", &config(&json!({"size": 2, "color": "red"}))).await.is(201);
    let second = config(&json!({"size": 3, "color": "blue"}));
    let before = world.get(&path).await.is(200);
    let refused = world.apply(&path, "second", &second).await.is(409);
    assert_eq!(refused["reason"], "Conflict");
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("Apply failed with 2 conflicts: "), "{message}");
    assert!(message.contains("conflict") && message.contains("\"first\""), "{message}");
    let causes = refused["details"]["causes"].as_array().unwrap();
    let mut fields: Vec<_> = causes.iter().map(|one| one["field"].as_str().unwrap()).collect();
    fields.sort_unstable();
    assert_eq!(fields, [".spec.color", ".spec.size"]);
    assert!(causes.iter().all(|one| one["reason"] == "FieldManagerConflict"));
    assert_eq!(causes[0]["message"], "conflict with \"first\"");
    assert_eq!(world.get(&path).await.is(200), before);
    // One conflict, with an updater.
    world.merge(&path, &json!({"spec": {"size": 7}})).await.is(200);
    let refused = world.apply(&path, "first", &config(&json!({"size": 2, "color": "red"}))).await;
    let message = refused.refused(409);
    assert!(
        message
            .starts_with("Apply failed with 1 conflict: conflict with \"tester\" using test.io/v1"),
        "{message}"
    );
    assert!(message.ends_with(": .spec.size"), "{message}");
    // By force the others lose what differs, and keep what they have.
    let now = world.apply(&path, "second&force=true", &second).await.is(200);
    assert_eq!(now["spec"], json!({"size": 3, "color": "blue"}));
    assert_eq!(managers(&now).len(), 1, "{now}");
    // Equal values are shared.
    let now = world.apply(&path, "third", &config(&json!({"size": 3}))).await.is(200);
    assert_eq!(entry(&now, "third", "Apply", "")["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
    assert_eq!(
        entry(&now, "second", "Apply", "")["fieldsV1"],
        json!({"f:spec": {"f:size": {}, "f:color": {}}})
    );
}

#[tokio::test]
async fn what_a_manager_no_longer_lists_goes_unless_shared() {
    let world = World::new().await;
    let path = widget("default", "a");
    let full = json!({"size": 5, "color": "red", "tags": ["a", "b"], "options": {"x": "1", "y": "2"},
        "ports": [{"port": 1, "name": "one"}, {"port": 2, "name": "two"}]});
    world.apply(&path, "first", &config(&full)).await.is(201);
    let shared = json!({"color": "red", "tags": ["b", "c"], "options": {"y": "2", "z": "3"},
        "ports": [{"port": 2}, {"port": 3, "protocol": "UDP"}]});
    let now = world.apply(&path, "second", &config(&shared)).await.is(200);
    assert_eq!(now["spec"]["tags"], json!(["a", "b", "c"]));
    assert_eq!(now["spec"]["ports"].as_array().unwrap().len(), 3);
    assert_eq!(
        entry(&now, "second", "Apply", "")["fieldsV1"]["f:spec"]["f:ports"],
        json!({"k:{\"port\":2,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
            "k:{\"port\":3,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}}})
    );
    let now = world.apply(&path, "first", &config(&json!({}))).await.is(200);
    assert_eq!(now["spec"]["size"], 1, "the default comes back");
    assert_eq!(now["spec"]["color"], "red");
    assert_eq!(now["spec"]["tags"], json!(["b", "c"]));
    assert_eq!(now["spec"]["options"], json!({"y": "2", "z": "3"}));
    // The item stays for its other owner; what only the first one said about it goes.
    assert_eq!(
        now["spec"]["ports"],
        json!([{"port": 2, "protocol": "TCP"}, {"port": 3, "protocol": "UDP"}])
    );
    let now = world.apply(&path, "second", &config(&json!({}))).await.is(200);
    assert_eq!(now["spec"], json!({"size": 1}));
    assert_eq!(managers(&now).iter().filter(|one| one.0 == "second").count(), 1);
}

#[tokio::test]
async fn a_list_without_keys_is_one_field() {
    let world = World::new().await;
    let path = widget("default", "a");
    world.apply(&path, "first", &config(&json!({"flat": ["a", "b"]}))).await.is(201);
    let refused = world.apply(&path, "second", &config(&json!({"flat": ["b"]}))).await.is(409);
    assert_eq!(refused["details"]["causes"][0]["field"], ".spec.flat");
    let now = world.apply(&path, "second&force=true", &config(&json!({"flat": ["c"]}))).await;
    assert_eq!(now.is(200)["spec"]["flat"], json!(["c"]));
    let twice = config(&json!({"tags": ["a", "a"]}));
    assert!(world.apply(&path, "third", &twice).await.code >= 400);
}

#[tokio::test]
async fn writers_own_what_they_change_and_nothing_else() {
    let world = World::new().await;
    let collection = widgets("default");
    let path = widget("default", "a");
    let body = new_widget("a", &json!({"size": 2})).to_string();
    let post = world
        .send_as("maker/1.2 (linux)", Method::POST, &collection, "application/json", body.into())
        .await;
    let made = post.is(201);
    assert_eq!(managers(&made), [("maker".into(), "Update".into(), String::new())]);
    let owned = &entry(&made, "maker", "Update", "")["fieldsV1"];
    assert_eq!(*owned, json!({"f:spec": {".": {}, "f:size": {}}}));
    let change = json!({"spec": {"size": 2, "color": "red"}, "metadata": {"labels": {"a": "b"}}});
    let now = world.merge(&format!("{path}?fieldManager=painter"), &change).await.is(200);
    assert_eq!(entry(&now, "maker", "Update", "")["fieldsV1"], *owned);
    assert_eq!(
        entry(&now, "painter", "Update", "")["fieldsV1"],
        json!({"f:spec": {"f:color": {}}, "f:metadata": {"f:labels": {".": {}, "f:a": {}}}})
    );
    // Changing somebody's field takes it over.
    let now =
        world.merge(&format!("{path}?fieldManager=painter"), &json!({"spec": {"size": 3}})).await;
    let now = now.is(200);
    assert!(entry(&now, "painter", "Update", "")["fieldsV1"]["f:spec"].get("f:size").is_some());
    assert!(entry(&now, "maker", "Update", "")["fieldsV1"]["f:spec"].get("f:size").is_none());
    let status = json!({"status": {"phase": "x"}});
    let now = world.merge(&format!("{path}/status?fieldManager=painter"), &status).await.is(200);
    assert_eq!(
        entry(&now, "painter", "Update", "status")["fieldsV1"],
        json!({"f:status": {".": {}, "f:phase": {}}})
    );
    // Without a name and without an agent.
    let change = json!({"spec": {"color": "blue"}}).to_string();
    let now = world.send_as("", Method::PATCH, &path, MERGE, change.into()).await.is(200);
    assert!(managers(&now).iter().any(|one| one.0 == "unknown"), "{:?}", managers(&now));
}

#[tokio::test]
async fn the_status_is_applied_through_its_own_door() {
    let world = World::new().await;
    let path = widget("default", "a");
    let part = format!("{path}/status");
    let mut body = config(&json!({"size": 2}));
    body["status"] = json!({"phase": "smuggled"});
    body["metadata"] = json!({"name": "a", "labels": {"a": "b"}});
    let made = world.apply(&path, "m", &body).await.is(201);
    assert!(made.get("status").is_none());
    assert!(entry(&made, "m", "Apply", "")["fieldsV1"].get("f:status").is_none(), "{made}");
    body["spec"]["size"] = 7.into();
    body["metadata"]["labels"]["a"] = "c".into();
    body["status"] = json!({"phase": "x", "conditions": [{"type": "Ready", "status": "True"}]});
    let now = world.apply(&part, "m", &body).await.is(200);
    assert_eq!(now["spec"]["size"], 2);
    assert_eq!(now["metadata"]["labels"]["a"], "b");
    assert_eq!(now["status"]["phase"], "x");
    assert_eq!(generation(&now), 1);
    let owned = &entry(&now, "m", "Apply", "status")["fieldsV1"];
    assert_eq!(
        *owned,
        json!({"f:status": {"f:phase": {}, "f:conditions":
            {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}}}})
    );
    assert_eq!(world.apply(&part, "m", &body).await.is(200), now, "the same again is no write");
    let other = json!({"apiVersion": "test.io/v1", "kind": "Widget",
        "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let refused = world.apply(&part, "other", &other).await.is(409);
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        ".status.conditions[type=\"Ready\"].status"
    );
    // Applying the object without a status takes nothing from it.
    let now = world.apply(&path, "m", &config(&json!({"size": 3}))).await.is(200);
    assert_eq!(now["status"]["phase"], "x");
    assert!(now["metadata"].get("labels").is_none());
    // The status goes when its applier lists it no more.
    let none = json!({"apiVersion": "test.io/v1", "kind": "Widget", "status": {}});
    let now = world.apply(&part, "m", &none).await.is(200);
    assert!(now["status"].get("phase").is_none(), "{now}");
}

#[tokio::test]
async fn what_was_there_before_the_first_apply_belongs_to_nobody_in_particular() {
    let world = World::new().await;
    let path = map("default", "a");
    let body = json!({"metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}});
    world.post(&maps("default"), &body).await.is(201);
    let reset = json!({"metadata": {"managedFields": [{}]}});
    let bare = world.merge(&path, &reset).await.is(200);
    assert!(bare["metadata"].get("managedFields").is_none(), "{bare}");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "9"}});
    let message = world.apply(&path, "m", &body).await.refused(409);
    assert!(message.contains("before-first-apply"), "{message}");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
    let now = world.apply(&path, "m", &body).await.is(200);
    assert_eq!(now["data"], json!({"a": "1", "b": "2"}));
    assert_eq!(
        entry(&now, "before-first-apply", "Update", "")["fieldsV1"]["f:data"]["f:b"],
        json!({})
    );
    assert!(!entry(&now, "m", "Apply", "").is_null());
}

#[tokio::test]
async fn many_updaters_fold_into_one() {
    let world = World::new().await;
    let path = map("default", "a");
    world
        .post(&maps("default"), &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}))
        .await
        .is(201);
    for n in 0..15 {
        let change = json!({"data": {format!("k{n}"): "v"}});
        world.merge(&format!("{path}?fieldManager=m{n}"), &change).await.is(200);
    }
    let now = world.get(&path).await.is(200);
    let all = managers(&now);
    assert!(all.len() <= 10 && all.iter().any(|one| one.0 == "ancient-changes"), "{all:?}");
}

#[tokio::test]
async fn kubectl_moves_from_client_side_to_server_side_in_four_requests() {
    let world = World::new().await;
    let path = map("default", "a");
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    let body = json!({"metadata": {"name": "a", "annotations": {last: "{}"}},
        "data": {"a": "1", "b": "2"}});
    let collection = format!("{}?fieldManager=kubectl-client-side-apply", maps("default"));
    world.post(&collection, &body).await.is(201);
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"}, "data": {"a": "1"}});
    let first = world.apply(&path, "kubectl&force=false", &config).await.is(200);
    assert_eq!(first["data"]["b"], "2");
    let note = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": {last: "{}"}}});
    let second = world.apply(&path, "kubectl-last-applied", &note).await.is(200);
    // The client merges the entries of the old manager into the applier's and writes them back.
    let mut entries = second["metadata"]["managedFields"].as_array().unwrap().clone();
    let old = entries.iter().position(|one| one["manager"] == "kubectl-client-side-apply").unwrap();
    let old = entries.remove(old);
    let own = entries.iter_mut().find(|one| one["manager"] == "kubectl").unwrap();
    own["fieldsV1"] = old["fieldsV1"].clone();
    let edits = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version(&second)}]);
    let third = world.patch(JSON, &format!("{path}?fieldManager=kubectl"), &edits).await.is(200);
    assert!(entry(&third, "kubectl-client-side-apply", "Update", "").is_null());
    let fourth = world.apply(&path, "kubectl&force=false", &config).await.is(200);
    assert_eq!(fourth["data"], json!({"a": "1"}), "what the configuration dropped is gone");
    assert_eq!(fourth["metadata"]["annotations"][last], "{}");
    assert_eq!(world.apply(&path, "kubectl", &config).await.is(200), fourth);
}

#[tokio::test]
async fn two_candidates_cannot_both_take_a_lease() {
    let world = World::new().await;
    let collection = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let path = format!("{collection}/l");
    world.post(collection, &json!({"metadata": {"name": "l"}, "spec": {}})).await.is(201);
    let claim = |holder: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "spec": {"holderIdentity": holder, "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15,
            "leaseTransitions": 1}})
    };
    let made = world.apply(&path, "one", &claim("one")).await.is(200);
    world.apply(&path, "two", &claim("two")).await.refused(409);
    let mut stale = claim("two");
    stale["metadata"] = json!({"resourceVersion": "1"});
    world.apply(&path, "two&force=true", &stale).await.refused(409);
    // Renewing is a strategic patch by the same manager.
    let renew = json!({"spec": {"renewTime": "2026-01-01T00:00:05.123456Z"}});
    let now = world.patch(STRATEGIC, &format!("{path}?fieldManager=one"), &renew).await.is(200);
    assert_ne!(version(&now), version(&made));
    assert_eq!(now["spec"]["renewTime"], "2026-01-01T00:00:05.123456Z");
    assert_eq!(now["spec"]["holderIdentity"], "one");
    world.apply(&path, "two", &claim("two")).await.refused(409);
    // Released, the lease is free.
    let release = json!({"spec": {"holderIdentity": null, "acquireTime": null, "renewTime": null,
        "leaseDurationSeconds": null, "leaseTransitions": null}});
    world.patch(STRATEGIC, &format!("{path}?fieldManager=one"), &release).await.is(200);
    let now = world.apply(&path, "two", &claim("two")).await.is(200);
    assert_eq!(now["spec"]["holderIdentity"], "two");
}

#[tokio::test]
async fn built_in_lists_have_the_keys_of_their_types() {
    let world = World::new().await;
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let config = |containers: Value, ports: Value| {
        json!({"apiVersion": "apps/v1",
        "kind": "Deployment", "metadata": {"labels": {"l": "1"}, "finalizers": ["x.io/a"]},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
            {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, "hostAliases": ports}}}})
    };
    let one = json!([{"name": "one", "image": "i:1", "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80}]}]);
    let made = world.apply(path, "first", &config(one, json!([]))).await.is(201);
    let containers = &entry(&made, "first", "Apply", "")["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
        ["f:containers"];
    assert_eq!(
        *containers,
        json!({"k:{\"name\":\"one\"}": {".": {}, "f:name": {}, "f:image": {},
            "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}})
    );
    let two = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"finalizers": ["x.io/b"]},
        "spec": {"template": {"spec": {"containers": [{"name": "two", "image": "i:2"},
            {"name": "one", "env": [{"name": "B", "value": "2"}]}]}}}});
    let now = world.apply(path, "second", &two).await.is(200);
    assert_eq!(now["metadata"]["finalizers"], json!(["x.io/a", "x.io/b"]));
    assert_eq!(now["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);
    let gone = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let now = world.apply(path, "second", &gone).await.is(200);
    assert_eq!(now["metadata"]["finalizers"], json!(["x.io/a"]));
    let containers = now["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1, "{containers:?}");
    assert_eq!(containers[0]["env"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_creator_does_not_own_what_the_server_began_with() {
    let world = World::new().await;
    let collection = "/api/v1/namespaces/default/pods";
    let body =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = world.post(collection, &body).await.is(201);
    assert_eq!(made["status"]["phase"], "Pending");
    let owned = &entry(&made, "tester", "Update", "")["fieldsV1"];
    assert!(owned.get("f:status").is_none(), "{owned}");
    assert!(owned["f:spec"].get("f:restartPolicy").is_some(), "{owned}");
    let status = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}});
    world.apply(&format!("{collection}/p/status"), "kubelet", &status).await.is(200);
    let made = world.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await.is(201);
    let label = json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}});
    assert_eq!(entry(&made, "tester", "Update", "")["fieldsV1"], label);
}
