//! Which specs of backups are accepted, and the Velero spec made of one that is.
//!
//! Pure: what must be looked up comes in as [`Storage`]. The first error wins, in the order and with
//! the words users know.

use std::collections::BTreeSet;

use api::nonadmin::{NonAdminBackupSpec, Phase};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::enforce;
use crate::settings::Settings;
use crate::spec::{self, CLUSTER_KINDS, REQUEST_KINDS, Verdict};

/// The tenant's storage location that a spec names, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// The spec names none: the administrators' default.
    Default,
    /// The namespace has none of this name.
    Missing(String),
    Unreadable(String),
    Found {
        phase: Option<Phase>,
        nacuuid: Option<String>,
        velero: VeleroLocation,
    },
}

/// The Velero location behind a tenant's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VeleroLocation {
    Missing,
    Unreadable(String),
    Unavailable,
    Available,
}

/// How many backups the namespace has beside this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Others {
    pub all: usize,
    /// Of these, the ones that were removed by force: only their data is left.
    pub buried: usize,
}

impl Others {
    /// By their identities: a backup in a store may be known in more than one way.
    pub fn count(mut known: BTreeSet<String>, buried: &BTreeSet<String>) -> Self {
        known.extend(buried.iter().cloned());
        Self { all: known.len(), buried: buried.len() }
    }
}

/// Judges `spec` of a tenant's backup, as it stands in the object.
pub fn judge(
    namespace: &str,
    spec: &Value,
    storage: &Storage,
    others: Others,
    settings: &Settings,
) -> Verdict {
    match fault(namespace, spec, settings) {
        Some(Fault::Early(message)) => return Verdict::Invalid(message),
        Some(Fault::Late(message)) => {
            // A location that cannot be used is said first, in the order of the rules.
            return match storage_fault(storage) {
                Verdict::Valid => Verdict::Invalid(message),
                found => found,
            };
        }
        None => {}
    }
    match storage_fault(storage) {
        Verdict::Valid => {}
        found => return found,
    }
    match settings.max_backups {
        Some(max) if others.all >= max => {
            let mut message = format!(
                "namespace {namespace} has {} backups and the administrator allows {max}; delete \
                 one with spec.deleteBackup",
                others.all
            );
            if others.buried > 0 {
                let more = format!(
                    ", or wait for the data of those that were deleted by force to expire ({})",
                    others.buried
                );
                message.push_str(&more);
            }
            Verdict::NotYet(message)
        }
        _ => Verdict::Valid,
    }
}

/// Rules before the storage location is looked at, and after.
enum Fault {
    Early(String),
    Late(String),
}

fn fault(namespace: &str, spec: &Value, settings: &Settings) -> Option<Fault> {
    let Some(backup) = spec.get("backupSpec").and_then(Value::as_object) else {
        return Some(Fault::Early("NonAdminBackup spec.backupSpec is not set".into()));
    };
    let path = "NonAdminBackup spec.backupSpec";
    let unfit = spec::too_long(path, backup).or_else(|| spec::bad_duration(path, backup));
    if let Some(message) = unfit {
        return Some(Fault::Early(message));
    }
    let typed = match NonAdminBackupSpec::deserialize(spec) {
        Ok(typed) => typed.backup_spec.unwrap_or_default(),
        Err(error) => {
            return Some(Fault::Early(format!("NonAdminBackup spec cannot be read: {error}")));
        }
    };
    let restricted = |field: &str, how: &str| {
        format!("NonAdminBackup spec.backupSpec.{field} is restricted{how}")
    };
    if typed.included_namespaces.iter().flatten().any(|it| it != namespace) {
        let how = format!(", can not contain namespaces other than: {namespace}");
        return Some(Fault::Early(restricted("includedNamespaces", &how)));
    }
    if typed.excluded_namespaces.is_some() {
        return Some(Fault::Early(restricted("excludedNamespaces", "")));
    }
    if typed.include_cluster_resources == Some(true) {
        let how = ", can only be set to false";
        return Some(Fault::Early(restricted("includeClusterResources", how)));
    }
    if typed.included_cluster_scoped_resources.is_some_and(|it| !it.is_empty()) {
        let how = ", must remain empty";
        return Some(Fault::Early(restricted("includedClusterScopedResources", how)));
    }
    if typed.volume_snapshot_locations.is_some() {
        return Some(Fault::Late(restricted("volumeSnapshotLocations", "")));
    }
    let present = spec::present(backup);
    if let Some(found) = enforce::conflict(&present, &settings.enforce_backup) {
        return Some(Fault::Late(format!(
            "the administrator has restricted spec.backupSpec.{} field value to {}",
            found.field,
            enforce::show(found.field, found.enforced)
        )));
    }
    // A policy is read from the administrators' namespace; only they may point there.
    if spec::says(backup, "resourcePolicy")
        && !settings.enforce_backup.contains_key("resourcePolicy")
    {
        return Some(Fault::Late(restricted("resourcePolicy", "")));
    }
    if spec::has_hooks(backup) && !settings.allow_hooks {
        let how = ", the administrator does not allow commands in pods";
        return Some(Fault::Late(restricted("hooks", how)));
    }
    None
}

fn storage_fault(storage: &Storage) -> Verdict {
    let (phase, nacuuid, velero) = match storage {
        Storage::Default => return Verdict::Valid,
        Storage::Missing(name) => {
            return Verdict::NotYet(format!(
                "NonAdminBackupStorageLocation not found in the namespace: \
                 nonadminbackupstoragelocations.oadp.openshift.io \"{name}\" not found"
            ));
        }
        Storage::Unreadable(error) => {
            return Verdict::NotYet(format!(
                "NonAdminBackup spec.backupSpec.storageLocation is invalid: {error}"
            ));
        }
        Storage::Found { phase, nacuuid, velero } => (phase, nacuuid, velero),
    };
    if *phase != Some(Phase::Created) {
        return Verdict::NotYet(
            "NonAdminBackupStorageLocation is not in created state and can not be used for the \
             NonAdminBackup"
                .into(),
        );
    }
    let Some(nacuuid) = nacuuid else {
        return Verdict::NotYet(
            "unable to get VeleroBackupStorageLocation UUID from NonAdminBackupStorageLocation \
             Status"
                .into(),
        );
    };
    match velero {
        VeleroLocation::Available => Verdict::Valid,
        VeleroLocation::Unreadable(error) => Verdict::NotYet(format!(
            "unable to get valid VeleroBackupStorageLocation referenced by the NACUUID {nacuuid} \
             from NonAdminBackupStorageLocation Status: {error}"
        )),
        VeleroLocation::Missing => Verdict::NotYet(format!(
            "VeleroBackupStorageLocation with NACUUID {nacuuid} not found in the OADP namespace"
        )),
        VeleroLocation::Unavailable => Verdict::NotYet(format!(
            "VeleroBackupStorageLocation with NACUUID {nacuuid} is not in available state and can \
             not be used for the NonAdminBackup"
        )),
    }
}

/// Name of the Velero location to write to, `None` for the administrators' default. A location that
/// the spec names and that cannot be used is never taken for the default.
pub fn place(storage: &Storage) -> Result<Option<&str>, String> {
    match (storage_fault(storage), storage) {
        (Verdict::Valid, Storage::Found { nacuuid, .. }) => Ok(nacuuid.as_deref()),
        (Verdict::Valid, _) => Ok(None),
        (Verdict::Invalid(why) | Verdict::NotYet(why), _) => Err(why),
    }
}

/// The spec the executor gets: what the tenant asked for, what administrators enforce, and always
/// this namespace alone.
pub fn velero_spec(
    namespace: &str,
    backup: &Map<String, Value>,
    location: Option<&str>,
    settings: &Settings,
) -> Map<String, Value> {
    let mut made = spec::present(backup);
    made.retain(|_, value| !value.is_null());
    enforce::fill(&mut made, &settings.enforce_backup);
    // Validation refuses these; nothing that slipped by it reaches the executor.
    for field in ["excludedNamespaces", "includedClusterScopedResources", "volumeSnapshotLocations"]
    {
        made.remove(field);
    }
    if made.get("includeClusterResources") != Some(&Value::Bool(false)) {
        made.remove("includeClusterResources");
    }
    made.insert("includedNamespaces".into(), json!([namespace]));
    match location {
        Some(location) => made.insert("storageLocation".into(), json!(location)),
        None => made.remove("storageLocation"),
    };
    let scoped = [
        "includedClusterScopedResources",
        "excludedClusterScopedResources",
        "includedNamespaceScopedResources",
        "excludedNamespaceScopedResources",
    ];
    let is_scoped = scoped
        .iter()
        .any(|key| made.get(*key).and_then(Value::as_array).is_some_and(|list| !list.is_empty()));
    if is_scoped {
        spec::append(&mut made, "excludedNamespaceScopedResources", REQUEST_KINDS);
        spec::append(&mut made, "excludedClusterScopedResources", CLUSTER_KINDS);
    } else {
        // The order of the peer, with the kinds it has not at the end.
        let [backups, restores, locations, downloads, schedules] = REQUEST_KINDS;
        let kinds = [backups, restores, locations].into_iter().chain(CLUSTER_KINDS);
        spec::append(&mut made, "excludedResources", kinds.chain([downloads, schedules]));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(spec: &Value) -> Verdict {
        let settings = Settings::default();
        judge(
            "tenant-a",
            &json!({"backupSpec": spec}),
            &Storage::Default,
            Others::default(),
            &settings,
        )
    }

    #[test]
    fn each_restricted_field_is_refused_with_the_words_users_know() {
        let prefix = "NonAdminBackup spec.backupSpec.";
        let table = [
            (
                json!({"includedNamespaces": ["tenant-b"]}),
                "includedNamespaces is restricted, can not contain namespaces other than: tenant-a",
            ),
            (
                json!({"includedNamespaces": ["tenant-a", "*"]}),
                "includedNamespaces is restricted, can not contain namespaces other than: tenant-a",
            ),
            (json!({"excludedNamespaces": []}), "excludedNamespaces is restricted"),
            (
                json!({"includeClusterResources": true}),
                "includeClusterResources is restricted, can only be set to false",
            ),
            (
                json!({"includedClusterScopedResources": ["storageclasses"]}),
                "includedClusterScopedResources is restricted, must remain empty",
            ),
            (json!({"volumeSnapshotLocations": []}), "volumeSnapshotLocations is restricted"),
            (
                json!({"resourcePolicy": {"kind": "configmap", "name": "x"}}),
                "resourcePolicy is restricted",
            ),
            (
                json!({"hooks": {"resources": [{"name": "h"}]}}),
                "hooks is restricted, the administrator does not allow commands in pods",
            ),
            (json!({"ttl": "30d"}), "ttl: \"30d\" is not a duration; write it as 1h30m or 45s"),
        ];
        for (spec, message) in table {
            assert_eq!(judged(&spec), Verdict::Invalid(format!("{prefix}{message}")), "{spec}");
        }
    }

    #[test]
    fn what_is_enforced_is_enforced_by_every_name_of_the_field() {
        let restic = json!({"defaultVolumesToRestic": true});
        let files = json!({"defaultVolumesToFsBackup": true});
        for enforced in ["defaultVolumesToFsBackup", "defaultVolumesToRestic"] {
            let text = format!("nonAdmin: {{enforceBackupSpec: {{{enforced}: false}}}}");
            let settings = Settings::parse(&text).unwrap();
            for asked in [&restic, &files] {
                let spec = json!({"backupSpec": asked});
                let found = judge("a", &spec, &Storage::Default, Others::default(), &settings);
                let wanted = "the administrator has restricted \
                              spec.backupSpec.defaultVolumesToFsBackup field value to false";
                assert_eq!(found, Verdict::Invalid(wanted.to_owned()), "{enforced}: {asked}");
                let made = velero_spec("a", asked.as_object().unwrap(), None, &settings);
                assert_eq!(made["defaultVolumesToFsBackup"], false);
                assert!(!made.contains_key("defaultVolumesToRestic"));
            }
        }
    }

    #[test]
    fn one_tenants_lists_are_not_what_everybody_waits_for() {
        let many: Vec<String> =
            (0..100_000).map(|number| format!("x{number}.example.com")).collect();
        for field in ["includedResources", "excludedResources", "includedNamespaceScopedResources"]
        {
            let found = judged(&json!({ field: many }));
            let is_said = matches!(&found, Verdict::Invalid(text) if text.contains("is too long"));
            assert!(is_said, "{field}: {found:?}");
        }
        let few = many.get(..1000).unwrap();
        assert_eq!(judged(&json!({"excludedResources": few})), Verdict::Valid);
    }

    #[test]
    fn what_a_tenant_may_say_is_accepted() {
        for spec in [
            json!({}),
            json!({"includedNamespaces": null, "excludedNamespaces": null}),
            json!({"includedNamespaces": []}),
            json!({"includedNamespaces": ["tenant-a"], "includeClusterResources": false}),
            json!({"includedClusterScopedResources": [], "ttl": "1h", "hooks": {}, "metadata": {}}),
            json!({"hooks": {"resources": []}, "csiSnapshotTimeout": "0s"}),
        ] {
            assert_eq!(judged(&spec), Verdict::Valid, "{spec}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_says_so() {
        for spec in [json!({}), json!({"backupSpec": null}), json!({"backupSpec": 3}), Value::Null]
        {
            let found =
                judge("a", &spec, &Storage::Default, Others::default(), &Settings::default());
            assert_eq!(found, Verdict::Invalid("NonAdminBackup spec.backupSpec is not set".into()));
        }
        let found = judged(&json!({"snapshotVolumes": "maybe"}));
        assert!(
            matches!(&found, Verdict::Invalid(text) if text.contains("cannot be read")),
            "{found:?}"
        );
    }

    #[test]
    fn an_unusable_location_is_looked_at_again() {
        let found = |phase, nacuuid: Option<&str>, velero| Storage::Found {
            phase,
            nacuuid: nacuuid.map(str::to_owned),
            velero,
        };
        let created = Some(Phase::Created);
        let table = [
            (found(Some(Phase::New), None, VeleroLocation::Missing), "is not in created state"),
            (
                found(created, None, VeleroLocation::Missing),
                "unable to get VeleroBackupStorageLocation UUID",
            ),
            (
                found(created, Some("u"), VeleroLocation::Missing),
                "NACUUID u not found in the OADP namespace",
            ),
            (
                found(created, Some("u"), VeleroLocation::Unavailable),
                "NACUUID u is not in available state",
            ),
            (
                found(created, Some("u"), VeleroLocation::Unreadable("x".into())),
                "from NonAdminBackupStorageLocation Status: x",
            ),
            (Storage::Unreadable("boom".into()), "storageLocation is invalid: boom"),
            (
                Storage::Missing("l".into()),
                "nonadminbackupstoragelocations.oadp.openshift.io \"l\" not found",
            ),
        ];
        let spec = json!({"backupSpec": {"storageLocation": "l", "volumeSnapshotLocations": []}});
        for (storage, part) in table {
            let found = judge("a", &spec, &storage, Others::default(), &Settings::default());
            assert!(matches!(&found, Verdict::NotYet(text) if text.contains(part)), "{found:?}");
        }
        assert_eq!(place(&Storage::Default), Ok(None));
        assert!(place(&Storage::Missing("l".into())).is_err(), "never the default instead");
        let usable = found(created, Some("u"), VeleroLocation::Available);
        assert_eq!(place(&usable), Ok(Some("u")));
        let found = judge("a", &spec, &usable, Others::default(), &Settings::default());
        assert!(
            matches!(&found, Verdict::Invalid(text) if text.ends_with("volumeSnapshotLocations is restricted"))
        );
    }

    #[test]
    fn enforced_values_and_quotas_bind() {
        let settings = Settings::parse(
            "nonAdmin: {enforceBackupSpec: {ttl: 36h, snapshotVolumes: false}, maxBackupsPerNamespace: 2}",
        )
        .unwrap();
        let judged = |spec: Value, others| {
            let others = Others { all: others, buried: others / 2 };
            judge("a", &json!({"backupSpec": spec}), &Storage::Default, others, &settings)
        };
        assert_eq!(judged(json!({"ttl": "36h0m0s"}), 1), Verdict::Valid);
        let message =
            "the administrator has restricted spec.backupSpec.snapshotVolumes field value to false";
        assert_eq!(judged(json!({"snapshotVolumes": true}), 0), Verdict::Invalid(message.into()));
        let message = "the administrator has restricted spec.backupSpec.ttl field value to 36h0m0s";
        assert_eq!(judged(json!({"ttl": "1h"}), 0), Verdict::Invalid(message.into()));
        let full = judged(json!({}), 2);
        assert!(
            matches!(&full, Verdict::NotYet(text) if text.contains("has 2 backups") && text.contains("allows 2")
                && text.ends_with("deleted by force to expire (1)"))
        );
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
        let counted = Others::count(names(&["x", "y"]), &names(&["y", "z"]));
        assert_eq!(counted, Others { all: 3, buried: 2 }, "what was removed by force counts");
    }

    #[test]
    fn the_velero_spec_is_forced_to_the_namespace() {
        let settings = Settings::parse("nonAdmin: {enforceBackupSpec: {ttl: 36h}}").unwrap();
        let asked = json!({"excludedResources": ["secrets"], "storageLocation": "mine", "labelSelector": null});
        let made = velero_spec("a", asked.as_object().unwrap(), Some("a-mine-1"), &settings);
        assert_eq!(
            Value::Object(made),
            json!({
                "includedNamespaces": ["a"], "storageLocation": "a-mine-1", "ttl": "36h",
                "excludedResources": ["secrets", "nonadminbackups", "nonadminrestores",
                    "nonadminbackupstoragelocations", "securitycontextconstraints", "clusterroles",
                    "clusterrolebindings", "priorityclasses", "customresourcedefinitions",
                    "virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences",
                    "nonadmindownloadrequests", "nonadminschedules"],
            })
        );
        let asked = json!({"includeClusterResources": true, "excludedNamespaces": ["a"],
            "includedClusterScopedResources": ["*"], "volumeSnapshotLocations": ["x"], "ttl": "9h"});
        let made = velero_spec("a", asked.as_object().unwrap(), None, &settings);
        let keys: Vec<&str> = made.keys().map(String::as_str).collect();
        assert_eq!(keys, ["excludedResources", "includedNamespaces", "ttl"]);
        assert_eq!(made["ttl"], "36h", "what is enforced has the last word");
        let asked = json!({"includeClusterResources": false});
        let made = velero_spec("a", asked.as_object().unwrap(), None, &settings);
        assert_eq!(made["includeClusterResources"], false);
        let asked = json!({"includedNamespaceScopedResources": ["pods"]});
        let made = velero_spec("a", asked.as_object().unwrap(), None, &Settings::default());
        assert!(!made.contains_key("excludedResources") && !made.contains_key("storageLocation"));
        assert_eq!(made["excludedNamespaceScopedResources"], json!(REQUEST_KINDS));
        assert_eq!(made["excludedClusterScopedResources"], json!(CLUSTER_KINDS));
    }
}
