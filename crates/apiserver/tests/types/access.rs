//! Who may do what, and what is written down about it.

use http::Method;
use serde_json::{Value, json};

use crate::support::*;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Lets a user do what a role of the world's namespace says.
async fn grant(world: &World, user: &str, kind: &str, role: &str) {
    let path = format!("{RBAC}/namespaces/{}/rolebindings", world.name);
    let binding = json!({"metadata": {"generateName": "b-"},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}]});
    world.post(&path, &binding).await.is(201);
}

async fn role(world: &World, name: &str, rules: &Value) {
    let path = format!("{RBAC}/namespaces/{}/roles", world.name);
    world.post(&path, &json!({"metadata": {"name": name}, "rules": rules})).await.is(201);
}

#[tokio::test]
async fn a_rejection_says_who_cannot_do_what_and_comes_before_not_found() {
    let world = World::new().await;
    let ada = world.as_user("ada", &[]);
    let maps = world.core("configmaps");
    let text = ada.get(&format!("{maps}/missing")).await.refused(403);
    assert_eq!(
        text,
        format!(
            "configmaps \"missing\" is forbidden: User \"ada\" cannot get resource \"configmaps\" \
             in API group \"\" in the namespace \"{}\"",
            world.name
        )
    );
    assert!(ada.get("/apis/nowhere.io/v1/things").await.refused(403).contains("cannot list"));
    assert!(ada.get("/metrics").await.refused(403).contains("cannot get path \"/metrics\""));
    for path in ["/api", "/apis", "/api/v1", "/openapi/v3", "/version", "/healthz"] {
        assert_eq!(ada.get(path).await.code, 200, "{path}");
    }
}

#[tokio::test]
async fn a_name_in_a_rule_allows_lists_that_are_pinned_to_it() {
    let world = World::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"],
        "verbs": ["get", "list", "watch", "create", "deletecollection"]}]);
    role(&world, "one", &rules).await;
    grant(&world, "ada", "Role", "one").await;
    let ada = world.as_user("ada", &[]);
    let maps = world.core("configmaps");
    for (path, code) in [
        ("/x", 404),
        ("/y", 403),
        ("", 403),
        ("?fieldSelector=metadata.name%3Dx", 200),
        ("?fieldSelector=metadata.name%3Dy", 403),
    ] {
        assert_eq!(ada.get(&format!("{maps}{path}")).await.code, code, "{path}");
    }
    ada.post(&maps, &json!({"metadata": {"name": "x"}})).await.is(403);
    let pinned = format!("{maps}?fieldSelector=metadata.name%3Dx");
    ada.send(Method::DELETE, &pinned, None).await.is(200);
}

#[tokio::test]
async fn a_list_of_namespaces_is_of_the_cluster_whatever_it_selects() {
    let world = World::new().await;
    grant(&world, "ada", "ClusterRole", "view").await;
    let ada = world.as_user("ada", &[]);
    let name = &world.name;
    ada.get(&format!("/api/v1/namespaces/{name}")).await.is(200);
    for query in ["", "&watch=true&timeoutSeconds=1"] {
        let path = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{name}{query}");
        let text = ada.get(&path).await.refused(403);
        assert!(text.contains("at the cluster scope"), "{text}");
    }
}

#[tokio::test]
async fn whoever_creates_by_put_or_apply_needs_the_right_to_create() {
    let world = World::new().await;
    let rule = |verbs: &[&str]| json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
    role(&world, "changer", &rule(&["get", "update", "patch"])).await;
    role(&world, "maker", &rule(&["create"])).await;
    grant(&world, "ada", "Role", "changer").await;
    grant(&world, "bob", "Role", "changer").await;
    grant(&world, "bob", "Role", "maker").await;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", world.name);
    let (ada, bob) = (world.as_user("ada", &[]), world.as_user("bob", &[]));
    let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "one"}});
    let one = format!("{leases}/one");
    let apply = format!("{one}?fieldManager=m");
    let text = ada.send(Method::PUT, &one, Some(&body)).await.refused(403);
    assert!(text.contains("cannot create resource \"leases\""), "{text}");
    ada.apply(&apply, &body).await.refused(403);
    world.get(&one).await.is(404);
    bob.send(Method::PUT, &one, Some(&body)).await.is(201);
    ada.apply(&apply, &body).await.is(200);
}

#[tokio::test]
async fn nobody_hands_out_rights_they_do_not_have() {
    let world = World::new().await;
    let own = json!([{"apiGroups": [GROUP], "resources": ["roles", "rolebindings"],
        "verbs": ["create", "update"]}]);
    role(&world, "clerk", &own).await;
    grant(&world, "ada", "Role", "clerk").await;
    let ada = world.as_user("ada", &[]);
    let roles = format!("{RBAC}/namespaces/{}/roles", world.name);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let more = json!({"metadata": {"name": "more"}, "rules": secrets});
    let text = ada.post(&roles, &more).await.refused(403);
    assert!(text.contains("attempting to grant RBAC permissions not currently held"), "{text}");
    let binding = |role: &str| {
        json!({"metadata": {"name": "up"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "ada"}]})
    };
    let bindings = format!("{RBAC}/namespaces/{}/rolebindings", world.name);
    ada.post(&bindings, &binding("cluster-admin")).await.refused(403);
    role(
        &world,
        "binder",
        &json!([{"apiGroups": [GROUP], "resources": ["clusterroles"],
        "resourceNames": ["view"], "verbs": ["bind"]}]),
    )
    .await;
    grant(&world, "ada", "Role", "binder").await;
    ada.post(&bindings, &binding("view")).await.is(201);
}

#[tokio::test]
async fn aggregated_roles_follow_every_change_of_what_they_select() {
    let world = World::new().await;
    let place = format!("{RBAC}/clusterroles/part");
    let has = |reply: &Reply| {
        let rules = reply.body["rules"].as_array().into_iter().flatten();
        rules.into_iter().any(|rule| rule["apiGroups"] == json!(["part.io"]))
    };
    let part = json!({"metadata": {"name": "part",
        "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["part.io"], "resources": ["x"], "verbs": ["get"]}]});
    // Many times: the change and the look at it are two tasks.
    for _ in 0..20 {
        world.post(&format!("{RBAC}/clusterroles"), &part).await.is(201);
        for role in ["view", "edit", "admin"] {
            world.until(&format!("{RBAC}/clusterroles/{role}"), has).await;
        }
        world.delete(&place).await.is(200);
        for role in ["view", "edit", "admin"] {
            world.until(&format!("{RBAC}/clusterroles/{role}"), |reply| !has(reply)).await;
        }
    }
}

#[tokio::test]
async fn the_audit_log_says_who_wrote_what_and_never_the_contents() {
    let world = World::new().await;
    grant(&world, "ada", "ClusterRole", "edit").await;
    let ada = world.as_user("ada", &["makers"]);
    let secrets = world.core("secrets");
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hush-hush"}});
    ada.post(&secrets, &secret).await.is(201);
    let generated = json!({"metadata": {"generateName": "g-"}, "stringData": {"p": "hush-hush"}});
    let generated = ada.post(&secrets, &generated).await.is(201);
    ada.send(Method::DELETE, &format!("{secrets}/s"), None).await.is(200);
    ada.get(&secrets).await.is(200);
    let root = [("impersonate-user", "admin"), ("impersonate-group", "system:masters")];
    ada.impersonate(&root, &world.core("configmaps")).await.is(403);
    world.impersonate(&[("impersonate-user", "zed")], &world.core("configmaps")).await.is(403);
    let file = world.folder().join("audit.log");
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(2);
    let lines: Vec<Value> = loop {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("hush-hush") && !text.contains("aHVzaC1odXNo"));
        let lines: Vec<Value> =
            text.lines().filter_map(|one| serde_json::from_str(one).ok()).collect();
        if lines.iter().any(|one| one["user"] == "zed") {
            break lines;
        }
        assert!(std::time::Instant::now() < deadline, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let by_ada: Vec<_> = lines.iter().filter(|one| one["user"] == "ada").collect();
    let told: Vec<_> = by_ada
        .iter()
        .map(|one| {
            (
                one["verb"].as_str().unwrap(),
                one["name"].as_str().unwrap_or_default(),
                one["code"].as_u64().unwrap(),
            )
        })
        .collect();
    let name = generated["metadata"]["name"].as_str().unwrap();
    let refused = ("create", "", 403);
    assert_eq!(told, [("create", "s", 201), ("create", name, 201), ("delete", "s", 200), refused]);
    assert_eq!(by_ada[0]["groups"], json!(["makers", "system:authenticated"]));
    assert_eq!(by_ada[0]["namespace"], world.name);
    assert!(by_ada[0]["time"].is_string());
    let zed = lines.iter().find(|one| one["user"] == "zed").unwrap();
    assert!(zed["impersonator"].is_string() && zed["code"] == 403, "{zed}");
}

/// A watch may last for a day; what it was opened with may not.
#[tokio::test]
async fn a_watch_ends_with_the_rights_it_lives_by() {
    let world = World::new().await;
    let look = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]);
    role(&world, "look", &look).await;
    let bindings = format!("{RBAC}/namespaces/{}/rolebindings", world.name);
    let bind = |name: &str, user: &str| {
        json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "look"},
            "subjects": [{"kind": "User", "name": user}]})
    };
    world.post(&bindings, &bind("ada", "ada")).await.is(201);
    world.post(&bindings, &bind("bea", "bea")).await.is(201);
    let secrets = world.core("secrets");
    let path = format!("{secrets}?watch=true&timeoutSeconds=86400");
    let mut ada = world.as_user("ada", &[]).watch(&path).await;
    let mut bea = world.as_user("bea", &[]).watch(&path).await;
    let secret = |name: &str| json!({"metadata": {"name": name}, "stringData": {"k": "v"}});
    world.post(&secrets, &secret("before")).await.is(201);
    for watch in [&mut ada, &mut bea] {
        let event = watch.next().await.expect("an event");
        assert_eq!(event["object"]["metadata"]["name"], "before", "{event}");
    }
    world.delete(&format!("{bindings}/ada")).await.is(200);
    world.post(&secrets, &secret("after")).await.is(201);
    let last = ada.next().await.expect("a last word");
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(403)), "{last}");
    assert_eq!(ada.next().await, None);
    // Who kept theirs notices nothing.
    let event = bea.next().await.expect("an event");
    assert_eq!(event["object"]["metadata"]["name"], "after", "{event}");
}

#[tokio::test]
async fn a_watch_ends_with_the_token_that_proved_who_watches() {
    let world = World::new().await;
    let accounts = world.core("serviceaccounts");
    world.post(&accounts, &json!({"metadata": {"name": "bot"}})).await.is(201);
    let made = world.post(&format!("{accounts}/bot/token"), &json!({})).await.is(201);
    let token = made["status"]["token"].as_str().unwrap();
    let account = format!("system:serviceaccount:{}:bot", world.name);
    grant(&world, &account, "ClusterRole", "view").await;
    let path = format!("{}?watch=true", world.core("configmaps"));
    let mut watch = world.watch_by_token(&path, token).await;
    world.delete(&format!("{accounts}/bot")).await.is(200);
    // At the next look: each minute, and with every change of rights.
    role(&world, "any", &json!([])).await;
    let last = loop {
        let event = watch.next().await.expect("a last word");
        if event["type"] == "ERROR" {
            break event;
        }
    };
    assert_eq!(last["object"]["code"], 401, "{last}");
    assert_eq!(watch.next().await, None);
}

/// A read may wait for a revision; on the way there its caller may be shut out.
#[tokio::test]
async fn a_read_that_waited_shows_nothing_to_whom_was_shut_out_meanwhile() {
    let world = World::new().await;
    let accounts = world.core("serviceaccounts");
    let account = format!("system:serviceaccount:{}:bot", world.name);
    grant(&world, &account, "ClusterRole", "edit").await;
    let secrets = world.core("secrets");
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    world.post(&secrets, &secret).await.is(201);
    for query in [
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
        "resourceVersionMatch=NotOlderThan",
    ] {
        // On a machine that has little time the reader may have waited in vain: it is asked again.
        let seen = loop {
            world.post(&accounts, &json!({"metadata": {"name": "bot"}})).await.is(201);
            let made = world.post(&format!("{accounts}/bot/token"), &json!({})).await.is(201);
            let token = made["status"]["token"].as_str().unwrap();
            let newest = world.get(&secrets).await.is(200)["metadata"]["resourceVersion"].clone();
            // Upkeep may write something too; the account is gone well before.
            let wanted = newest.as_str().unwrap().parse::<u64>().unwrap() + 20;
            let path = format!("{secrets}?{query}&resourceVersion={wanted}");
            let asked = world.get_by_token(&path, token);
            let meanwhile = async {
                world.delete(&format!("{accounts}/bot")).await.is(200);
                let map = json!({"metadata": {"generateName": "m-"}});
                for _ in 0..20 {
                    world.post(&world.core("configmaps"), &map).await.is(201);
                }
            };
            // The reader is polled first: it was let in, and waits.
            let (seen, ()) = tokio::join!(asked, meanwhile);
            if seen.code != 504 {
                break seen;
            }
        };
        assert_eq!(seen.code, 401, "{query}: {}", seen.body);
    }
}

#[tokio::test]
async fn a_namespace_of_ones_own_makes_no_other() {
    let world = World::new().await;
    role(&world, "owner", &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    grant(&world, "ada", "Role", "owner").await;
    let ada = world.as_user("ada", &[]);
    let own = format!("/api/v1/namespaces/{}", world.name);
    let (another, same) = (json!({"generateName": "evil-"}), json!({"name": world.name}));
    for metadata in [another, same] {
        ada.post(&own, &json!({"metadata": metadata})).await.refused(405);
    }
    ada.post("/api/v1/namespaces", &json!({"metadata": {"generateName": "evil-"}})).await.is(403);
    let apply = json!({"apiVersion": "v1", "kind": "Namespace"});
    ada.apply("/api/v1/namespaces/evil?fieldManager=m", &apply).await.is(403);
    let maps = world.core("configmaps");
    ada.post(&format!("{maps}/a"), &json!({"metadata": {"name": "a"}})).await.is(405);
    ada.post(&maps, &json!({"metadata": {"name": "a"}})).await.is(201);
}

/// A body may be half a minute on its way, and a large write waits for its turn.
#[tokio::test]
async fn a_write_that_waited_is_refused_to_whom_was_shut_out_meanwhile() {
    let world = World::new().await;
    let bindings = format!("{RBAC}/namespaces/{}/rolebindings", world.name);
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "ada"}]});
    let maps = world.core("configmaps");
    let ada = world.as_user("ada", &[]);
    for large in [false, true] {
        world.post(&bindings, &binding).await.is(201);
        let text = "x".repeat(if large { 300_000 } else { 1 });
        let body = |name: &str| json!({"metadata": {"name": name}, "data": {"a": text}});
        // What has nothing to do with it disturbs nobody.
        let other = async { role(&world, &format!("other-{large}"), &json!([])).await };
        let code = ada.post_slowly(&maps, &body(&format!("kept-{large}")), other).await;
        assert_eq!(code, 201);
        let shut_out = async {
            world.delete(&format!("{bindings}/b")).await.is(200);
        };
        assert_eq!(ada.post_slowly(&maps, &body("late"), shut_out).await, 403, "large: {large}");
        world.get(&format!("{maps}/late")).await.is(404);
    }
}

#[tokio::test]
async fn a_watch_ends_with_the_right_to_act_as_another() {
    let world = World::new().await;
    grant(&world, "zed", "ClusterRole", "view").await;
    let act = json!({"metadata": {"name": "act"}, "rules": [{"apiGroups": [""],
        "resources": ["users"], "resourceNames": ["zed"], "verbs": ["impersonate"]}]});
    world.post(&format!("{RBAC}/clusterroles"), &act).await.is(201);
    let bindings = format!("{RBAC}/clusterrolebindings");
    let binding = json!({"metadata": {"name": "act"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "act"},
        "subjects": [{"kind": "User", "name": "ada"}]});
    world.post(&bindings, &binding).await.is(201);
    let maps = world.core("configmaps");
    let path = format!("{maps}?watch=true&resourceVersion=0&timeoutSeconds=3600");
    let mut watch = world.as_user("ada", &[]).watch_acting_as(&path, "zed").await;
    world.post(&maps, &json!({"metadata": {"name": "before"}})).await.is(201);
    while watch.next().await.expect("an event")["object"]["metadata"]["name"] != "before" {}
    world.delete(&format!("{bindings}/act")).await.is(200);
    world.post(&maps, &json!({"metadata": {"name": "after"}})).await.is(201);
    let last = watch.next().await.expect("a last word");
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(403)), "{last}");
    assert_eq!(watch.next().await, None);
}
