//! The life of `metadata`: what the server sets, what clients may, when versions and generations move.

use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn the_server_sets_its_members_whatever_a_create_says() {
    let world = World::new().await;
    let sent = json!({"metadata": {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5,
        "generation": 7, "selfLink": "/x"}});
    for (path, kind) in [(maps("default"), "ConfigMap"), (widgets("default"), "Widget")] {
        let mut sent = sent.clone();
        sent["kind"] = kind.into();
        sent["apiVersion"] = if kind == "Widget" { "test.io/v1" } else { "v1" }.into();
        let made = world.post(&path, &sent).await.is(201);
        let metadata = &made["metadata"];
        assert_ne!(metadata["uid"], "mine");
        assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
        let created = metadata["creationTimestamp"].as_str().unwrap();
        assert!(created.len() == 20 && created.ends_with('Z') && !created.starts_with("2001"));
        assert_eq!(metadata["namespace"], "default");
        assert!(metadata.get("deletionTimestamp").is_none(), "{made}");
        assert!(metadata.get("deletionGracePeriodSeconds").is_none());
        assert!(metadata.get("selfLink").is_none());
        let generation = (kind == "Widget").then_some(1);
        assert_eq!(metadata.get("generation").and_then(Value::as_i64), generation);
        assert_eq!(world.get(&format!("{path}/a")).await.is(200), made);
    }
}

#[tokio::test]
async fn a_create_with_a_version_is_refused() {
    let world = World::new().await;
    let sent = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
    assert!(world.post(&maps("default"), &sent).await.code >= 400);
    world.get(&map("default", "a")).await.is(404);
    // Clients of others write 0 for none.
    let sent = json!({"metadata": {"name": "a", "resourceVersion": "0"}});
    world.post(&maps("default"), &sent).await.is(201);
}

#[tokio::test]
async fn names_follow_the_rule_of_their_type() {
    let world = World::new().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned();
    let long = |length: usize| "a".repeat(length);
    for (path, name, code) in [
        (maps("default"), "a.b-c".to_owned(), 201),
        (maps("default"), long(253), 201),
        (maps("default"), long(254), 422),
        (maps("default"), "A".to_owned(), 422),
        (maps("default"), "a_b".to_owned(), 422),
        (maps("default"), String::new(), 422),
        ("/api/v1/namespaces".to_owned(), long(63), 201),
        ("/api/v1/namespaces".to_owned(), long(64), 422),
        ("/api/v1/namespaces".to_owned(), "a.b".to_owned(), 422),
        (rbac.clone(), "system:Some:thing".to_owned(), 201),
        (rbac.clone(), "a/b".to_owned(), 422),
        (rbac.clone(), "a%b".to_owned(), 422),
        (rbac, "..".to_owned(), 422),
    ] {
        let reply = world.post(&path, &json!({"metadata": {"name": name}, "rules": []})).await;
        assert_eq!(reply.code, code, "{path} {name}: {}", reply.body);
    }
}

#[tokio::test]
async fn a_generated_name_is_the_base_and_five_characters() {
    let world = World::new().await;
    let base = "x".repeat(80);
    for base in ["abc-", base.as_str()] {
        let sent = json!({"metadata": {"generateName": base}});
        let made = world.post(&maps("default"), &sent).await.is(201);
        let name = made["metadata"]["name"].as_str().unwrap();
        let kept = &base[..base.len().min(58)];
        let suffix = name.strip_prefix(kept).unwrap();
        assert_eq!(suffix.len(), 5);
        assert!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{name}");
        assert_eq!(made["metadata"]["generateName"], base);
    }
}

#[tokio::test]
async fn labels_annotations_finalizers_and_owners_are_checked_alike_everywhere() {
    let world = World::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a"});
    let boss = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u",
        "controller": true});
    for (metadata, field) in [
        (json!({"labels": {"a": "b c"}}), "metadata.labels"),
        (json!({"labels": {"a": "x".repeat(64)}}), "metadata.labels"),
        (json!({"labels": {"-a": ""}}), "metadata.labels"),
        (json!({"labels": {"A.B/c/d": ""}}), "metadata.labels"),
        (json!({"annotations": {"a b": ""}}), "metadata.annotations"),
        (json!({"annotations": {"a": "x".repeat(262_145)}}), "metadata.annotations"),
        (json!({"ownerReferences": [owner]}), "metadata.ownerReferences[0].uid"),
        (json!({"ownerReferences": [boss, boss]}), "metadata.ownerReferences"),
    ] {
        for (path, kind, api) in
            [(maps("default"), "ConfigMap", "v1"), (widgets("default"), "Widget", "test.io/v1")]
        {
            let mut metadata = metadata.clone();
            metadata["name"] = "a".into();
            let sent = json!({"kind": kind, "apiVersion": api, "metadata": metadata});
            let body = world.post(&path, &sent).await.is(422);
            assert_eq!(body["details"]["causes"][0]["field"], field, "{body}");
            assert_eq!(body["details"]["kind"], kind);
        }
    }
}

#[tokio::test]
async fn an_unqualified_finalizer_is_refused_or_warned_about() {
    let world = World::new().await;
    let metadata = json!({"name": "a", "finalizers": ["mine"]});
    world.post(&maps("default"), &json!({"metadata": metadata})).await.is(422);
    let sent = json!({"apiVersion": "test.io/v1", "kind": "Widget", "metadata": metadata});
    let reply = world.post(&widgets("default"), &sent).await;
    assert_eq!(reply.warnings.len(), 1, "{reply:?}");
    assert!(reply.warnings[0].contains("mine"), "{reply:?}");
    let path = widget("default", "a");
    for (metadata, warnings) in
        [(json!({"labels": {"a": "b"}}), 0), (json!({"finalizers": ["mine", "yours"]}), 1)]
    {
        let reply = world.merge(&path, &json!({"metadata": metadata})).await;
        assert_eq!(reply.warnings.len(), warnings, "{reply:?}");
        let mut body = reply.is(200);
        assert!(world.put(&path, &body).await.warnings.is_empty());
        body["metadata"]["finalizers"] = json!(["mine"]);
        assert!(world.put(&path, &body).await.warnings.is_empty());
    }
    for finalizer in ["orphan", "foregroundDeletion", "kubernetes", "x.io/y"] {
        let name = finalizer.to_lowercase().replace('/', "-");
        let sent = json!({"metadata": {"name": name, "finalizers": [finalizer]}});
        world.post(&maps("default"), &sent).await.is(201);
    }
}

#[tokio::test]
async fn generations_count_what_is_outside_metadata_and_status() {
    let world = World::new().await;
    let gadgets = "/apis/test.io/v1/namespaces/default/gadgets";
    let path = widget("default", "a");
    let made = world.post(&widgets("default"), &new_widget("a", &json!({}))).await.is(201);
    assert_eq!(generation(&made), 1);
    for (change, expected) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (json!({"spec": {"size": 2}}), 2),
        (json!({"spec": {"size": 2}}), 2),
        (json!({"status": {"phase": "x"}}), 2),
        (json!({"metadata": {"generation": 9}}), 2),
        (json!({"spec": null}), 3),
    ] {
        let now = world.merge(&path, &change).await.is(200);
        assert_eq!(generation(&now), expected, "{change}");
    }
    let status = world.merge(&format!("{path}/status"), &json!({"status": {"phase": "y"}})).await;
    assert_eq!(generation(&status.is(200)), 3);
    // Without a status endpoint the status is contents like any other.
    let sent = json!({"apiVersion": "test.io/v1", "kind": "Gadget", "metadata": {"name": "a"},
        "status": {"phase": "x"}});
    let made = world.post(gadgets, &sent).await.is(201);
    assert_eq!(made["status"]["phase"], "x");
    let now =
        world.merge(&format!("{gadgets}/a"), &json!({"status": {"phase": "y"}})).await.is(200);
    assert_eq!(generation(&now), 2);
}

#[tokio::test]
async fn the_first_delete_of_a_held_object_moves_its_generation() {
    let world = World::new().await;
    let mut sent = new_widget("a", &json!({}));
    sent["metadata"]["finalizers"] = json!(["x.io/f"]);
    world.post(&widgets("default"), &sent).await.is(201);
    let path = widget("default", "a");
    let going = world.delete(&path, &Value::Null).await.is(200);
    assert_eq!(generation(&going), 2);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = world.delete(&path, &Value::Null).await.is(200);
    assert_eq!(again, going);
    // Everything else may still change, but no finalizer may join.
    let now = world.merge(&path, &json!({"spec": {"size": 5}})).await.is(200);
    assert_eq!(generation(&now), 3);
    let more = json!({"metadata": {"finalizers": ["x.io/f", "x.io/g"]}});
    let refused = world.merge(&path, &more).await.is(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.finalizers");
    assert_eq!(refused["details"]["causes"][0]["reason"], "FieldValueForbidden");
    let kept = world.merge(&path, &json!({"metadata": {"deletionTimestamp": null}})).await.is(200);
    assert_eq!(kept["metadata"]["deletionTimestamp"], going["metadata"]["deletionTimestamp"]);
    assert_eq!(version(&kept), version(&now));
}

/// Bodies of many types; each has members that the server defaults.
fn samples() -> Vec<(String, Value)> {
    let pod = json!({"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "resources": {"requests": {"cpu": "100m"}}}],
        "volumes": [{"name": "v", "configMap": {"name": "x"}}, {"name": "w", "emptyDir": {}}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let selector = json!({"matchLabels": {"a": "b"}});
    let core = |plural: &str| format!("/api/v1/namespaces/default/{plural}");
    let apps = |plural: &str| format!("/apis/apps/v1/namespaces/default/{plural}");
    let batch = |plural: &str| format!("/apis/batch/v1/namespaces/default/{plural}");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let named = |mut body: Value| {
        body["metadata"] = json!({"name": "sample", "labels": {"x": "y"}});
        body
    };
    vec![
        (core("configmaps"), named(json!({"data": {"a": "b"}, "binaryData": {"c": "aGk="}}))),
        (core("secrets"), named(json!({"stringData": {"a": "b"}}))),
        (core("serviceaccounts"), named(json!({"secrets": [{"name": "s"}]}))),
        (core("pods"), named(json!({"spec": pod}))),
        (
            core("services"),
            named(json!({"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}})),
        ),
        (
            core("persistentvolumeclaims"),
            named(json!({"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})),
        ),
        (
            core("events"),
            named(json!({"involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"},
                "reason": "r", "message": "m", "count": 1,
                "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"})),
        ),
        ("/api/v1/namespaces".to_owned(), named(json!({}))),
        (apps("deployments"), named(json!({"spec": {"selector": selector, "template": template}}))),
        (apps("replicasets"), named(json!({"spec": {"selector": selector, "template": template}}))),
        (
            apps("statefulsets"),
            named(json!({"spec": {"selector": selector, "template": template, "serviceName": "s",
                "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}]}})),
        ),
        (apps("daemonsets"), named(json!({"spec": {"selector": selector, "template": template}}))),
        (
            batch("jobs"),
            // Without a selector of its own, a job gets one that a body without it takes back.
            named(json!({"spec": {"manualSelector": true, "selector": {"matchLabels": {"x": "y"}},
                "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i"}]}}}})),
        ),
        (
            batch("cronjobs"),
            named(json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template":
                {"spec": {"restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i"}]}}}}}})),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
            named(json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z"}})),
        ),
        (
            format!("{rbac}/namespaces/default/roles"),
            named(json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})),
        ),
        (
            format!("{rbac}/namespaces/default/rolebindings"),
            named(
                json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "view"}, "subjects": [{"kind": "User", "name": "u"}]}),
            ),
        ),
        (
            format!("{rbac}/clusterroles"),
            named(json!({"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]})),
        ),
        (
            widgets("default"),
            new_widget("sample", &json!({"ports": [{"port": 1}], "tags": ["a"], "any": {"x": 1}})),
        ),
    ]
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_no_write() {
    let world = World::new().await;
    for (collection, sent) in samples() {
        let path = format!("{collection}/sample");
        let made = world.post(&collection, &sent).await.is(201);
        let custom = collection.contains("test.io");
        // The same body again, without what the server filled in.
        let mut bare = sent.clone();
        bare["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
        for (what, reply) in [
            ("put of the stored object", world.put(&path, &made).await),
            ("put of the original body", world.put(&path, &bare).await),
            ("merge of nothing", world.merge(&path, &json!({})).await),
            ("merge of the original body", world.merge(&path, &sent).await),
            ("merge of the stored object", world.merge(&path, &made).await),
            (
                "json patch",
                world
                    .patch(
                        JSON,
                        &path,
                        &json!([{"op": "test", "path": "/kind",
                "value": made["kind"]}]),
                    )
                    .await,
            ),
            (
                "json replace",
                world
                    .patch(
                        JSON,
                        &path,
                        &json!([{"op": "replace",
                "path": "/metadata/labels", "value": made["metadata"].get("labels")
                    .cloned().unwrap_or_else(|| json!({}))}]),
                    )
                    .await,
            ),
        ] {
            // Services get addresses and pods names of nodes; only those may not be taken back.
            let now = reply.is(200);
            assert_eq!(now, made, "{what} of {collection}");
        }
        if !custom {
            let now = world.patch(STRATEGIC, &path, &sent).await.is(200);
            assert_eq!(now, made, "strategic patch of {collection}");
            let now = world.patch(STRATEGIC, &path, &made).await.is(200);
            assert_eq!(now, made, "strategic patch with the whole object of {collection}");
        }
        let mut applied = sent.clone();
        applied["kind"] = made["kind"].clone();
        applied["apiVersion"] = made["apiVersion"].clone();
        if applied.get("stringData").is_some() {
            applied["data"] = made["data"].clone();
            applied.as_object_mut().unwrap().remove("stringData");
        }
        // Lists that are one value conflict as soon as a default was added to one of their items.
        let first = world.apply(&path, "me&force=true", &applied).await.is(200);
        let again = world.apply(&path, "me", &applied).await.is(200);
        assert_eq!(first, again, "second apply to {collection}");
        assert_eq!(world.get(&path).await.is(200), first);
        let strip = |object: &Value| {
            let mut object = object.clone();
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            object
        };
        assert_eq!(strip(&first), strip(&made), "apply changes only who owns: {collection}");
    }
}

#[tokio::test]
async fn empty_metadata_members_are_absent_ones() {
    let world = World::new().await;
    for (collection, body) in [
        (maps("default"), json!({"apiVersion": "v1", "kind": "ConfigMap"})),
        (widgets("default"), json!({"apiVersion": "test.io/v1", "kind": "Widget"})),
    ] {
        let mut sent = body.clone();
        sent["metadata"] = json!({"name": "a", "labels": {}, "annotations": {}, "finalizers": [],
            "ownerReferences": [], "generateName": "", "managedFields": [], "uid": "",
            "resourceVersion": "", "creationTimestamp": null});
        let made = world.post(&collection, &sent).await.is(201);
        for member in ["labels", "annotations", "finalizers", "ownerReferences", "generateName"] {
            assert!(made["metadata"].get(member).is_none(), "{member}: {made}");
        }
        let path = format!("{collection}/a");
        // kube-rs adds and removes finalizers like this, and expects to be able to do it again.
        for _ in 0..2 {
            let add = json!([{"op": "test", "path": "/metadata/finalizers", "value": null},
                {"op": "add", "path": "/metadata/finalizers", "value": ["x.io/f"]}]);
            world.patch(JSON, &path, &add).await.is(200);
            let remove = json!([
                {"op": "test", "path": "/metadata/finalizers/0", "value": "x.io/f"},
                {"op": "remove", "path": "/metadata/finalizers/0"}]);
            let now = world.patch(JSON, &path, &remove).await.is(200);
            assert!(now["metadata"].get("finalizers").is_none(), "{now}");
        }
    }
    let sent = json!({"metadata": {"name": "b"}, "data": {}, "binaryData": {}});
    let made = world.post(&maps("default"), &sent).await.is(201);
    assert!(made.get("data").is_none(), "{made}");
}

#[tokio::test]
async fn what_identifies_an_object_cannot_be_changed() {
    let world = World::new().await;
    world.namespace("other").await;
    for (collection, body) in [
        (
            maps("default"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        ),
        (widgets("default"), new_widget("a", &json!({}))),
    ] {
        let made = world.post(&collection, &body).await.is(201);
        let path = format!("{collection}/a");
        for (member, value, put, patch) in
            [("name", "b", 400, 400), ("namespace", "other", 400, 400), ("uid", "c0ffee", 409, 422)]
        {
            let mut changed = made.clone();
            changed["metadata"][member] = value.into();
            world.put(&path, &changed).await.refused(put);
            world.merge(&path, &json!({"metadata": {member: value}})).await.refused(patch);
            let replace = json!([{"op": "replace", "path": format!("/metadata/{member}"),
                "value": value}]);
            world.patch(JSON, &path, &replace).await.refused(patch);
        }
        let mut changed = made.clone();
        changed["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
        changed["metadata"]["generation"] = 99.into();
        changed["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
        assert_eq!(world.put(&path, &changed).await.is(200), made);
        assert_eq!(world.get(&path).await.is(200), made);
    }
}

#[tokio::test]
async fn a_get_may_ask_for_a_version_at_least() {
    let world = World::new().await;
    let made = world.post(&maps("default"), &json!({"metadata": {"name": "a"}})).await.is(201);
    let path = map("default", "a");
    for version in ["", "0", "1", version(&made)] {
        let found = world.get(&format!("{path}?resourceVersion={version}")).await.is(200);
        assert_eq!(found, made);
    }
    let late = world.get(&format!("{path}?resourceVersion=999999999")).await.is(504);
    assert_eq!(late["reason"], "Timeout");
    assert_eq!(late["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(late["details"]["retryAfterSeconds"], 1);
    world.get(&format!("{path}?resourceVersion=odd")).await.refused(400);
}

#[tokio::test]
async fn an_update_without_managed_fields_keeps_them_and_an_empty_entry_clears_them() {
    let world = World::new().await;
    let path = map("default", "a");
    let body = json!({"metadata": {"name": "a"}, "data": {"a": "1"}});
    let made = world.post(&maps("default"), &body).await.is(201);
    let managed = &made["metadata"]["managedFields"];
    for sent in [Value::Null, json!([])] {
        let mut body = made.clone();
        body["metadata"]["managedFields"] = sent;
        let now = world.put(&path, &body).await.is(200);
        assert_eq!(now, made, "{managed}");
    }
    let mut body = made.clone();
    body["metadata"]["managedFields"] = json!([{}]);
    let now = world.put(&path, &body).await.is(200);
    assert!(now["metadata"].get("managedFields").is_none());
    assert_ne!(version(&now), version(&made));
}

#[tokio::test]
async fn watchers_see_every_write_once_and_no_write_never() {
    let world = World::new().await;
    let list = world.get(&maps("default")).await.is(200);
    let path = map("default", "a");
    let made = world
        .post(
            &maps("default"),
            &json!({"metadata": {"name": "a", "finalizers":
        ["x.io/f"]}, "data": {"a": "1"}}),
        )
        .await
        .is(201);
    world.merge(&path, &json!({"data": {"a": "1"}})).await.is(200);
    world.put(&path, &made).await.is(200);
    world.merge(&format!("{path}?dryRun=All"), &json!({"data": {"a": "2"}})).await.is(200);
    let changed = world.merge(&path, &json!({"data": {"a": "3"}})).await.is(200);
    let going = world.delete(&path, &Value::Null).await.is(200);
    world.delete(&path, &Value::Null).await.is(200);
    world.merge(&path, &json!({"metadata": {"finalizers": null}})).await.is(200);
    let stream = format!(
        "{}?watch=true&timeoutSeconds=4&resourceVersion={}",
        maps("default"),
        version(&list)
    );
    let text = world.get(&stream).await.body;
    let text = text.as_str().unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|one| one["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "MODIFIED", "DELETED"], "{text}");
    for (event, object) in events.iter().zip([&made, &changed, &going]) {
        assert_eq!(event["object"], *object);
    }
    let end: u64 = version(&events[3]["object"]).parse().unwrap();
    assert!(end > version(&going).parse().unwrap(), "a deletion has a version of its own");
}

#[tokio::test]
async fn generated_names_that_collide_are_tried_again() {
    let world = World::new().await;
    // Not a proof, but with 27^5 names a server that keeps one suffix would fail at once.
    let bodies = (0..50).map(|_| {
        let client = world.client.clone();
        async move {
            let body = json!({"metadata": {"generateName": "x-"}});
            client.post(&maps("default"), &body).await.is(201)["metadata"]["name"].to_string()
        }
    });
    let mut names = futures::future::join_all(bodies).await;
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 50);
    // A given name wins, and is not tried again.
    let body = json!({"metadata": {"generateName": "x-", "name": "given"}});
    world.post(&maps("default"), &body).await.is(201);
    world.post(&maps("default"), &body).await.refused(409);
}
