use apiserver::auth::User;
use serde_json::json;

use crate::support::{MAPS, WIDGETS, World, widget};

#[tokio::test]
async fn health_and_version_are_for_everybody() {
    let world = World::start().await;
    for path in ["/livez", "/readyz", "/healthz", "/livez/", "/readyz/ping"] {
        let answer = world.get(path).await;
        assert_eq!((answer.code.as_u16(), answer.text().as_str()), (200, "ok"), "{path}");
    }
    for path in ["/version", "/version/", "/version?timeout=5s"] {
        let version = world.get(path).await.is(200);
        for field in [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ] {
            assert!(version[field].is_string(), "{field}");
        }
        assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
    }
}

#[tokio::test]
async fn every_check_can_be_asked_for_shown_and_left_out() {
    let world = World::start().await;
    for path in ["/livez/etcd", "/readyz/log", "/healthz/ping", "/readyz/shutdown"] {
        let answer = world.get(path).await;
        assert_eq!((answer.code.as_u16(), answer.text().as_str()), (200, "ok"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    for path in ["/livez/no-such-check", "/livez/shutdown", "/readyz/etcd/more", "/livezz"] {
        world.get(path).await.fails(404, "NotFound");
    }
    let shown = |path: &'static str| async { world.get(path).await.text() };
    assert_eq!(
        shown("/livez?verbose").await,
        "[+]ping ok\n[+]log ok\n[+]etcd ok\nlivez check passed\n"
    );
    assert_eq!(
        shown("/readyz?verbose&exclude=etcd&exclude=log").await,
        "[+]ping ok\n[+]log excluded: ok\n[+]etcd excluded: ok\n[+]shutdown ok\nreadyz check passed\n"
    );
    let unknown = shown("/healthz?verbose=true&exclude=nope").await;
    let warning = "warn: some health checks cannot be excluded: no matches for \"nope\"\n";
    assert!(unknown.ends_with(&format!("{warning}healthz check passed\n")), "{unknown}");
    assert_eq!(shown("/livez?exclude=nope").await, "ok");
}

#[tokio::test]
async fn single_checks_are_for_those_who_watch_over_the_server() {
    let world = World::start().await;
    for (path, code) in [("/livez", 200), ("/livez?verbose", 200), ("/livez/etcd", 403)] {
        assert_eq!(world.get_by(User::anonymous(), path).await.code.as_u16(), code, "{path}");
    }
    let monitor = User::authenticated("ada", "", ["system:monitoring".to_owned()]);
    assert_eq!(world.get_by(monitor, "/livez/etcd").await.code.as_u16(), 200);
}

#[tokio::test]
async fn a_server_that_is_about_to_end_is_alive_and_not_ready() {
    let world = World::start().await;
    world.tasks.begin_stop();
    assert_eq!(world.get("/livez").await.code.as_u16(), 200);
    let ready = world.get("/readyz").await;
    assert_eq!(ready.code.as_u16(), 500, "{}", ready.text());
    assert!(ready.text().contains("[-]shutdown failed: "), "{}", ready.text());
}

#[tokio::test]
async fn unknown_places_are_not_found() {
    let world = World::start().await;
    world.widgets().await;
    for path in [
        "/nope",
        "/api/v2",
        "/api/v1/nopes",
        "/apis/nope.io",
        "/apis/nope.io/v1",
        "/apis/nope.io/v1/things",
        "/apis/example.com/v2/widgets",
        "/apis/example.com/v1beta1/widgets",
        "/api/v1/namespaces/default/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles",
        "/api/v1/namespaces/default/pods/x/log",
        "/api/v1/namespaces/default/configmaps/x/status",
        "/apis/example.com/v1/namespaces/default/widgets/x/nope",
        "/apis/example.com/v1alpha1/namespaces/default/widgets/x/scale",
        "/api/v1/namespaces/default/configmaps/a/b/c/d",
    ] {
        world.get(path).await.fails(404, "NotFound");
    }
    world.get(&format!("{MAPS}/")).await.is(200);
    world.get("/apis/").await.is(200);
}

#[tokio::test]
async fn verbs_a_place_does_not_know_are_refused() {
    let world = World::start().await;
    world.widgets().await;
    world.post(WIDGETS, &widget("a", "x")).await.is(201);
    let empty = json!({});
    let cases = [
        ("DELETE", "/api/v1/namespaces", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("POST", "/apis/example.com/v1/widgets", 404),
        ("DELETE", "/api/v1/configmaps", 405),
        ("POST", &format!("{MAPS}/a"), 405),
        ("POST", "/api/v1/namespaces/default", 405),
        ("PUT", MAPS, 405),
        ("PUT", WIDGETS, 400),
        ("PATCH", WIDGETS, 400),
        ("POST", &format!("{WIDGETS}/a/status"), 405),
        ("DELETE", &format!("{WIDGETS}/a/status"), 405),
        ("POST", &format!("{WIDGETS}/a/scale"), 405),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("POST", "/version", 405),
        ("OPTIONS", MAPS, 405),
        ("PUT", "/apis", 405),
    ];
    for (method, path, code) in cases {
        let answer = world.method(method, path, &empty).await;
        assert_eq!(answer.code.as_u16(), code, "{method} {path} {}", answer.text());
        let reason = match code {
            405 => "MethodNotAllowed",
            404 => "NotFound",
            _ => "BadRequest",
        };
        let text = answer.fails(code, reason);
        if code == 400 {
            assert_eq!(text, "name must be provided");
        }
    }
    // Of custom types a cluster takes it.
    let posted = world.post(&format!("{WIDGETS}/b"), &widget("b", "x")).await.is(201);
    assert_eq!(posted["metadata"]["name"], "b");
}

#[tokio::test]
async fn errors_say_whom_they_are_about() {
    let world = World::start().await;
    world.widgets().await;
    let core = world.get(&format!("{MAPS}/none")).await.is(404);
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "configmaps \"none\" not found", "reason": "NotFound",
        "details": {"name": "none", "kind": "configmaps"}, "code": 404,
    });
    assert_eq!(core, status);
    let custom = world.get(&format!("{WIDGETS}/none")).await.is(404);
    assert_eq!(custom["message"], "widgets.example.com \"none\" not found");
    assert_eq!(custom["details"]["group"], "example.com");
    world.post(WIDGETS, &widget("a", "x")).await.is(201);
    let twice = world.post(WIDGETS, &widget("a", "x")).await;
    assert_eq!(twice.fails(409, "AlreadyExists"), "widgets.example.com \"a\" already exists");
    assert_eq!(twice.json()["details"]["kind"], "widgets");
    let mut stale = widget("a", "y");
    stale["metadata"]["resourceVersion"] = json!("1");
    let text = world.method("PUT", &format!("{WIDGETS}/a"), &stale).await.fails(409, "Conflict");
    assert!(text.starts_with(
        "Operation cannot be fulfilled on widgets.example.com \"a\": the object has been modified"
    ));
    let mut wrong = widget("b", "x");
    wrong["spec"]["size"] = json!(5);
    let invalid = world.post(WIDGETS, &wrong).await;
    let text = invalid.fails(422, "Invalid");
    assert!(text.starts_with("Widget.example.com \"b\" is invalid: spec.size: "), "{text}");
    let details = &invalid.json()["details"];
    assert_eq!(details["kind"], "Widget");
    assert_eq!(details["causes"][0]["field"], "spec.size");
    assert!(details["causes"][0]["reason"].as_str().unwrap().starts_with("FieldValue"));
    let gone = world.method("DELETE", "/api/v1/namespaces", &json!({})).await.is(405);
    assert_eq!(gone["details"]["kind"], "namespaces");
}

#[tokio::test]
async fn scale_is_a_small_view_of_a_big_object() {
    let world = World::start().await;
    world.widgets().await;
    let made = world.post(WIDGETS, &widget("a", "x")).await.is(201);
    let path = format!("{WIDGETS}/a/scale");
    let scale = world.get(&path).await.is(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"]["replicas"].as_i64().unwrap_or(0), 0);
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        assert_eq!(scale["metadata"][member], made["metadata"][member], "{member}");
    }
    let scaled = world.merge(&path, &json!({"spec": {"replicas": 3}})).await.is(200);
    assert_eq!(scaled["spec"]["replicas"], 3);
    let object = world.get(&format!("{WIDGETS}/a")).await.is(200);
    assert_eq!(object["spec"]["replicas"], 3);
    assert_eq!(object["metadata"]["generation"], 2);
    let mut scale = scaled;
    scale["spec"]["replicas"] = json!(5);
    world.method("PUT", &path, &scale).await.is(200);
    world.method("PUT", &path, &scale).await.fails(409, "Conflict");
}

#[tokio::test]
async fn status_is_written_apart_from_the_rest() {
    let world = World::start().await;
    world.widgets().await;
    world.post(WIDGETS, &widget("a", "x")).await.is(201);
    let path = format!("{WIDGETS}/a/status");
    let change = json!({"metadata": {"labels": {"l": "1"}, "finalizers": ["x.io/y"]},
        "spec": {"size": "other"}, "status": {"replicas": 2}});
    let after = world.merge(&path, &change).await.is(200);
    assert_eq!(after["status"]["replicas"], 2);
    assert_eq!(after["spec"]["size"], "x");
    assert_eq!(after["metadata"]["generation"], 1);
    assert!(
        after["metadata"].get("labels").is_none() && after["metadata"].get("finalizers").is_none()
    );
    assert_eq!(world.get(&path).await.is(200)["status"]["replicas"], 2);
    let mut body = after.clone();
    body["status"]["replicas"] = json!(9);
    body["spec"]["size"] = json!("z");
    let main = world.method("PUT", &format!("{WIDGETS}/a"), &body).await.is(200);
    assert_eq!((&main["status"]["replicas"], &main["spec"]["size"]), (&json!(2), &json!("z")));
    assert_eq!(main["metadata"]["generation"], 2);
}

#[tokio::test]
async fn metrics_never_carry_a_strangers_words() {
    let world = World::start().await;
    for path in [
        "/api/v1/zebras",
        "/apis/zebra.io/v1/zebras",
        "/zebra",
        "/api/v1/namespaces/zebra/pods/zebra",
    ] {
        world.get(path).await;
    }
    world.method("ZEBRA", MAPS, &json!({})).await;
    let page = world.get("/metrics").await.text();
    assert!(page.contains("apiserver_requests"), "{page}");
    assert!(!page.to_lowercase().contains("zebra"), "{page}");
}
