//! What a cluster does to objects beyond storing them: addresses, defaults from other objects,
//! protection of storage that is in use.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{APPLY, STRATEGIC, World, map, maps, version};

fn path(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut body = json!({"metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    body["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    body
}

fn service(name: &str, spec: &Value) -> Value {
    let mut body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    body["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    body
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1024Mi"}}}})
}

#[tokio::test]
async fn every_service_gets_an_address_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(folder.path()).await;
    let all = path("default", "services");
    let mut seen = BTreeSet::new();
    let made = (0..20).map(|n| {
        let (client, all) = (world.client.clone(), all.clone());
        async move { client.post(&all, &service(&format!("s{n}"), &json!({}))).await.is(201) }
    });
    for one in futures::future::join_all(made).await {
        let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert_eq!(one["spec"]["clusterIPs"], json!([address]));
        assert_eq!(one["spec"]["ipFamilies"], json!(["IPv4"]));
        assert_eq!(one["spec"]["ipFamilyPolicy"], "SingleStack");
        assert!(address.starts_with("10."), "{address}");
        assert!(seen.insert(address), "an address was given twice");
    }
    let taken = seen.first().unwrap().clone();
    let refused = world.post(&all, &service("t", &json!({"clusterIP": taken}))).await.refused(422);
    assert!(refused.contains("provided IP is already allocated"), "{refused}");
    let away = json!({"clusterIP": "192.168.0.1"});
    let refused = world.post(&all, &service("t", &away)).await.refused(422);
    assert!(refused.contains("not in the valid range"), "{refused}");
    world.stop().await;
    // What is taken is known after a restart, and what is given back can be had again.
    let world = World::on(folder.path()).await;
    world.post(&all, &service("t", &json!({"clusterIP": taken}))).await.refused(422);
    for n in 0..20 {
        world.delete(&format!("{all}/s{n}"), &Value::Null).await.is(200);
    }
    let one = world.post(&all, &service("t", &json!({"clusterIP": taken}))).await.is(201);
    assert_eq!(one["spec"]["clusterIP"], json!(taken));
    // An address that was given is not the creator's field.
    let open = world.post(&all, &service("open", &json!({}))).await.is(201);
    let fields = open["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].clone();
    assert!(fields.get("f:clusterIP").is_none(), "{fields}");
    world.stop().await;
}

#[tokio::test]
async fn services_without_addresses_and_with_node_ports() {
    let world = World::new().await;
    let all = path("default", "services");
    let post = |name: &str, spec: Value| {
        let (client, all, body) = (world.client.clone(), all.clone(), service(name, &spec));
        async move { client.post(&all, &body).await }
    };
    let none = post("none", json!({"clusterIP": "None", "selector": {"a": "b"}})).await.is(201);
    assert_eq!(none["spec"]["clusterIPs"], json!(["None"]));
    let away = json!({"type": "ExternalName", "externalName": "a.example"});
    assert_eq!(post("away", away).await.is(201)["spec"].get("clusterIP"), None);
    let outside = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    assert!(post("x", outside).await.refused(422).contains("range of valid ports"));
    let fixed = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    post("fixed", fixed.clone()).await.is(201);
    assert!(post("again", fixed).await.refused(422).contains("already allocated"));
    let open = post("open", json!({"type": "NodePort"})).await.is(201);
    let number = open["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&number) && number != 30080, "{number}");
    // A body that names neither keeps both; another type gives the port back.
    let mut body = service("open", &json!({"type": "NodePort", "selector": {"a": "b"}}));
    body["metadata"]["resourceVersion"] = json!(version(&open));
    let kept = world.put(&format!("{all}/open"), &body).await.is(200);
    assert_eq!(kept["spec"]["clusterIP"], open["spec"]["clusterIP"]);
    assert_eq!(kept["spec"]["ports"], open["spec"]["ports"]);
    let inner = json!({"spec": {"type": "ClusterIP"}});
    let inner = world.merge(&format!("{all}/open"), &inner).await.is(200);
    assert_eq!(inner["spec"]["ports"][0].get("nodePort"), None);
    let back = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]});
    post("back", back).await.is(201);
    let outer = json!({"spec": {"type": "NodePort"}});
    let outer = world.merge(&format!("{all}/open"), &outer).await.is(200);
    assert_ne!(outer["spec"]["ports"][0]["nodePort"], json!(number));
    // A dry run holds nothing.
    let spec = json!({"clusterIP": "10.96.7.7"});
    let dry = format!("{all}?dryRun=All");
    world.post(&dry, &service("dry", &spec)).await.is(201);
    post("wet", spec).await.is(201);
}

#[tokio::test]
async fn pods_get_what_the_cluster_knows_and_they_do_not() {
    let world = World::new().await;
    let pods = path("default", "pods");
    let made = world.post(&pods, &pod("plain", &json!({}))).await.is(201);
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(made["spec"]["priority"], 0);
    assert_eq!(made["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 2);
    // A body that leaves all that out changes none of it.
    let same = world.put(&format!("{pods}/plain"), &pod("plain", &json!({}))).await.is(200);
    assert_eq!(version(&same), version(&made));
    let critical = json!({"priorityClassName": "system-cluster-critical"});
    let made = world.post(&pods, &pod("critical", &critical)).await.is(201);
    assert_eq!(made["spec"]["priority"], 2_000_000_000);
    for (spec, why) in [
        (json!({"priorityClassName": "no"}), "no PriorityClass with name no was found"),
        (json!({"priority": 7}), "must not be provided"),
        (json!({"serviceAccountName": "no"}), "serviceaccount \"no\" not found"),
    ] {
        let refused = world.post(&pods, &pod("p", &spec)).await.refused(403);
        assert!(refused.starts_with("pods \"p\" is forbidden: "), "{refused}");
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let world = World::new().await;
    world.namespace("limited").await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "0.5"}, "max": {"cpu": "1"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}});
    let ranges = path("limited", "limitranges");
    let made = world.post(&ranges, &range).await.is(201);
    assert_eq!(made["spec"]["limits"][0]["default"]["cpu"], "500m");
    let pods = path("limited", "pods");
    let made = world.post(&pods, &pod("p", &json!({}))).await.is(201);
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}})
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let big = json!({"containers": [{"name": "c", "image": "i:1",
        "resources": {"limits": {"cpu": "2000m"}}}]});
    let refused = world.post(&pods, &pod("big", &big)).await.refused(403);
    let wanted = "pods \"big\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
    assert_eq!(refused, wanted);
    let claims = path("limited", "persistentvolumeclaims");
    world.post(&claims, &claim("fits")).await.is(201);
    let mut big = claim("big");
    big["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
    assert!(world.post(&claims, &big).await.refused(403).contains("but request is 2Gi"));
    // Another namespace has its own.
    world.post(&path("default", "pods"), &pod("big", &json!({}))).await.is(201);
}

#[tokio::test]
async fn storage_in_use_waits_with_its_end() {
    let world = World::new().await;
    let claims = path("default", "persistentvolumeclaims");
    let made = world.post(&claims, &claim("c")).await.is(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(made["spec"]["resources"]["requests"]["storage"], "1Gi");
    let user = json!({"nodeName": "n", "volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let pods = path("default", "pods");
    world.post(&pods, &pod("user", &user)).await.is(201);
    let one = format!("{claims}/c");
    let marked = world.delete(&one, &Value::Null).await.is(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    world.settle().await;
    world.get(&one).await.is(200);
    let now = json!({"gracePeriodSeconds": 0});
    world.delete(&format!("{pods}/user"), &now).await.is(200);
    world.until_gone(&one).await;
    // Nothing uses this one.
    world.post(&claims, &claim("d")).await.is(201);
    world.delete(&format!("{claims}/d"), &Value::Null).await.is(200);
    world.until_gone(&format!("{claims}/d")).await;
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/v"}}});
    let made = world.post(volumes, &volume).await.is(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    let one = format!("{volumes}/v");
    let bound = json!({"status": {"phase": "Bound"}});
    world.merge(&format!("{one}/status"), &bound).await.is(200);
    world.delete(&one, &Value::Null).await.is(200);
    world.settle().await;
    world.get(&one).await.is(200);
    let released = json!({"status": {"phase": "Released"}});
    world.merge(&format!("{one}/status"), &released).await.is(200);
    world.until_gone(&one).await;
}

#[tokio::test]
async fn a_namespace_with_protected_storage_goes() {
    let world = World::new().await;
    world.namespace("going").await;
    let user = json!({"nodeName": "n", "volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    world.post(&path("going", "persistentvolumeclaims"), &claim("c")).await.is(201);
    world.post(&path("going", "pods"), &pod("user", &user)).await.is(201);
    world.delete("/api/v1/namespaces/going", &Value::Null).await.is(200);
    world.until_gone("/api/v1/namespaces/going").await;
}

#[tokio::test]
async fn a_claim_gets_the_default_class() {
    let world = World::new().await;
    let class = json!({"metadata": {"name": "fast", "annotations":
        {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "x.io/p"});
    world.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.is(201);
    let claims = path("default", "persistentvolumeclaims");
    let made = world.post(&claims, &claim("c")).await.is(201);
    assert_eq!(made["spec"]["storageClassName"], "fast");
}

#[tokio::test]
async fn a_status_write_keeps_annotations_of_built_in_kinds() {
    let world = World::new().await;
    let pods = path("default", "pods");
    world.post(&pods, &pod("p", &json!({}))).await.is(201);
    let status = format!("{pods}/p/status");
    let patch = json!({"metadata": {"annotations": {"seen": "yes"}, "labels": {"l": "1"}},
        "spec": {"hostname": "other"}, "status": {"message": "m"}});
    let made = world.patch(STRATEGIC, &status, &patch).await.is(200);
    assert_eq!(made["metadata"]["annotations"]["seen"], "yes");
    assert_eq!(made["metadata"]["labels"]["l"], "1");
    assert_eq!(made["spec"].get("hostname"), None);
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata":
        {"annotations": {"applied": "yes"}}, "status": {"reason": "r"}});
    let made = world.patch(APPLY, &format!("{status}?fieldManager=m"), &body).await.is(200);
    assert_eq!(made["metadata"]["annotations"], json!({"seen": "yes", "applied": "yes"}));
    // The phase of a namespace is what its deletion makes it.
    let phase = json!({"status": {"phase": "Resting"}});
    let refused = world.merge("/api/v1/namespaces/default/status", &phase).await.refused(422);
    assert!(refused.contains("status.Phase: Invalid value: \"Resting\""), "{refused}");
}

#[tokio::test]
async fn a_null_in_an_applied_map_is_an_empty_value() {
    let world = World::new().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null, "b": "1"}});
    let made = world.apply(&map("default", "m"), "x", &body).await.is(201);
    assert_eq!(made["data"], json!({"a": "", "b": "1"}));
    let again = world.apply(&map("default", "m"), "x", &body).await.is(200);
    assert_eq!(version(&again), version(&made));
    let less = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "1"}});
    let less = world.apply(&map("default", "m"), "x", &less).await.is(200);
    assert_eq!(less["data"], json!({"b": "1"}));
    let posted = json!({"metadata": {"name": "n"}, "data": {"a": null}});
    let made = world.post(&maps("default"), &posted).await.is(201);
    assert_eq!(made["data"], json!({"a": ""}));
    let merged = world.merge(&map("default", "n"), &json!({"data": {"a": null}})).await.is(200);
    assert_eq!(merged.get("data").and_then(|data| data.get("a")), None);
}

#[tokio::test]
async fn times_and_counters_as_a_cluster_has_them() {
    let world = World::new().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |time: &str| json!({"metadata": {"name": "l"}, "spec": {"renewTime": time}});
    for bad in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.1234567Z"] {
        let refused = world.post(leases, &lease(bad)).await.refused(400);
        assert!(refused.contains("as \"2006-01-02T15:04:05.000000Z07:00\""), "{refused}");
    }
    let made = world.post(leases, &lease("2026-01-01T01:00:00.000001+01:00")).await.is(201);
    assert_eq!(made["spec"]["renewTime"], "2026-01-01T00:00:00.000001Z");
    let events = path("default", "events");
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    let made = world.post(&events, &event).await.is(201);
    assert!(made.as_object().unwrap().contains_key("eventTime") && made["eventTime"].is_null());
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    assert_eq!(world.post(sets, &set).await.is(201)["status"], json!({"replicas": 0}));
    let bad = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "many"}}});
    let refused = world.post(&path("default", "resourcequotas"), &bad).await.refused(400);
    assert!(refused.contains("quantities must match"), "{refused}");
}
