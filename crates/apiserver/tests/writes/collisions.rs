//! Definitions that call themselves like a built-in type.

use apiserver::store::{Change, Expected, Key, Options, Store, Write};
use serde_json::{Value, json};

use crate::support::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"}},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test]
async fn a_definition_named_like_a_built_in_type_is_refused() {
    let world = World::new().await;
    let rbac = "rbac.authorization.k8s.io";
    for (group, plural, kind) in [
        ("coordination.k8s.io", "leases", "Lease"),
        (rbac, "clusterroles", "ClusterRole"),
        (rbac, "mines", "ClusterRoleBinding"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
        ("storage.k8s.io", "storageclasses", "Mine"),
        ("events.k8s.io", "events", "Event"),
    ] {
        let text = world.post(DEFINITIONS, &definition(group, plural, kind)).await.refused(422);
        assert!(text.contains("a built-in type of this group has this name"), "{text}");
    }
    // No approval, no group of Kubernetes itself.
    let mut bold = definition("mine.k8s.io", "mines", "Mine");
    bold["metadata"]["annotations"] = json!({});
    world.post(DEFINITIONS, &bold).await.refused(422);
    // A name can be changed later: not to such a one either.
    let own = definition("storage.k8s.io", "mines", "Mine");
    world.post(DEFINITIONS, &own).await.is(201);
    let patch = json!({"spec": {"names": {"shortNames": ["sc"]}}});
    world.merge(&format!("{DEFINITIONS}/mines.storage.k8s.io"), &patch).await.refused(422);
}

#[tokio::test]
async fn a_status_cannot_give_a_definition_the_names_of_another() {
    let world = World::new().await;
    for (plural, kind) in [("firsts", "First"), ("seconds", "Second")] {
        world.post(DEFINITIONS, &definition("names.io", plural, kind)).await.is(201);
    }
    let path = format!("{DEFINITIONS}/seconds.names.io");
    let names = |plural: &str, kind: &str| json!({"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
    let stolen = json!({"status": {"acceptedNames": names("firsts", "First")}});
    world.merge(&format!("{path}/status"), &stolen).await.is(200);
    let now = world.get(&path).await.is(200);
    assert_eq!(now["status"]["acceptedNames"], names("seconds", "Second"));
    let served = world.get("/apis/names.io/v1").await.is(200);
    let served: Vec<_> = served["resources"].as_array().unwrap().iter().collect();
    assert_eq!(served.iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["firsts", "seconds"]);
}

/// Puts into a store what an older version let in.
async fn store(folder: &std::path::Path, object: Value) {
    let store = Store::open(folder.join("objects.db"), &Options::default()).unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let key = Key::new("apiextensions.k8s.io/customresourcedefinitions", "", name);
    let change = Change::Put(object);
    let write = Write { key, expected: Expected::Absent, require: Vec::new(), change };
    store.write(write).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn one_that_an_older_version_let_in_goes_without_the_objects_of_the_built_in_type() {
    let folder = tempfile::tempdir().unwrap();
    World::on(folder.path()).await.stop().await;
    for (group, plural, kind) in [
        ("coordination.k8s.io", "leases", "Lease"),
        ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
    ] {
        let mut object = definition(group, plural, kind);
        object["metadata"]["uid"] = json!(format!("uid-{plural}"));
        object["status"] = json!({"acceptedNames": object["spec"]["names"],
            "storedVersions": ["v1"],
            "conditions": [{"type": "Established", "status": "True"}]});
        store(folder.path(), object).await;
    }
    let world = World::on(folder.path()).await;
    // The built-in type is what is served: it knows what a lease looks like.
    let bad = json!({"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": "long"}});
    world.post(LEASES, &bad).await.refused(400);
    world.post(LEASES, &json!({"metadata": {"name": "kept"}})).await.is(201);
    for name in ["leases.coordination.k8s.io", "clusterroles.rbac.authorization.k8s.io"] {
        let path = format!("{DEFINITIONS}/{name}");
        world.delete(&path, &Value::Null).await.is(200);
        world.until_gone(&path).await;
    }
    world.get(&format!("{LEASES}/kept")).await.is(200);
    world.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin").await.is(200);
    world.stop().await;
}
