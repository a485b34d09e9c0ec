//! Events in both their groups, and leases as leader election uses them.

use serde_json::{Value, json};

use crate::support::*;

const CORE: &str = "/api/v1/namespaces/default/events";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn modern(name: &str) -> Value {
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000001Z", "reportingController": "x.io/c",
        "reportingInstance": "c-1", "action": "Act", "reason": "Because", "type": "Normal",
        "note": "text", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}})
}

#[tokio::test]
async fn one_event_has_two_faces() {
    let world = World::new().await;
    let core = json!({"metadata": {"name": "a"}, "message": "text", "reason": "Because",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "source": {"component": "c", "host": "h"}, "type": "Normal", "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z",
        "reportingComponent": "x.io/c", "reportingInstance": "i"});
    let made = world.post(CORE, &core).await.is(201);
    let other = world.get(&format!("{EVENTS}/a")).await.is(200);
    assert_eq!(other["apiVersion"], "events.k8s.io/v1");
    for (here, there) in [
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("reportingComponent", "reportingController"),
        ("reason", "reason"),
        ("type", "type"),
        ("reportingInstance", "reportingInstance"),
    ] {
        assert_eq!(made[here], other[there], "{here}");
        assert!(!other[there].is_null(), "{there}");
        assert!(here == there || other.get(here).is_none(), "{here}");
    }
    assert_eq!(other["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(version(&other), version(&made));
    let made = world.post(EVENTS, &modern("b")).await.is(201);
    assert_eq!(made["note"], "text");
    let core = world.get(&format!("{CORE}/b")).await.is(200);
    assert_eq!(core["message"], "text");
    assert_eq!(core["eventTime"], "2026-01-01T00:00:00.000001Z");
    // What is written through one face changes nothing in the other.
    assert_eq!(world.put(&format!("{EVENTS}/b"), &made).await.is(200), made);
    assert_eq!(world.put(&format!("{CORE}/b"), &core).await.is(200), core);
    world.delete(&format!("{EVENTS}/a"), &Value::Null).await.is(200);
    world.get(&format!("{CORE}/a")).await.is(404);
}

#[tokio::test]
async fn modern_events_must_be_complete_and_change_only_their_series() {
    let world = World::new().await;
    for member in
        ["eventTime", "reportingController", "reportingInstance", "action", "reason", "type"]
    {
        let mut body = modern("a");
        body.as_object_mut().unwrap().remove(member);
        let refused = world.post(EVENTS, &body).await.is(422);
        let causes = refused["details"]["causes"].to_string();
        assert!(causes.contains(member), "{member}: {refused}");
    }
    for (member, value) in [
        ("type", json!("Odd")),
        ("reportingController", json!("not a name")),
        ("reason", json!("x".repeat(129))),
        ("action", json!("x".repeat(129))),
        ("note", json!("x".repeat(1025))),
    ] {
        let mut body = modern("a");
        body[member] = value;
        world.post(EVENTS, &body).await.refused(422);
    }
    world.post(EVENTS, &modern("a")).await.is(201);
    let path = format!("{EVENTS}/a");
    world.merge(&path, &json!({"note": "other"})).await.refused(422);
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}});
    let now = world.merge(&path, &series).await.is(200);
    assert_eq!(now["series"]["count"], 2);
    assert_eq!(now["series"]["lastObservedTime"], "2026-01-01T00:00:05.000000Z");
    world.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
}

#[tokio::test]
async fn core_events_belong_to_the_namespace_of_their_object() {
    let world = World::new().await;
    world.namespace("n").await;
    let event = |name: &str, namespace: &str| {
        json!({"metadata": {"name": name},
        "involvedObject": {"kind": "Node", "name": "x", "namespace": namespace}})
    };
    world.post(CORE, &event("a", "default")).await.is(201);
    world.post(CORE, &event("b", "")).await.is(201);
    world.post(CORE, &event("c", "n")).await.refused(422);
    world.post("/api/v1/namespaces/n/events", &event("d", "")).await.refused(422);
    // The recorder of client-go counts with strategic patches.
    let more = json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:01Z", "message": "again"});
    let now = world.patch(STRATEGIC, &format!("{CORE}/a"), &more).await.is(200);
    assert_eq!(now["count"], 2);
    assert_eq!(now["message"], "again");
}

#[tokio::test]
async fn a_lease_is_taken_by_compare_and_swap() {
    let world = World::new().await;
    let path = format!("{LEASES}/l");
    let spec = |holder: &str, at: &str| {
        json!({"holderIdentity": holder, "renewTime": at,
        "acquireTime": at, "leaseDurationSeconds": 15, "leaseTransitions": 0})
    };
    let body =
        json!({"metadata": {"name": "l"}, "spec": spec("one", "2026-01-01T00:00:00.000000Z")});
    let made = world.post(LEASES, &body).await.is(201);
    assert_eq!(made["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
    world.post(LEASES, &body).await.refused(409);
    // Two candidates read the same version; one of them wins.
    let claims = ["two", "three"].map(|holder| {
        let (client, path, mut body) = (world.client.clone(), path.clone(), made.clone());
        body["spec"]["holderIdentity"] = holder.into();
        async move { client.put(&path, &body).await.code }
    });
    let mut codes = futures::future::join_all(claims).await;
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
    for (member, value) in [("leaseDurationSeconds", 0), ("leaseTransitions", -1)] {
        let change = json!({"spec": {member: value}});
        let refused = world.merge(&path, &change).await.is(422);
        assert_eq!(refused["details"]["causes"][0]["field"], format!("spec.{member}"));
    }
    let now = world.merge(&path, &json!({"spec": {"renewTime": "2026-01-01T00:00:07.5Z"}})).await;
    if now.code == 200 {
        assert_eq!(now.body["spec"]["renewTime"], "2026-01-01T00:00:07.500000Z");
    } else {
        now.refused(400);
    }
}

#[tokio::test]
async fn events_go_an_hour_after_their_last_write() {
    use apiserver::store::{Change, Expected, Key, Options, Store, Write};
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(folder.path()).await;
    let event = json!({"metadata": {"name": "young"}, "involvedObject": {"namespace": "default"}});
    world.post(CORE, &event).await.is(201);
    world.stop().await;
    // As if the server had run long ago.
    let store = Store::open(folder.path().join("objects.db"), &Options::default()).unwrap();
    for (name, written) in [("old", "2020-01-01T00:00:10Z"), ("counted", "2999-01-01T00:00:00Z")] {
        let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:count": {}}, "time": written});
        let object = json!({"apiVersion": "v1", "kind": "Event", "count": 1, "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "creationTimestamp": "2020-01-01T00:00:00Z", "managedFields": [entry]}});
        let write = Write {
            key: Key::new("/events", "default", name),
            expected: Expected::Absent,
            require: Vec::new(),
            change: Change::Put(object),
        };
        store.write(write).await.unwrap();
    }
    store.close().await;
    drop(store);
    let world = World::on(folder.path()).await;
    world.until_gone(&format!("{CORE}/old")).await;
    world.get(&format!("{CORE}/counted")).await.is(200);
    world.get(&format!("{CORE}/young")).await.is(200);
    world.stop().await;
}
