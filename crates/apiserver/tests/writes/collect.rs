//! The garbage collector: what goes with its owners, what stays, and who waits for whom.

use serde_json::{Value, json};

use crate::support::*;

async fn make(world: &Client, name: &str, owners: &[Value]) -> Value {
    make_in(world, "default", name, owners, &[]).await
}

async fn make_in(
    world: &Client,
    namespace: &str,
    name: &str,
    owners: &[Value],
    finalizers: &[&str],
) -> Value {
    let body =
        json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}});
    world.post(&maps(namespace), &body).await.is(201)
}

fn uids(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["ownerReferences"].as_array();
    all.into_iter().flatten().map(|one| one["uid"].as_str().unwrap()).collect()
}

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter().flatten().map(|one| one.as_str().unwrap()).collect()
}

#[tokio::test]
async fn dependents_follow_their_owner_down_the_chain() {
    let world = World::new().await;
    let owner_map = make(&world, "owner", &[]).await;
    let middle = make(&world, "middle", &[owner(&owner_map, false)]).await;
    make(&world, "leaf", &[owner(&middle, true)]).await;
    world.settle().await;
    world.get(&map("default", "leaf")).await.is(200);
    world
        .delete(&map("default", "owner"), &json!({"propagationPolicy": "Background"}))
        .await
        .is(200);
    world.until_gone(&map("default", "middle")).await;
    world.until_gone(&map("default", "leaf")).await;
}

#[tokio::test]
async fn only_dangling_references_go_while_an_owner_is_left() {
    let world = World::new().await;
    let one = make(&world, "one", &[]).await;
    let two = make(&world, "two", &[]).await;
    make(&world, "both", &[owner(&one, false), owner(&two, false)]).await;
    world.delete(&map("default", "one"), &Value::Null).await.is(200);
    let both = map("default", "both");
    let now = world.until(&both, |reply| uids(&reply.body).len() == 1).await.is(200);
    assert_eq!(uids(&now), [two["metadata"]["uid"].as_str().unwrap()]);
    world.delete(&map("default", "two"), &Value::Null).await.is(200);
    world.until_gone(&both).await;
}

#[tokio::test]
async fn owners_that_never_were_or_live_elsewhere_are_absent() {
    let world = World::new().await;
    world.namespace("other").await;
    let here = make(&world, "here", &[]).await;
    let mut ghost = owner(&here, false);
    ghost["uid"] = "never-was".into();
    make(&world, "haunted", &[ghost]).await;
    world.until_gone(&map("default", "haunted")).await;
    // An object of the same name in the other namespace is not the owner.
    make_in(&world, "other", "here", &[], &[]).await;
    make_in(&world, "other", "far", &[owner(&here, false)], &[]).await;
    world.until_gone(&map("other", "far")).await;
    // Nor is one with the right uid but another name.
    let mut renamed = owner(&here, false);
    renamed["name"] = "elsewhere".into();
    make(&world, "misled", &[renamed]).await;
    world.until_gone(&map("default", "misled")).await;
    world.get(&map("default", "here")).await.is(200);
}

#[tokio::test]
async fn what_cannot_be_resolved_is_left_alone() {
    let world = World::new().await;
    let odd = json!({"apiVersion": "nobody.io/v1", "kind": "Odd", "name": "o", "uid": "u"});
    make(&world, "odd", &[odd]).await;
    let here = make(&world, "here", &[]).await;
    let tower = json!({"apiVersion": "test.io/v1", "kind": "Tower", "metadata": {"name": "t",
        "ownerReferences": [owner(&here, false)]}});
    world.post("/apis/test.io/v1/towers", &tower).await.is(201);
    world.delete(&map("default", "here"), &Value::Null).await.is(200);
    world.settle().await;
    world.get(&map("default", "odd")).await.is(200);
    world.get("/apis/test.io/v1/towers/t").await.is(200);
}

#[tokio::test]
async fn a_cluster_scoped_owner_may_have_dependents_anywhere() {
    let world = World::new().await;
    let tower = json!({"apiVersion": "test.io/v1", "kind": "Tower", "metadata": {"name": "t"}});
    let tower = world.post("/apis/test.io/v1/towers", &tower).await.is(201);
    make(&world, "a", &[owner(&tower, false)]).await;
    world.settle().await;
    world.get(&map("default", "a")).await.is(200);
    world.delete("/apis/test.io/v1/towers/t", &Value::Null).await.is(200);
    world.until_gone(&map("default", "a")).await;
}

#[tokio::test]
async fn orphans_stay_without_their_reference() {
    let world = World::new().await;
    let parent = make(&world, "parent", &[]).await;
    let other = make(&world, "other", &[]).await;
    make(&world, "one", &[owner(&parent, true)]).await;
    make(&world, "two", &[owner(&parent, false), owner(&other, false)]).await;
    let path = map("default", "parent");
    let going = world.delete(&path, &json!({"propagationPolicy": "Orphan"})).await.is(200);
    assert_eq!(finalizers(&going), ["orphan"]);
    world.until_gone(&path).await;
    world.settle().await;
    let one = world.get(&map("default", "one")).await.is(200);
    assert!(one["metadata"].get("ownerReferences").is_none(), "{one}");
    let two = world.get(&map("default", "two")).await.is(200);
    assert_eq!(uids(&two), [other["metadata"]["uid"].as_str().unwrap()]);
}

#[tokio::test]
async fn the_old_way_to_ask_for_orphans_works() {
    let world = World::new().await;
    for (name, options, stays) in [
        ("kept", json!({"orphanDependents": true}), true),
        ("taken", json!({"orphanDependents": false}), false),
    ] {
        let parent = make(&world, name, &[]).await;
        let child = format!("{name}-child");
        make(&world, &child, &[owner(&parent, false)]).await;
        world.delete(&map("default", name), &options).await.is(200);
        world.until_gone(&map("default", name)).await;
        world.settle().await;
        let path = map("default", &child);
        if stays {
            world.get(&path).await.is(200);
        } else {
            world.until_gone(&path).await;
        }
    }
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_blocking_dependents() {
    let world = World::new().await;
    let parent = make(&world, "parent", &[]).await;
    make_in(&world, "default", "blocks", &[owner(&parent, true)], &["x.io/f"]).await;
    make_in(&world, "default", "loose", &[owner(&parent, false)], &["x.io/f"]).await;
    let path = map("default", "parent");
    let going = world.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.is(200);
    assert_eq!(finalizers(&going), ["foregroundDeletion"]);
    let marked = |reply: &Reply| reply.body["metadata"].get("deletionTimestamp").is_some();
    world.until(&map("default", "blocks"), marked).await;
    world.until(&map("default", "loose"), marked).await;
    world.settle().await;
    world.get(&path).await.is(200);
    let free = json!({"metadata": {"finalizers": null}});
    world.merge(&map("default", "blocks"), &free).await.is(200);
    world.until_gone(&path).await;
    // Who does not block is not waited for.
    world.get(&map("default", "loose")).await.is(200);
    world.merge(&map("default", "loose"), &free).await.is(200);
    world.until_gone(&map("default", "loose")).await;
}

#[tokio::test]
async fn a_foreground_deletion_without_dependents_is_over_soon() {
    let world = World::new().await;
    make(&world, "alone", &[]).await;
    let path = map("default", "alone");
    world.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.is(200);
    world.until_gone(&path).await;
}

#[tokio::test]
async fn a_foreground_deletion_goes_down_the_chain_first() {
    let world = World::new().await;
    let parent = make(&world, "parent", &[]).await;
    let child = make(&world, "child", &[owner(&parent, true)]).await;
    make_in(&world, "default", "grandchild", &[owner(&child, true)], &["x.io/f"]).await;
    let path = map("default", "parent");
    world.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.is(200);
    world
        .until(&map("default", "child"), |reply| finalizers(&reply.body) == ["foregroundDeletion"])
        .await;
    world.settle().await;
    world.get(&path).await.is(200);
    let free = json!({"metadata": {"finalizers": null}});
    world.merge(&map("default", "grandchild"), &free).await.is(200);
    world.until_gone(&map("default", "child")).await;
    world.until_gone(&path).await;
}

#[tokio::test]
async fn a_dependent_with_another_owner_does_not_hold_a_foreground_deletion() {
    let world = World::new().await;
    let parent = make(&world, "parent", &[]).await;
    let other = make(&world, "other", &[]).await;
    make(&world, "shared", &[owner(&parent, true), owner(&other, true)]).await;
    let path = map("default", "parent");
    world.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.is(200);
    world.until_gone(&path).await;
    let shared = world.get(&map("default", "shared")).await.is(200);
    assert_eq!(uids(&shared), [other["metadata"]["uid"].as_str().unwrap()]);
}

#[tokio::test]
async fn rings_of_owners_come_apart() {
    let world = World::new().await;
    for policy in ["Background", "Foreground"] {
        let one = make(&world, "one", &[]).await;
        let two = make(&world, "two", &[owner(&one, true)]).await;
        let back = json!({"metadata": {"ownerReferences": [owner(&two, true)]}});
        world.merge(&map("default", "one"), &back).await.is(200);
        world.settle().await;
        world.get(&map("default", "one")).await.is(200);
        world.delete(&map("default", "one"), &json!({"propagationPolicy": policy})).await.is(200);
        world.until_gone(&map("default", "one")).await;
        world.until_gone(&map("default", "two")).await;
    }
    // One that owns itself.
    let odd = make(&world, "odd", &[]).await;
    let itself = json!({"metadata": {"ownerReferences": [owner(&odd, true)]}});
    world.merge(&map("default", "odd"), &itself).await.is(200);
    let foreground = json!({"propagationPolicy": "Foreground"});
    world.delete(&map("default", "odd"), &foreground).await.is(200);
    world.until_gone(&map("default", "odd")).await;
}

#[tokio::test]
async fn a_later_policy_replaces_an_earlier_one() {
    let world = World::new().await;
    make_in(&world, "default", "a", &[], &["x.io/f"]).await;
    let path = map("default", "a");
    // Orphan and foreground wishes are granted at once here, so only the last word can be seen.
    for policy in ["Foreground", "Orphan", "Background"] {
        let now = world.delete(&path, &json!({"propagationPolicy": policy})).await.is(200);
        let wish = finalizers(&now).into_iter().filter(|one| *one != "x.io/f").collect::<Vec<_>>();
        let expected: &[&str] = match policy {
            "Foreground" => &["foregroundDeletion"],
            "Orphan" => &["orphan"],
            _ => &[],
        };
        assert!(wish == expected || wish.is_empty(), "{policy}: {wish:?}");
    }
    world.merge(&path, &json!({"metadata": {"finalizers": null}})).await.is(200);
    world.until_gone(&path).await;
}

#[tokio::test]
async fn dependents_of_custom_objects_go_when_their_definition_goes() {
    let world = World::new().await;
    let made = world.post(&widgets("default"), &new_widget("w", &json!({}))).await.is(201);
    make(&world, "child", &[owner(&made, true)]).await;
    world.settle().await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.test.io";
    world.delete(definition, &Value::Null).await.is(200);
    world.until_gone(definition).await;
    world.until_gone(&map("default", "child")).await;
}

#[tokio::test]
async fn a_restarted_server_finishes_what_was_pending() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(folder.path()).await;
    world.namespace("going").await;
    let parent = make(&world, "parent", &[]).await;
    make_in(&world, "default", "blocks", &[owner(&parent, true)], &["x.io/f"]).await;
    make_in(&world, "going", "held", &[], &["x.io/f"]).await;
    let path = map("default", "parent");
    world.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.is(200);
    world.delete("/api/v1/namespaces/going", &Value::Null).await.is(200);
    let marked = |reply: &Reply| reply.body["metadata"].get("deletionTimestamp").is_some();
    world.until(&map("default", "blocks"), marked).await;
    world.until(&map("going", "held"), marked).await;
    world.stop().await;
    let world = World::on(folder.path()).await;
    world.get(&path).await.is(200);
    let free = json!({"metadata": {"finalizers": null}});
    world.merge(&map("default", "blocks"), &free).await.is(200);
    world.merge(&map("going", "held"), &free).await.is(200);
    world.until_gone(&path).await;
    world.until_gone("/api/v1/namespaces/going").await;
    world.stop().await;
    let world = World::on(folder.path()).await;
    world.get(&map("default", "blocks")).await.is(404);
    world.stop().await;
}

#[tokio::test]
async fn many_dependents_go_together() {
    let world = World::new().await;
    let parent = make(&world, "parent", &[]).await;
    let made = (0..200).map(|n| {
        let (client, reference) = (world.client.clone(), owner(&parent, n % 2 == 0));
        async move { make(&client, &format!("child-{n}"), &[reference]).await }
    });
    futures::future::join_all(made).await;
    let path = map("default", "parent");
    world.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.is(200);
    world.until_gone(&path).await;
    world
        .until(&maps("default"), |reply| reply.body["items"].as_array().is_some_and(Vec::is_empty))
        .await;
}

#[tokio::test]
async fn two_foreground_deletions_that_wait_for_each_other_both_end() {
    let world = World::new().await;
    let one = make_in(&world, "default", "one", &[], &["x.io/f"]).await;
    let two = make_in(&world, "default", "two", &[owner(&one, true)], &["x.io/f"]).await;
    let three = make_in(&world, "default", "three", &[owner(&two, true)], &["x.io/f"]).await;
    let back = json!({"metadata": {"ownerReferences": [owner(&three, true)]}});
    world.merge(&map("default", "one"), &back).await.is(200);
    let names = ["one", "two", "three"];
    for name in names {
        let options = json!({"propagationPolicy": "Foreground"});
        world.delete(&map("default", name), &options).await.is(200);
    }
    for name in names {
        let free = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/f"]}});
        world.patch(STRATEGIC, &map("default", name), &free).await.is(200);
    }
    for name in names {
        world.until_gone(&map("default", name)).await;
    }
}
