use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{MAPS, PARTIAL, PARTIAL_LIST, TABLE, WIDGETS, World, names, revision, widget};

/// Config maps of a test, without the one every namespace has.
const MINE: &str = "fieldSelector=metadata.name!%3Dkube-root-ca.crt";

#[tokio::test]
async fn a_list_carries_the_counter_and_never_null() {
    let world = World::start().await;
    let empty = world.get("/api/v1/namespaces/none/secrets").await.is(200);
    assert_eq!(empty["items"], json!([]));
    assert_eq!((&empty["kind"], &empty["apiVersion"]), (&json!("SecretList"), &json!("v1")));
    let before: u64 = revision(&empty).parse().unwrap();
    world.maps(&["b", "a"]).await;
    let secrets = world.get("/api/v1/namespaces/none/secrets").await.is(200);
    assert!(revision(&secrets).parse::<u64>().unwrap() >= before + 2);
    let list = world.get(&format!("{MAPS}?{MINE}&&")).await.is(200);
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list["items"][0]["kind"], "ConfigMap");
    assert_eq!(list["items"][0]["apiVersion"], "v1");
}

#[tokio::test]
async fn pages_show_the_snapshot_of_the_first_whatever_happens_meanwhile() {
    let world = World::start().await;
    world.widgets().await;
    for name in ["a", "b", "c", "d", "e"] {
        world.post(WIDGETS, &widget(name, "old")).await.is(201);
    }
    let first = world.get(&format!("{WIDGETS}?limit=2")).await.is(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    world.delete(&format!("{WIDGETS}/d")).await.is(200);
    world.delete(&format!("{WIDGETS}/a")).await.is(200);
    world.post(WIDGETS, &widget("bb", "new")).await.is(201);
    world.merge(&format!("{WIDGETS}/c"), &json!({"spec": {"size": "new"}})).await.is(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = world.get(&format!("{WIDGETS}?limit=2&continue={token}")).await.is(200);
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["items"][0]["spec"]["size"], "old");
    assert_eq!(revision(&second), revision(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let path = format!("{WIDGETS}?limit=2&resourceVersion=0&continue={token}");
    let last = world.get(&path).await.is(200);
    assert_eq!(names(&last), ["e"]);
    assert_eq!(last["metadata"]["continue"].as_str().unwrap_or(""), "");
    assert!(last["metadata"].get("remainingItemCount").is_none());
    assert_eq!(revision(&last), revision(&first));
}

#[tokio::test]
async fn pages_of_a_selection_count_nothing() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        world.map(name, &json!({"x": "y"})).await;
    }
    let first = world.get(&format!("{MAPS}?limit=2&labelSelector=x")).await.is(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first["metadata"].get("remainingItemCount").is_none());
    let token = first["metadata"]["continue"].as_str().unwrap();
    let path = format!("{MAPS}?limit=2&labelSelector=x&continue={token}");
    assert_eq!(names(&world.get(&path).await.is(200)), ["c"]);
    for limit in ["0", "-1"] {
        let all = world.get(&format!("{MAPS}?limit={limit}&labelSelector=x")).await.is(200);
        assert_eq!(names(&all).len(), 3);
    }
}

#[tokio::test]
async fn a_forgotten_snapshot_is_410_with_a_way_to_go_on() {
    let world = World::start().await;
    world.maps(&["a", "b", "c"]).await;
    let first = world.get(&format!("{MAPS}?limit=1")).await.is(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    // More than the history holds.
    let long = "x".repeat(1_000_000);
    for index in 0..10 {
        let data = json!({"data": {"k": format!("{index}{long}")}});
        world.merge(&format!("{MAPS}/a"), &data).await.is(200);
    }
    let answer = world.get(&format!("{MAPS}?limit=1&continue={token}")).await;
    answer.fails(410, "Expired");
    let rest = answer.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let list = world.get(&format!("{MAPS}?continue={rest}")).await.is(200);
    assert!(names(&list).contains(&"c") && !names(&list).contains(&"a"));
    let exact = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", revision(&first));
    world.get(&exact).await.fails(410, "Expired");
    // Without a match the newest state will do.
    let pages = format!("{MAPS}?limit=1&resourceVersion={}", revision(&first));
    assert_eq!(names(&world.get(&pages).await.is(200)), ["a"]);
}

#[tokio::test]
async fn revisions_and_matches_combine_as_the_protocol_says() {
    let world = World::start().await;
    world.maps(&["a"]).await;
    let old = world.now(MAPS).await;
    world.maps(&["b"]).await;
    let count = async |query: &str| {
        let list = world.get(&format!("{MAPS}?{MINE}&{query}")).await.is(200);
        (names(&list).len(), revision(&list))
    };
    let newest: u64 = world.now(MAPS).await.parse().unwrap();
    for query in [
        String::new(),
        "resourceVersion=0".into(),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".into(),
        format!("resourceVersion={old}"),
        format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan&limit=5"),
    ] {
        let (items, at) = count(&query).await;
        assert_eq!(items, 2, "{query}");
        assert!(at.parse::<u64>().unwrap() >= newest, "{query}");
    }
    let exact = format!("resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(count(&exact).await, (1, old.clone()));
    assert_eq!(count(&format!("resourceVersion={old}&limit=9")).await, (1, old.clone()));
    let refused = [
        ("resourceVersionMatch=Exact", 422, "Invalid"),
        ("resourceVersionMatch=NotOlderThan", 422, "Invalid"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, "Invalid"),
        ("resourceVersion=5&resourceVersionMatch=Newish", 422, "Invalid"),
        ("sendInitialEvents=true", 422, "Invalid"),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 422, "Invalid"),
        ("resourceVersion=abc", 400, "BadRequest"),
        ("resourceVersion=-1", 400, "BadRequest"),
        ("limit=abc", 400, "BadRequest"),
        ("continue=garbage", 400, "BadRequest"),
    ];
    for (query, code, reason) in refused {
        let text = world.get(&format!("{MAPS}?{query}")).await.fails(code, reason);
        if code == 422 {
            assert!(text.starts_with("ListOptions.meta.k8s.io \"\" is invalid: "), "{text}");
        }
    }
    let page = world.get(&format!("{MAPS}?limit=1")).await.is(200);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let both = world.get(&format!("{MAPS}?continue={token}&resourceVersion={old}")).await;
    both.fails(400, "BadRequest");
    let path = format!("{MAPS}?continue={token}&resourceVersion={old}&resourceVersionMatch=Exact");
    world.get(&path).await.fails(422, "Invalid");
}

#[tokio::test]
async fn a_revision_to_come_times_out_with_advice() {
    let world = World::start().await;
    let answer = world.get(&format!("{MAPS}?resourceVersion=99999999")).await;
    let text = answer.fails(504, "Timeout");
    assert!(text.starts_with("Timeout: Too large resource version: 99999999, current: "), "{text}");
    let status = answer.json();
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(answer.header("retry-after"), "1");
    // A revision that comes in time is waited for.
    let future = world.now(MAPS).await.parse::<u64>().unwrap() + 10;
    let path = format!("{MAPS}?resourceVersion={future}");
    let names: Vec<String> = (0..12).map(|index| format!("late{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (list, ()) = tokio::join!(world.get(&path), world.maps(&names));
    assert!(revision(&list.is(200)).parse::<u64>().unwrap() >= future);
}

#[tokio::test]
async fn label_selectors_follow_their_grammar() {
    let world = World::start().await;
    world.map("a", &json!({"t": "x", "n": "5", "mine": ""})).await;
    world.map("b", &json!({"t": "y", "mine": ""})).await;
    world.map("c", &json!({"mine": ""})).await;
    let cases: [(&str, &[&str]); 13] = [
        ("t=x", &["a"]),
        ("t==x", &["a"]),
        ("t!=x", &["b", "c"]),
        ("t in (x, y)", &["a", "b"]),
        ("t notin (x)", &["b", "c"]),
        ("t", &["a", "b"]),
        ("!t", &["c"]),
        ("n>4", &["a"]),
        ("n<4", &[]),
        ("t=x,n=5", &["a"]),
        (" t = x ", &["a"]),
        ("t in ()", &[]),
        ("mine=", &["a", "b", "c"]),
    ];
    for (selector, expected) in cases {
        let text: String = percent_encoding::utf8_percent_encode(
            &format!("mine,{selector}"),
            percent_encoding::NON_ALPHANUMERIC,
        )
        .collect();
        let answer = world.get(&format!("{MAPS}?labelSelector={text}")).await;
        assert_eq!(names(&answer.is(200)), expected, "{selector}");
    }
    for wrong in ["t%3D%3D%3Dx", "t%20in%20x", "a%20b", "%2C%2C", "t%3Ex", "-a%3Db"] {
        world.get(&format!("{MAPS}?labelSelector={wrong}")).await.fails(400, "BadRequest");
    }
}

#[tokio::test]
async fn field_selectors_know_the_fields_of_their_type() {
    let world = World::start().await;
    world.widgets().await;
    world.post(WIDGETS, &widget("a", "big")).await.is(201);
    world.post(WIDGETS, &widget("b", "small")).await.is(201);
    let cases: [(&str, &[&str]); 6] = [
        ("metadata.name%3Da", &["a"]),
        ("metadata.name%3D%3Da,spec.size%3Dsmall", &[]),
        ("metadata.name!%3Da", &["b"]),
        ("spec.size%3Dbig", &["a"]),
        ("spec.size!%3Dbig", &["b"]),
        ("metadata.namespace%3Ddefault", &["a", "b"]),
    ];
    for (selector, expected) in cases {
        let list = world.get(&format!("{WIDGETS}?fieldSelector={selector}")).await.is(200);
        assert_eq!(names(&list), expected, "{selector}");
        let all = "/apis/example.com/v1/widgets";
        let list = world.get(&format!("{all}?fieldSelector={selector}")).await.is(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
    let text = world
        .get(&format!("{WIDGETS}?fieldSelector=spec.replicas%3D1"))
        .await
        .fails(400, "BadRequest");
    assert!(text.contains("field label not supported: spec.replicas"), "{text}");
    world.get("/api/v1/pods?fieldSelector=spec.nodeName%3D,status.phase!%3DRunning").await.is(200);
    world.get("/api/v1/secrets?fieldSelector=type%3DOpaque").await.is(200);
    world.get("/api/v1/events?fieldSelector=involvedObject.name%3Dx,reason%3Dy").await.is(200);
    world.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive").await.is(200);
    let events = "/apis/events.k8s.io/v1/events";
    world.get(&format!("{events}?fieldSelector=regarding.name%3Dx,reason%3Dy")).await.is(200);
}

#[tokio::test]
async fn lists_come_as_tables_and_as_metadata() {
    let world = World::start().await;
    world.widgets().await;
    for name in ["a", "b", "c"] {
        world.post(WIDGETS, &widget(name, "big")).await.is(201);
    }
    let accept = format!("{TABLE},application/json");
    let table = world.get_as(&format!("{WIDGETS}?limit=2"), &accept).await;
    assert_eq!(table.header("content-type"), "application/json");
    let table = table.is(200);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(table["metadata"]["remainingItemCount"], 1);
    assert!(table["metadata"]["continue"].is_string());
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);
    let cells = &table["rows"][1]["cells"];
    assert_eq!((&cells[0], &cells[1]), (&json!("b"), &json!("big")));
    assert_eq!(table["rows"][1]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][1]["object"]["apiVersion"], "meta.k8s.io/v1");
    let row = async |query: &str| {
        let table = world.get_as(&format!("{WIDGETS}?{query}"), TABLE).await.is(200);
        table["rows"][0]["object"].clone()
    };
    assert_eq!(row("includeObject=Object").await["kind"], "Widget");
    assert_eq!(row("includeObject=None").await, Value::Null);
    assert_eq!(row("includeObject=Metadata").await["metadata"]["name"], "a");
    world.get_as(&format!("{WIDGETS}?includeObject=x"), TABLE).await.fails(400, "BadRequest");
    world.get(&format!("{WIDGETS}?includeObject=x")).await.is(200);
    let old = TABLE.replace("v=v1", "v=v1beta1");
    let beta = world.get_as(WIDGETS, &old).await.is(200);
    assert_eq!(beta["apiVersion"], "meta.k8s.io/v1beta1");
    let list = world.get_as(&format!("{WIDGETS}?limit=2"), PARTIAL_LIST).await.is(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert!(list["items"][0].get("spec").is_none());
    assert!(list["items"][0]["metadata"]["uid"].is_string());
    world.get_as(WIDGETS, PARTIAL).await.fails(406, "NotAcceptable");
}

#[tokio::test]
async fn single_objects_come_in_the_same_forms() {
    let world = World::start().await;
    world.widgets().await;
    world.post(WIDGETS, &widget("a", "big")).await.is(201);
    let one = format!("{WIDGETS}/a");
    let table = world.get_as(&one, TABLE).await.is(200);
    assert_eq!(table["rows"][0]["cells"][0], "a");
    let status = world.get_as(&format!("{one}/status"), TABLE).await.is(200);
    assert_eq!(status["kind"], "Table");
    let partial = world.get_as(&one, PARTIAL).await.is(200);
    assert_eq!(partial["kind"], "PartialObjectMetadata");
    assert!(partial.get("spec").is_none());
    world.get_as(&one, PARTIAL_LIST).await.fails(406, "NotAcceptable");
    let request = Request::post(WIDGETS).header("accept", TABLE);
    let made = world.send(request, Body::from(widget("b", "x").to_string())).await.is(201);
    assert_eq!(made["kind"], "Table");
    // Errors are plain, also when a table was asked for.
    world.get_as(&format!("{WIDGETS}/none"), TABLE).await.fails(404, "NotFound");
    // To watch one object, its collection is watched.
    assert_eq!(world.get(&format!("{one}?watch=true")).await.is(200)["kind"], "Widget");
}

/// Every watch would keep it, and every change be matched with it.
#[tokio::test]
async fn a_selector_of_thousands_of_parts_is_refused() {
    let world = World::start().await;
    let of = |count: usize| vec!["!a"; count].join(",");
    world.get(&format!("{MAPS}?labelSelector={}", of(200))).await.is(200);
    for ask in ["", "&watch=1"] {
        let refused = world.get(&format!("{MAPS}?labelSelector={}{ask}", of(300))).await.is(400);
        let message = refused["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("labelSelector is too long"), "{message}");
    }
}
