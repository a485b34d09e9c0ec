//! Questions about oneself and others, and tokens.

use serde_json::{Value, json};

use crate::support::*;

const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

#[tokio::test]
async fn headers_make_another_user() {
    let world = World::new().await;
    let account = format!("system:serviceaccount:{}:default", world.name);
    let own = format!("system:serviceaccounts:{}", world.name);
    let table = [
        (
            vec![("impersonate-user", "zed")],
            json!({"username": "zed", "groups": ["system:authenticated"]}),
        ),
        (
            vec![
                ("impersonate-user", "zed"),
                ("impersonate-group", "a"),
                ("impersonate-group", "b"),
                ("impersonate-uid", "7"),
                ("impersonate-extra-scopes", "x"),
            ],
            json!({"username": "zed", "uid": "7", "groups": ["a", "b", "system:authenticated"],
                "extra": {"scopes": ["x"]}}),
        ),
        (
            vec![("impersonate-user", account.as_str())],
            json!({"username": account,
                "groups": ["system:serviceaccounts", own, "system:authenticated"]}),
        ),
    ];
    for (headers, wanted) in table {
        let review = world.impersonate(&headers, SELF).await.is(201);
        assert_eq!(review["status"]["userInfo"], wanted);
        assert!(review["metadata"]["creationTimestamp"].is_string());
    }
    world.impersonate(&[("impersonate-group", "a")], SELF).await.is(400);
}

#[tokio::test]
async fn a_token_lives_and_dies_with_its_account_and_what_it_is_bound_to() {
    let world = World::new().await;
    let accounts = world.core("serviceaccounts");
    world.post(&accounts, &json!({"metadata": {"name": "bot"}})).await.is(201);
    world.post(&world.core("secrets"), &json!({"metadata": {"name": "tie"}})).await.is(201);
    let path = format!("{accounts}/bot/token");
    let ask = |spec: Value| json!({"spec": spec});
    let (_, field, _) = world.post(&path, &ask(json!({"expirationSeconds": 599}))).await.cause();
    assert_eq!(field, "spec.expirationSeconds");
    let token = |body: Value| body["status"]["token"].as_str().unwrap().to_owned();
    let made = world.post(&path, &json!({})).await.is(201);
    assert_eq!(
        (&made["kind"], &made["spec"]["expirationSeconds"]),
        (&json!("TokenRequest"), &json!(3600))
    );
    let free = token(made);
    let tie = json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "tie"}});
    let tied = token(world.post(&path, &ask(tie)).await.is(201));
    let other = token(world.post(&path, &ask(json!({"audiences": ["elsewhere"]}))).await.is(201));
    let valid = |token: String, audiences: Value| {
        let world = &world;
        async move {
            let body = json!({"spec": {"token": token, "audiences": audiences}});
            let review = world.post(TOKENS, &body).await.is(201);
            assert!(
                review["status"]["authenticated"] == true || review["status"]["error"].is_string()
            );
            review["status"]["authenticated"] == true
        }
    };
    assert!(valid(free.clone(), json!([])).await);
    assert!(valid(tied.clone(), json!([])).await);
    assert!(!valid(other.clone(), json!([])).await);
    assert!(valid(other.clone(), json!(["elsewhere"])).await);
    world.delete(&format!("{}/tie", world.core("secrets"))).await.is(200);
    assert!(!valid(tied, json!([])).await);
    world.delete(&format!("{accounts}/bot")).await.is(200);
    assert!(!valid(free.clone(), json!([])).await);
    world.post(&accounts, &json!({"metadata": {"name": "bot"}})).await.is(201);
    assert!(!valid(free, json!([])).await, "another account of that name");
}

#[tokio::test]
async fn access_reviews_need_exactly_one_question() {
    let world = World::new().await;
    let base = "/apis/authorization.k8s.io/v1";
    let resource = json!({"verb": "get", "resource": "pods", "namespace": world.name});
    let path = json!({"verb": "get", "path": "/healthz"});
    let own = format!("{base}/selfsubjectaccessreviews");
    for spec in [json!({}), json!({"resourceAttributes": resource, "nonResourceAttributes": path})]
    {
        world.post(&own, &json!({"spec": spec})).await.is(422);
    }
    let ada = world.as_user("ada", &[]);
    for (spec, wanted) in [
        (json!({"resourceAttributes": resource}), false),
        (json!({"nonResourceAttributes": path}), true),
    ] {
        let review = ada.post(&own, &json!({"spec": spec})).await.is(201);
        assert_eq!(review["status"]["allowed"], wanted, "{review}");
    }
    let local = format!("{base}/namespaces/{}/localsubjectaccessreviews", world.name);
    let asked = json!({"spec": {"user": "ada", "resourceAttributes": resource}});
    assert_eq!(world.post(&local, &asked).await.is(201)["status"]["allowed"], false);
    let elsewhere = json!({"spec": {"user": "ada",
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}}});
    world.post(&local, &elsewhere).await.is(422);
    world.get(&own).await.is(405);
}
