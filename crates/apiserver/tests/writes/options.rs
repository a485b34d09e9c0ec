//! Options are decoded by their types: what is spelled wrong is refused, and nothing is changed.

use http::Method;
use serde_json::{Value, json};

use crate::support::*;

const JSON_BODY: &str = "application/json";

#[tokio::test]
async fn mistyped_delete_options_delete_nothing() {
    let world = World::new().await;
    world.post(&maps("default"), &json!({"metadata": {"name": "kept"}})).await.is(201);
    let path = map("default", "kept");
    let bad = [
        json!({"dryRun": "All"}),
        json!({"dryRun": [1]}),
        json!({"preconditions": {"uid": 5}}),
        json!({"preconditions": {"resourceVersion": 5}}),
        json!({"preconditions": "x"}),
        json!({"gracePeriodSeconds": "30"}),
        json!({"gracePeriodSeconds": 1.5}),
        json!({"orphanDependents": "yes"}),
        json!({"propagationPolicy": true}),
        json!({"kind": "Pod", "apiVersion": "v1"}),
        json!({"kind": "ConfigMap"}),
        json!({"kind": "DeleteOptions", "apiVersion": "apps/v1"}),
        json!({"kind": 7}),
        json!([]),
        json!("All"),
    ];
    for options in &bad {
        for path in [path.clone(), maps("default")] {
            world.delete(&path, options).await.refused(400);
        }
    }
    for query in ["gracePeriodSeconds=soon", "limit=many", "timeoutSeconds=x", "resourceVersion=x"]
    {
        let all = format!("{}?{query}", maps("default"));
        world.delete(&all, &Value::Null).await.refused(400);
        if query.starts_with("grace") {
            world.delete(&format!("{path}?{query}"), &Value::Null).await.refused(400);
        }
    }
    world.delete(&path, &json!({"preconditions": {"uid": ""}})).await.refused(409);
    world.delete(&path, &json!({"dryRun": ["Some"]})).await.refused(422);
    world.get(&path).await.is(200);
    for good in [
        json!({"dryRun": ["All"]}),
        json!({"dryRun": ["All"], "kind": "DeleteOptions", "apiVersion": "v1"}),
        json!({"dryRun": ["All"], "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}),
        json!({"dryRun": ["All"], "preconditions": null, "unknown": 1}),
    ] {
        world.delete(&path, &good).await.is(200);
    }
    world.get(&path).await.is(200);
    world.post(&widgets("default"), &new_widget("w", &json!({}))).await.is(201);
    let own = json!({"kind": "DeleteOptions", "apiVersion": "test.io/v1"});
    world.delete(&widget("default", "w"), &own).await.is(200);
}

#[tokio::test]
async fn a_limited_deletion_of_a_collection_is_limited() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.post(&widgets("default"), &new_widget(name, &json!({}))).await.is(201);
    }
    let path = format!("{}?limit=2", widgets("default"));
    let gone = world.delete(&path, &Value::Null).await.is(200);
    assert_eq!(gone["items"].as_array().map(Vec::len), Some(2), "{gone}");
    let left = world.get(&widgets("default")).await.is(200);
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
}

#[tokio::test]
async fn options_in_the_query_have_types_too() {
    let world = World::new().await;
    let list = maps("default");
    for query in ["limit=x", "timeoutSeconds=x", "resourceVersion=x", "watch=1&limit=x"] {
        world.get(&format!("{list}?{query}")).await.refused(400);
    }
    let body = json!({"metadata": {"name": "never"}});
    for query in ["dryRun=Some", "dryRun=", "fieldValidation=Maybe"] {
        world.post(&format!("{list}?{query}"), &body).await.refused(422);
    }
    world.get(&map("default", "never")).await.refused(404);
}

#[tokio::test]
async fn bodies_of_endpoints_are_of_their_kind() {
    let world = World::new().await;
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    world.until("/api/v1/namespaces/default/serviceaccounts/default", |it| it.code == 200).await;
    for body in [
        json!({"kind": "Pod", "apiVersion": "v1"}),
        json!({"kind": "TokenRequest", "apiVersion": "v1"}),
        json!({"spec": {"expirationSeconds": "3600"}}),
        json!({"spec": {"audiences": "me"}}),
        json!({"spec": []}),
    ] {
        world.post(token, &body).await.refused(400);
    }
    world.post(token, &json!({})).await.is(201);
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    world.post(review, &json!({"spec": {"resourceAttributes": {"verb": 5}}})).await.refused(400);
    world.post(review, &json!({"spec": "x"})).await.refused(400);
    scales(&world).await;
}

async fn scales(world: &World) {
    let apps = "/apis/apps/v1/namespaces/default/deployments";
    let pod = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"a": "b"}}, "template": pod}});
    world.post(apps, &body).await.is(201);
    let scale = format!("{apps}/d/scale");
    for body in [
        json!({"spec": {"replicas": "3"}}),
        json!({"spec": 3}),
        json!({"kind": "Deployment", "spec": {"replicas": 3}}),
        json!({"kind": "Scale", "apiVersion": "apps/v1", "spec": {"replicas": 3}}),
        json!({"metadata": {"name": "other"}, "spec": {"replicas": 3}}),
    ] {
        world.put(&scale, &body).await.refused(400);
    }
    world.merge(&scale, &json!({"spec": {"replicas": "3"}})).await.refused(400);
    world.send(Method::PUT, &scale, JSON_BODY, Vec::new()).await.refused(400);
    assert_eq!(world.get(&format!("{apps}/d")).await.is(200)["spec"]["replicas"], 2);
    let good = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "d"}, "spec": {"replicas": 3}});
    world.put(&scale, &good).await.is(200);
    assert_eq!(world.get(&format!("{apps}/d")).await.is(200)["spec"]["replicas"], 3);
}
