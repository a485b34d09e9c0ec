//! Settings: one value each, at the top of the object.

use super::V1BETA2;
use super::condition::Condition;
use super::rules;
use crate::resource::{AGE, column, kind, text};
use crate::schema::structural;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A setting of the whole system.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Setting {
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The value, or a JSON object with one for each kind of engine.
    #[serde(default)]
    pub value: String,
    pub status: Option<SettingStatus>,
}

/// Whether a setting has taken effect.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingStatus {
    /// Whether the value is in effect everywhere.
    pub applied: Option<bool>,
    /// Why it is not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

impl Setting {
    pub fn new(name: &str, value: &str) -> Self {
        let mut made = Self { value: value.to_owned(), ..Self::default() };
        made.metadata.name = Some(name.to_owned());
        made
    }
}

impl Serialize for Setting {
    fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let count = if self.status.is_some() { 5 } else { 4 };
        let mut object = output.serialize_struct("Setting", count)?;
        object.serialize_field("apiVersion", &<Self as kube_core::Resource>::api_version(&()))?;
        object.serialize_field("kind", "Setting")?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("value", &self.value)?;
        match &self.status {
            Some(status) => object.serialize_field("status", status)?,
            None => object.skip_field("status")?,
        }
        object.end()
    }
}

kind!(Setting in V1BETA2 {
    plural: "settings", short: ["lhs"],
    columns: [text("Value", ".value"), column("Applied", "boolean", ".status.applied"), AGE],
    doc: ["A setting of the whole system."],
    required: &["value"],
    fields: [
        ("value", serde_json::json!({
            "type": "string",
            "maxLength": 4096,
            "description": "The value, or a JSON object with one for each kind of engine.",
        })),
        ("status", structural::<SettingStatus>())
    ],
    rules: rules::settings()
});
