//! Create and put: which bodies are taken, what must match, what a missing version means.

use http::Method;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn bodies_must_fit_their_path() {
    let world = World::new().await;
    let widget =
        |kind: &str, api: &str| json!({"kind": kind, "apiVersion": api, "metadata": {"name": "a"}});
    for (path, body, code) in [
        (widgets("default"), json!({"metadata": {"name": "a"}}), 400),
        (widgets("default"), json!({"kind": "Widget", "metadata": {"name": "a"}}), 400),
        (widgets("default"), widget("Gadget", "test.io/v1"), 422),
        (widgets("default"), widget("Widget", "other.io/v1"), 400),
        (widgets("default"), json!([]), 400),
        (maps("default"), widget("Secret", "v1"), 400),
        (maps("default"), widget("ConfigMap", "apps/v1"), 400),
        (maps("default"), json!({"metadata": {"name": "a", "namespace": "other"}}), 400),
        (maps("default"), json!({"metadata": {"name": "a"}, "data": {"a": 1}}), 400),
        (maps("default"), json!({"metadata": {"name": "a"}, "data": []}), 400),
        (maps("default"), json!({"metadata": {"name": 5}}), 400),
        (maps("default"), json!({"metadata": []}), 400),
        (widgets("default"), new_widget("a", &json!({"size": "big"})), 422),
    ] {
        let reply = world.post(&path, &body).await;
        assert_eq!(reply.code, code, "{path} {body}: {}", reply.body);
    }
    let reply = world.post(&widgets("default"), &widget("Gadget", "test.io/v1")).await;
    assert_eq!(reply.body["details"]["causes"][0]["field"], "kind");
    let reply = world.post(&widgets("default"), &new_widget("a", &json!({"size": "big"}))).await;
    assert_eq!(reply.body["details"]["causes"][0]["reason"], "FieldValueTypeInvalid");
    for bytes in [&b""[..], b"{", b"nonsense", b"\xff"] {
        let reply =
            world.send(Method::POST, &maps("default"), "application/json", bytes.to_vec()).await;
        reply.refused(400);
    }
    let missing = world.post(&maps("nowhere"), &json!({"metadata": {"name": "a"}})).await.is(404);
    assert_eq!(missing["details"]["kind"], "namespaces");
    assert_eq!(missing["details"]["name"], "nowhere");
}

#[tokio::test]
async fn a_namespace_on_a_cluster_scoped_object_is_ignored() {
    let world = World::new().await;
    let mut sent = json!({"apiVersion": "test.io/v1", "kind": "Tower",
        "metadata": {"name": "a", "namespace": "default"}});
    let made = world.post("/apis/test.io/v1/towers", &sent).await.is(201);
    assert!(made["metadata"].get("namespace").is_none());
    let path = "/apis/test.io/v1/towers/a";
    let mut again = made.clone();
    again["metadata"]["namespace"] = "default".into();
    assert_eq!(world.put(path, &again).await.is(200), made);
    let change = json!({"metadata": {"namespace": "default"}});
    assert_eq!(world.merge(path, &change).await.is(200), made);
    sent["spec"] = json!({"size": 3});
    let now = world.apply(path, "me", &sent).await.is(200);
    assert!(now["metadata"].get("namespace").is_none());
    assert_eq!(now["spec"]["size"], 3);
}

struct Case {
    collection: String,
    body: Value,
    /// A put without a version is refused.
    strict: bool,
    creates: bool,
}

fn cases() -> Vec<Case> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"rules": []});
    let binding = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "view"}});
    let event = json!({"involvedObject": {"namespace": "default"}});
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let core = |plural: &str| format!("/api/v1/namespaces/default/{plural}");
    [
        (widgets("default"), json!({"apiVersion": "test.io/v1", "kind": "Widget"}), true, false),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
            json!({}),
            true,
            true,
        ),
        (core("configmaps"), json!({}), false, false),
        (core("secrets"), json!({}), false, false),
        (core("serviceaccounts"), json!({}), false, false),
        (core("persistentvolumeclaims"), claim, false, false),
        (core("events"), event, false, true),
        ("/api/v1/namespaces".to_owned(), json!({}), false, false),
        (format!("{rbac}/clusterroles"), role.clone(), false, true),
        (format!("{rbac}/namespaces/default/roles"), role, false, true),
        (format!("{rbac}/clusterrolebindings"), binding.clone(), false, true),
        (format!("{rbac}/namespaces/default/rolebindings"), binding, false, true),
    ]
    .into_iter()
    .map(|(collection, body, strict, creates)| Case { collection, body, strict, creates })
    .collect()
}

#[tokio::test]
async fn a_put_without_a_version_overwrites_or_is_refused_by_type() {
    let world = World::new().await;
    for Case { collection, body, strict, creates } in cases() {
        let path = format!("{collection}/thing");
        let mut body = body;
        body["metadata"] = json!({"name": "thing"});
        let reply = world.put(&path, &body).await;
        assert_eq!(reply.code, if creates { 201 } else { 404 }, "{path}: {}", reply.body);
        if !creates {
            world.post(&collection, &body).await.is(201);
        }
        let made = world.get(&path).await.is(200);
        body["metadata"]["labels"] = json!({"a": "b"});
        let reply = world.put(&path, &body).await;
        if strict {
            let refused = reply.is(422);
            assert_eq!(refused["details"]["causes"][0]["field"], "metadata.resourceVersion");
            assert!(
                refused["message"].as_str().unwrap().contains("must be specified for an update")
            );
        } else {
            let now = reply.is(200);
            assert_eq!(now["metadata"]["uid"], made["metadata"]["uid"]);
            assert_eq!(now["metadata"]["labels"]["a"], "b");
        }
        // A stale version is a conflict and leaves no trace.
        let before = world.get(&path).await.is(200);
        body["metadata"]["labels"] = json!({"c": "d"});
        body["metadata"]["resourceVersion"] = "1".into();
        let refused = world.put(&path, &body).await.is(409);
        assert_eq!(refused["reason"], "Conflict");
        assert!(refused["message"].as_str().unwrap().contains("the object has been modified"));
        assert_eq!(world.get(&path).await.is(200), before);
        body["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        let now = world.put(&path, &body).await.is(200);
        assert_ne!(version(&now), version(&before));
        assert_eq!(now["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(now["metadata"]["creationTimestamp"], before["metadata"]["creationTimestamp"]);
    }
}

#[tokio::test]
async fn a_put_that_names_the_uid_of_a_gone_object_does_not_bring_it_back() {
    let world = World::new().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    for (collection, body) in [
        (leases.to_owned(), json!({"metadata": {"name": "a"}})),
        (maps("default"), json!({"metadata": {"name": "a"}})),
    ] {
        let made = world.post(&collection, &body).await.is(201);
        let path = format!("{collection}/a");
        world.delete(&path, &Value::Null).await.is(200);
        world.put(&path, &made).await.refused(409);
        world.get(&path).await.is(404);
    }
}

#[tokio::test]
async fn the_status_endpoint_writes_the_status_and_nothing_else() {
    let world = World::new().await;
    let path = widget("default", "a");
    let part = format!("{path}/status");
    let mut sent = new_widget("a", &json!({"size": 1}));
    sent["status"] = json!({"phase": "smuggled"});
    let made = world.post(&widgets("default"), &sent).await.is(201);
    assert!(made.get("status").is_none());
    let mut body = made.clone();
    body["status"] = json!({"phase": "x"});
    body["spec"]["size"] = 7.into();
    body["metadata"]["labels"] = json!({"a": "b"});
    body["metadata"]["finalizers"] = json!(["x.io/f"]);
    let now = world.put(&part, &body).await.is(200);
    assert_eq!(now["status"]["phase"], "x");
    assert_eq!(now["spec"]["size"], 1);
    assert!(now["metadata"].get("labels").is_none() && now["metadata"].get("finalizers").is_none());
    assert_eq!(generation(&now), 1);
    assert_eq!(
        entry(&now, "tester", "Update", "status")["fieldsV1"],
        json!({"f:status": {".": {}, "f:phase": {}}})
    );
    // The same again is no write, through any door.
    for reply in [
        world.put(&part, &now).await,
        world.merge(&part, &json!({"status": {"phase": "x"}})).await,
        world
            .patch(JSON, &part, &json!([{"op": "replace", "path": "/status/phase", "value": "x"}]))
            .await,
        world.merge(&path, &json!({"status": {"phase": "z"}})).await,
        world.merge(&part, &json!({"metadata": {"labels": {"a": "b"}}})).await,
    ] {
        assert_eq!(reply.is(200), now);
    }
    let mut stale = body.clone();
    stale["status"]["phase"] = "y".into();
    world.put(&part, &stale).await.refused(409);
    stale["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    world.put(&part, &stale).await.refused(422);
    world.post(&part, &stale).await.refused(405);
    world.delete(&part, &Value::Null).await.refused(405);
    world.get(&format!("{path}/nothing")).await.is(404);
    world.merge("/apis/test.io/v1/namespaces/default/gadgets/a/status", &json!({})).await.is(404);
}

#[tokio::test]
async fn a_dry_run_answers_as_if_and_stores_nothing() {
    let world = World::new().await;
    let path = map("default", "a");
    let sent = json!({"metadata": {"name": "a"}, "data": {"a": "b"}});
    let dry = world.post(&format!("{}?dryRun=All", maps("default")), &sent).await.is(201);
    assert_eq!(dry["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(dry["metadata"].get("resourceVersion").is_none(), "{dry}");
    world.get(&path).await.is(404);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}});
    let dry = world.apply(&path, "me&dryRun=All", &applied).await.is(201);
    assert!(dry["metadata"].get("resourceVersion").is_none(), "{dry}");
    world.get(&path).await.is(404);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    world.put(&format!("{lease}?dryRun=All"), &json!({"metadata": {"name": "a"}})).await.is(201);
    world.get(lease).await.is(404);

    let made = world.post(&maps("default"), &sent).await.is(201);
    world.post(&format!("{}?dryRun=All", maps("default")), &sent).await.refused(409);
    let dry = format!("{path}?dryRun=All");
    let mut changed = made.clone();
    changed["data"]["a"] = "c".into();
    let change = json!({"data": {"a": "c"}});
    for reply in [
        world.put(&dry, &changed).await,
        world.merge(&dry, &change).await,
        world.patch(STRATEGIC, &dry, &change).await,
        world.patch(JSON, &dry, &json!([{"op": "replace", "path": "/data/a", "value": "c"}])).await,
        world
            .apply(
                &path,
                "me&force=true&dryRun=All",
                &json!({"apiVersion": "v1",
            "kind": "ConfigMap", "data": {"a": "c"}}),
            )
            .await,
    ] {
        assert_eq!(reply.is(200)["data"]["a"], "c");
        assert_eq!(world.get(&path).await.is(200), made);
    }
    world.merge(&dry, &json!({"metadata": {"labels": {"a": "b c"}}})).await.refused(422);
    for reply in [
        world.delete(&dry, &Value::Null).await,
        world.delete(&path, &json!({"dryRun": ["All"]})).await,
        world.delete(&dry, &json!({"propagationPolicy": "Foreground"})).await,
        world.delete(&format!("{}?dryRun=All", maps("default")), &Value::Null).await,
    ] {
        reply.is(200);
        assert_eq!(world.get(&path).await.is(200), made);
    }
    for (method, path) in [
        (Method::POST, format!("{}?dryRun=Some", maps("default"))),
        (Method::PUT, format!("{path}?dryRun=")),
        (Method::DELETE, format!("{path}?dryRun=all")),
    ] {
        let body = if method == Method::DELETE { Vec::new() } else { made.to_string().into() };
        let kind = match method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            _ => "DeleteOptions",
        };
        let refused = world.send(method, &path, "application/json", body).await.is(422);
        assert_eq!(refused["details"]["kind"], kind, "{refused}");
    }
    world.delete(&path, &json!({"dryRun": ["Some"]})).await.refused(422);
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_refused_warned_about_or_ignored() {
    let world = World::new().await;
    let text = r#"{"apiVersion":"test.io/v1","kind":"Widget","metadata":{"name":"NAME","odd":1},
        "spec":{"size":1,"size":2,"zz":1,"ports":[{"port":1,"zz":2}]}}"#;
    let built_in =
        r#"{"metadata":{"name":"NAME","odd":1},"dta":{"a":"b"},"data":{"a":"b","a":"c"}}"#;
    let post = |path: String, text: &'static str, name: &'static str| {
        let world = &world;
        async move {
            let body = text.replace("NAME", name).into_bytes();
            world.send(Method::POST, &path, "application/json", body).await
        }
    };
    for (path, text, unknown) in [
        (widgets("default"), text, ["metadata.odd", "spec.zz", "spec.ports[0].zz", "spec.size"]),
        (maps("default"), built_in, ["metadata.odd", "dta", "data.a", ""]),
    ] {
        let strict = post(format!("{path}?fieldValidation=Strict"), text, "a").await.refused(400);
        assert!(strict.contains("strict decoding error: "), "{strict}");
        for field in unknown.into_iter().filter(|field| !field.is_empty()) {
            assert!(strict.contains(&format!("field \"{field}\"")), "{field}: {strict}");
        }
        let warned = post(path.clone(), text, "b").await;
        assert_eq!(
            warned.warnings.len(),
            unknown.iter().filter(|one| !one.is_empty()).count(),
            "{:?}",
            warned.warnings
        );
        let body = warned.is(201);
        assert!(body["metadata"].get("odd").is_none() && body.get("dta").is_none());
        assert!(body["spec"].get("zz").is_none());
        let ignored = post(format!("{path}?fieldValidation=Ignore"), text, "c").await;
        assert!(ignored.warnings.is_empty());
        ignored.is(201);
        post(format!("{path}?fieldValidation=strict"), text, "d").await.refused(422);
        post(format!("{path}?fieldValidation="), text, "d").await.is(201);
    }
    let yaml =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndta: {}\ndata:\n  a: b\n  a: c\n";
    let path = format!("{}?fieldValidation=Strict", maps("default"));
    let reply = world.send(Method::POST, &path, "application/yaml", yaml.into()).await;
    let message = reply.refused(400);
    assert!(message.contains("dta") && message.contains("data.a"), "{message}");
    world.send(Method::POST, &maps("default"), "application/yaml", yaml.into()).await.is(201);
}

#[tokio::test]
async fn patches_are_checked_for_unknown_and_duplicate_fields_too() {
    let world = World::new().await;
    let path = widget("default", "a");
    world.post(&widgets("default"), &new_widget("a", &json!({}))).await.is(201);
    world.post(&maps("default"), &json!({"metadata": {"name": "a"}})).await.is(201);
    let map = map("default", "a");
    for (form, path, text, unknown) in [
        (MERGE, &path, r#"{"spec":{"zz":1,"size":2}}"#, "spec.zz"),
        (MERGE, &path, r#"{"spec":{"size":2,"size":3}}"#, "spec.size"),
        (JSON, &path, r#"[{"op":"add","path":"/spec/zz","value":1}]"#, "spec.zz"),
        (MERGE, &map, r#"{"dta":{"a":"b"}}"#, "dta"),
        (STRATEGIC, &map, r#"{"dta":{"a":"b"}}"#, "dta"),
        (STRATEGIC, &map, r#"{"data":{"a":"b","a":"c"}}"#, "data.a"),
    ] {
        let send = |query: &str| {
            let (world, path) = (&world, format!("{path}?{query}"));
            async move { world.send(Method::PATCH, &path, form, text.into()).await }
        };
        let message = send("fieldValidation=Strict").await.refused(400);
        assert!(
            message.contains("strict decoding error") && message.contains(unknown),
            "{message}"
        );
        let warned = send("").await;
        assert_eq!(warned.warnings.len(), 1, "{text}: {warned:?}");
        warned.is(200);
        assert!(send("fieldValidation=Ignore").await.warnings.is_empty());
        send("fieldValidation=Odd").await.refused(422);
    }
    for (path, body) in [
        (&path, r#"{"apiVersion":"test.io/v1","kind":"Widget","spec":{"zz":1}}"#),
        (&map, r#"{"apiVersion":"v1","kind":"ConfigMap","dta":{"a":"b"}}"#),
    ] {
        let strict = format!("{path}?fieldManager=m&fieldValidation=Strict");
        world.send(Method::PATCH, &strict, APPLY, body.into()).await.refused(400);
        let warned =
            world.send(Method::PATCH, &format!("{path}?fieldManager=m"), APPLY, body.into()).await;
        assert_eq!(warned.warnings.len(), 1);
    }
}
