//! The plan for deletions in the background.

use crate::rig::{ForeignLock, Immutable, Rig, counts, in_order};

const NO_RECORD: &str = "No deletion in progress record, retry the deletion command";

/// Normal case.
#[test]
fn a_backup_asked_for_during_a_deletion_waits_for_it_and_is_then_made() {
    let rig = Rig::start();
    // 1. Create a volume.
    rig.volume("normal", 96);
    // 2. Write small data and then create BackupA.
    rig.write("normal", 0, 2);
    rig.backup("normal", "backup-a");
    // 3. Write large data and then create BackupB. What its removal takes is not left to the speed of
    //    the machine: it waits for a lock of somebody else.
    rig.write("normal", 8, 64);
    rig.backup("normal", "backup-b");
    let lock = ForeignLock::hold(&rig, "normal");
    // 4. Write small data and then create a snapshot.
    rig.write("normal", 4, 2);
    rig.snapshot("normal", "snap-c");
    // 5. Delete BackupB and at the same time create BackupC from the snapshot.
    rig.delete("lhb", "backup-b");
    rig.ask_for_backup("normal", "snap-c", "backup-c");
    // 6. BackupC is Pending, with a message that names BackupB.
    rig.until("BackupC waits for BackupB", || {
        rig.history("backup-c")
            .iter()
            .any(|it| it.state == "Pending" && it.info == "Wait for backup backup-b to be deleted")
    });
    assert_eq!(rig.state("backup-b"), "Deleting");
    drop(lock);
    // 7. After BackupB is deleted, BackupC is in progress.
    rig.gone("backup-b");
    assert!(!rig.record("normal", "backup-b").exists());
    rig.until("BackupC is complete", || rig.state("backup-c") == "Completed");
    assert_eq!(rig.states("backup-b").last().unwrap(), "Deleting");
    assert!(!rig.states("backup-b").contains(&"Error".to_owned()));
    in_order(&rig.states("backup-c"), &["Pending", "InProgress", "Completed"]);
    assert!(!rig.states("backup-c").contains(&"Error".to_owned()));
    // The object was gone only when its blocks were.
    assert_eq!(rig.orphans("normal"), Vec::<std::path::PathBuf>::new());
    assert_eq!(rig.state("backup-a"), "Completed");
}

/// Error case.
#[test]
fn a_deletion_that_cannot_be_done_is_tried_again_and_is_in_nobodys_way() {
    let rig = Rig::start();
    // 1. Create a volume. 2. Write some data and then create BackupA.
    rig.volume("error", 32);
    rig.write("error", 0, 4);
    rig.backup("error", "backup-a");
    // 3. Write some data and then create a snapshot.
    rig.write("error", 4, 4);
    rig.snapshot("error", "snap-b");
    // 4. Make the record of BackupA immutable.
    let Some(immutable) = Immutable::set(rig.record("error", "backup-a")) else { return };
    // 5. Delete BackupA and at the same time create BackupB from the snapshot.
    rig.delete("lhb", "backup-a");
    rig.ask_for_backup("error", "snap-b", "backup-b");
    // 6. BackupA is in Deleting and Error repeatedly, and says why.
    rig.until("BackupA was tried twice", || {
        let states = rig.states("backup-a");
        counts(&states).get("Error").is_some_and(|it| *it >= 2)
    });
    in_order(&rig.states("backup-a"), &["Deleting", "Error", "Deleting", "Error"]);
    let history = rig.history("backup-a");
    let error = &history.iter().find(|it| it.state == "Error").unwrap().error;
    assert!(error.contains("not permitted"), "{error}");
    assert_eq!(error.matches("Failed to delete the backup").count(), 1, "{error}");
    // 7. BackupB is in progress while BackupA is in Error, and completes.
    rig.until("BackupB is complete", || rig.state("backup-b") == "Completed");
    assert!(!rig.states("backup-b").contains(&"Error".to_owned()));
    assert!(rig.get("lhb", "backup-a").is_some(), "the object is gone and its record is not");
    // 8. Without the immutable flag BackupA is deleted; nobody has to wait for the next attempt.
    drop(immutable);
    rig.kubectl(&["annotate", "lhb", "backup-a", "holdfast.io/retry-now=true"]);
    rig.gone("backup-a");
    assert!(!rig.record("error", "backup-a").exists());
    assert_eq!(rig.orphans("error"), Vec::<std::path::PathBuf>::new());
}

/// Controller crashes case.
#[test]
fn a_deletion_whose_controllers_are_killed_is_an_error_and_then_done() {
    let mut rig = Rig::start();
    // 1. Create a volume. 2. Write some data and then create BackupA.
    rig.volume("crash", 32);
    rig.write("crash", 0, 4);
    rig.backup("crash", "backup-a");
    // 3. Make its record immutable.
    let Some(immutable) = Immutable::set(rig.record("crash", "backup-a")) else { return };
    // 5. Delete BackupA. 6. It is in Deleting and Error repeatedly, and says why.
    rig.delete("lhb", "backup-a");
    rig.until("BackupA was tried", || {
        rig.history("backup-a").iter().any(|it| it.error.contains("not permitted"))
    });
    let lock = ForeignLock::hold(&rig, "crash");
    rig.kubectl(&["annotate", "lhb", "backup-a", "holdfast.io/retry-now=true"]);
    // 7. When it is in Deleting, the controllers are killed.
    rig.until("BackupA is in Deleting again", || rig.state("backup-a") == "Deleting");
    rig.crash();
    // 8. After they came back it is in Error, and says that nobody knows of the deletion.
    rig.until("BackupA is in Error", || {
        rig.history("backup-a").iter().any(|it| it.state == "Error" && it.error == NO_RECORD)
    });
    // 9. Then it is in Deleting again, and is deleted when the record can be removed.
    drop((immutable, lock));
    rig.gone("backup-a");
    let states = rig.states("backup-a");
    in_order(&states, &["Completed", "Deleting", "Error", "Deleting"]);
    assert!(!rig.record("crash", "backup-a").exists());
    assert_eq!(rig.orphans("crash"), Vec::<std::path::PathBuf>::new());
}
