//! Every schema is structural, as an API server demands before it serves a kind.

use serde_json::{Map, Value};

const TYPES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];
const KEYWORDS: [&str; 29] = [
    "type",
    "format",
    "description",
    "default",
    "enum",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "nullable",
];

/// Says what is wrong with a node and everything below it.
fn faults(path: &str, node: &Value, out: &mut Vec<String>) {
    let Value::Object(map) = node else {
        out.push(format!("{path}: not an object but {node}"));
        return;
    };
    let mut fault = |what: &str| out.push(format!("{path}: {what}"));
    for key in map.keys().filter(|key| !KEYWORDS.contains(&key.as_str())) {
        fault(&format!("keyword {key}"));
    }
    let open = flag(map, "x-kubernetes-preserve-unknown-fields")
        || flag(map, "x-kubernetes-int-or-string");
    let kind = map.get("type").and_then(Value::as_str);
    match kind {
        Some(kind) if TYPES.contains(&kind) => {}
        None if open => {}
        other => fault(&format!("type {other:?}")),
    }
    if map.contains_key("properties") && map.contains_key("additionalProperties") {
        fault("properties beside additionalProperties");
    }
    if (kind == Some("array")) != map.contains_key("items") {
        fault("items without an array, or an array without items");
    }
    for word in map.get("enum").and_then(Value::as_array).into_iter().flatten() {
        if !fits(kind, word) {
            fault(&format!("enum value {word}"));
        }
    }
    if map.get("default").is_some_and(|default| !fits(kind, default)) {
        fault("default of another type");
    }
    let properties = map.get("properties").and_then(Value::as_object);
    for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
        let known = properties.is_some_and(|p| name.as_str().is_some_and(|n| p.contains_key(n)));
        if !known {
            fault(&format!("required {name} is not a property"));
        }
    }
    list_faults(map, &mut fault);
    for (name, child) in properties.into_iter().flatten() {
        faults(&format!("{path}.{name}"), child, out);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get(key) {
            faults(&format!("{path}[{key}]"), child, out);
        }
    }
}

fn list_faults(map: &Map<String, Value>, fault: &mut dyn FnMut(&str)) {
    if map.get("x-kubernetes-list-type").and_then(Value::as_str) != Some("map") {
        return;
    }
    let item = map.get("items").cloned().unwrap_or_default();
    let keys = map.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    for key in keys.into_iter().flatten() {
        let required = item["required"].as_array().is_some_and(|all| all.contains(key));
        if !required {
            fault(&format!("list key {key} is not required"));
        }
    }
    if keys.is_none_or(Vec::is_empty) {
        fault("list of type map without keys");
    }
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

fn fits(kind: Option<&str>, value: &Value) -> bool {
    match kind {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    }
}

fn schema(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

#[test]
fn every_schema_is_structural() {
    let mut out = Vec::new();
    for crd in api::crds() {
        let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
        faults(&name, schema(&crd), &mut out);
        assert_eq!(schema(&crd)["type"], "object");
        assert_eq!(schema(&crd)["properties"]["metadata"], serde_json::json!({"type": "object"}));
    }
    assert_eq!(out, Vec::<String>::new());
}

/// Fields whose name says it all may go without; the frame and the copied parts are described.
#[test]
fn every_property_says_what_it_is() {
    fn silent(path: &str, node: &Value, out: &mut Vec<String>) {
        for (name, child) in node["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if child["description"].as_str().is_none_or(str::is_empty) && name != "metadata" {
                out.push(path.clone());
            }
            silent(&path, child, out);
        }
        for key in ["items", "additionalProperties"] {
            if let Some(child) = node.get(key) {
                silent(path, child, out);
            }
        }
    }
    let mut out = Vec::new();
    for crd in api::crds() {
        assert_ne!(schema(&crd)["description"], "");
        silent(crd["metadata"]["name"].as_str().unwrap(), schema(&crd), &mut out);
    }
    assert_eq!(out, Vec::<String>::new());
}

#[test]
fn all_definitions_together_stay_small() {
    let bytes: usize = api::crds().iter().map(|crd| crd.to_string().len()).sum();
    println!("{} definitions, {bytes} bytes", api::crds().len());
    assert!(bytes < 600 * 1024, "{bytes} bytes");
}

#[test]
fn columns_point_at_fields_that_exist() {
    for crd in api::crds() {
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap() {
            let path = column["jsonPath"].as_str().unwrap();
            let mut node = schema(&crd);
            if path.starts_with(".metadata.") {
                continue;
            }
            let plain = path.replace("[?(@.type==", ".~").replace(")]", "");
            for step in plain.split('.').skip(1).filter(|step| !step.is_empty()) {
                node = match step.strip_prefix('~') {
                    Some(_) => &node["items"],
                    None => &node["properties"][step],
                };
            }
            assert!(node.is_object(), "{}: {path}", crd["metadata"]["name"]);
        }
    }
}

/// A copy of what a newer Velero says must not be refused for a word or a field we do not know.
#[test]
fn copies_of_foreign_documents_take_anything() {
    let crds = api::crds();
    let nab = crds.iter().find(|c| c["spec"]["names"]["kind"] == "NonAdminBackup").unwrap();
    let status = &schema(nab)["properties"]["status"]["properties"];
    let copy = &status["veleroBackup"]["properties"]["status"];
    assert_eq!(copy["x-kubernetes-preserve-unknown-fields"], true);
    assert!(copy["properties"]["phase"]["enum"].is_null());
    assert_eq!(copy["properties"]["phase"]["type"], "string");
    assert_eq!(
        status["phase"]["enum"],
        serde_json::json!(["New", "BackingOff", "Created", "Deleting"])
    );
}

#[test]
fn fields_that_never_change_say_so_in_a_rule() {
    let crds = api::crds();
    let spec = |kind: &str, group: &str| {
        let crd = crds
            .iter()
            .find(|c| c["spec"]["names"]["kind"] == kind && c["spec"]["group"] == group)
            .unwrap();
        schema(crd)["properties"]["spec"]["properties"].clone()
    };
    let rule = |node: &Value| node["x-kubernetes-validations"][0]["rule"].clone();
    let volume = spec("Volume", "longhorn.io");
    assert_eq!(rule(&volume["dataEngine"]), "self == oldSelf");
    assert_eq!(rule(&volume["encrypted"]), "self == oldSelf");
    assert_eq!(rule(&volume["fromBackup"]), "self == oldSelf || oldSelf == ''");
    assert_eq!(rule(&volume["backupBlockSize"]), "self == oldSelf || oldSelf == '-1'");
    assert_eq!(rule(&spec("Snapshot", "longhorn.io")["volume"]), "self == oldSelf");
}
