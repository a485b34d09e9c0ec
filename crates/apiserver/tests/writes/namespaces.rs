//! Namespaces: what is there from the start, and how one goes.

use http::Method;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn some_exist_from_the_start_and_some_of_them_stay() {
    let world = World::new().await;
    for (name, protected) in [
        ("default", true),
        ("kube-system", true),
        ("kube-public", true),
        ("kube-node-lease", false),
    ] {
        let path = format!("/api/v1/namespaces/{name}");
        let found = world.get(&path).await.is(200);
        assert_eq!(found["status"]["phase"], "Active");
        assert_eq!(found["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(found["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
        world.until(&format!("{path}/serviceaccounts/default"), |reply| reply.code == 200).await;
        if protected {
            let text = world.delete(&path, &Value::Null).await.refused(403);
            assert!(text.contains("this namespace may not be deleted"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_contents_and_then_goes() {
    let world = World::new().await;
    world.namespace("n").await;
    let path = "/api/v1/namespaces/n";
    world.until(&format!("{path}/serviceaccounts/default"), |reply| reply.code == 200).await;
    world.post(&maps("n"), &json!({"metadata": {"name": "a"}})).await.is(201);
    world.post(&widgets("n"), &new_widget("w", &json!({}))).await.is(201);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "node",
        "containers": [{"name": "c", "image": "i"}]}});
    world.post(&format!("{path}/pods"), &pod).await.is(201);
    let held = json!({"metadata": {"name": "held", "finalizers": ["x.io/f"]}});
    world.post(&maps("n"), &held).await.is(201);
    let going = world.delete(path, &json!({"propagationPolicy": "Background"})).await.is(200);
    assert_eq!(going["kind"], "Namespace");
    assert_eq!(going["status"]["phase"], "Terminating");
    assert!(going["metadata"].get("deletionTimestamp").is_some());
    world.until_gone(&map("n", "a")).await;
    world.until_gone(&widget("n", "w")).await;
    world.until_gone(&format!("{path}/pods/p")).await;
    let refused = world.post(&maps("n"), &json!({"metadata": {"name": "late"}})).await.is(403);
    assert_eq!(refused["reason"], "Forbidden");
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["reason"], "NamespaceTerminating");
    assert_eq!(cause["field"], "metadata.namespace");
    assert!(
        refused["message"].as_str().unwrap().ends_with(
            "unable to create new content in namespace n because it is being terminated"
        )
    );
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    world.apply(&map("n", "late"), "m", &applied).await.refused(403);
    let done = |reply: &Reply| reply.body["status"]["conditions"].as_array().is_some();
    let waiting = world.until(path, done).await.is(200);
    for (kind, status) in [
        ("NamespaceDeletionDiscoveryFailure", "False"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False"),
        ("NamespaceDeletionContentFailure", "False"),
        ("NamespaceContentRemaining", "True"),
        ("NamespaceFinalizersRemaining", "True"),
    ] {
        let all = waiting["status"]["conditions"].as_array().unwrap();
        let one = all.iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null);
        assert_eq!(one["status"], status, "{kind}: {waiting}");
        for member in ["reason", "message", "lastTransitionTime"] {
            assert!(one[member].is_string(), "{kind} {member}: {one}");
        }
    }
    // What is left may still be written and let go.
    world.merge(&map("n", "held"), &json!({"metadata": {"finalizers": null}})).await.is(200);
    world.until_gone(path).await;
    world.get(&map("n", "held")).await.is(404);
    // The name is free again, and empty.
    world.namespace("n").await;
    let list = world.get(&maps("n")).await.is(200);
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn the_spec_finalizers_change_only_through_their_own_door() {
    let world = World::new().await;
    world.namespace("n").await;
    let path = "/api/v1/namespaces/n";
    let now = world.merge(path, &json!({"spec": {"finalizers": ["x.io/f"]}})).await.is(200);
    assert_eq!(now["spec"]["finalizers"], json!(["kubernetes"]));
    let mut body = now.clone();
    body["spec"]["finalizers"] = json!(["kubernetes", "x.io/f"]);
    body["status"]["phase"] = "Odd".into();
    let now = world.put(&format!("{path}/finalize"), &body).await.is(200);
    assert_eq!(now["spec"]["finalizers"], json!(["kubernetes", "x.io/f"]));
    assert_eq!(now["status"]["phase"], "Active");
    world.delete(path, &Value::Null).await.is(200);
    let left = |reply: &Reply| reply.body["spec"]["finalizers"] == json!(["x.io/f"]);
    let mut last = world.until(path, left).await.is(200);
    last["spec"]["finalizers"] = json!([]);
    world.put(&format!("{path}/finalize"), &last).await.is(200);
    world.until_gone(path).await;
    // One without any goes at once.
    world.namespace("m").await;
    let mut body = world.get("/api/v1/namespaces/m").await.is(200);
    body["spec"] = json!({});
    world.put("/api/v1/namespaces/m/finalize", &body).await.is(200);
    world.delete("/api/v1/namespaces/m", &Value::Null).await.is(200);
    world.until_gone("/api/v1/namespaces/m").await;
}

#[tokio::test]
async fn the_label_with_the_name_cannot_be_taken_off() {
    let world = World::new().await;
    world.namespace("n").await;
    let path = "/api/v1/namespaces/n";
    let change = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": null, "a": "b"}}});
    let now = world.merge(path, &change).await.is(200);
    assert_eq!(now["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n", "a": "b"}));
    let status = json!({"status": {"phase": "Odd"}});
    let now = world.merge(path, &status).await.is(200);
    assert_eq!(now["status"]["phase"], "Active");
}

#[tokio::test]
async fn the_default_account_comes_back() {
    let world = World::new().await;
    world.namespace("n").await;
    let path = "/api/v1/namespaces/n/serviceaccounts/default";
    let first = world.until(path, |reply| reply.code == 200).await.is(200);
    world.send(Method::DELETE, path, "application/json", Vec::new()).await.is(200);
    let uid = first["metadata"]["uid"].clone();
    world.until(path, move |reply| reply.code == 200 && reply.body["metadata"]["uid"] != uid).await;
}

/// What stayed would be the next owner's, rights included.
#[tokio::test]
async fn a_namespace_is_not_let_go_with_what_it_holds() {
    let world = World::new().await;
    world.namespace("n").await;
    let path = "/api/v1/namespaces/n";
    let held = json!({"metadata": {"name": "held", "finalizers": ["x.io/f"]}});
    world.post(&maps("n"), &held).await.is(201);
    world.delete(path, &Value::Null).await.is(200);
    let mut body = world.get(path).await.is(200);
    body["spec"]["finalizers"] = json!([]);
    body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let text = world.put(&format!("{path}/finalize"), &body).await.refused(409);
    assert!(text.contains("the namespace still has"), "{text}");
    world.get(path).await.is(200);
    world.get(&map("n", "held")).await.is(200);
    // Others of its finalizers may come and go meanwhile.
    body["spec"]["finalizers"] = json!(["kubernetes", "x.io/g"]);
    world.put(&format!("{path}/finalize"), &body).await.is(200);
    body["spec"]["finalizers"] = json!(["kubernetes"]);
    world.put(&format!("{path}/finalize"), &body).await.is(200);
    world.merge(&map("n", "held"), &json!({"metadata": {"finalizers": null}})).await.is(200);
    world.until_gone(path).await;
}
