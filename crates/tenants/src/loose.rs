//! Objects whose spec and status are documents: reading one never fails, whatever is in it.
//!
//! A watch over typed objects stops being of use when one object cannot be decoded, and a copy made
//! through types loses what a newer peer wrote. So everything is read as it is, and decoded where a
//! decision needs it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use reconcile::Failure;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// An object of kind `K`, its spec and status as they are.
#[derive(Deserialize)]
#[serde(bound = "")]
pub struct Loose<K> {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Value,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K> Loose<K> {
    pub fn new(metadata: ObjectMeta, spec: Map<String, Value>) -> Self {
        Self { metadata, spec: Value::Object(spec), status: Value::Null, kind: PhantomData }
    }

    /// The spec or status as a document without empty places, as it can be copied.
    pub fn document(value: &Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => without_nulls(map),
            _ => Map::new(),
        }
    }

    /// The status as `T`; what cannot be read counts as nothing said.
    pub fn view<T: DeserializeOwned + Default>(&self) -> T {
        T::deserialize(&self.status).unwrap_or_default()
    }

    /// The status as `T`, for whoever decides what becomes of the object: one that cannot be read is not
    /// one that says nothing.
    pub fn known<T: DeserializeOwned + Default>(&self) -> Result<T, Failure> {
        let said = match &self.status {
            Value::Null => return Ok(T::default()),
            said => said,
        };
        T::deserialize(said).map_err(|error| {
            let doing = format!("read the status of {}/{}", self.namespace(), self.name());
            Failure::other(doing, error)
        })
    }

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.metadata.finalizers.iter().flatten().any(|one| one == finalizer)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// A word of the spec or status; absent and empty are one.
    pub fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
        value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
}

/// A merge patch cannot say `null`, so a copy with one would never be equal to what was copied.
fn without_nulls(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| {
            let value = match value {
                Value::Object(inner) => Value::Object(without_nulls(inner)),
                other => other.clone(),
            };
            (key.clone(), value)
        })
        .collect()
}

impl<K> Clone for Loose<K> {
    fn clone(&self) -> Self {
        Self {
            metadata: self.metadata.clone(),
            spec: self.spec.clone(),
            status: self.status.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Loose<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the spec: it may hold what a tenant wants nobody to read in a log.
        out.debug_struct("Loose").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<K: Resource<DynamicType = ()>> Serialize for Loose<K> {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        let mut map = output.serialize_map(None)?;
        map.serialize_entry("apiVersion", &K::api_version(&()))?;
        map.serialize_entry("kind", &K::kind(&()))?;
        map.serialize_entry("metadata", &self.metadata)?;
        for (key, value) in [("spec", &self.spec), ("status", &self.status)] {
            if !value.is_null() {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Loose<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&()).into_owned().into()
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&()).into_owned().into()
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&()).into_owned().into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&()).into_owned().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use api::nonadmin::NonAdminBackup;
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_is_in_it_an_object_is_read_and_written_as_it_is() {
        let odd = json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": "NonAdminBackup",
            "metadata": {"name": "n", "namespace": "a"},
            "spec": {"backupSpec": {"ttl": 30, "new": {"er": true}}}, "status": "what"});
        let read: Loose<NonAdminBackup> = serde_json::from_value(odd.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), odd);
        let empty = api::nonadmin::NonAdminBackupStatus::default();
        assert_eq!(read.view::<api::nonadmin::NonAdminBackupStatus>(), empty);
        assert_eq!(Loose::<NonAdminBackup>::plural(&()), "nonadminbackups");
    }

    #[test]
    fn a_status_that_cannot_be_read_is_not_an_empty_one() {
        type Status = api::nonadmin::NonAdminBackupStatus;
        let with = |status: Value| -> Result<Status, Failure> {
            let object = json!({"metadata": {"name": "n", "namespace": "a"}, "status": status});
            serde_json::from_value::<Loose<NonAdminBackup>>(object).unwrap().known()
        };
        assert_eq!(with(Value::Null).unwrap(), Status::default());
        assert_eq!(with(json!({})).unwrap(), Status::default());
        let newer = json!({"phase": "Newer", "veleroBackup": {"nacuuid": "n"}});
        let error = with(newer).unwrap_err().to_string();
        assert!(error.contains("read the status of a/n"), "{error}");
    }

    #[test]
    fn copies_have_no_nulls() {
        let copy =
            Loose::<NonAdminBackup>::document(&json!({"a": null, "b": {"c": null, "d": [null]}}));
        assert_eq!(Value::Object(copy), json!({"b": {"d": [null]}}));
    }
}
