//! Which specs of restores are accepted, and the Velero spec made of one that is.
//!
//! Pure: the backup comes in as it was found. The first error wins, in the order and with the words
//! users know.

use std::collections::BTreeMap;

use api::nonadmin::{NonAdminRestoreSpec, Phase};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::enforce;
use crate::names::VELERO_RESTORE_NAME;
use crate::settings::Settings;
use crate::spec::{self, CLUSTER_KINDS, REQUEST_KINDS, Verdict};

/// The backup that a spec names, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backup {
    /// The Velero restore exists: the backup does not matter any more.
    Used,
    Missing,
    Unreadable(String),
    Found {
        phase: Option<Phase>,
        /// The Velero backup, if it is this namespace's own and can be restored from.
        velero: Option<Usable>,
    },
}

/// A Velero backup that can be restored from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usable {
    pub name: String,
    /// It lies in a store of the tenant's own, who may have written the archive.
    pub in_own_store: bool,
}

/// What gives rights, sets limits or leads traffic in a namespace.
const RIGHTS: [&str; 8] = [
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.authorization.openshift.io",
    "rolebindings.authorization.openshift.io",
    "resourcequotas",
    "limitranges",
    "endpoints",
    "endpointslices.discovery.k8s.io",
];

/// Why an object that came back with the rest of its namespace is not carried out again: whoever
/// brought it back (an administrator's restore, another Velero's too) did not ask for it.
pub fn brought_back(labels: Option<&BTreeMap<String, String>>) -> Option<Verdict> {
    let restore = labels?.get(VELERO_RESTORE_NAME)?;
    Some(Verdict::Invalid(format!(
        "NonAdminRestore was itself brought back, by restore \"{restore}\", and is not carried out \
         again: create a new one"
    )))
}

/// Judges `spec` of a tenant's restore, as it stands in the object.
pub fn judge(namespace: &str, spec: &Value, backup: &Backup, settings: &Settings) -> Verdict {
    let Some(restore) = spec.get("restoreSpec").and_then(Value::as_object) else {
        return Verdict::Invalid("NonAdminRestore spec.restoreSpec is not set".into());
    };
    let path = "NonAdminRestore spec.restoreSpec";
    let unfit = spec::too_long(path, restore).or_else(|| spec::bad_duration(path, restore));
    if let Some(message) = unfit {
        return Verdict::Invalid(message);
    }
    let typed = match NonAdminRestoreSpec::deserialize(spec) {
        Ok(typed) => typed.restore_spec.unwrap_or_default(),
        Err(error) => {
            return Verdict::Invalid(format!("NonAdminRestore spec cannot be read: {error}"));
        }
    };
    if typed.schedule_name.is_some_and(|name| !name.is_empty()) {
        return Verdict::Invalid(restricted("scheduleName", ""));
    }
    let name = typed.backup_name.unwrap_or_default();
    match backup_fault(&name, backup) {
        Verdict::Valid => {}
        found => return found,
    }
    match restriction(namespace, restore, settings) {
        Some(message) => Verdict::Invalid(message),
        None => Verdict::Valid,
    }
}

fn restricted(field: &str, how: &str) -> String {
    format!("NonAdminRestore nonAdminRestore.spec.restoreSpec.{field} is restricted{how}")
}

fn backup_fault(name: &str, backup: &Backup) -> Verdict {
    if name.is_empty() {
        return Verdict::Invalid("NonAdminRestore spec.restoreSpec.backupName is not set".into());
    }
    let why = match backup {
        Backup::Used | Backup::Found { phase: Some(Phase::Created), velero: Some(_) } => {
            return Verdict::Valid;
        }
        Backup::Missing => format!("nonadminbackups.oadp.openshift.io \"{name}\" not found"),
        Backup::Unreadable(error) => error.clone(),
        Backup::Found { .. } => "NonAdminBackup is not ready to be restored".to_owned(),
    };
    Verdict::NotYet(format!("NonAdminRestore spec.restoreSpec.backupName is invalid: {why}"))
}

fn restriction(
    namespace: &str,
    restore: &Map<String, Value>,
    settings: &Settings,
) -> Option<String> {
    for field in ["includedNamespaces", "excludedNamespaces", "namespaceMapping"] {
        if spec::says(restore, field) {
            return Some(restricted(field, ""));
        }
    }
    if let Some(found) = enforce::conflict(restore, &settings.enforce_restore) {
        return Some(format!(
            "the administrator has restricted spec.restoreSpec.{} field value to {}",
            found.field,
            enforce::show(found.field, found.enforced)
        ));
    }
    if restore.get("includeClusterResources") == Some(&Value::Bool(true)) {
        return Some(restricted("includeClusterResources", ", can only be set to false"));
    }
    let policy = restore.get("existingResourcePolicy").and_then(Value::as_str).unwrap_or_default();
    if !["", "none", "update"].contains(&policy) {
        let how = ", can only be set to none or update";
        return Some(restricted("existingResourcePolicy", how));
    }
    // Both reach what a tenant cannot write: objects' status, and files of administrators.
    for field in ["restoreStatus", "resourceModifier"] {
        if spec::says(restore, field) && !settings.enforce_restore.contains_key(field) {
            return Some(restricted(field, ""));
        }
    }
    if spec::has_hooks(restore) && !settings.allow_hooks {
        let how = format!(", the administrator does not allow commands in pods of {namespace}");
        return Some(restricted("hooks", &how));
    }
    None
}

/// The spec the executor gets: what the tenant asked for, what administrators enforce, from this
/// backup, into this namespace alone, and nothing that gives rights or is a request itself.
pub fn velero_spec(
    namespace: &str,
    restore: &Map<String, Value>,
    backup: &str,
    settings: &Settings,
) -> Map<String, Value> {
    let mut made = restore.clone();
    made.retain(|_, value| !value.is_null());
    enforce::fill(&mut made, &settings.enforce_restore);
    made.insert("backupName".into(), json!(backup));
    made.insert("includedNamespaces".into(), json!([namespace]));
    spec::append(&mut made, "excludedResources", ["volumesnapshotclasses"]);
    // A tenant may hold the bucket and so the archive: what was never taken may stand in it.
    spec::append(&mut made, "excludedResources", REQUEST_KINDS.into_iter().chain(CLUSTER_KINDS));
    let denied = settings.denied_restore_kinds.iter().flat_map(|it| denied(it));
    spec::append(&mut made, "excludedResources", denied);
    made
}

/// What our executor leaves out by itself must not be asked of a Velero, which has all rights: what gives
/// rights, and from an archive that the tenant may have written, what has no namespace. A volume would come
/// back with its claim, and may be a directory of a node.
pub fn confine(made: &mut Map<String, Value>, backup: &Usable) {
    spec::append(made, "excludedResources", RIGHTS);
    if backup.in_own_store {
        made.insert("includeClusterResources".into(), json!(false));
    }
}

/// A name without a group means all groups: the executor would take it for one of them. It may be written
/// as that of one object: what patterns are compared with is that of many.
fn denied(name: &str) -> Vec<String> {
    let name = name.to_lowercase();
    if name.contains(['.', '*']) {
        return vec![name];
    }
    let many = match name.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if name.ends_with('s') => format!("{name}es"),
        None => format!("{name}s"),
    };
    vec![format!("{name}.*"), name, format!("{many}.*"), many]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Backup {
        Backup::Found { phase: Some(Phase::Created), velero: Some(usable()) }
    }

    fn usable() -> Usable {
        Usable { name: "a-nab-1".into(), in_own_store: false }
    }

    fn judged(spec: &Value, backup: &Backup) -> Verdict {
        judge("a", &json!({"restoreSpec": spec}), backup, &Settings::default())
    }

    #[test]
    fn one_that_came_back_with_its_namespace_is_not_carried_out_again() {
        let labels = |key: &str| BTreeMap::from([(key.to_owned(), "nightly".to_owned())]);
        let found = brought_back(Some(&labels(VELERO_RESTORE_NAME)));
        let Some(Verdict::Invalid(message)) = found else { panic!("{found:?}") };
        assert!(message.contains("by restore \"nightly\"") && message.ends_with("a new one"));
        assert_eq!(brought_back(Some(&labels("app"))), None);
        assert_eq!(brought_back(None), None);
    }

    #[test]
    fn each_restricted_field_is_refused_with_the_words_users_know() {
        let prefix = "NonAdminRestore nonAdminRestore.spec.restoreSpec.";
        let table = [
            (json!({"backupName": "n", "scheduleName": "s"}), "scheduleName is restricted"),
            (
                json!({"backupName": "n", "includedNamespaces": []}),
                "includedNamespaces is restricted",
            ),
            (
                json!({"backupName": "n", "excludedNamespaces": ["b"]}),
                "excludedNamespaces is restricted",
            ),
            (json!({"backupName": "n", "namespaceMapping": {}}), "namespaceMapping is restricted"),
            (
                json!({"backupName": "n", "includeClusterResources": true}),
                "includeClusterResources is restricted, can only be set to false",
            ),
            (
                json!({"backupName": "n", "existingResourcePolicy": "recreate"}),
                "existingResourcePolicy is restricted, can only be set to none or update",
            ),
            (
                json!({"backupName": "n", "restoreStatus": {"includedResources": ["x"]}}),
                "restoreStatus is restricted",
            ),
            (
                json!({"backupName": "n", "resourceModifier": {"kind": "configmap", "name": "x"}}),
                "resourceModifier is restricted",
            ),
            (
                json!({"backupName": "n", "hooks": {"resources": [{"name": "h"}]}}),
                "hooks is restricted, the administrator does not allow commands in pods of a",
            ),
        ];
        for (spec, message) in table {
            assert_eq!(
                judged(&spec, &ready()),
                Verdict::Invalid(format!("{prefix}{message}")),
                "{spec}"
            );
        }
        let many: Vec<String> = (0..100_000).map(|number| format!("x{number}")).collect();
        let found = judged(&json!({"backupName": "n", "excludedResources": many}), &ready());
        assert!(
            matches!(&found, Verdict::Invalid(text) if text.contains("is too long")),
            "{found:?}"
        );
        let good = json!({"backupName": "n", "existingResourcePolicy": "update", "hooks": {}});
        assert_eq!(judged(&good, &ready()), Verdict::Valid);
    }

    #[test]
    fn the_backup_must_be_there_and_ready() {
        let named = json!({"backupName": "n"});
        let not_ready = "NonAdminRestore spec.restoreSpec.backupName is invalid: NonAdminBackup is not ready to be restored";
        let table = [
            (
                Backup::Missing,
                "NonAdminRestore spec.restoreSpec.backupName is invalid: nonadminbackups.oadp.openshift.io \"n\" not found",
            ),
            (Backup::Found { phase: Some(Phase::BackingOff), velero: None }, not_ready),
            (Backup::Found { phase: Some(Phase::Created), velero: None }, not_ready),
            (Backup::Found { phase: Some(Phase::Deleting), velero: Some(usable()) }, not_ready),
            (
                Backup::Unreadable("boom".into()),
                "NonAdminRestore spec.restoreSpec.backupName is invalid: boom",
            ),
        ];
        for (backup, message) in table {
            assert_eq!(judged(&named, &backup), Verdict::NotYet(message.into()));
        }
        assert_eq!(judged(&named, &Backup::Used), Verdict::Valid);
        let unset =
            Verdict::Invalid("NonAdminRestore spec.restoreSpec.backupName is not set".into());
        assert_eq!(judged(&json!({}), &Backup::Missing), unset);
        assert_eq!(judged(&json!({"backupName": ""}), &ready()), unset);
    }

    #[test]
    fn enforced_values_bind_and_the_velero_spec_is_forced() {
        let settings = Settings::parse(
            "nonAdmin: {enforceRestoreSpec: {restorePVs: false}, deniedRestoreKinds: [RoleBindings, routes.example.com]}",
        )
        .unwrap();
        let spec = json!({"restoreSpec": {"backupName": "n", "restorePVs": true}});
        let message =
            "the administrator has restricted spec.restoreSpec.restorePVs field value to false";
        assert_eq!(judge("a", &spec, &ready(), &settings), Verdict::Invalid(message.into()));
        let asked = json!({"backupName": "n", "includedResources": ["configmaps"]});
        let made = velero_spec("a", asked.as_object().unwrap(), "a-n-1", &settings);
        assert_eq!(made["backupName"], "a-n-1");
        assert_eq!(made["includedNamespaces"], json!(["a"]));
        assert_eq!(made["restorePVs"], false);
        let excluded: Vec<&str> = made["excludedResources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(excluded[0], "volumesnapshotclasses");
        let denied = ["rolebindings", "rolebindings.*", "routes.example.com"];
        let one = super::denied("RoleBinding");
        assert!(denied[..2].iter().all(|it| one.contains(&(*it).to_owned())), "{one:?}");
        assert!(super::denied("ingress").contains(&"ingresses.*".to_owned()));
        assert!(super::denied("NetworkPolicy").contains(&"networkpolicies.*".to_owned()));
        assert!(!excluded.contains(&"routes.example.com.*"));
        for kind in REQUEST_KINDS.iter().chain(&CLUSTER_KINDS).chain(&denied) {
            assert!(excluded.contains(kind), "{kind}");
        }
    }

    #[test]
    fn a_velero_is_not_asked_for_what_gives_rights_nor_for_volumes_of_a_forged_archive() {
        for in_own_store in [false, true] {
            let asked = json!({"excludedResources": ["endpoints"]});
            let mut made = asked.as_object().unwrap().clone();
            confine(&mut made, &Usable { name: "b".into(), in_own_store });
            let excluded = made["excludedResources"].as_array().unwrap();
            assert!(RIGHTS.iter().all(|it| excluded.contains(&json!(it))), "{excluded:?}");
            assert_eq!(excluded.len(), RIGHTS.len(), "each once");
            let cluster = made.get("includeClusterResources");
            assert_eq!(cluster, in_own_store.then_some(&json!(false)), "{made:?}");
        }
    }
}
