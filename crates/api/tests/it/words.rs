//! Words on the wire are exact: clients compare them letter by letter.

use api::longhorn::{BackupState, ReplicaMode, Robustness, VolumeState};
use api::nonadmin::{Approval, Phase, RequestPhase};
use api::velero::{BackupPhase, DeletePhase, DownloadKind, MoverPhase, RestorePhase};
use proptest::prelude::*;

#[test]
fn words_are_spelled_as_their_dialects_spell_them() {
    assert_eq!(Phase::KNOWN, ["New", "BackingOff", "Created", "Deleting"]);
    assert_eq!(Approval::KNOWN, ["approve", "reject", "pending"]);
    assert_eq!(RequestPhase::KNOWN, ["Pending", "Approved", "Rejected"]);
    assert_eq!(DeletePhase::KNOWN, ["New", "InProgress", "Processed"]);
    assert_eq!(ReplicaMode::KNOWN, ["RW", "WO", "ERR"]);
    assert_eq!(
        BackupState::KNOWN,
        ["", "Pending", "InProgress", "Completed", "Error", "Unknown", "Deleting"]
    );
    assert_eq!(
        VolumeState::KNOWN,
        ["creating", "attached", "detached", "attaching", "detaching", "deleting", ""]
    );
    assert_eq!(Robustness::KNOWN, ["healthy", "degraded", "faulted", "unknown", ""]);
    assert_eq!(
        MoverPhase::KNOWN,
        [
            "New",
            "Accepted",
            "Prepared",
            "InProgress",
            "Canceling",
            "Canceled",
            "Completed",
            "Failed"
        ]
    );
    assert_eq!((BackupPhase::KNOWN.len(), RestorePhase::KNOWN.len()), (13, 10));
    assert!(DownloadKind::KNOWN.contains(&"CSIBackupVolumeSnapshotContents"));
}

#[test]
fn a_tenant_phase_only_grows() {
    assert!(Phase::New < Phase::BackingOff);
    assert!(Phase::BackingOff < Phase::Created && Phase::Created < Phase::Deleting);
}

#[test]
fn a_closed_word_refuses_what_it_does_not_know() {
    let error = serde_json::from_str::<Phase>("\"Deletion\"").unwrap_err().to_string();
    assert!(error.contains("Deletion") && error.contains("BackingOff"), "{error}");
}

proptest! {
    #[test]
    fn an_open_word_comes_back_as_it_went(text in "\\PC{0,20}") {
        let phase = BackupPhase::from(text.as_str());
        prop_assert_eq!(phase.as_str(), text.as_str());
        let json = serde_json::to_string(&phase).unwrap();
        prop_assert_eq!(serde_json::from_str::<BackupPhase>(&json).unwrap(), phase);
    }

    #[test]
    fn noise_never_panics(text in "\\PC{0,60}") {
        let _ = serde_json::from_str::<api::nonadmin::NonAdminBackup>(&text);
        let _ = serde_json::from_str::<api::longhorn::Volume>(&text);
        let _ = serde_json::from_value::<api::scalar::Time>(text.clone().into());
        let _ = serde_json::from_value::<api::scalar::TextInt>(text.into());
    }
}
