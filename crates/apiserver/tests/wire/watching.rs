use serde_json::json;

use crate::support::{
    DEFINITIONS, MAPS, PARTIAL, PARTIAL_LIST, TABLE, WIDGETS, World, revision, widget,
};

const STREAMING: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test]
async fn events_come_in_order_and_carry_kind_and_revision() {
    let world = World::start().await;
    let from = world.now(MAPS).await;
    let mut watch = world.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&limit=1")).await;
    world.map("a", &json!({})).await;
    world.merge(&format!("{MAPS}/a"), &json!({"data": {"k": "w"}})).await.is(200);
    world.delete(&format!("{MAPS}/a")).await.is(200);
    let mut last: u64 = from.parse().unwrap();
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], kind);
        assert_eq!(event["object"]["kind"], "ConfigMap");
        assert_eq!(event["object"]["apiVersion"], "v1");
        let revision: u64 = revision(&event["object"]).parse().unwrap();
        assert!(revision > last, "{event}");
        last = revision;
    }
    // The revision of the deletion is a place to resume from.
    let mut resumed = world.watch(&format!("{MAPS}?watch=true&resourceVersion={last}")).await;
    world.map("b", &json!({})).await;
    assert_eq!(resumed.take(1).await, ["ADDED b"]);
}

#[tokio::test]
async fn a_watch_without_a_revision_begins_with_what_is_there_in_key_order() {
    let world = World::start().await;
    world.maps(&["c", "a", "b"]).await;
    for start in ["", "&resourceVersion=0", "&resourceVersion="] {
        let path =
            format!("{MAPS}?watch=true{start}&fieldSelector=metadata.name!%3Dkube-root-ca.crt");
        let mut watch = world.watch(&path).await;
        assert_eq!(watch.take(3).await, ["ADDED a", "ADDED b", "ADDED c"], "{start}");
    }
}

#[tokio::test]
async fn selectors_report_coming_and_going() {
    let world = World::start().await;
    let from = world.now(MAPS).await;
    let path = format!("{MAPS}?watch=true&resourceVersion={from}&labelSelector=tier%3Dgold");
    let mut watch = world.watch(&path).await;
    world.map("a", &json!({"tier": "tin"})).await;
    let gold = json!({"metadata": {"labels": {"tier": "gold"}}, "data": {"k": "1"}});
    let tin = json!({"metadata": {"labels": {"tier": "tin"}}, "data": {"k": "2"}});
    world.merge(&format!("{MAPS}/a"), &gold).await.is(200);
    world.merge(&format!("{MAPS}/a"), &json!({"data": {"x": "y"}})).await.is(200);
    let left = revision(&world.merge(&format!("{MAPS}/a"), &tin).await.is(200));
    world.delete(&format!("{MAPS}/a")).await.is(200);
    world.map("z", &json!({"tier": "gold"})).await;
    assert_eq!(watch.take(2).await, ["ADDED a", "MODIFIED a"]);
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    // The last state that matched, at the revision at which it stopped to.
    assert_eq!(gone["object"]["metadata"]["labels"]["tier"], "gold");
    assert_eq!(gone["object"]["data"]["k"], "1");
    assert_eq!(revision(&gone["object"]), left);
    assert_eq!(watch.take(1).await, ["ADDED z"]);
}

#[tokio::test]
async fn declared_fields_select_events_too() {
    let world = World::start().await;
    world.widgets().await;
    let mut watch =
        world.watch(&format!("{WIDGETS}?watch=true&fieldSelector=spec.size%3Dbig")).await;
    world.post(WIDGETS, &widget("a", "small")).await.is(201);
    world.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"size": "big"}})).await.is(200);
    let left = world.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"size": "small"}})).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
    let gone = watch.next().await.unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["spec"]["size"]),
        (&json!("DELETED"), &json!("big"))
    );
    assert_eq!(revision(&gone["object"]), revision(&left.is(200)));
}

#[tokio::test]
async fn a_namespace_is_a_boundary_and_need_not_exist() {
    let world = World::start().await;
    let other = "/api/v1/namespaces/other/configmaps";
    let mut watch = world.watch(&format!("{other}?watch=true")).await;
    let mut all =
        world.watch("/api/v1/configmaps?watch=true&fieldSelector=metadata.name%3Dx").await;
    world.map("x", &json!({})).await;
    world.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.is(201);
    world.post(other, &json!({"metadata": {"name": "x"}})).await.is(201);
    let mut seen = watch.next().await.unwrap();
    while seen["object"]["metadata"]["name"] != "x" {
        seen = watch.next().await.unwrap();
    }
    assert_eq!(seen["object"]["metadata"]["namespace"], "other");
    assert_eq!(all.take(2).await, ["ADDED x", "ADDED x"]);
}

#[tokio::test]
async fn a_forgotten_revision_is_told_inside_the_stream() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["kind"], "Status");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
    let text = event["object"]["message"].as_str().unwrap();
    assert!(text.starts_with("too old resource version: 1 ("), "{text}");
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_revision_that_was_never_given_out_is_of_another_history() {
    let world = World::start().await;
    let future = world.now(MAPS).await.parse::<u64>().unwrap() + 20;
    let path = format!("{MAPS}?watch=true&resourceVersion={future}&timeoutSeconds=60");
    let mut watch = world.watch(&path).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn what_is_wrong_with_a_watch_is_said_before_the_stream() {
    let world = World::start().await;
    let future =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999";
    let cases = [
        ("resourceVersion=abc", 400, "BadRequest"),
        ("resourceVersion=-5", 400, "BadRequest"),
        ("labelSelector=%3D%3D", 400, "BadRequest"),
        ("fieldSelector=spec.nope%3D1", 400, "BadRequest"),
        ("resourceVersionMatch=NotOlderThan", 422, "Invalid"),
        ("resourceVersionMatch=Exact&resourceVersion=5", 422, "Invalid"),
        ("sendInitialEvents=true", 422, "Invalid"),
        ("sendInitialEvents=false", 422, "Invalid"),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 422, "Invalid"),
        (future, 504, "Timeout"),
    ];
    for (query, code, reason) in cases {
        let answer = world.get(&format!("{MAPS}?watch=true&{query}")).await;
        let text = answer.fails(code, reason);
        if code == 422 {
            assert!(text.starts_with("ListOptions.meta.k8s.io \"\" is invalid: "), "{text}");
        }
    }
    let yaml = world.get_as(&format!("{MAPS}?watch=true"), "application/yaml").await;
    yaml.fails_as_yaml(406);
    let list = world.get_as(&format!("{MAPS}?watch=true"), PARTIAL_LIST).await;
    list.fails(406, "NotAcceptable");
}

#[tokio::test]
async fn streaming_lists_mark_the_end_of_the_start() {
    let world = World::start().await;
    world.maps(&["a", "b"]).await;
    let now = world.now(MAPS).await;
    for start in
        ["", "&resourceVersion=0", &format!("&resourceVersion={now}"), "&resourceVersion=1"]
    {
        let path = format!(
            "{MAPS}?{STREAMING}{start}&labelSelector=!none&fieldSelector=metadata.name!%3Dkube-root-ca.crt"
        );
        let mut watch = world.watch(&path).await;
        assert_eq!(watch.take(2).await, ["ADDED a", "ADDED b"], "{start}");
        let mark = watch.next().await.unwrap();
        assert_eq!(mark["type"], "BOOKMARK");
        let at = revision(&mark["object"]);
        assert!(at.parse::<u64>().unwrap() >= now.parse().unwrap());
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": at, "annotations": {"k8s.io/initial-events-end": "true"}}});
        assert_eq!(mark["object"], object);
    }
}

#[tokio::test]
async fn a_streaming_list_of_nothing_is_its_mark_and_goes_on_live() {
    let world = World::start().await;
    let mut watch = world.watch(&format!("{MAPS}?{STREAMING}&labelSelector=a%3Db")).await;
    assert_eq!(watch.take(1).await, ["BOOKMARK -"]);
    world.map("x", &json!({"a": "b"})).await;
    assert_eq!(watch.take(1).await, ["ADDED x"]);
}

#[tokio::test]
async fn initial_events_can_be_declined_and_need_no_bookmark() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let from = world.now(MAPS).await;
    let declined = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut fresh = world.watch(&format!("{MAPS}?{declined}")).await;
    let mut any = world.watch(&format!("{MAPS}?{declined}&resourceVersion=0")).await;
    let mut after = world.watch(&format!("{MAPS}?{declined}&resourceVersion={from}")).await;
    let silent = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{MAPS}?{silent}&fieldSelector=metadata.name!%3Dkube-root-ca.crt");
    let mut marked = world.watch(&path).await;
    world.maps(&["b"]).await;
    for watch in [&mut fresh, &mut any, &mut after] {
        assert_eq!(watch.take(1).await, ["ADDED b"]);
    }
    assert_eq!(marked.take(2).await, ["ADDED a", "ADDED b"]);
}

#[tokio::test]
async fn a_streaming_list_waits_for_the_revision_it_must_not_be_older_than() {
    let world = World::start().await;
    let future = world.now(MAPS).await.parse::<u64>().unwrap() + 10;
    let path = format!("{MAPS}?{STREAMING}&resourceVersion={future}");
    let names: Vec<String> = (0..12).map(|index| format!("late{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut watch, ()) = tokio::join!(world.watch(&path), world.maps(&names));
    loop {
        let event = watch.next().await.unwrap();
        if event["type"] == "BOOKMARK" {
            assert!(revision(&event["object"]).parse::<u64>().unwrap() >= future);
            break;
        }
    }
}

#[tokio::test]
async fn a_watch_ends_on_time_with_a_bookmark_before() {
    let world = World::start().await;
    let from = world.now(MAPS).await;
    // Time enough for what is done below before the mark comes, on a loaded machine.
    let query = format!("watch=true&resourceVersion={from}&timeoutSeconds=12");
    let mut with = world.watch(&format!("{MAPS}?{query}&allowWatchBookmarks=true")).await;
    let mut without = world.watch(&format!("{MAPS}?{query}")).await;
    // Changes elsewhere move the mark: that is its purpose.
    world.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await.is(201);
    let newest = world.now("/api/v1/namespaces").await.parse::<u64>().unwrap();
    let mark = with.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    assert_eq!(mark["object"]["apiVersion"], "v1");
    assert!(revision(&mark["object"]).parse::<u64>().unwrap() >= newest);
    assert!(with.next().await.is_none());
    assert!(without.next().await.is_none());
}

#[tokio::test]
async fn a_watch_as_table_tells_its_columns_once() {
    let world = World::start().await;
    world.widgets().await;
    let mut watch = world.watch_as(&format!("{WIDGETS}?watch=true"), TABLE).await;
    world.post(WIDGETS, &widget("a", "big")).await.is(201);
    world.post(WIDGETS, &widget("b", "small")).await.is(201);
    let first = watch.next().await.unwrap();
    assert_eq!(first["type"], "ADDED");
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(first["object"]["apiVersion"], "meta.k8s.io/v1");
    let columns: Vec<&str> = first["object"]["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Size", "Age"]);
    let rows = first["object"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["cells"][0], "a");
    assert_eq!(rows[0]["cells"][1], "big");
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    let second = watch.next().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], json!([]));
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test]
async fn a_watch_as_metadata_shows_nothing_else() {
    let world = World::start().await;
    let path = format!("{MAPS}?{STREAMING}&labelSelector=a%3Db");
    let mut watch = world.watch_as(&path, &format!("{PARTIAL},application/json")).await;
    let mark = watch.next().await.unwrap();
    assert_eq!(mark["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(mark["object"]["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    world.map("x", &json!({"a": "b"})).await;
    world.merge(&format!("{MAPS}/x"), &json!({"metadata": {"labels": null}})).await.is(200);
    for kind in ["ADDED", "DELETED"] {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], kind);
        assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(event["object"]["metadata"]["labels"]["a"], "b");
        assert!(event["object"].get("data").is_none());
    }
}

#[tokio::test]
async fn every_version_of_a_type_sees_every_event_in_its_own_form() {
    let world = World::start().await;
    world.widgets().await;
    let old = "/apis/example.com/v1alpha1/namespaces/default/widgets";
    let mut stored = world.watch(&format!("{WIDGETS}?watch=true")).await;
    let mut other = world.watch(&format!("{old}?watch=true")).await;
    world.post(WIDGETS, &widget("a", "big")).await.is(201);
    assert_eq!(stored.next().await.unwrap()["object"]["apiVersion"], "example.com/v1");
    assert_eq!(other.next().await.unwrap()["object"]["apiVersion"], "example.com/v1alpha1");
}

#[tokio::test]
async fn watches_end_when_their_type_goes() {
    let world = World::start().await;
    world.widgets().await;
    world.post(WIDGETS, &widget("a", "big")).await.is(201);
    let mut watch = world.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
    world.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.is(200);
    let mut types = Vec::new();
    while let Some(event) = watch.next().await {
        types.push(event["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(types.last().map(String::as_str), Some("DELETED"));
}

#[tokio::test]
async fn watches_end_cleanly_at_shutdown() {
    let world = World::start().await;
    let mut watch = world.watch(&format!("{MAPS}?watch=true&labelSelector=a%3Db")).await;
    world.tasks.begin_stop();
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_list_and_a_watch_from_it_miss_nothing_under_load() {
    let world = World::start().await;
    let write = async {
        for index in 0..60 {
            world.map(&format!("m{index:02}"), &json!({"a": "b"})).await;
        }
    };
    let read = async {
        let mut seen = std::collections::BTreeSet::new();
        let mut rounds = 0;
        while seen.len() < 60 {
            seen.clear();
            let list = world.get(&format!("{MAPS}?labelSelector=a%3Db")).await.is(200);
            for name in crate::support::names(&list) {
                assert!(seen.insert(name.to_owned()));
            }
            let from = revision(&list);
            let path = format!("{MAPS}?watch=true&labelSelector=a%3Db&resourceVersion={from}");
            let mut watch = world.watch(&path).await;
            rounds += 1;
            let wanted = if rounds > 5 { 60 } else { (seen.len() + 5).min(60) };
            while seen.len() < wanted {
                let event = watch.next().await.unwrap();
                assert_eq!(event["type"], "ADDED");
                let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(seen.insert(name), "twice: {event}");
            }
        }
    };
    tokio::join!(write, read);
}
