use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
fn location(name: &str, more: Value) -> Arc<BackupStorageLocation> {
    let mut value = json!({"metadata": {"name": name}, "spec": {"provider": "aws",
        "objectStorage": {"bucket": "b"}}, "status": {"phase": "Available"}});
    for (key, value_) in more.as_object().unwrap() {
        value["spec"][key] = value_.clone();
    }
    Arc::new(serde_json::from_value(value).unwrap())
}

#[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
fn begun(spec: Value, locations: &[Arc<BackupStorageLocation>]) -> Backup {
    let backup: Backup =
        serde_json::from_value(json!({"metadata": {"name": "b"}, "spec": spec})).unwrap();
    let versions = ServerVersion { git: "v1.33.0".to_owned(), ..ServerVersion::default() };
    let absent = backup.spec.volume_snapshot_locations.clone().unwrap_or_default();
    let absent: Vec<String> = absent.into_iter().filter(|it| it != "there").collect();
    let seen = Observed {
        backup: &backup,
        locations,
        lost: None,
        excluded_namespaces: &["hidden".to_owned()],
        no_snapshot_locations: &absent,
        versions: &versions,
        now: "2024-01-01T00:00:00Z".parse().unwrap(),
    };
    begin(&seen, &Defaults { ttl: Duration::from_hours(720), location: "default".to_owned() })
}

fn errors(spec: Value) -> Vec<String> {
    let backup = begun(spec, &[location("main", json!({"default": true}))]);
    backup.status.unwrap().validation_errors.unwrap_or_default()
}

#[test]
fn a_location_for_snapshots_that_is_not_there_is_told() {
    let told = errors(json!({"volumeSnapshotLocations": ["there", "gone"]}));
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert!(told.starts_with("a VolumeSnapshotLocation CRD for the location gone"), "{told}");
}

#[test]
fn defaults_are_written_at_the_start() {
    let backup = begun(json!({}), &[location("main", json!({"default": true}))]);
    let spec = serde_json::to_value(&backup.spec).unwrap();
    assert_eq!(
        spec,
        json!({"ttl": "720h0m0s", "csiSnapshotTimeout": "10m0s", "itemOperationTimeout": "4h0m0s",
            "storageLocation": "main", "defaultVolumesToFsBackup": false,
            "snapshotMoveData": false, "hooks": {}, "includedNamespaces": ["*"],
            "excludedNamespaces": ["hidden"],
            "volumeGroupSnapshotLabelKey": "velero.io/volume-group",
            "excludedResources": ["volumesnapshots.snapshot.storage.k8s.io",
                "volumesnapshotcontents.snapshot.storage.k8s.io"]})
    );
    let status = backup.status.unwrap();
    assert_eq!(status.phase, Some(BackupPhase::InProgress));
    assert_eq!(status.expiration.unwrap().to_string(), "2024-01-31T00:00:00Z");
    assert_eq!(backup.metadata.labels.unwrap()["velero.io/storage-location"], "main");
    assert_eq!(
        backup.metadata.annotations.unwrap()["velero.io/source-cluster-k8s-gitversion"],
        "v1.33.0"
    );
}

#[test]
fn new_filters_get_their_own_exclusions() {
    let backup = begun(
        json!({"excludedNamespaceScopedResources": ["secrets"]}),
        &[location("main", json!({"default": true}))],
    );
    assert_eq!(backup.status.unwrap().phase, Some(BackupPhase::InProgress));
    assert_eq!(backup.spec.excluded_resources, None);
    assert_eq!(
        backup.spec.excluded_namespace_scoped_resources.unwrap(),
        ["secrets", "volumesnapshots.snapshot.storage.k8s.io"]
    );
}

#[test]
fn each_way_to_be_wrong_has_its_words() {
    for (spec, text) in [
        (json!({"storageLocation": "no-such"}), "the default no-such was not found"),
        (
            json!({"includedNamespaces": ["a"], "excludedNamespaces": ["a"]}),
            "Invalid included/excluded namespace lists: excludes list cannot contain an item in \
             the includes list: a",
        ),
        (json!({"includedResources": ["*", "pods"]}), "includes list must either contain '*'"),
        (json!({"excludedResources": ["*"]}), "excludes list cannot contain '*'"),
        (
            json!({"includedResources": ["pods"], "includedNamespaceScopedResources": ["secrets"]}),
            "They cannot be used together",
        ),
        (
            json!({"labelSelector": {"matchLabels": {"a": "b"}}, "orLabelSelectors": [{}]}),
            "encountered labelSelector as well as orLabelSelectors in backup spec",
        ),
        (json!({"ttl": "30d"}), "ttl: \"30d\" is not a duration"),
        (json!({"hooks": {"resources": [{"name": "x"}]}}), "runs no commands in pods"),
        (json!({"resourcePolicy": {"kind": "configmap", "name": "p"}}), "no resource policies"),
    ] {
        let found = errors(spec.clone());
        assert!(found.iter().any(|it| it.contains(text)), "{spec}: {found:?}");
    }
    let none = begun(json!({}), &[]).status.unwrap();
    assert_eq!(none.phase, Some(BackupPhase::FailedValidation));
    assert!(none.completion_timestamp.is_some() && none.start_timestamp.is_none());
    let text = none.validation_errors.unwrap().remove(0);
    assert!(text.contains("the server default default does not exist"), "{text}");
}

#[test]
fn locations_that_cannot_be_written_are_refused() {
    let read_only = begun(
        json!({"storageLocation": "ro"}),
        &[location("ro", json!({"accessMode": "ReadOnly"}))],
    );
    assert_eq!(
        read_only.status.unwrap().validation_errors.unwrap(),
        [
            "backup can't be created because backup storage location ro is currently in read-only mode"
        ]
    );
    let mut down = location("l", json!({}));
    Arc::make_mut(&mut down).status = None;
    let down = begun(json!({"storageLocation": "l"}), &[down]);
    assert_eq!(
        down.status.unwrap().validation_errors.unwrap(),
        ["backup can't be created because BackupStorageLocation l is in Unavailable status."]
    );
}

#[test]
fn a_namespace_that_asks_to_be_left_out_is_not_passed_over_in_silence() {
    let main = [location("main", json!({"default": true}))];
    let named = begun(json!({"includedNamespaces": ["hidden"]}), &main).status.unwrap();
    assert_eq!(
        named.validation_errors.unwrap(),
        ["Invalid included/excluded namespace lists: excludes list cannot contain an item in the \
          includes list: hidden"]
    );
    // Whoever asks for others does not read its name.
    let others = begun(json!({"includedNamespaces": ["a", "b*"]}), &main).spec;
    assert_eq!(others.excluded_namespaces, None);
    let fitting = begun(json!({"includedNamespaces": ["hid*"]}), &main).spec;
    assert_eq!(fitting.excluded_namespaces.unwrap(), ["hidden"]);
}

#[test]
fn volumes_are_copied_as_files_by_either_name_of_the_wish() {
    let main = [location("main", json!({"default": true}))];
    let wish = |spec: Value| begun(spec, &main).spec.default_volumes_to_fs_backup;
    for (spec, wanted) in [
        (json!({"defaultVolumesToRestic": true, "defaultVolumesToFsBackup": false}), true),
        (json!({"defaultVolumesToRestic": false, "defaultVolumesToFsBackup": true}), true),
        (json!({"defaultVolumesToRestic": false}), false),
    ] {
        assert_eq!(wish(spec.clone()), Some(wanted), "{spec}");
    }
}
