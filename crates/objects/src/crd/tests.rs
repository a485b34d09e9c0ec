//! Which definitions may be installed, and what they say once they are.

use super::*;

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["w"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                "selectableFields": [{"jsonPath": ".spec.size"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "string"}, "replicas": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}
                }}}
            }]
        }
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut crd = widgets();
    change(&mut crd);
    default(&mut crd);
    crd
}

fn set(pointer: &str, value: Value) -> Value {
    with(|crd| {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match crd.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
            members => members[name] = value,
        }
    })
}

#[test]
fn defaults_fill_names_conversion_and_status_once() {
    let crd = with(|_| {});
    assert_eq!(crd.pointer("/spec/names/singular"), Some(&json!("widget")));
    assert_eq!(crd.pointer("/spec/names/listKind"), Some(&json!("WidgetList")));
    assert_eq!(crd.pointer("/spec/conversion"), Some(&json!({"strategy": "None"})));
    assert_eq!(crd.pointer("/status/storedVersions"), Some(&json!(["v1"])));
    let mut again = crd.clone();
    default(&mut again);
    assert_eq!(again, crd);
    assert_eq!(validate(&crd, None), []);
    assert_eq!(validate(&crd, Some(&crd)), []);
}

#[test]
fn wrong_definitions_are_refused_where_they_are_wrong() {
    let version = "/spec/versions/0";
    let at = |name: &str| format!("{version}/{name}");
    let schema = |schema: Value| set(&at("schema"), json!({"openAPIV3Schema": schema}));
    let table = [
        (set("/metadata/name", json!("x.y")), "metadata.name"),
        (set("/spec/group", json!("nodot")), "spec.group"),
        (set("/spec/group", json!("Upper.io")), "spec.group"),
        (set("/spec/scope", json!("Foo")), "spec.scope"),
        (set("/spec/scope", json!(null)), "spec.scope"),
        (set("/spec/preserveUnknownFields", json!(true)), "spec.preserveUnknownFields"),
        (set("/spec/names/kind", json!("widget")), "spec.names.kind"),
        (set("/spec/names/listKind", json!("Widget")), "spec.names.listKind"),
        (set("/spec/names/plural", json!("Widgets")), "spec.names.plural"),
        (set("/spec/names/shortNames", json!(["ok", "N o"])), "spec.names.shortNames[1]"),
        (set("/spec/conversion", json!({"strategy": "Webhook"})), "spec.conversion.strategy"),
        (set("/spec/versions", json!([])), "spec.versions"),
        (set(&at("storage"), json!(false)), "spec.versions"),
        (set(&at("name"), json!("V1")), "spec.versions[0].name"),
        (set(&at("schema"), json!(null)), "spec.versions[0].schema.openAPIV3Schema"),
        (
            schema(json!({"type": "object", "properties": {"a": {}}})),
            "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
        ),
        (
            set(
                &at("additionalPrinterColumns"),
                json!([{"name": "A", "type": "strange", "jsonPath": ".spec"}]),
            ),
            "spec.versions[0].additionalPrinterColumns[0].type",
        ),
        (
            set(
                &at("additionalPrinterColumns"),
                json!([{"name": "A", "type": "string", "jsonPath": "spec"}]),
            ),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
        (
            set(
                &at("subresources"),
                json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ".status.x"}}),
            ),
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
        (
            set(&at("subresources"), json!({"scale": {"specReplicasPath": ".spec.x"}})),
            "spec.versions[0].subresources.scale.statusReplicasPath",
        ),
        (
            set(&at("selectableFields"), json!([{"jsonPath": ".spec.nope"}])),
            "spec.versions[0].selectableFields[0].jsonPath",
        ),
        (
            set(&at("selectableFields"), json!([{"jsonPath": ".metadata.name"}])),
            "spec.versions[0].selectableFields[0].jsonPath",
        ),
        (set(&at("deprecationWarning"), json!("old")), "spec.versions[0].deprecationWarning"),
        (
            with(|crd| {
                crd["metadata"]["name"] = json!("widgets.foo.k8s.io");
                crd["spec"]["group"] = json!("foo.k8s.io");
            }),
            "metadata.annotations[api-approved.kubernetes.io]",
        ),
        (
            with(|crd| {
                let mut second = crd["spec"]["versions"][0].clone();
                second["storage"] = json!(false);
                crd["spec"]["versions"].as_array_mut().unwrap().push(second);
            }),
            "spec.versions[1].name",
        ),
        (json!({}), "spec"),
    ];
    for (crd, field) in table {
        let causes = validate(&crd, None);
        assert!(causes.iter().any(|cause| cause.field == field), "{field}: {causes:?}");
    }
}

#[test]
fn the_identity_of_a_definition_does_not_change() {
    let old = with(|_| {});
    for (field, new) in [
        ("spec.scope", set("/spec/scope", json!("Cluster"))),
        ("spec.names.kind", set("/spec/names/kind", json!("Other"))),
        ("spec.names.plural", set("/spec/names/plural", json!("others"))),
        ("spec.group", set("/spec/group", json!("y.io"))),
    ] {
        let causes = validate(&new, Some(&old));
        assert!(causes.iter().any(|cause| cause.field == field), "{field}: {causes:?}");
    }
    let renamed = set("/spec/versions/0/name", json!("v2"));
    let causes = validate(&renamed, Some(&old));
    assert!(causes.iter().any(|cause| cause.field == "status.storedVersions[0]"), "{causes:?}");
    assert_eq!(validate(&set("/spec/names/shortNames", json!(["wd"])), Some(&old)), []);
}

#[test]
fn a_definition_reads_as_typed_values() {
    let definition = Definition::parse(&with(|_| {})).unwrap();
    assert_eq!(definition.kind, "Widget");
    assert_eq!(definition.singular, "widget");
    assert_eq!(definition.list_kind, "WidgetList");
    assert_eq!(definition.scope, Scope::Namespaced);
    assert_eq!(definition.short_names, ["w"]);
    let version = definition.storage().unwrap();
    assert_eq!(version.name, "v1");
    assert!(version.served && version.status && !version.deprecated);
    let scale = version.scale.as_ref().unwrap();
    assert_eq!(scale.selector_path.as_deref(), Some(".status.selector"));
    assert_eq!(version.columns.len(), 2);
    assert_eq!(version.columns[1].priority, 1);
    assert_eq!(version.selectable_fields, [".spec.size"]);
    assert!(version.schema.properties.contains_key("spec"));
    assert!(Definition::parse(&json!({"spec": {}})).is_err());
}
