//! The system's own resources in the store, and back from there.

use serde_json::json;

use e2e::volumes::{Content, Rig};

#[test]
fn what_was_lost_comes_back_from_a_system_backup_with_its_data() {
    let rig = Rig::start();
    rig.volume("kept", 16, 2);
    rig.volume("lost", 16, 2);
    rig.attach("lost");
    let mut content = Content::new();
    rig.write("lost", &mut content, 0, 8, 1);
    rig.backup("lost", "newest");
    let job = json!({"task": "snapshot", "cron": "0 0 1 1 *", "retain": 3, "groups": ["g"]});
    rig.create("RecurringJob", "yearly", &json!({}), &job);
    rig.patch("lhs", "auto-salvage", &json!({"value": "false"}));
    rig.create("SystemBackup", "all", &json!({}), &json!({"volumeBackupPolicy": "disabled"}));
    rig.until("the system is backed up", || rig.text("lhsb", "all", "/status/state") == "Ready");
    rig.kubectl(&["delete", "lhv", "lost", "--timeout=120s"]);
    rig.kubectl(&["delete", "lhrj", "yearly", "--timeout=120s"]);
    rig.patch("lhs", "auto-salvage", &json!({"value": "true"}));
    let kept = rig.text("lhv", "kept", "/metadata/uid");
    rig.create("SystemRestore", "again", &json!({}), &json!({"systemBackup": "all"}));
    rig.until("the system is restored", || {
        rig.text("lhsr", "again", "/status/state") == "Completed"
    });
    assert_eq!(rig.text("lhv", "kept", "/metadata/uid"), kept, "what is there stays");
    assert_eq!(rig.text("lhrj", "yearly", "/spec/cron"), "0 0 1 1 *");
    assert_eq!(rig.text("lhs", "auto-salvage", "/value"), "false");
    rig.is_restored("lost");
    rig.attach("lost");
    rig.holds("lost", &content, 16);
    // One that is not in the store says so.
    rig.create("SystemRestore", "never", &json!({}), &json!({"systemBackup": "nothing"}));
    rig.until("it is told that there is no such backup", || {
        rig.text("lhsr", "never", "/status/state") == "Error"
            && rig.get("lhsr", "never").unwrap().to_string().contains("nothing")
    });
}
