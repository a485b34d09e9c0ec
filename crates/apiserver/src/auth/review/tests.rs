use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::auth::bootstrap;
use crate::auth::service_account::tests::{Known, at, signer, spec as token_spec};
use crate::auth::tokens::StaticTokens;

fn index() -> RbacIndex {
    let mut index = RbacIndex::default();
    for (kind, object) in bootstrap::objects() {
        index.upsert(kind, &object);
    }
    index
}

fn authenticator() -> Authenticator {
    let tokens = StaticTokens::parse("s3cret,ada,u1,dev").unwrap();
    Authenticator::new(tokens, Arc::new(signer()), Arc::new(Known::with("ns", "bot", "u1")))
}

fn causes(result: Result<Value, Causes>) -> Vec<(String, &'static str)> {
    let causes = result.unwrap_err();
    causes.into_iter().map(|cause| (cause.field, cause.reason.as_str())).collect()
}

#[test]
fn access_reviews_answer_for_resources_and_paths() {
    let ada = User::authenticated("ada", "", []);
    let ask = |spec: Value| {
        self_subject_access(&json!({ "spec": spec }), &ada, &index()).unwrap()["allowed"].clone()
    };
    let own = json!({"verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews"});
    assert_eq!(ask(json!({ "resourceAttributes": own })), true);
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "ns"});
    assert_eq!(ask(json!({ "resourceAttributes": pods })), false);
    assert_eq!(ask(json!({"nonResourceAttributes": {"path": "/healthz", "verb": "get"}})), true);
    assert_eq!(ask(json!({"nonResourceAttributes": {"path": "/x", "verb": "get"}})), false);
    let all = json!({"verb": "*", "group": "*", "resource": "*"});
    let body = json!({"spec": {"resourceAttributes": all}});
    let root = User::internal("root");
    assert_eq!(self_subject_access(&body, &root, &index()).unwrap()["allowed"], true);
}

#[test]
fn exactly_one_question_is_asked() {
    let ada = User::authenticated("ada", "", []);
    let ask = |spec: Value| self_subject_access(&json!({ "spec": spec }), &ada, &index());
    let wrong = ("spec.resourceAttributes".to_owned(), "FieldValueInvalid");
    assert_eq!(causes(ask(json!({}))), std::slice::from_ref(&wrong));
    assert_eq!(
        causes(ask(json!({"resourceAttributes": {}, "nonResourceAttributes": {}}))),
        [wrong]
    );
    let typed = causes(ask(json!({"resourceAttributes": {"verb": 1}})));
    assert_eq!(typed, [("spec.resourceAttributes.verb".to_owned(), "FieldValueTypeInvalid")]);
}

#[test]
fn a_subject_review_names_a_subject_and_gets_no_group_for_free() {
    let path = json!({"path": "/api", "verb": "get"});
    let ask = |user: &str, groups: Value| {
        let spec = json!({"user": user, "groups": groups, "nonResourceAttributes": path});
        subject_access(&json!({ "spec": spec }), &index())
    };
    assert_eq!(ask("x", json!(["system:authenticated"])).unwrap()["allowed"], true);
    assert_eq!(ask("x", json!([])).unwrap()["allowed"], false);
    assert_eq!(causes(ask("", json!([]))), [("spec.user".to_owned(), "FieldValueInvalid")]);
}

#[test]
fn a_local_review_stays_in_its_namespace() {
    let ask = |namespace: &str| {
        let spec = json!({"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": namespace}});
        local_subject_access(&json!({ "spec": spec }), "ns", &index())
    };
    assert_eq!(ask("ns").unwrap()["allowed"], false);
    let wrong = ("spec.resourceAttributes.namespace".to_owned(), "FieldValueInvalid");
    assert_eq!(causes(ask("other")), [wrong]);
    let path =
        json!({"spec": {"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    assert!(local_subject_access(&path, "ns", &index()).is_err());
}

#[test]
fn the_rules_review_lists_what_everyone_has() {
    let ada = User::authenticated("ada", "", []);
    let body = json!({"spec": {"namespace": "ns"}});
    let status = self_subject_rules(&body, &ada, &index()).unwrap();
    let text = status["resourceRules"].to_string();
    assert!(text.contains("selfsubjectaccessreviews"), "{text}");
    assert!(status["nonResourceRules"][0]["nonResourceURLs"].is_array());
    assert_eq!(status["incomplete"], false);
    assert!(self_subject_rules(&json!({}), &ada, &index()).is_err());
}

#[test]
fn a_token_review_names_the_user_or_says_no() {
    let it = authenticator();
    let ask = |token_text: &str| token(&json!({"spec": {"token": token_text}}), &it, at(2));
    let status = ask("s3cret").unwrap();
    assert_eq!(
        (&status["authenticated"], &status["user"]["username"]),
        (&json!(true), &json!("ada"))
    );
    let bot = it.signer().issue(&token_spec(), at(1)).unwrap().token;
    assert_eq!(ask(&bot).unwrap()["user"]["uid"], "u1");
    let refused = ask("x").unwrap();
    assert_eq!(refused["authenticated"], false);
    assert!(refused["error"].is_string());
    assert_eq!(causes(ask("")), [("spec.token".to_owned(), "FieldValueRequired")]);
}

#[test]
fn a_token_request_has_bounds_and_defaults() {
    let parse = |spec: Value| TokenRequest::parse(&json!({ "spec": spec }));
    let plain = parse(json!({})).unwrap();
    assert_eq!((plain.lifetime_s, plain.audiences.len(), plain.bound), (3600, 0, None));
    assert_eq!(parse(json!({"expirationSeconds": 600})).unwrap().lifetime_s, 600);
    assert_eq!(parse(json!({"expirationSeconds": 99_999_999})).unwrap().lifetime_s, MAX_LIFETIME_S);
    let cases = [
        (json!({"expirationSeconds": 10}), "spec.expirationSeconds"),
        (json!({"expirationSeconds": "x"}), "spec.expirationSeconds"),
        (json!({"expirationSeconds": 1_i64 << 40}), "spec.expirationSeconds"),
        (json!({"audiences": [1]}), "spec.audiences"),
        (json!({"boundObjectRef": {"kind": "Robot", "name": "n"}}), "spec.boundObjectRef.kind"),
        (json!({"boundObjectRef": {"kind": "Pod"}}), "spec.boundObjectRef.name"),
    ];
    for (spec, field) in cases {
        assert_eq!(parse(spec).unwrap_err()[0].field, field);
    }
    let bound = parse(json!({"boundObjectRef": {"kind": "Pod", "name": "p"}})).unwrap().bound;
    assert_eq!(bound, Some((BoundKind::Pod, ObjectRef { name: "p".into(), uid: String::new() })));
}

/// Small JSON with the keys the reviews look at.
fn noise() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z*/]{0,6}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "spec",
        "resourceAttributes",
        "nonResourceAttributes",
        "verb",
        "path",
        "user",
        "groups",
        "extra",
        "token",
        "audiences",
        "namespace",
        "expirationSeconds",
        "boundObjectRef",
        "kind",
    ]);
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(|pairs| {
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Value>()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn noise_never_panics(spec in noise()) {
        let (index, user) = (RbacIndex::default(), User::anonymous());
        for body in [json!({ "spec": spec }), spec] {
            let _ = self_subject_access(&body, &user, &index);
            let _ = subject_access(&body, &index);
            let _ = local_subject_access(&body, "ns", &index);
            let _ = self_subject_rules(&body, &user, &index);
            let _ = TokenRequest::parse(&body);
        }
    }
}

#[test]
fn a_group_that_is_named_often_is_asked_about_once() {
    let ask = |groups: Vec<String>| {
        let spec = json!({"user": "ada", "groups": groups});
        subject(&spec).map(|user| user.groups)
    };
    let often = std::iter::repeat_n("g".to_owned(), 100_000).collect();
    assert_eq!(ask(often).unwrap(), ["g"]);
    let many = (0..10_001).map(|number| format!("g{number}")).collect();
    let [cause] = &ask(many).unwrap_err()[..] else { panic!("one cause") };
    assert_eq!((cause.field.as_str(), cause.reason.as_str()), ("spec.groups", "FieldValueTooMany"));
}
