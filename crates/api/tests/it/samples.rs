//! Documents as clients and peers write them lose nothing on the way through the types.

use api::nonadmin::{NonAdminBackup, NonAdminRestore, Phase};
use api::velero::{Backup, BackupPhase, BackupStorageLocation, Restore, Schedule};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) fn survives<T: DeserializeOwned + Serialize>(document: &Value) -> T {
    crate::server::accepts(document);
    comes_back(document)
}

fn comes_back<T: DeserializeOwned + Serialize>(document: &Value) -> T {
    let typed: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), document);
    typed
}

#[test]
fn a_tenant_backup_keeps_every_field() {
    let nab: NonAdminBackup = survives(&json!({
        "apiVersion": "oadp.openshift.io/v1alpha1",
        "kind": "NonAdminBackup",
        "metadata": { "name": "nightly", "namespace": "mongo-persistent" },
        "spec": {
            "backupSpec": {
                "includedNamespaces": ["mongo-persistent"],
                "labelSelector": {
                    "matchLabels": { "app": "mongo" },
                    "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["db"] }],
                },
                "snapshotMoveData": true,
                "ttl": "720h0m0s",
                "csiSnapshotTimeout": "0s",
                "hooks": { "resources": [{
                    "name": "freeze",
                    "pre": [{ "exec": {
                        "command": ["/bin/freeze"], "onError": "Fail", "timeout": "30s",
                    } }],
                }] },
                "metadata": {},
            },
            "deleteBackup": false,
            "forceDeleteBackup": false,
        },
        "status": {
            "phase": "Created",
            "conditions": [{
                "type": "Accepted",
                "status": "True",
                "lastTransitionTime": "2024-11-27T10:47:49Z",
                "reason": "BackupAccepted",
                "message": "backup accepted",
            }],
            "queueInfo": { "estimatedQueuePosition": 0 },
            "veleroBackup": {
                "nacuuid": "mongo-persistent-anotherte-c95bc62d-f40c-47b8-8a28-0dd7addb4930",
                "name": "mongo-persistent-anotherte-c95bc62d-f40c-47b8-8a28-0dd7addb4930",
                "namespace": "openshift-adp",
                "status": {
                    "completionTimestamp": "2024-11-27T10:48:50Z",
                    "expiration": "2024-12-27T10:48:45Z",
                    "formatVersion": "1.1.0",
                    "hookStatus": {},
                    "phase": "Completed",
                    "progress": { "itemsBackedUp": 56, "totalItems": 56 },
                    "startTimestamp": "2024-11-27T10:48:45Z",
                    "version": 1,
                    "fieldOfANewerVelero": [1, { "a": null }],
                },
            },
        },
    }));
    let status = nab.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Created));
    let seen = status.velero_backup.unwrap().status.unwrap().view().unwrap();
    assert_eq!(seen.phase, Some(BackupPhase::Completed));
}

#[test]
fn an_empty_copy_of_a_velero_status_stays_an_empty_object() {
    let nab: NonAdminBackup = survives(&json!({
        "apiVersion": "oadp.openshift.io/v1alpha1",
        "kind": "NonAdminBackup",
        "metadata": {},
        "spec": { "backupSpec": {} },
        "status": { "veleroBackup": { "status": {} }, "queueInfo": { "estimatedQueuePosition": 12 } },
    }));
    assert!(nab.status.unwrap().velero_backup.unwrap().status.unwrap().is_empty());
}

#[test]
fn a_tenant_restore_keeps_every_field() {
    survives::<NonAdminRestore>(&json!({
        "apiVersion": "oadp.openshift.io/v1alpha1",
        "kind": "NonAdminRestore",
        "metadata": { "name": "back", "namespace": "web" },
        "spec": { "restoreSpec": {
            "backupName": "nightly",
            "restorePVs": true,
            "namespaceMapping": { "web": "web2" },
            "hooks": { "resources": [{ "name": "init", "postHooks": [{ "init": {
                "initContainers": [{ "name": "a", "image": "b", "command": ["c"] }],
                "timeout": "1m0s",
            } }] }] },
        } },
        "status": { "phase": "New", "queueInfo": { "estimatedQueuePosition": 1 } },
    }));
}

#[test]
fn a_velero_backup_keeps_its_status() {
    let backup: Backup = survives(&json!({
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": { "name": "b", "namespace": "velero", "labels": { "velero.io/storage-location": "default" } },
        "spec": {
            "csiSnapshotTimeout": "10m0s",
            "defaultVolumesToFsBackup": false,
            "hooks": {},
            "includedNamespaces": ["*"],
            "itemOperationTimeout": "4h0m0s",
            "metadata": {},
            "orLabelSelectors": [{ "matchLabels": { "a": "b" } }],
            "orderedResources": { "pods": "ns/a,ns/b" },
            "resourcePolicy": { "kind": "configmap", "name": "p" },
            "storageLocation": "default",
            "ttl": "720h0m0s",
            "uploaderConfig": { "parallelFilesUpload": 4 },
            "volumeGroupSnapshotLabelKey": "velero.io/volume-group",
        },
        "status": {
            "phase": "Queued",
            "queuePosition": 3,
            "validationErrors": ["x"],
            "errors": 1,
            "warnings": 2,
            "backupItemOperationsAttempted": 1,
            "csiVolumeSnapshotsCompleted": 1,
            "failureReason": "y",
        },
    }));
    assert_eq!(backup.spec.ttl.unwrap().get().unwrap().as_secs(), 720 * 3600);
}

#[test]
fn a_phase_of_a_newer_velero_is_kept_as_it_came() {
    let backup: Backup = comes_back(&json!({
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {},
        "spec": {},
        "status": { "phase": "Hibernating" },
    }));
    let phase = backup.status.unwrap().phase.unwrap();
    assert_eq!(phase, BackupPhase::Other("Hibernating".to_owned()));
}

#[test]
fn one_odd_object_does_not_spoil_its_list() {
    let odd = json!({
        "metadata": { "name": "odd" },
        "spec": { "backupSpec": { "ttl": "30d", "includedNamespaces": null } },
    });
    let nab: NonAdminBackup = serde_json::from_value(odd).unwrap();
    assert!(nab.spec.backup_spec.unwrap().ttl.unwrap().get().is_err());
    let bare: NonAdminBackup = serde_json::from_value(json!({ "metadata": {} })).unwrap();
    assert_eq!(bare.spec.backup_spec, None);
    let location: BackupStorageLocation =
        serde_json::from_value(json!({ "metadata": {}, "status": { "lastSyncedTime": null } }))
            .unwrap();
    assert_eq!(location.spec.provider, None);
}

#[test]
fn stores_schedules_and_restores_keep_every_field() {
    survives::<BackupStorageLocation>(&json!({
        "apiVersion": "velero.io/v1",
        "kind": "BackupStorageLocation",
        "metadata": { "name": "default" },
        "spec": {
            "provider": "aws",
            "default": true,
            "objectStorage": { "bucket": "b", "prefix": "p", "caCertRef": { "name": "n", "key": "k" } },
            "config": { "region": "minio", "s3ForcePathStyle": "true" },
            "credential": { "name": "cloud", "key": "creds" },
            "accessMode": "ReadWrite",
            "backupSyncPeriod": "1m0s",
        },
        "status": { "phase": "Available", "lastValidationTime": "2026-01-01T00:00:00Z", "message": "" },
    }));
    survives::<Schedule>(&json!({
        "apiVersion": "velero.io/v1",
        "kind": "Schedule",
        "metadata": { "name": "s" },
        "spec": { "schedule": "0 3 * * *", "template": { "ttl": "24h0m0s" }, "paused": true },
        "status": { "phase": "Enabled", "lastBackup": "2026-01-01T03:00:00Z" },
    }));
    survives::<Restore>(&json!({
        "apiVersion": "velero.io/v1",
        "kind": "Restore",
        "metadata": { "name": "r" },
        "spec": {
            "backupName": "b",
            "existingResourcePolicy": "update",
            "restoreStatus": { "includedResources": ["*"] },
            "uploaderConfig": { "writeSparseFiles": true },
        },
        "status": { "phase": "PartiallyFailed", "progress": { "totalItems": 3, "itemsRestored": 2 } },
    }));
}
