//! The controllers of the server itself: each does what its role says, under its own name, and
//! nothing without it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{World, map, maps, owner};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const PREFIX: &str = "holdfast:controller:";

fn entries(folder: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("audit.log")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether a rule of the role covers what was done.
fn covers(rule: &Value, deed: &Value) -> bool {
    let has = |member: &str, wanted: &str| {
        let all = rule[member].as_array().unwrap();
        all.iter().any(|one| one == "*" || one == wanted)
    };
    let text = |member: &str| deed[member].as_str().unwrap_or_default();
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        sub => format!("{}/{sub}", text("resource")),
    };
    has("verbs", text("verb")) && has("apiGroups", text("group")) && has("resources", &resource)
}

/// Gives every controller something to do.
async fn keep_everybody_busy(world: &World) {
    world.namespace("busy").await;
    world.until("/api/v1/namespaces/busy/serviceaccounts/default", |reply| reply.code == 200).await;
    let maps = maps("busy");
    let first = world.post(&maps, &json!({"metadata": {"name": "first"}})).await.is(201);
    let second = json!({"metadata": {"name": "second", "ownerReferences": [owner(&first, false)]}});
    world.post(&maps, &second).await.is(201);
    world.delete(&map("busy", "first"), &Value::Null).await.is(200);
    world.until_gone(&map("busy", "second")).await;
    let claims = "/api/v1/namespaces/busy/persistentvolumeclaims";
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.post(claims, &claim).await.is(201);
    world.delete(&format!("{claims}/c"), &Value::Null).await.is(200);
    world.until_gone(&format!("{claims}/c")).await;
    let label = "rbac.authorization.k8s.io/aggregate-to-view";
    let role = json!({"metadata": {"name": "more", "labels": {label: "true"}}, "rules": [
        {"apiGroups": ["test.io"], "resources": ["widgets"], "verbs": ["get"]}]});
    world.post(ROLES, &role).await.is(201);
    let has = |reply: &crate::support::Reply| reply.body["rules"].to_string().contains("widgets");
    world.until(&format!("{ROLES}/view"), has).await;
    world.delete("/api/v1/namespaces/busy", &Value::Null).await.is(200);
    world.until_gone("/api/v1/namespaces/busy").await;
    let widget = json!({"apiVersion": "test.io/v1", "kind": "Tower", "metadata": {"name": "t"}});
    world.post("/apis/test.io/v1/towers", &widget).await.is(201);
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/towers.test.io";
    world.delete(definition, &Value::Null).await.is(200);
    world.until_gone(definition).await;
}

#[tokio::test]
async fn controllers_do_what_their_roles_say_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::audited(folder.path()).await;
    world.client.make_widgets().await;
    keep_everybody_busy(&world).await;
    let roles = world.get(ROLES).await.is(200);
    let granted = |user: &str| {
        let role = roles["items"].as_array().unwrap().iter();
        let role = role.into_iter().find(|role| role["metadata"]["name"] == user);
        role.unwrap_or_else(|| panic!("{user} has no role"))["rules"].clone()
    };
    world.stop().await;
    let mut acted = BTreeSet::new();
    for deed in entries(folder.path()) {
        let user = deed["user"].as_str().unwrap();
        let Some(name) = user.strip_prefix(PREFIX) else { continue };
        let groups = deed["groups"].to_string();
        assert!(!groups.contains("system:masters"), "{deed}");
        let allowed = granted(user).as_array().unwrap().iter().any(|rule| covers(rule, &deed));
        assert!(allowed, "{deed}");
        assert!(deed["code"].as_u64().unwrap() < 300, "{deed}");
        acted.insert(name.to_owned());
    }
    let wanted = [
        "definition-cleanup",
        "garbage-collector",
        "namespaces",
        "role-aggregation",
        "service-accounts",
        "storage-protection",
    ];
    assert_eq!(acted.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn a_controller_without_its_role_is_refused_until_it_has_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::audited(folder.path()).await;
    let name = format!("{PREFIX}storage-protection");
    let role = world.get(&format!("{ROLES}/{name}")).await.is(200);
    world.delete(&format!("{ROLES}/{name}"), &Value::Null).await.is(200);
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.post(claims, &claim).await.is(201);
    world.delete(&format!("{claims}/c"), &Value::Null).await.is(200);
    world.settle().await;
    world.get(&format!("{claims}/c")).await.is(200);
    let again = json!({"metadata": {"name": name}, "rules": role["rules"]});
    world.post(ROLES, &again).await.is(201);
    world.until_gone(&format!("{claims}/c")).await;
    world.stop().await;
    let refused = entries(folder.path())
        .into_iter()
        .any(|deed| deed["user"] == json!(name) && deed["code"] == 403 && deed["verb"] == "update");
    assert!(refused, "the rejection is not in the audit log");
}
