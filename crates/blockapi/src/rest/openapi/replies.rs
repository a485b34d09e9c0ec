//! What answers carry, where a request was granted.

use serde_json::{Value, json};

/// The body of the answer, if there is one to be relied on.
pub(super) fn schema(method: &str, path: &str, success: &str) -> Option<Value> {
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    Some(match (method, path) {
        ("post", "/volumes") | ("get" | "put", "/volumes/{id}") => one("volume", &of("Volume")),
        ("get", "/volumes/detail") => many("volumes", &of("Volume")),
        ("get", "/backups/{id}") => one("backup", &of("Backup")),
        ("get", "/backups/detail") => many("backups", &of("Backup")),
        ("get", "/volumes") => many("volumes", &summary()),
        ("get", "/backups") => many("backups", &summary()),
        ("get", "/snapshots" | "/snapshots/detail") => many("snapshots", &described()),
        ("post", "/snapshots") | ("get" | "put", "/snapshots/{id}") => {
            one("snapshot", &described())
        }
        ("get", _) if success == "200" => json!({"type": "object"}),
        _ => return None,
    })
}

fn one(name: &str, schema: &Value) -> Value {
    json!({"type": "object", "required": [name], "properties": {name: schema}})
}

fn many(name: &str, schema: &Value) -> Value {
    one(name, &json!({"type": "array", "items": schema}))
}

fn summary() -> Value {
    json!({"type": "object", "required": ["id", "name", "links"], "properties": {
        "id": {"type": "string", "format": "uuid"}, "name": {"type": ["string", "null"]},
        "links": {"type": "array", "items": {"type": "object"}},
    }})
}

fn described() -> Value {
    json!({"type": "object", "required": ["id", "status", "volume_id", "size"], "properties": {
        "id": {"type": "string", "format": "uuid"}, "name": {"type": ["string", "null"]},
        "status": {"type": "string"}, "size": {"type": "integer"},
        "volume_id": {"type": "string", "format": "uuid"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
    }})
}
