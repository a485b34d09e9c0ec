use super::*;

fn try_apply(
    live: Option<&Value>,
    manager: &str,
    now: &str,
    spec: &Value,
) -> Result<Value, ApplyError> {
    super::apply(&widget(), live, &full(spec), &writer(manager, now), false)
}

fn applied(live: Option<&Value>, manager: &str, now: &str, spec: &Value) -> Value {
    try_apply(live, manager, now, spec).unwrap()
}

fn forced(live: &Value, manager: &str, now: &str, spec: &Value) -> Value {
    super::apply(&widget(), Some(live), &full(spec), &writer(manager, now), true).unwrap()
}

#[test]
fn an_applier_owns_exactly_the_fields_it_sent() {
    let object = applied(None, "a", "t1", &json!({"size": "s", "ports": [{"name": "p"}]}));
    assert_eq!(object["spec"], json!({"size": "s", "ports": [{"name": "p"}]}));
    assert_eq!(
        owners(&object),
        [r#"a/Apply: .spec.ports[name="p"] .spec.ports[name="p"].name .spec.size"#]
    );
    assert_eq!(
        object["metadata"]["managedFields"][0],
        json!({
            "manager": "a", "operation": "Apply", "apiVersion": "x.io/v1", "time": "t1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:ports": {"k:{\"name\":\"p\"}": {".": {}, "f:name": {}}}, "f:size": {}}},
        })
    );
}

#[test]
fn applying_again_changes_nothing_not_even_the_time() {
    let first = applied(None, "a", "t1", &json!({"size": "s", "tags": ["x"], "attrs": {}}));
    assert_eq!(
        applied(Some(&first), "a", "t2", &json!({"size": "s", "tags": ["x"], "attrs": {}})),
        first
    );
}

#[test]
fn another_value_of_somebody_elses_field_is_a_conflict() {
    let live = applied(None, "a", "t1", &json!({"size": "s"}));
    let error = try_apply(Some(&live), "b", "t2", &json!({"size": "l"})).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.size"#);
    let ApplyError::Conflicts(conflicts) = error else { panic!("conflicts expected") };
    assert_eq!(conflicts[0].field, ".spec.size");
    assert_eq!(conflicts[0].message(), r#"conflict with "a""#);
}

#[test]
fn conflicts_name_updaters_with_version_and_subresource() {
    let mut live = full(&json!({"size": "s", "nick": "n"}));
    track_update(&widget(), None, &mut live, &writer("kubectl-create", "t1"));
    let error = try_apply(Some(&live), "b", "t2", &json!({"size": "l"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "kubectl-create" using x.io/v1: .spec.size"#
    );
    let error = try_apply(Some(&live), "b", "t2", &json!({"size": "l", "nick": "m"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl-create\" using x.io/v1:\n- .spec.nick\n- .spec.size"
    );
    let status = Writer { subresource: Some("status"), ..writer("st", "t2") };
    let config = |replicas: u32| json!({"apiVersion": "x.io/v1", "kind": "Widget", "status": {"replicas": replicas}});
    let live = super::apply(&widget(), Some(&live), &config(1), &status, false).unwrap();
    let other = Writer { manager: "other", ..status };
    let error = super::apply(&widget(), Some(&live), &config(2), &other, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "st" with subresource "status": .status.replicas"#
    );
}

#[test]
fn force_takes_ownership_away() {
    let live = applied(None, "a", "t1", &json!({"size": "s", "nick": "n"}));
    let object = forced(&live, "b", "t2", &json!({"size": "l"}));
    assert_eq!(object["spec"], json!({"size": "l", "nick": "n"}));
    assert_eq!(owners(&object), ["a/Apply: .spec.nick", "b/Apply: .spec.size"]);
    assert_eq!(times(&object), ["t1", "t2"]);
}

#[test]
fn equal_values_are_shared_and_stay_until_both_drop_them() {
    let live = applied(None, "a", "t1", &json!({"size": "s", "nick": "n"}));
    let live = applied(Some(&live), "b", "t2", &json!({"size": "s", "nick": "n"}));
    assert_eq!(owners(&live), ["a/Apply: .spec.nick .spec.size", "b/Apply: .spec.nick .spec.size"]);
    let live = applied(Some(&live), "a", "t3", &json!({"size": "s"}));
    assert_eq!(live["spec"]["nick"], "n");
    let live = applied(Some(&live), "b", "t4", &json!({"size": "s"}));
    assert_eq!(live["spec"], json!({"size": "s"}));
}

#[test]
fn a_dropped_field_is_removed_unless_somebody_owns_it() {
    let live = applied(
        None,
        "a",
        "t1",
        &json!({"size": "s", "replicas": 5, "attrs": {"x": "1", "y": "2"}}),
    );
    let mut edited = live.clone();
    edited["spec"]["attrs"]["z"] = json!("3");
    track_update(&widget(), Some(&live), &mut edited, &writer("editor", "t2"));
    let object = applied(Some(&edited), "a", "t3", &json!({"size": "s", "attrs": {"y": "2"}}));
    assert_eq!(object["spec"], json!({"size": "s", "attrs": {"y": "2", "z": "3"}}));
    let object = applied(Some(&object), "a", "t4", &json!({"size": "s"}));
    assert_eq!(object["spec"], json!({"size": "s", "attrs": {"z": "3"}}));
}

#[test]
fn a_dropped_container_goes_with_its_defaults() {
    let mut live = applied(None, "a", "t1", &json!({"ports": [{"name": "p"}], "size": "s"}));
    live["spec"]["ports"][0]["port"] = json!(80);
    let object = applied(Some(&live), "a", "t2", &json!({"size": "s"}));
    assert_eq!(object["spec"], json!({"size": "s"}));
    let nothing = json!({"apiVersion": "x.io/v1", "kind": "Widget"});
    let object =
        super::apply(&widget(), Some(&object), &nothing, &writer("a", "t3"), false).unwrap();
    assert_eq!(
        object,
        json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}})
    );
}

#[test]
fn appliers_own_items_by_key_and_remove_only_their_own() {
    let live = applied(None, "a", "t1", &json!({"ports": [{"name": "a"}]}));
    let live = applied(Some(&live), "b", "t2", &json!({"ports": [{"name": "b", "port": 5}]}));
    assert_eq!(live["spec"]["ports"], json!([{"name": "a"}, {"name": "b", "port": 5}]));
    let live = applied(Some(&live), "b", "t3", &json!({"replicas": 3}));
    assert_eq!(live["spec"], json!({"ports": [{"name": "a"}], "replicas": 3}));
}

#[test]
fn sets_are_united_in_order() {
    let live = applied(None, "a", "t1", &json!({"tags": ["z", "b"]}));
    let live = applied(Some(&live), "b", "t2", &json!({"tags": ["c", "b"]}));
    assert_eq!(live["spec"]["tags"], json!(["z", "b", "c"]));
    let live = applied(Some(&live), "a", "t3", &json!({}));
    assert_eq!(live["spec"]["tags"], json!(["b", "c"]));
}

#[test]
fn atomic_lists_and_maps_conflict_as_a_whole() {
    let live = applied(None, "a", "t1", &json!({"args": ["x"], "selector": {"k": "v"}}));
    let error = try_apply(Some(&live), "b", "t2", &json!({"args": ["x", "y"]})).unwrap_err();
    assert!(error.to_string().ends_with(": .spec.args"));
    let error =
        try_apply(Some(&live), "b", "t2", &json!({"selector": {"other": "v"}})).unwrap_err();
    assert!(error.to_string().ends_with(": .spec.selector"));
    let object = forced(&live, "b", "t2", &json!({"args": ["y"], "selector": {"other": "v"}}));
    assert_eq!(object["spec"], json!({"args": ["y"], "selector": {"other": "v"}}));
    assert_eq!(owners(&object), ["b/Apply: .spec.args .spec.selector"]);
}

#[test]
fn a_missing_key_means_its_default() {
    let live = applied(None, "a", "t1", &json!({"sockets": [{"port": 1, "protocol": "TCP"}]}));
    let live = applied(Some(&live), "b", "t2", &json!({"sockets": [{"port": 1, "note": "n"}]}));
    assert_eq!(live["spec"]["sockets"], json!([{"port": 1, "protocol": "TCP", "note": "n"}]));
}

#[test]
fn changing_a_value_in_an_item_conflicts_at_its_path() {
    let live = applied(None, "a", "t1", &json!({"ports": [{"name": "a", "port": 1}]}));
    let error = try_apply(Some(&live), "b", "t2", &json!({"ports": [{"name": "a", "port": 2}]}))
        .unwrap_err();
    assert!(error.to_string().ends_with(r#": .spec.ports[name="a"].port"#), "{error}");
}

#[test]
fn lists_that_cannot_be_merged_are_refused() {
    for spec in [
        json!({"ports": [{"name": "a"}, {"name": "a"}]}),
        json!({"tags": ["a", "a"]}),
        json!({"ports": [{"port": 1}]}),
        json!({"sockets": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}),
    ] {
        let error = try_apply(None, "a", "t1", &spec).unwrap_err();
        assert!(matches!(error, ApplyError::Invalid(_)), "{spec}");
    }
    let error = super::apply(&widget(), None, &json!([]), &writer("a", "t"), false).unwrap_err();
    assert!(matches!(error, ApplyError::Invalid(_)));
}

#[test]
fn an_object_without_entries_belongs_to_before_first_apply() {
    let live = full(&json!({"size": "s"}));
    let error = try_apply(Some(&live), "a", "t1", &json!({"size": "l"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using x.io/v1: .spec.size"#
    );
    let object = applied(Some(&live), "a", "t1", &json!({"size": "s"}));
    assert_eq!(
        owners(&object),
        ["a/Apply: .spec.size", "before-first-apply/Update: .spec .spec.size"]
    );
}

#[test]
fn status_is_applied_beside_the_object() {
    let live = applied(None, "a", "t1", &json!({"size": "s"}));
    let status = Writer { subresource: Some("status"), ..writer("st", "t2") };
    let config = json!({"apiVersion": "x.io/v1", "kind": "Widget", "status": {"replicas": 2}});
    let live = super::apply(&widget(), Some(&live), &config, &status, false).unwrap();
    assert_eq!(owners(&live), ["a/Apply: .spec.size", "st/Apply/status: .status.replicas"]);
    let again = applied(Some(&live), "a", "t3", &json!({"size": "s"}));
    assert_eq!(again, live, "the object's applier does not touch the status");
}

#[test]
fn identity_of_the_live_object_is_not_changed() {
    let mut live = applied(None, "a", "t1", &json!({"size": "s"}));
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["labels"] = json!({"l": "1"});
    let mut config = full(&json!({"size": "s"}));
    config["metadata"] = json!({"name": "w", "resourceVersion": "6", "labels": {"m": "2"}});
    let object = super::apply(&widget(), Some(&live), &config, &writer("a", "t2"), false).unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], "7");
    assert_eq!(object["metadata"]["labels"], json!({"l": "1", "m": "2"}));
}

#[test]
fn dropping_the_last_label_keeps_the_metadata() {
    let mut config = full(&json!({"size": "s"}));
    config["metadata"]["labels"] = json!({"m": "2"});
    let live = super::apply(&widget(), None, &config, &writer("a", "t1"), false).unwrap();
    let object = applied(Some(&live), "a", "t2", &json!({"size": "s"}));
    assert_eq!(object["metadata"]["name"], "w");
    assert!(object["metadata"].get("labels").is_none());
}

#[test]
fn a_null_says_nothing_where_there_is_nothing() {
    let live = applied(None, "a", "t1", &json!({"size": "s"}));
    let mut object = applied(Some(&live), "a", "t1", &json!({"size": "s", "nick": null}));
    // The caller drops nulls before storing.
    object["spec"].as_object_mut().unwrap().remove("nick");
    let mut again = applied(Some(&object), "a", "t2", &json!({"size": "s", "nick": null}));
    again["spec"].as_object_mut().unwrap().remove("nick");
    assert_eq!(again, object);
}

#[test]
fn an_applier_keeps_one_entry_across_versions() {
    let live = applied(None, "a", "t1", &json!({"size": "s"}));
    let newer = Writer { api_version: "x.io/v2", ..writer("a", "t2") };
    let object =
        super::apply(&widget(), Some(&live), &full(&json!({"size": "s"})), &newer, false).unwrap();
    assert_eq!(owners(&object), ["a/Apply: .spec.size"]);
    assert_eq!(object["metadata"]["managedFields"][0]["apiVersion"], "x.io/v2");
}

#[test]
fn kubectl_can_move_from_client_side_to_server_side_apply() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = full(&json!({"size": "s", "nick": "n"}));
    live["metadata"]["annotations"] = json!({annotation: "{}"});
    track_update(&widget(), None, &mut live, &writer("kubectl-client-side-apply", "t1"));
    let config = full(&json!({"size": "s"}));
    let kubectl = writer("kubectl", "t2");
    let live = super::apply(&widget(), Some(&live), &config, &kubectl, false).unwrap();
    let mut note = full(&json!({}));
    note.as_object_mut().unwrap().remove("spec");
    note["metadata"]["annotations"] = json!({annotation: "{}"});
    let live =
        super::apply(&widget(), Some(&live), &note, &writer("kubectl-last-applied", "t2"), false)
            .unwrap();
    // The patch drops the client-side entry and gives its fields to the applier.
    let mut patched = live.clone();
    let list = patched["metadata"]["managedFields"].as_array_mut().unwrap();
    let moved = list.pop().unwrap()["fieldsV1"].clone();
    let own = list.iter_mut().find(|entry| entry["manager"] == "kubectl").unwrap();
    own["fieldsV1"] =
        FieldSet::parse(&moved).unwrap().union(&FieldSet::of(&widget(), &config)).to_value();
    track_update(&widget(), Some(&live), &mut patched, &writer("kubectl", "t3"));
    let done =
        super::apply(&widget(), Some(&patched), &config, &writer("kubectl", "t4"), false).unwrap();
    assert_eq!(done["spec"], json!({"size": "s"}), "the field of the old manager went away");
}
