//! Backups that others have made, targets that come and go, and objects without their data.

use serde_json::json;

use crate::rig::Rig;

#[test]
fn backups_in_a_store_are_shown_and_leave_with_their_target() {
    let rig = Rig::start();
    rig.volume("source", 32);
    rig.write("source", 0, 4);
    rig.backup("source", "backup-1");
    let url = rig.text("lhbt", "default", "/spec/backupTargetURL");
    // The objects go with the URL, what is in the store stays.
    rig.patch("lhbt", "default", &json!({"spec": {"backupTargetURL": ""}}));
    rig.gone("backup-1");
    assert!(rig.record("source", "backup-1").exists());
    rig.until("the target says why", || {
        let said = rig.text("lhbt", "default", "/status/conditions/0/message");
        said == "backup target URL is empty"
    });
    // With it they come back, as backups that somebody else has made.
    rig.patch("lhbt", "default", &json!({"spec": {"backupTargetURL": url}}));
    rig.until("the backup is shown again", || rig.state("backup-1") == "Completed");
    assert_eq!(rig.text("lhb", "backup-1", "/status/volumeName"), "source");
    let volume = rig.kubectl(&["get", "lhbv", "-o", "jsonpath={.items[0].metadata.name}"]);
    rig.until("the volume names its last backup", || {
        rig.text("lhbv", &volume, "/status/lastBackupName") == "backup-1"
    });
    // The object alone can be deleted; it comes back with the next look at the store.
    let uid = || rig.text("lhb", "backup-1", "/metadata/uid");
    let before = uid();
    rig.kubectl(&["label", "lhb", "backup-1", "longhorn.io/delete-custom-resource-only=true"]);
    rig.delete("lhb", "backup-1");
    rig.until("the object is gone, or there anew", || uid() != before);
    assert!(rig.record("source", "backup-1").exists());
    // With its volume all goes, in the store as well.
    rig.delete("lhbv", &volume);
    rig.until("the backup volume is gone", || rig.get("lhbv", &volume).is_none());
    assert!(!rig.record("source", "backup-1").exists());
    assert!(!rig.folder("source").join("volume.cfg").exists());
}

#[test]
fn a_target_that_cannot_be_reached_says_so_and_keeps_its_objects() {
    let rig = Rig::start();
    rig.volume("kept", 32);
    rig.write("kept", 0, 4);
    rig.backup("kept", "backup-1");
    let store = rig.folder("kept");
    let store = store.ancestors().nth(4).unwrap().parent().unwrap();
    let hidden = store.with_extension("hidden");
    std::fs::rename(store, &hidden).unwrap();
    rig.delete("lhb", "backup-1");
    rig.until("the deletion says that the store is away", || {
        rig.history("backup-1")
            .iter()
            .any(|it| it.state == "Error" && it.error.contains("does not exist"))
    });
    assert!(rig.get("lhb", "backup-1").is_some());
    std::fs::rename(&hidden, store).unwrap();
    rig.kubectl(&["annotate", "--overwrite", "lhb", "backup-1", "holdfast.io/retry-now=true"]);
    rig.gone("backup-1");
    assert!(!rig.record("kept", "backup-1").exists());
}
