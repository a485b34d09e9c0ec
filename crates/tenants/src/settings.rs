//! What administrators set: enforced specs, limits, periods.
//!
//! Owns reading and checking the `nonAdmin` section. A value of [`Settings`] is checked; a section
//! that is wrong is refused whole, with a sentence that says which key and why.

use std::time::Duration;

use api::duration::GoDuration;
use api::velero::{BackupSpec, BackupStorageLocationSpec, RestoreSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chosen::NamespaceSelector;
use crate::endpoint::Endpoint;
use crate::spec;

/// The `ConfigMap` in the administrators' namespace, and the key in it.
pub const CONFIG_MAP: &str = "non-admin-config";
pub const CONFIG_KEY: &str = "config.yaml";

const DEFAULT_COLLECTION: Duration = Duration::from_hours(24);
const DEFAULT_SYNC: Duration = Duration::from_mins(2);
/// How often Velero looks into a store that does not say it itself.
pub const VELERO_SYNC: Duration = Duration::from_mins(1);

/// A spec that administrators enforce, field by field.
pub type Enforced = Map<String, Value>;

/// What `kubectl delete` of a backup does, when neither flag of its spec is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ApiDeletePolicy {
    /// Nothing is removed until a flag is set or the finalizer taken off.
    #[default]
    Hold,
    /// The Velero objects are removed; the data stays in the store.
    RemoveObjects,
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub enable: bool,
    pub enforce_backup: Enforced,
    pub enforce_restore: Enforced,
    pub enforce_location: Enforced,
    pub require_approval: bool,
    /// `None`: never.
    pub collection_period: Option<Duration>,
    /// `None`: never.
    pub sync_period: Option<Duration>,
    pub api_delete_policy: ApiDeletePolicy,
    /// Backups that one namespace may have. `None`: as many as it likes.
    pub max_backups: Option<usize>,
    /// Unfinished Velero backups that one namespace may have in the queue at once.
    pub max_concurrent: Option<usize>,
    /// Whether specs may name commands to run in pods.
    pub allow_hooks: bool,
    /// Resource types that no restore of a tenant brings back.
    pub denied_restore_kinds: Vec<String>,
    /// Addresses that tenants' storage locations may name. `None`: any that is not an inner one.
    pub allowed_endpoints: Option<Vec<Endpoint>>,
    /// The service account of a tenant's namespace that its restores act as, whoever asks.
    pub restore_account: Option<String>,
    /// Whose tenants may ask for anything new. `None`: those of all namespaces.
    pub tenant_namespaces: Option<NamespaceSelector>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enable: true,
            enforce_backup: Map::new(),
            enforce_restore: Map::new(),
            enforce_location: Map::new(),
            require_approval: false,
            collection_period: Some(DEFAULT_COLLECTION),
            sync_period: Some(DEFAULT_SYNC),
            api_delete_policy: ApiDeletePolicy::Hold,
            max_backups: None,
            max_concurrent: None,
            allow_hooks: false,
            denied_restore_kinds: Vec::new(),
            allowed_endpoints: None,
            restore_account: None,
            tenant_namespaces: None,
        }
    }
}

/// Why a section cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("{CONFIG_KEY} cannot be read: {0}")]
    Text(String),
    #[error("DPA spec.nonAdmin.{key} ({text}) is not a duration; write it as 2m or 24h")]
    Period { key: &'static str, text: String },
    #[error(
        "DPA spec.nonAdmin.backupSyncPeriod ({sync}) can not be greater or equal \
         spec.nonAdmin.garbageCollectionPeriod ({collection})"
    )]
    Order { sync: GoDuration, collection: GoDuration },
    #[error(
        "DPA spec.nonAdmin.enforcedBSLSpec.backupSyncPeriod ({location}) can not be greater or \
         equal spec.nonAdmin.backupSyncPeriod ({sync})"
    )]
    LocationOrder { location: GoDuration, sync: GoDuration },
    #[error("DPA spec.nonAdmin.{section}.{field} is non-enforceable by admins{more}")]
    NotEnforceable { section: &'static str, field: String, more: &'static str },
    #[error("DPA spec.nonAdmin.{section} cannot be used: {reason}")]
    Enforced { section: &'static str, reason: String },
    #[error(
        "DPA spec.nonAdmin.restoreIdentity.serviceAccount ({0}) is not the name of a service account"
    )]
    Account(String),
    #[error(
        "DPA spec.nonAdmin.allowedEndpoints ({0}) is not an endpoint; write it as \
         https://s3.example.com, 10.1.2.3:9000 or *.example.com"
    )]
    Endpoint(String),
    #[error("DPA spec.nonAdmin.tenantNamespaceSelector cannot be used: {0}")]
    Selector(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "nonAdmin")]
    non_admin: Option<Section>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Section {
    enable: Option<bool>,
    enforce_backup_spec: Option<Enforced>,
    enforce_restore_spec: Option<Enforced>,
    #[serde(rename = "enforceBSLSpec")]
    enforce_bsl_spec: Option<Enforced>,
    #[serde(rename = "requireApprovalForBSL")]
    require_approval_for_bsl: Option<bool>,
    garbage_collection_period: Option<String>,
    backup_sync_period: Option<String>,
    api_delete_policy: Option<ApiDeletePolicy>,
    max_backups_per_namespace: Option<usize>,
    max_concurrent_per_namespace: Option<usize>,
    allow_hooks: Option<bool>,
    denied_restore_kinds: Option<Vec<String>>,
    allowed_endpoints: Option<Vec<String>>,
    restore_identity: Option<RestoreIdentity>,
    tenant_namespace_selector: Option<NamespaceSelector>,
}

/// Whose rights restores of tenants have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RestoreIdentity {
    service_account: String,
}

impl Settings {
    /// Reads the text of the section; an empty text means the defaults.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let file: File = serde_saphyr::from_str(text)
            // Behind its first line the error shows the text again.
            .map_err(|error| first_line(&error.to_string()))?;
        file.non_admin.unwrap_or_default().check()
    }
}

impl Section {
    fn check(self) -> Result<Settings, SettingsError> {
        let usual = Settings::default();
        let collection = period(
            "garbageCollectionPeriod",
            self.garbage_collection_period.as_deref(),
            DEFAULT_COLLECTION,
        )?;
        let sync = period("backupSyncPeriod", self.backup_sync_period.as_deref(), DEFAULT_SYNC)?;
        if let (Some(sync), Some(collection)) = (sync, collection)
            && sync >= collection
        {
            return Err(SettingsError::Order { sync: sync.into(), collection: collection.into() });
        }
        let enforce_backup =
            fields::<BackupSpec>("enforceBackupSpec", self.enforce_backup_spec, backup_field)?;
        let settings = Settings {
            enable: self.enable.unwrap_or(usual.enable),
            enforce_backup: spec::present(&enforce_backup),
            enforce_restore: fields::<RestoreSpec>(
                "enforceRestoreSpec",
                self.enforce_restore_spec,
                restore_field,
            )?,
            enforce_location: fields::<BackupStorageLocationSpec>(
                "enforceBSLSpec",
                self.enforce_bsl_spec,
                location_field,
            )?,
            require_approval: self.require_approval_for_bsl.unwrap_or(usual.require_approval),
            collection_period: collection,
            sync_period: sync,
            api_delete_policy: self.api_delete_policy.unwrap_or_default(),
            // Nobody sets a limit to say that nothing is allowed: 0 means none, as in periods.
            max_backups: self.max_backups_per_namespace.filter(|max| *max > 0),
            max_concurrent: self.max_concurrent_per_namespace.filter(|max| *max > 0),
            allow_hooks: self.allow_hooks.unwrap_or(usual.allow_hooks),
            denied_restore_kinds: self.denied_restore_kinds.unwrap_or_default(),
            allowed_endpoints: self.allowed_endpoints.map(endpoints).transpose()?,
            restore_account: account(self.restore_identity)?,
            tenant_namespaces: chosen(self.tenant_namespace_selector)?,
        };
        settings.location_period()?;
        Ok(settings)
    }
}

impl Settings {
    fn location_period(&self) -> Result<(), SettingsError> {
        let enforced = self.enforce_location.get("backupSyncPeriod").and_then(Value::as_str);
        let location = enforced.and_then(|text| GoDuration::from(text).get().ok());
        match (location, self.sync_period) {
            (Some(location), Some(sync)) if location >= sync => {
                Err(SettingsError::LocationOrder { location: location.into(), sync: sync.into() })
            }
            _ => Ok(()),
        }
    }
}

fn endpoints(given: Vec<String>) -> Result<Vec<Endpoint>, SettingsError> {
    let read = |text: String| Endpoint::parse(&text).ok_or(SettingsError::Endpoint(text));
    given.into_iter().map(read).collect()
}

fn chosen(selector: Option<NamespaceSelector>) -> Result<Option<NamespaceSelector>, SettingsError> {
    match selector.as_ref().and_then(NamespaceSelector::fault) {
        Some(fault) => Err(SettingsError::Selector(fault)),
        None => Ok(selector),
    }
}

fn account(identity: Option<RestoreIdentity>) -> Result<Option<String>, SettingsError> {
    let Some(RestoreIdentity { service_account: name }) = identity else { return Ok(None) };
    let fits = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-' || it == '.';
    if name.is_empty() || name.len() > 253 || !name.chars().all(fits) {
        return Err(SettingsError::Account(name));
    }
    Ok(Some(name))
}

/// A period; 0 turns it off.
fn period(
    key: &'static str,
    text: Option<&str>,
    usual: Duration,
) -> Result<Option<Duration>, SettingsError> {
    let Some(text) = text else { return Ok(Some(usual)) };
    let read = GoDuration::from(text).get();
    let read = read.map_err(|_| SettingsError::Period { key, text: text.to_owned() })?;
    Ok((!read.is_zero()).then_some(read))
}

/// Checks that the fields are fields of `T` and may be enforced.
fn fields<T: DeserializeOwned + Serialize>(
    section: &'static str,
    given: Option<Enforced>,
    refuse: fn(&str, &Value) -> Option<&'static str>,
) -> Result<Enforced, SettingsError> {
    let mut given = given.unwrap_or_default();
    given.retain(|_, value| !value.is_null());
    for (field, value) in &given {
        if let Some(more) = refuse(field, value) {
            return Err(SettingsError::NotEnforceable { section, field: field.clone(), more });
        }
    }
    let wrong = |reason: String| SettingsError::Enforced { section, reason: one_line(&reason) };
    let typed = T::deserialize(Value::Object(given.clone())).map_err(|e| wrong(e.to_string()))?;
    let known = serde_json::to_value(typed).map_err(|error| wrong(error.to_string()))?;
    match given.keys().find(|key| known.get(key).is_none()) {
        Some(unknown) => Err(wrong(format!("there is no field {unknown}"))),
        None => Ok(given),
    }
}

fn backup_field(field: &str, value: &Value) -> Option<&'static str> {
    match field {
        "storageLocation"
        | "volumeSnapshotLocations"
        | "includedNamespaces"
        | "excludedNamespaces" => Some(""),
        "includeClusterResources" if *value == Value::Bool(true) => {
            Some(" as true, must be set to false if enforced by admins")
        }
        "includedClusterScopedResources" if value.as_array().is_some_and(|it| !it.is_empty()) => {
            Some(" and must remain empty")
        }
        _ => None,
    }
}

fn restore_field(field: &str, _: &Value) -> Option<&'static str> {
    let refused = [
        "scheduleName",
        "backupName",
        "includedNamespaces",
        "excludedNamespaces",
        "namespaceMapping",
    ];
    refused.contains(&field).then_some("")
}

fn location_field(field: &str, _: &Value) -> Option<&'static str> {
    (field == "default").then_some("")
}

fn first_line(error: &str) -> SettingsError {
    let line = error.lines().next().unwrap_or_default();
    SettingsError::Text(line.trim_start_matches("error: ").to_owned())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_means_the_defaults_of_the_dialect() {
        for text in ["", "nonAdmin:", "nonAdmin: {}", "{}"] {
            assert_eq!(Settings::parse(text).unwrap(), Settings::default(), "{text}");
        }
        let usual = Settings::default();
        assert_eq!(usual.collection_period, Some(Duration::from_hours(24)));
        assert_eq!(usual.sync_period, Some(Duration::from_mins(2)));
        assert!(!usual.require_approval && !usual.allow_hooks);
    }

    #[test]
    fn a_section_of_the_dialect_is_read_as_it_is() {
        let text = "
nonAdmin:
  enable: true
  enforceBackupSpec:
    snapshotVolumes: false
    ttl: 36h
  enforceRestoreSpec: {restorePVs: false}
  enforceBSLSpec: {provider: aws, backupSyncPeriod: 30s}
  requireApprovalForBSL: true
  garbageCollectionPeriod: 0s
  backupSyncPeriod: 5m
  apiDeletePolicy: RemoveObjects
  maxBackupsPerNamespace: 12
  maxConcurrentPerNamespace: 0
";
        let read = Settings::parse(text).unwrap();
        assert_eq!(read.enforce_backup.len(), 2);
        assert_eq!(read.collection_period, None);
        assert_eq!(read.sync_period, Some(Duration::from_mins(5)));
        assert_eq!(read.api_delete_policy, ApiDeletePolicy::RemoveObjects);
        assert_eq!((read.max_backups, read.max_concurrent), (Some(12), None));
        assert!(read.require_approval);
    }

    #[test]
    fn wrong_settings_are_refused_with_what_is_wrong() {
        let table = [
            (
                "nonAdmin: {backupSyncPeriod: 3h, garbageCollectionPeriod: 1h}",
                "DPA spec.nonAdmin.backupSyncPeriod (3h0m0s) can not be greater or equal spec.nonAdmin.garbageCollectionPeriod (1h0m0s)",
            ),
            (
                "nonAdmin: {backupSyncPeriod: 3h, garbageCollectionPeriod: 3h}",
                "can not be greater or equal",
            ),
            ("nonAdmin: {backupSyncPeriod: -3h}", "is not a duration"),
            ("nonAdmin: {backupSyncPeriod: 30d}", "is not a duration"),
            (
                "nonAdmin: {enforceBSLSpec: {backupSyncPeriod: 2m}}",
                "enforcedBSLSpec.backupSyncPeriod (2m0s)",
            ),
            (
                "nonAdmin: {enforceBackupSpec: {storageLocation: x}}",
                "storageLocation is non-enforceable by admins",
            ),
            (
                "nonAdmin: {enforceBackupSpec: {includeClusterResources: true}}",
                "as true, must be set to false if enforced by admins",
            ),
            (
                "nonAdmin: {enforceBackupSpec: {includedClusterScopedResources: [a]}}",
                "and must remain empty",
            ),
            (
                "nonAdmin: {enforceBackupSpec: {snapshotVolume: true}}",
                "there is no field snapshotVolume",
            ),
            (
                "nonAdmin: {enforceBackupSpec: {snapshotVolumes: maybe}}",
                "enforceBackupSpec cannot be used",
            ),
            (
                "nonAdmin: {enforceRestoreSpec: {namespaceMapping: {a: b}}}",
                "namespaceMapping is non-enforceable",
            ),
            ("nonAdmin: {enforceBSLSpec: {default: true}}", "default is non-enforceable"),
            (
                "nonAdmin: {restoreIdentity: {serviceAccount: 'a:b'}}",
                "restoreIdentity.serviceAccount (a:b) is not the name",
            ),
            ("nonAdmin: {restoreIdentity: {user: root}}", "config.yaml cannot be read"),
            ("nonAdmin: {tenantNamespaceSelector: {matchLabel: {a: b}}}", "cannot be read"),
            (
                "nonAdmin: {tenantNamespaceSelector: {matchExpressions: [{key: a, operator: In}]}}",
                "tenantNamespaceSelector cannot be used: the expression for a needs values",
            ),
            (
                "nonAdmin: {allowedEndpoints: ['http://x/path']}",
                "allowedEndpoints (http://x/path) is not an endpoint",
            ),
            ("nonAdmin: {maxBackups: 3}", "config.yaml cannot be read"),
            ("nonAdmin: {maxBackupsPerNamespace: -3}", "config.yaml cannot be read"),
            ("nonAdmin: {apiDeletePolicy: Sometimes}", "config.yaml cannot be read"),
            ("nonAdmin: [", "config.yaml cannot be read"),
        ];
        for (text, part) in table {
            let refused = Settings::parse(text).expect_err(text).to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}
