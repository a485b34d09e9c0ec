//! Small shapes of the Kubernetes core that several dialects embed: selectors and references.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::words::words;

/// Chooses objects by their labels. All terms must hold; an empty selector takes everything.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels with exactly these values.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Terms on single label keys.
    pub match_expressions: Option<Vec<LabelTerm>>,
}

/// One term of a label selector.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelTerm {
    /// Label key the term is about.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: LabelOperator,
    /// Values for `In` and `NotIn`; empty for the other two.
    pub values: Option<Vec<String>>,
}

words! {
    /// How a term relates a label to its values.
    loose LabelOperator {
        In = "In",
        NotIn = "NotIn",
        Exists = "Exists",
        DoesNotExist = "DoesNotExist",
    }
}

/// Names one object, of any kind.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectReference {
    /// Group and version of the object.
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: Option<String>,
    /// Namespace of the object.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: Option<String>,
    /// Identity of the object, which a later one of the same name does not have.
    pub uid: Option<String>,
    /// Version of the object that is meant.
    pub resource_version: Option<String>,
    /// Part of the object that is meant, as a path.
    pub field_path: Option<String>,
}

/// Names an object of the same namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LocalReference {
    /// API group of the object; empty for the core group.
    pub api_group: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Names one key of a Secret.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretKey {
    /// Name of the Secret.
    pub name: Option<String>,
    /// Key inside the Secret.
    pub key: String,
    /// Whether the Secret or its key may be absent.
    pub optional: Option<bool>,
}
