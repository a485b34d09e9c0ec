//! Volumes that come from backups, and copies that crash on the way.

use std::process::Command;

use serde_json::json;

use e2e::engine::run;
use e2e::volumes::{Content, Rig};

/// "Restore volume rebuild" of the plan.
#[test]
fn a_restore_heals_a_copy_that_crashed_and_ends_by_itself() {
    let rig = Rig::start();
    // 1, 2: a volume with data, and a backup of it.
    rig.volume("source", 32, 1);
    rig.attach("source");
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 24, 1);
    rig.backup("source", "b1");
    // 3: a volume from the backup.
    rig.make_from_backup("restored", "b1", 2, false);
    rig.until("the restore is set up", || !rig.replicas("restored").is_empty());
    rig.until("the restore is under way, or over", || {
        ["attached", "detached"].contains(&rig.state("restored").as_str())
    });
    // 4: one copy crashes, if the restore still runs; else it has nothing to heal.
    let replica = rig.replicas("restored").remove(0);
    rig.kill_replica_that_may_run(&replica);
    // 5: the restore ends, and the volume detaches.
    rig.until("the restore is over and the volume detached", || {
        rig.field("lhv", "restored", "/status/restoreRequired") == Some(json!(false))
            && rig.state("restored") == "detached"
    });
    // 6, 7: the data is right.
    rig.attach("restored");
    rig.holds("restored", &content, 32);
}

/// "DR volume rebuild during the restore" of the plan.
#[test]
fn a_standby_volume_heals_while_it_restores_and_takes_the_newest_backup() {
    let rig = Rig::start();
    // 1, 2: a volume with data, and the first backup of it.
    rig.volume("source", 48, 1);
    rig.attach("source");
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 40, 1);
    rig.backup("source", "b1");
    // 3: more data, which the second backup will have.
    rig.write("source", &mut content, 20, 24, 2);
    // 4: a volume that follows the first backup; its restore has begun.
    rig.make_from_backup("standby", "b1", 2, true);
    rig.until("the restore has begun", || {
        rig.field("lhe", "standby-e-0", "/status/restoreStatus")
            .and_then(|it| it.as_object().map(|it| !it.is_empty()))
            == Some(true)
    });
    // 5: one copy crashes.
    let replica = rig.replicas("standby").remove(0);
    rig.kill_replica(&replica);
    // 6: the second backup, and the store is read at once.
    rig.backup("source", "b2");
    let stored = rig.kubectl(&["get", "lhbv", "-o", "jsonpath={.items[0].metadata.name}"]);
    let now = run(Command::new("date").args(["-u", "-d", "+1 second", "+%FT%TZ"]));
    rig.patch("lhbv", &stored, &json!({"spec": {"syncRequestedAt": now.trim()}}));
    // 7: another copy is made in its place, and the volume is healthy.
    rig.until("the crashed copy is replaced and the volume healthy", || {
        !rig.replicas("standby").contains(&replica) && rig.is_healthy("standby")
    });
    assert_eq!(rig.replicas("standby").len(), 2);
    // 8: the newest backup is restored, and the volume activated.
    rig.until("the second backup is restored", || rig.last_restored("standby") == "b2");
    rig.patch("lhv", "standby", &json!({"spec": {"Standby": false, "frontend": "blockdev"}}));
    rig.is_restored("standby");
    // 9, 10: every copy has the right data: with all of them, and with each of them alone.
    rig.attach("standby");
    rig.holds("standby", &content, 48);
    let replica = rig.replicas("standby").remove(0);
    rig.kill_replica(&replica);
    rig.holds("standby", &content, 48);
}

/// "DR volume rebuild with expansion" of the plan.
#[test]
fn a_standby_volume_follows_heals_grows_and_is_activated() {
    let rig = Rig::start();
    // 1, 2, 3: a source with a backup, and a volume that follows it.
    rig.volume("source", 16, 1);
    rig.attach("source");
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 8, 1);
    rig.backup("source", "b1");
    rig.make_from_backup("standby", "b1", 2, true);
    rig.until("the first backup is restored", || rig.last_restored("standby") == "b1");
    // 4, 5, 6: the source grows.
    rig.detach("source");
    rig.patch("lhv", "source", &json!({"spec": {"size": (32_u64 << 20).to_string()}}));
    rig.attach("source");
    rig.until("the source has grown", || {
        rig.text("lhe", "source-e-0", "/status/currentSize") == (32_u64 << 20).to_string()
    });
    // 7, 8: data in the new part, and the second backup.
    rig.write("source", &mut content, 12, 18, 2);
    rig.backup("source", "b2");
    // 9: a copy of the standby volume crashes.
    let replica = rig.replicas("standby").remove(0);
    rig.kill_replica(&replica);
    // 10, 11: it grows, restores and heals.
    rig.until("the second backup is restored and the volume healthy", || {
        rig.last_restored("standby") == "b2" && rig.is_healthy("standby")
    });
    // 12: its size, and how many snapshots each copy has.
    assert_eq!(rig.text("lhv", "standby", "/spec/size"), (32_u64 << 20).to_string());
    let snapshots = rig.field("lhe", "standby-e-0", "/status/snapshots").unwrap();
    let snapshots: Vec<&String> =
        snapshots.as_object().unwrap().keys().filter(|it| *it != "volume-head").collect();
    assert_eq!(snapshots.len(), 1, "{snapshots:?}");
    // 13, 14: the third backup.
    rig.write("source", &mut content, 2, 2, 3);
    rig.backup("source", "b3");
    rig.until("the third backup is restored", || rig.last_restored("standby") == "b3");
    // 15: activated.
    rig.patch("lhv", "standby", &json!({"spec": {"Standby": false, "frontend": "blockdev"}}));
    rig.until("the volume is activated and detached", || {
        rig.field("lhv", "standby", "/status/isStandby") == Some(json!(false))
            && rig.state("standby") == "detached"
    });
    // 16, 17: the data is right.
    rig.attach("standby");
    rig.holds("standby", &content, 32);
    // 18: more data, and both copies still work.
    rig.write("standby", &mut content, 20, 2, 4);
    assert!(rig.is_healthy("standby"));
    // 19, 20: a copy of the activated volume crashes and is rebuilt.
    let replica = rig.replicas("standby").remove(0);
    rig.kill_replica(&replica);
    rig.until("the copy has failed or is rebuilt", || rig.robustness("standby") != "unknown");
    rig.write("standby", &mut content, 22, 2, 5);
    rig.until("the volume is healthy", || rig.is_healthy("standby"));
    rig.holds("standby", &content, 32);
}
