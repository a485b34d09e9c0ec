use super::*;

fn created(spec: &Value) -> Value {
    let mut object = full(spec);
    track_update(&widget(), None, &mut object, &writer("creator", "t1"));
    object
}

/// What `manager` stores when it changes `old` like this.
fn updated(old: &Value, manager: &str, now: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut new = old.clone();
    change(&mut new);
    track_update(&widget(), Some(old), &mut new, &writer(manager, now));
    new
}

#[test]
fn a_creator_owns_everything() {
    let object = created(&json!({"size": "s", "tags": ["a"]}));
    assert_eq!(
        owners(&object),
        [r#"creator/Update: .spec .spec.size .spec.tags .spec.tags[="a"]"#]
    );
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(
        entry,
        &json!({
            "manager": "creator", "operation": "Update", "apiVersion": "x.io/v1", "time": "t1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {".": {}, "f:size": {}, "f:tags": {".": {}, "v:\"a\"": {}}}},
        })
    );
}

#[test]
fn a_changed_field_moves_to_the_writer_and_others_keep_theirs() {
    let old = created(&json!({"size": "s", "nick": "n"}));
    let new = updated(&old, "editor", "t2", |new| new["spec"]["size"] = json!("l"));
    assert_eq!(owners(&new), ["creator/Update: .spec .spec.nick", "editor/Update: .spec.size"]);
    assert_eq!(times(&new), ["t1", "t2"]);
}

#[test]
fn a_removed_field_leaves_every_set() {
    let old =
        created(&json!({"size": "s", "nick": "n", "tags": ["a", "b"], "ports": [{"name": "a"}]}));
    let new = updated(&old, "editor", "t2", |new| {
        new["spec"] = json!({"size": "s", "tags": ["b"]});
    });
    assert_eq!(owners(&new), [r#"creator/Update: .spec .spec.size .spec.tags .spec.tags[="b"]"#]);
    assert_eq!(times(&new), ["t1"], "the editor took nothing");
}

#[test]
fn a_write_that_changes_nothing_keeps_entries_and_times() {
    let old = created(&json!({"size": "s", "ports": [{"name": "a"}]}));
    let same = updated(&old, "editor", "t2", |_| {});
    assert_eq!(same, old);
    // Clients that do not know the field, and status writes that bump versions.
    let without = updated(&old, "editor", "t2", |new| {
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.insert("resourceVersion".to_owned(), json!("9"));
    });
    assert_eq!(without["metadata"]["managedFields"], old["metadata"]["managedFields"]);
}

#[test]
fn the_same_writer_keeps_one_entry_and_renews_its_time() {
    let old = created(&json!({"size": "s"}));
    let new = updated(&old, "creator", "t2", |new| new["spec"]["nick"] = json!("n"));
    assert_eq!(owners(&new), ["creator/Update: .spec .spec.nick .spec.size"]);
    assert_eq!(times(&new), ["t2"]);
}

#[test]
fn status_writes_have_their_own_entry() {
    let old = created(&json!({"size": "s"}));
    let mut new = old.clone();
    new["status"] = json!({"conditions": [{"type": "Ready"}]});
    let status = Writer { subresource: Some("status"), ..writer("creator", "t2") };
    track_update(&widget(), Some(&old), &mut new, &status);
    assert_eq!(
        owners(&new),
        [
            "creator/Update: .spec .spec.size",
            r#"creator/Update/status: .status .status.conditions .status.conditions[type="Ready"] .status.conditions[type="Ready"].type"#,
        ]
    );
}

#[test]
fn items_of_lists_have_their_own_owners() {
    let old = created(
        &json!({"ports": [{"name": "a", "port": 1}], "args": ["x"], "sockets": [{"port": 1, "protocol": "TCP"}]}),
    );
    let new = updated(&old, "editor", "t2", |new| {
        new["spec"]["ports"] = json!([{"name": "b"}, {"name": "a", "port": 2}]);
        new["spec"]["args"] = json!(["x", "y"]);
        new["spec"]["sockets"] = json!([{"port": 1, "protocol": "UDP"}, {"port": 1}]);
    });
    assert_eq!(
        owners(&new)[1],
        r#"editor/Update: .spec.args .spec.ports[name="a"].port .spec.ports[name="b"] .spec.ports[name="b"].name .spec.sockets[port=1,protocol="UDP"] .spec.sockets[port=1,protocol="UDP"].port .spec.sockets[port=1,protocol="UDP"].protocol"#
    );
    let reordered = updated(&new, "other", "t3", |new| {
        new["spec"]["ports"] = json!([{"name": "a", "port": 2}, {"name": "b"}]);
    });
    assert_eq!(owners(&reordered), owners(&new));
}

#[test]
fn a_field_that_changes_its_form_is_taken_with_all_that_was_in_it() {
    let old = created(&json!({"blob": {"a": {"b": 1, "c": 2}}}));
    let new = updated(&old, "editor", "t2", |new| new["spec"]["blob"]["a"] = json!("text"));
    assert_eq!(owners(&new), ["creator/Update: .spec .spec.blob", "editor/Update: .spec.blob.a"]);
}

#[test]
fn lists_with_items_that_cannot_be_told_apart_are_one_field() {
    let old = created(&json!({"tags": ["a", "a"]}));
    let new = updated(&old, "editor", "t2", |new| new["spec"]["tags"] = json!(["a"]));
    assert!(owners(&new)[1].starts_with("editor/Update: .spec.tags"));
}

#[test]
fn a_client_may_replace_the_list() {
    // kubectl moves ownership from client-side to server-side apply by patching the list.
    let old = created(&json!({"size": "s"}));
    let new = updated(&old, "kubectl", "t2", |new| {
        new["metadata"]["managedFields"][0]["manager"] = json!("kubectl");
        new["metadata"]["managedFields"][0]["operation"] = json!("Apply");
    });
    assert_eq!(owners(&new), ["kubectl/Apply: .spec .spec.size"]);
    assert_eq!(times(&new), ["t1"]);
}

#[test]
fn a_client_may_clear_the_list_but_not_by_accident() {
    let old = created(&json!({"size": "s"}));
    let send =
        |list: Value| updated(&old, "m", "t2", |new| new["metadata"]["managedFields"] = list);
    assert!(send(json!([{}]))["metadata"].get("managedFields").is_none());
    for harmless in [
        json!([]),
        json!(null),
        json!("x"),
        json!([{"manager": "x"}]),
        json!([{"operation": "Apply", "fieldsV1": 1}]),
    ] {
        assert_eq!(send(harmless.clone()), old, "{harmless}");
    }
    let mut status = old.clone();
    status["metadata"]["managedFields"] = json!([{}]);
    let through = Writer { subresource: Some("status"), ..writer("m", "t2") };
    track_update(&widget(), Some(&old), &mut status, &through);
    assert_eq!(status, old, "a subresource cannot clear the list");
}

#[test]
fn an_object_without_entries_is_not_tracked_until_it_is_applied() {
    let old = full(&json!({"size": "s"}));
    let new = updated(&old, "editor", "t2", |new| new["spec"]["size"] = json!("l"));
    assert!(new["metadata"].get("managedFields").is_none());
    let applied =
        apply(&widget(), Some(&new), &full(&json!({"nick": "n"})), &writer("m", "t3"), false);
    assert_eq!(
        owners(&applied.unwrap()),
        ["m/Apply: .spec.nick", "before-first-apply/Update: .spec .spec.size"]
    );
}

#[test]
fn more_than_ten_updates_fold_into_ancient_changes() {
    let mut object = created(&json!({"attrs": {}}));
    for number in 0..12 {
        let (manager, now) = (format!("m{number:02}"), format!("t2{number:02}"));
        object = updated(&object, &manager, &now, |new| {
            new["spec"]["attrs"][&manager] = json!("x");
        });
    }
    let owners = owners(&object);
    assert_eq!(owners.len(), 10);
    assert_eq!(
        owners[0],
        "ancient-changes/Update: .spec .spec.attrs .spec.attrs.m00 .spec.attrs.m01 .spec.attrs.m02"
    );
    assert_eq!(owners[9], "m11/Update: .spec.attrs.m11");
}

#[test]
fn appliers_lose_what_others_update() {
    let config = full(&json!({"size": "s", "nick": "n"}));
    let old = apply(&widget(), None, &config, &writer("a", "t1"), false).unwrap();
    let new = updated(&old, "a", "t2", |new| new["spec"]["size"] = json!("l"));
    assert_eq!(owners(&new), ["a/Apply: .spec.nick", "a/Update: .spec.size"]);
}
