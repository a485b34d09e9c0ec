//! The `scale` view of an object: how many of it there should be, and are.
//!
//! Owns: the mapping between an object and its Scale, for built-in workloads and for the paths a
//! custom resource definition gives. Never: checks the result; the object's own rules do that.

use serde_json::{Map, Value, json};

use crate::access::{at, integer, text};
use crate::jsonpath::{self, Path, is_below};
use crate::kinds::selector_text;

/// Where an object keeps what its Scale shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalePaths {
    spec_replicas: Path,
    status_replicas: Path,
    selector: Selector,
}

#[derive(Debug, Clone, PartialEq)]
enum Selector {
    None,
    /// The path of a string.
    Text(Path),
    /// A selector object at `spec.selector`.
    Object,
}

impl ScalePaths {
    /// Those of Deployments, `ReplicaSet`s and `StatefulSet`s.
    pub fn builtin() -> Result<Self, String> {
        Ok(Self {
            spec_replicas: simple(".spec.replicas")?,
            status_replicas: simple(".status.replicas")?,
            selector: Selector::Object,
        })
    }

    /// Those in `subresources.scale` of a definition.
    pub fn parse(scale: &Value) -> Result<Self, String> {
        let path = |member: &str, parents: &[&str]| {
            let given = text(scale, member);
            if !parents.iter().any(|parent| is_below(given, parent)) {
                return Err(format!("{member} must be a path below .{}", parents.join(" or .")));
            }
            simple(given).map_err(|detail| format!("{member} {detail}"))
        };
        let selector = match text(scale, "labelSelectorPath") {
            "" => Selector::None,
            _ => Selector::Text(path("labelSelectorPath", &["spec", "status"])?),
        };
        Ok(Self {
            spec_replicas: path("specReplicasPath", &["spec"])?,
            status_replicas: path("statusReplicasPath", &["status"])?,
            selector,
        })
    }

    /// The Scale of `obj`. What is missing reads as 0.
    pub fn read(&self, obj: &Value) -> Value {
        let mut metadata = Map::new();
        for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = at(obj, "metadata").and_then(|metadata| metadata.get(member)) {
                metadata.insert(member.to_owned(), value.clone());
            }
        }
        let count = |path: &Path| jsonpath::integer(path, obj).unwrap_or_default();
        let mut status = json!({"replicas": count(&self.status_replicas)});
        let selector = match &self.selector {
            Selector::None => String::new(),
            Selector::Text(path) => jsonpath::text(path, obj).to_owned(),
            Selector::Object => selector_text(obj, "spec.selector"),
        };
        if let (false, Some(status)) = (selector.is_empty(), status.as_object_mut()) {
            status.insert("selector".to_owned(), selector.into());
        }
        json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata,
            "spec": {"replicas": count(&self.spec_replicas)},
            "status": status,
        })
    }

    /// Writes what `scale` asks for into `obj`. Says whether it could.
    pub fn write(&self, scale: &Value, obj: &mut Value) -> bool {
        let replicas = integer(scale, "spec.replicas").unwrap_or_default();
        self.spec_replicas.set(obj, replicas.into())
    }
}

fn simple(text: &str) -> Result<Path, String> {
    Path::parse(text).and_then(|path| {
        if path.is_simple() { Ok(path) } else { Err("must name members only".to_owned()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_workloads_scale() {
        let paths = ScalePaths::builtin().unwrap();
        let mut obj = json!({"metadata": {"name": "a", "labels": {}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}}});
        let scale = paths.read(&obj);
        assert_eq!(
            scale,
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"},
                "spec": {"replicas": 1}, "status": {"replicas": 0, "selector": "app=x"}})
        );
        assert!(paths.write(&json!({"spec": {"replicas": 4}}), &mut obj));
        assert_eq!(obj["spec"]["replicas"], json!(4));
    }

    #[test]
    fn custom_paths_scale() {
        let declared = json!({"specReplicasPath": ".spec.size.count", "statusReplicasPath": ".status.count",
            "labelSelectorPath": ".status.selector"});
        let paths = ScalePaths::parse(&declared).unwrap();
        let mut obj = json!({"status": {"count": 2, "selector": "a=b"}});
        assert_eq!(paths.read(&obj)["spec"], json!({"replicas": 0}));
        assert_eq!(paths.read(&obj)["status"], json!({"replicas": 2, "selector": "a=b"}));
        assert!(paths.write(&json!({"spec": {"replicas": 3}}), &mut obj));
        assert_eq!(obj["spec"], json!({"size": {"count": 3}}));
        assert!(!paths.write(&json!({}), &mut json!({"spec": {"size": 1}})));
    }

    #[test]
    fn odd_paths_are_refused() {
        for (spec, status, selector) in [
            (".status.a", ".status.b", ""),
            (".spec.a", ".spec.b", ""),
            (".spec.a[0]", ".status.b", ""),
            ("", ".status.b", ""),
            (".spec.a", ".status.b", ".metadata.labels"),
        ] {
            let declared = json!({"specReplicasPath": spec, "statusReplicasPath": status,
                "labelSelectorPath": selector});
            assert!(ScalePaths::parse(&declared).is_err(), "{declared}");
        }
    }
}
