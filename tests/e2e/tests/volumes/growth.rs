//! Volumes that grow between their backups.

use e2e::volumes::{Content, MIB, Rig};
use serde_json::json;

#[test]
fn older_backups_of_a_volume_that_grew_are_restored_and_a_standby_keeps_its_size() {
    let rig = Rig::start();
    rig.volume("source", 16, 1);
    rig.attach("source");
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 4, 1);
    rig.backup("source", "small");
    let before = content.clone();
    rig.make_from_backup("standby", "small", 1, true);
    rig.until("the standby follows", || rig.last_restored("standby") == "small");

    // Grown by hand it would be of no use any more: it stays as large as its source.
    let grown = (64 * MIB).to_string();
    rig.patch("lhv", "standby", &json!({"spec": {"size": grown}}));
    rig.until("the size is set back", || {
        rig.text("lhv", "standby", "/spec/size") == (16 * MIB).to_string()
    });

    rig.patch("lhv", "source", &json!({"spec": {"size": (24 * MIB).to_string()}}));
    rig.until("the source has grown", || {
        rig.text("lhe", "source-e-0", "/status/currentSize") == (24 * MIB).to_string()
    });
    rig.write("source", &mut content, 20, 2, 2);
    rig.backup("source", "large");
    rig.make_from_backup("older", "small", 1, false);
    rig.is_restored("older");
    rig.attach("older");
    rig.holds("older", &before, 24);
    rig.until("the standby follows on", || rig.last_restored("standby") == "large");
    rig.patch("lhv", "standby", &json!({"spec": {"Standby": false, "frontend": "blockdev"}}));
    rig.is_restored("standby");
    rig.attach("standby");
    rig.holds("standby", &content, 24);
}
