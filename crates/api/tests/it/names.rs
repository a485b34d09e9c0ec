//! Names by which users and clients find kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

fn crd(kind: &str, group: &str) -> Value {
    api::crds()
        .into_iter()
        .find(|crd| crd["spec"]["names"]["kind"] == kind && crd["spec"]["group"] == group)
        .unwrap_or_else(|| panic!("no {kind} in {group}"))
}

const OADP: &str = "oadp.openshift.io";
const VELERO: &str = "velero.io";
const LONGHORN: &str = "longhorn.io";

#[test]
fn kinds_have_the_short_names_their_users_type() {
    let table = [
        (OADP, "NonAdminBackup", "nab"),
        (OADP, "NonAdminRestore", "nar"),
        (OADP, "NonAdminBackupStorageLocation", "nabsl"),
        (OADP, "NonAdminBackupStorageLocationRequest", "nabslrequest"),
        (OADP, "NonAdminDownloadRequest", "nadr"),
        (OADP, "NonAdminSchedule", "nas"),
        (VELERO, "BackupStorageLocation", "bsl"),
        (VELERO, "VolumeSnapshotLocation", "vsl"),
        (VELERO, "ServerStatusRequest", "ssr"),
        (LONGHORN, "Volume", "lhv"),
        (LONGHORN, "Engine", "lhe"),
        (LONGHORN, "Replica", "lhr"),
        (LONGHORN, "Snapshot", "lhsnap"),
        (LONGHORN, "Backup", "lhb"),
        (LONGHORN, "BackupVolume", "lhbv"),
        (LONGHORN, "BackupTarget", "lhbt"),
        (LONGHORN, "RecurringJob", "lhrj"),
        (LONGHORN, "Node", "lhn"),
        (LONGHORN, "InstanceManager", "lhim"),
        (LONGHORN, "Setting", "lhs"),
        (LONGHORN, "EngineImage", "lhei"),
        (LONGHORN, "VolumeAttachment", "lhva"),
        (LONGHORN, "Orphan", "lho"),
        (LONGHORN, "SystemBackup", "lhsb"),
        (LONGHORN, "SystemRestore", "lhsr"),
        (LONGHORN, "ShareManager", "lhsm"),
        (LONGHORN, "SupportBundle", "lhbundle"),
    ];
    for (group, kind, short) in table {
        assert_eq!(crd(kind, group)["spec"]["names"]["shortNames"], json!([short]), "{kind}");
    }
}

#[test]
fn no_two_definitions_of_a_group_share_a_name() {
    let mut seen = BTreeSet::new();
    for crd in api::crds() {
        let names = &crd["spec"]["names"];
        let group = crd["spec"]["group"].as_str().unwrap().to_owned();
        let mut mine = BTreeSet::new();
        for key in ["plural", "singular", "kind", "listKind"] {
            mine.insert(names[key].as_str().unwrap().to_owned());
        }
        mine.extend(
            names["shortNames"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|s| s.as_str().unwrap().into()),
        );
        for name in mine {
            assert!(seen.insert((group.clone(), name.clone())), "{group}: {name} twice");
        }
    }
}

#[test]
fn a_definition_is_named_by_plural_and_group() {
    for crd in api::crds() {
        let spec = &crd["spec"];
        let name = format!(
            "{}.{}",
            spec["names"]["plural"].as_str().unwrap(),
            spec["group"].as_str().unwrap()
        );
        assert_eq!(crd["metadata"]["name"], name);
        assert_eq!(spec["versions"].as_array().unwrap().len(), 1);
    }
}

/// Velero creates objects with their status when it reads a store; a `/status` door would drop it.
#[test]
fn velero_kinds_have_no_status_door_and_all_others_do() {
    for crd in api::crds() {
        let door = &crd["spec"]["versions"][0]["subresources"]["status"];
        assert_eq!(crd["spec"]["group"] == VELERO, door.is_null(), "{}", crd["metadata"]["name"]);
    }
}

#[test]
fn definitions_do_not_change_between_calls() {
    let kinds = || api::crds().iter().map(|c| c["metadata"]["name"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(), kinds());
    assert_eq!(kinds()[0], "nonadminbackups.oadp.openshift.io");
}
