//! Documents of the volume dialect, as controllers and users write them.

use api::condition::{self, Verdict};
use api::longhorn::{
    Backup, BackupState, BackupTarget, BackupVolume, Condition, Engine, Frontend, InstanceManager,
    Node, RecurringJob, Replica, ReplicaMode, Setting, Snapshot, Volume, VolumeAttachment,
};
use serde_json::{Value, json};

use crate::samples::survives;

fn object(kind: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": kind,
        "metadata": { "name": "x", "namespace": "longhorn-system", "finalizers": ["longhorn.io"] },
        "spec": spec,
        "status": status,
    })
}

#[test]
fn a_disaster_recovery_volume_keeps_every_field() {
    let volume: Volume = survives(&object(
        "Volume",
        &json!({
            "size": "2147483648",
            "frontend": "",
            "fromBackup": "s3://b@r/?backup=backup-1&volume=v",
            "Standby": true,
            "restoreVolumeRecurringJob": "ignored",
            "numberOfReplicas": 3,
            "staleReplicaTimeout": 30,
            "nodeID": "n1",
            "migrationNodeID": "",
            "dataLocality": "best-effort",
            "replicaAutoBalance": "ignored",
            "accessMode": "rwo",
            "backupCompressionMethod": "lz4",
            "backupBlockSize": "2097152",
            "snapshotMaxSize": "0",
            "diskSelector": [],
            "dataEngine": "v1",
        }),
        &json!({
            "ownerID": "n1",
            "state": "attached",
            "robustness": "degraded",
            "currentNodeID": "n1",
            "conditions": [{
                "type": "Restore",
                "status": "True",
                "lastProbeTime": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "RestoreInProgress",
                "message": "",
            }],
            "lastBackup": "backup-2",
            "lastBackupAt": "",
            "restoreRequired": true,
            "restoreInitiated": true,
            "isStandby": true,
            "actualSize": 4096,
            "kubernetesStatus": {
                "pvName": "", "lastPVCRefAt": "", "workloadsStatus": [{ "podName": "p" }],
            },
            "cloneStatus": { "state": "", "attemptCount": 0 },
        }),
    ));
    assert_eq!(volume.spec.size.unwrap().0, 2 << 30);
    assert_eq!(volume.spec.frontend, Some(Frontend::None));
    assert!(condition::holds(&volume.status.unwrap().conditions.unwrap(), "Restore"));
}

#[test]
fn an_engine_keeps_what_it_says_of_each_copy() {
    let engine: Engine = survives(&object(
        "Engine",
        &json!({
            "volumeName": "v",
            "volumeSize": "2147483648",
            "nodeID": "n1",
            "desireState": "running",
            "active": true,
            "replicaAddressMap": { "v-r-1": "10.0.0.1:10000" },
            "upgradedReplicaAddressMap": {},
            "backupVolume": "v-1a2b3c4d",
            "requestedBackupRestore": "backup-2",
        }),
        &json!({
            "ownerID": "n1",
            "currentState": "running",
            "port": 10010,
            "storageIP": "10.0.0.1",
            "currentSize": "2147483648",
            "replicaModeMap": { "v-r-1": "RW", "v-r-2": "WO" },
            "lastRestoredBackup": "",
            "restoreStatus": { "tcp://10.0.0.1:10000": {
                "isRestoring": true, "currentRestoringBackup": "backup-2", "progress": 40,
                "state": "in_progress", "backupURL": "u", "lastRestored": "", "filename": "f",
            } },
            "purgeStatus": { "tcp://10.0.0.1:10000": { "isPurging": false, "state": "" } },
            "rebuildStatus": { "tcp://10.0.0.2:10000": {
                "isRebuilding": true, "fromReplicaAddressList": [], "appliedRebuildingMBps": 0,
            } },
            "snapshots": { "volume-head": {
                "name": "volume-head", "parent": "", "children": {}, "removed": false,
                "usercreated": false, "created": "2026-01-01T00:00:00Z", "size": "4096", "labels": {},
            } },
            "isExpanding": false,
            "conditions": [],
        }),
    ));
    let status = engine.status.unwrap();
    assert_eq!(status.replica_mode_map.unwrap()["v-r-2"], ReplicaMode::WriteOnly);
    assert_eq!(engine.spec.instance.volume_name.as_deref(), Some("v"));
}

#[test]
fn a_backup_keeps_every_field_through_its_deletion() {
    let backup: Backup = survives(&object(
        "Backup",
        &json!({
            "syncRequestedAt": "2026-01-01T00:00:00Z",
            "snapshotName": "s",
            "labels": { "KubernetesStatus": "{}" },
            "backupMode": "incremental",
            "backupBlockSize": "-1",
        }),
        &json!({
            "ownerID": "n1",
            "state": "Deleting",
            "progress": 100,
            "url": "u",
            "size": "4096",
            "messages": { "error": "No deletion in progress record, retry the deletion command" },
            "lastSyncedAt": "2026-01-01T00:00:00Z",
            "newlyUploadDataSize": "1",
            "reUploadedDataSize": "2",
            "volumeBackingImageName": "",
            "backupTargetName": "default",
        }),
    ));
    assert!(backup.status.unwrap().state.unwrap().is_final());
    assert!(!BackupState::Pending.is_final() && !BackupState::New.is_final());
}

#[test]
fn the_other_kinds_keep_every_field() {
    survives::<Replica>(&object(
        "Replica",
        &json!({
            "volumeName": "v", "engineName": "v-e-0", "diskID": "d", "diskPath": "/data",
            "dataDirectoryName": "v-1", "healthyAt": "", "failedAt": "2026-01-01T00:00:00Z",
            "rebuildRetryCount": 5, "active": true,
        }),
        &json!({ "currentState": "error", "instanceManagerName": "im" }),
    ));
    survives::<Snapshot>(&object(
        "Snapshot",
        &json!({ "volume": "v", "createSnapshot": true, "labels": {} }),
        &json!({ "children": { "volume-head": true }, "size": 1, "restoreSize": 2, "readyToUse": true }),
    ));
    survives::<BackupVolume>(&object(
        "BackupVolume",
        &json!({ "backupTargetName": "default", "volumeName": "v" }),
        &json!({ "lastBackupName": "b", "size": "1", "dataStored": "2", "lastModificationTime": "2026-01-01T00:00:00Z" }),
    ));
    survives::<BackupTarget>(&object(
        "BackupTarget",
        &json!({ "backupTargetURL": "nfs://h:/p", "credentialSecret": "", "pollInterval": "5m0s" }),
        &json!({ "available": false, "conditions": [{ "type": "Unavailable", "status": "True" }] }),
    ));
    survives::<RecurringJob>(&object(
        "RecurringJob",
        &json!({
            "name": "j", "groups": ["default"], "task": "backup", "cron": "0 * * * *", "retain": 1,
            "retentionPolicy": "count-based", "concurrency": 10,
            "parameters": { "full-backup-interval": "3" },
        }),
        &json!({ "ownerID": "n", "executionCount": 4 }),
    ));
    survives::<Node>(&object(
        "Node",
        &json!({
            "name": "n", "allowScheduling": true, "instanceManagerCPURequest": 0,
            "disks": { "d": { "diskType": "filesystem", "path": "/data", "storageReserved": 0, "tags": [] } },
        }),
        &json!({ "diskStatus": { "d": {
            "diskUUID": "u", "diskType": "filesystem", "scheduledReplica": { "r": 1 },
            "healthData": { "sda": { "anything": [1] } },
        } } }),
    ));
    survives::<InstanceManager>(&object(
        "InstanceManager",
        &json!({ "image": "i", "nodeID": "n", "type": "aio", "dataEngine": "v1" }),
        &json!({
            "currentState": "running", "apiVersion": 4, "proxyApiMinVersion": 1,
            "instanceReplicas": { "r": {
                "spec": { "name": "r" }, "status": { "state": "running", "portStart": 1, "errorMsg": "" },
            } },
        }),
    ));
    survives::<VolumeAttachment>(&object(
        "VolumeAttachment",
        &json!({ "volume": "v", "attachmentTickets": { "": {
            "id": "", "type": "longhorn-api", "nodeID": "n", "generation": 0,
            "parameters": { "disableFrontend": "false" },
        } } }),
        &json!({ "attachmentTicketStatuses": { "": { "id": "", "satisfied": true, "conditions": [] } } }),
    ));
}

#[test]
fn a_setting_has_its_value_at_the_top() {
    let setting: Setting = survives(&json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Setting",
        "metadata": { "name": "auto-salvage" },
        "value": "true",
        "status": { "applied": true },
    }));
    assert_eq!(setting.value, "true");
    assert_eq!(Setting::new("a", "b").value, "b");
}

#[test]
fn a_peer_may_leave_nulls_and_write_sizes_as_numbers() {
    let volume: Volume = serde_json::from_value(json!({
        "metadata": {},
        "spec": { "size": 10, "diskSelector": null },
        "status": { "conditions": null, "kubernetesStatus": null },
    }))
    .unwrap();
    assert_eq!(volume.spec.size.unwrap().0, 10);
}

#[test]
fn conditions_with_text_times_follow_the_same_rule() {
    let at = |second| jiff::Timestamp::from_second(second).unwrap().into();
    let mut list: Vec<Condition> = Vec::new();
    condition::set(&mut list, &Verdict::new("Scheduled", true, "", ""), at(0));
    condition::set(&mut list, &Verdict::new("Scheduled", true, "x", ""), at(60));
    assert_eq!(list[0].last_transition_time.as_ref().unwrap().as_str(), "1970-01-01T00:00:00Z");
    condition::set(&mut list, &Verdict::new("Scheduled", false, "x", ""), at(60));
    assert_eq!(list[0].last_transition_time.as_ref().unwrap().as_str(), "1970-01-01T00:01:00Z");
}
