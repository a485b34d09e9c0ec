//! Patches of every form, with the deviations real clients rely on.

use http::Method;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn forms_are_told_apart_by_content_type() {
    let world = World::new().await;
    world.post(&widgets("default"), &new_widget("a", &json!({}))).await.is(201);
    world.post(&maps("default"), &json!({"metadata": {"name": "a"}})).await.is(201);
    let (custom, built_in) = (widget("default", "a"), map("default", "a"));
    let text = world.patch(STRATEGIC, &custom, &json!({})).await.refused(415);
    for form in [MERGE, JSON, APPLY] {
        assert!(text.contains(form), "{text}");
    }
    world.patch("application/json", &custom, &json!({})).await.refused(415);
    world.patch("application/json", &built_in, &json!({})).await.refused(415);
    world.patch(STRATEGIC, &built_in, &json!({})).await.is(200);
    world.patch(&format!("{MERGE}; charset=utf-8"), &built_in, &json!({})).await.is(200);
    for form in [MERGE, STRATEGIC] {
        world.patch(form, &map("default", "none"), &json!({})).await.refused(404);
        world.patch(form, &built_in, &json!([])).await.refused(400);
        world.send(Method::PATCH, &built_in, form, b"{".to_vec()).await.refused(400);
        world.patch(form, &format!("{built_in}?force=true"), &json!({})).await.refused(422);
        world.patch(form, &format!("{built_in}?force=false"), &json!({})).await.refused(422);
    }
    world.patch(JSON, &map("default", "none"), &json!([])).await.refused(404);
    world.patch(JSON, &built_in, &json!({})).await.refused(400);
    world.patch(JSON, &format!("{built_in}?force=true"), &json!([])).await.refused(422);
}

#[tokio::test]
async fn a_patch_with_a_version_is_compared_also_when_it_changes_nothing() {
    let world = World::new().await;
    let made =
        world.post(&maps("default"), &json!({"metadata": {"name": "a"}, "data": {"a": "b"}})).await;
    let made = made.is(201);
    let path = map("default", "a");
    for form in [MERGE, STRATEGIC] {
        let stale = json!({"metadata": {"resourceVersion": "1"}});
        let body = world.patch(form, &path, &stale).await.is(409);
        assert_eq!(body["reason"], "Conflict");
        assert_eq!(body["details"]["kind"], "configmaps");
        let right = json!({"metadata": {"resourceVersion": version(&made)}});
        assert_eq!(world.patch(form, &path, &right).await.is(200), made);
        let none = json!({"metadata": {"resourceVersion": null}});
        assert_eq!(world.patch(form, &path, &none).await.is(200), made);
    }
    let stale = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]);
    world.patch(JSON, &path, &stale).await.refused(409);
}

#[tokio::test]
async fn json_patches_deviate_where_clients_need_it() {
    let world = World::new().await;
    let path = widget("default", "a");
    let spec = json!({"size": 1, "flat": ["a", "b", "c"], "options": {"a/b": "1", "m~n": "2"}});
    for (patch, code) in [
        (json!([{"op": "test", "path": "/metadata/finalizers", "value": null}]), 200),
        (json!([{"op": "test", "path": "/metadata/finalizers"}]), 200),
        (json!([{"op": "test", "path": "/spec/size", "value": null}]), 422),
        (json!([{"op": "test", "path": "/nothing/here", "value": null}]), 422),
        (json!([{"op": "test", "path": "/spec/size", "value": 2}]), 422),
        (json!([{"op": "test", "path": "/spec/size", "value": 1}]), 200),
        (json!([{"op": "test", "path": "/spec/options/a~1b", "value": "1"}]), 200),
        (json!([{"op": "test", "path": "/spec/options/m~0n", "value": "2"}]), 200),
        (json!([{"op": "replace", "path": "/spec/color", "value": "red"}]), 200),
        (json!([{"op": "replace", "path": "/nothing/here", "value": "red"}]), 422),
        (json!([{"op": "test", "path": "/spec/flat/-1", "value": "c"}]), 200),
        (json!([{"op": "remove", "path": "/spec/flat/-1"}]), 200),
        (json!([{"op": "add", "path": "/spec/flat/-", "value": "z"}]), 200),
        (json!([{"op": "add", "path": "/spec/flat/9", "value": "z"}]), 422),
        (json!([{"op": "remove", "path": "/spec/nothing"}]), 422),
        (json!([{"op": "move", "from": "/spec/flat/0", "path": "/spec/flat/1"}]), 200),
        (json!([{"op": "copy", "from": "/spec/flat/0", "path": "/spec/color"}]), 200),
        (json!([{"op": "dance", "path": "/spec"}]), 422),
        (json!([]), 200),
        (json!({"op": "add"}), 400),
        (json!([{"op": "replace", "path": "/spec/size", "value": "big"}]), 422),
        (json!([{"op": "replace", "path": "/kind", "value": "Gadget"}]), 422),
    ] {
        world.post(&widgets("default"), &new_widget("a", &spec)).await.is(201);
        let reply = world.patch(JSON, &path, &patch).await;
        assert_eq!(reply.code, code, "{patch}: {}", reply.body);
        if code == 422 {
            assert_eq!(reply.body["reason"], "Invalid", "{}", reply.body);
        }
        world.delete(&path, &Value::Null).await.is(200);
    }
    let many: Vec<Value> =
        (0..10_001).map(|_| json!({"op": "test", "path": "/kind", "value": "Widget"})).collect();
    world.post(&widgets("default"), &new_widget("a", &spec)).await.is(201);
    world.patch(JSON, &path, &json!(many)).await.refused(413);
}

#[tokio::test]
async fn merge_patches_remove_with_null_and_replace_lists() {
    let world = World::new().await;
    let spec = json!({"flat": ["a", "b"], "options": {"a": "1", "b": "2"}, "size": 9});
    world.post(&widgets("default"), &new_widget("a", &spec)).await.is(201);
    let change = json!({"spec": {"flat": ["c"], "options": {"a": null, "c": "3"}, "size": null,
        "color": null}});
    let now = world.merge(&widget("default", "a"), &change).await.is(200);
    // The default comes back for what was removed.
    let want = json!({"flat": ["c"], "options": {"b": "2", "c": "3"}, "size": 1});
    assert_eq!(now["spec"], want);
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c", "image": "i:1"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|one| one[key].to_string().replace('"', "")).collect()
}

#[tokio::test]
async fn strategic_patches_merge_the_lists_of_pods_by_key() {
    let world = World::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [
            {"name": "one", "image": "i:1", "env": [{"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80}], "args": ["x", "y"],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"name": "two", "image": "i:1"}],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}, {"name": "w", "emptyDir": {}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "p"}],
        "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a"]}]}});
    let body = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    world.post("/apis/apps/v1/namespaces/default/deployments", &body).await.is(201);
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let change = |spec: Value| {
        let world = &world;
        async move {
            let body = json!({"spec": {"template": {"spec": spec}}});
            let now = world.patch(STRATEGIC, path, &body).await.is(200);
            now["spec"]["template"]["spec"].clone()
        }
    };
    let now = change(json!({"containers": [{"name": "two", "image": "i:2"}]})).await;
    assert_eq!(now["containers"][1]["image"], "i:2");
    assert_eq!(now["containers"][0]["image"], "i:1");
    let now = change(json!({"containers": [{"name": "one", "env": [{"name": "B", "value": "2"}],
        "ports": [{"containerPort": 81}], "args": ["z"],
        "volumeMounts": [{"name": "w", "mountPath": "/w"}]}]}))
    .await;
    let one = &now["containers"][0];
    assert_eq!(names(&one["env"], "name"), ["B", "A"]);
    assert_eq!(names(&one["ports"], "containerPort"), ["81", "80"]);
    assert_eq!(names(&one["volumeMounts"], "mountPath"), ["/w", "/v"]);
    assert_eq!(one["args"], json!(["z"]));
    // Directives.
    let now = change(json!({"containers": [{"name": "two", "$patch": "delete"}]})).await;
    assert_eq!(names(&now["containers"], "name"), ["one"]);
    let now = change(json!({"$setElementOrder/containers": [{"name": "zero"}, {"name": "one"}],
        "containers": [{"name": "zero", "image": "i:0"}]}))
    .await;
    assert_eq!(names(&now["containers"], "name"), ["zero", "one"]);
    let now = change(json!({"volumes": [{"name": "v", "$retainKeys": ["name", "secret"],
        "secret": {"secretName": "s"}}]}))
    .await;
    assert_eq!(names(&now["volumes"], "name"), ["v", "w"]);
    assert!(now["volumes"][0].get("configMap").is_none());
    assert_eq!(now["volumes"][0]["secret"]["secretName"], "s");
    let now = change(json!({"tolerations": [{"key": "b", "operator": "Exists"}]})).await;
    assert_eq!(names(&now["tolerations"], "key"), ["b"]);
    let now = change(json!({"imagePullSecrets": [{"name": "q"}],
        "hostAliases": [{"ip": "2.2.2.2", "hostnames": ["b"]}]}))
    .await;
    assert_eq!(names(&now["imagePullSecrets"], "name"), ["q", "p"]);
    assert_eq!(names(&now["hostAliases"], "ip"), ["2.2.2.2", "1.1.1.1"]);
    let now = change(json!({"containers": [{"$patch": "replace"}, {"name": "x", "image": "i:9"}],
        "volumes": null}))
    .await;
    assert_eq!(names(&now["containers"], "name"), ["x"]);
    assert!(now.get("volumes").is_none());
    let refused = json!({"spec": {"template": {"spec": {"containers": [{"image": "i"}]}}}});
    assert!(world.patch(STRATEGIC, path, &refused).await.code >= 400);
    let odd = json!({"spec": {"template": {"spec": {"$patch": "sideways"}}}});
    assert!(world.patch(STRATEGIC, path, &odd).await.code >= 400);
}

#[tokio::test]
async fn strategic_patches_know_the_lists_of_metadata_and_status() {
    let world = World::new().await;
    let path = "/api/v1/namespaces/default/pods/p";
    world.post("/api/v1/namespaces/default/pods", &pod("p", &json!({}))).await.is(201);
    let smp = |path: String, body: Value| {
        let world = &world;
        async move { world.patch(STRATEGIC, &path, &body).await.is(200) }
    };
    let add = |name: &str| json!({"metadata": {"finalizers": [name]}});
    smp(path.to_owned(), add("x.io/a")).await;
    let now = smp(path.to_owned(), add("x.io/b")).await;
    assert_eq!(now["metadata"]["finalizers"], json!(["x.io/b", "x.io/a"]));
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}});
    let now = smp(path.to_owned(), body).await;
    assert_eq!(now["metadata"]["finalizers"], json!(["x.io/b"]));
    let condition = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    let part = format!("{path}/status");
    smp(part.clone(), condition("Ready", "False")).await;
    smp(part.clone(), condition("Other", "True")).await;
    let now = smp(part.clone(), condition("Ready", "True")).await;
    assert_eq!(names(&now["status"]["conditions"], "type"), ["Other", "Ready"]);
    assert_eq!(now["status"]["conditions"][0]["status"], "True");
    // Garbage collectors remove references like this.
    let owners = [1, 2].map(|n| {
        json!({"apiVersion": "x.io/v1", "kind": "Odd", "name": "o",
        "uid": format!("u{n}")})
    });
    smp(path.to_owned(), json!({"metadata": {"ownerReferences": owners}})).await;
    let body = json!({"metadata": {"uid": now["metadata"]["uid"],
        "ownerReferences": [{"$patch": "delete", "uid": "u1"}]}});
    let now = smp(path.to_owned(), body).await;
    assert_eq!(names(&now["metadata"]["ownerReferences"], "uid"), ["u2"]);

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let body = json!({"metadata": {"name": "s"}, "secrets": [{"name": "a"}],
        "imagePullSecrets": [{"name": "a"}]});
    world.post(accounts, &body).await.is(201);
    let body = json!({"secrets": [{"name": "b"}], "imagePullSecrets": [{"name": "b"}]});
    let now = smp(format!("{accounts}/s"), body).await;
    assert_eq!(names(&now["secrets"], "name"), ["b", "a"]);
    assert_eq!(names(&now["imagePullSecrets"], "name"), ["b"]);
}

#[tokio::test]
async fn concurrent_patches_all_happen() {
    let world = World::new().await;
    world.post(&maps("default"), &json!({"metadata": {"name": "a"}})).await.is(201);
    let path = map("default", "a");
    let patches = (0..20).map(|n| {
        let (client, path) = (world.client.clone(), path.clone());
        async move { client.merge(&path, &json!({"data": {format!("k{n}"): "v"}})).await.is(200) }
    });
    futures::future::join_all(patches).await;
    let now = world.get(&path).await.is(200);
    assert_eq!(now["data"].as_object().unwrap().len(), 20);
}
