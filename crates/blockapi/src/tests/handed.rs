//! What was asked of a volume before it changed hands does not come to hold what the next owner writes.

use serde_json::{Value, json};

use super::rig::{NEW, Rig, id_of};

const TAKER: &str = "eve:dddd:member";

/// Offers a volume without its snapshots: the answer.
async fn offer(rig: &Rig, volume: &str) -> super::rig::Answer {
    let body = json!({"transfer": {"volume_id": volume, "no_snapshots": true}});
    rig.call("POST", "/volume-transfers", body, NEW).await
}

/// Gives a volume to another project.
async fn hand_over(rig: &Rig, volume: &str) {
    let offered = offer(rig, volume).await;
    assert_eq!(offered.code, 202, "{offered:?}");
    let path = format!("/volume-transfers/{}/accept", id_of(&offered, "transfer"));
    let accept = json!({"accept": {"auth_key": offered.body["transfer"]["auth_key"]}});
    assert_eq!(rig.call_as(TAKER, ("POST", &path), accept, NEW).await.code, 202);
}

/// A snapshot or a copy that is not taken yet would be of what the next owner writes.
#[tokio::test]
async fn a_volume_is_not_given_away_before_its_copies_are_taken() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.backend.write(&volume, 1);
        let snapshot = json!({"snapshot": {"volume_id": volume}});
        let snapshot = id_of(&rig.call("POST", "/snapshots", snapshot, NEW).await, "snapshot");
        let early = offer(&rig, &volume).await;
        assert_eq!(early.code, 400, "{early:?}");
        let said = early.body["badRequest"]["message"].as_str().unwrap();
        assert!(said.contains("snapshots"), "{said}");
        rig.expect(&volume, "available", None).await;
        rig.settle().await;
        let clone = json!({"volume": {"source_volid": volume, "size": 1}});
        let clone = id_of(&rig.call("POST", "/volumes", clone, NEW).await, "volume");
        assert_eq!(offer(&rig, &volume).await.code, 400);
        rig.settle().await;
        hand_over(&rig, &volume).await;
        rig.backend.write(&volume, 2);
        rig.settle().await;
        assert_eq!(rig.backend.content(&clone), Some(1));
        let made = json!({"volume": {"snapshot_id": snapshot}});
        let made = id_of(&rig.call("POST", "/volumes", made, NEW).await, "volume");
        rig.settle().await;
        assert_eq!(rig.backend.content(&made), Some(1));
    }
}

/// An administrator takes the mark of a backup that does not begin; then the volume changes hands.
#[tokio::test]
async fn a_backup_that_lost_its_mark_takes_no_copy_any_more() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.backend.mood(|moods| moods.hold_snapshots = true);
        let backup = id_of(&rig.backup(&volume, false).await, "backup");
        rig.passes(2).await;
        let unset = json!({"backup_status": null});
        assert_eq!(rig.action(&volume, "os-reset_status", unset, NEW).await.code, 202);
        hand_over(&rig, &volume).await;
        rig.backend.write(&volume, 7);
        let taker = json!({"backup": {"volume_id": volume}});
        let other = rig.call_as(TAKER, ("POST", "/backups"), taker, NEW).await;
        let other = id_of(&other, "backup");
        rig.backend.mood(|moods| moods.hold_snapshots = false);
        rig.settle().await;
        let seen = rig.get(&format!("/backups/{backup}"), NEW).await;
        assert_eq!(seen.body["backup"]["status"], "error", "{seen:?}");
        let why = seen.body["backup"]["fail_reason"].as_str().unwrap();
        assert!(why.contains("no longer to be backed up"), "{why}");
        assert_eq!(rig.backup_status(&other).await, "available");
        rig.expect(&volume, "available", None).await;
        assert_eq!(rig.backend.stored(), 1);
        // Nor is the copy that it took too late left behind.
        assert_eq!(rig.backend.snapshots(), [format!("copy-{other}")]);
        rig.ok("DELETE", &format!("/backups/{backup}"), Value::Null, NEW).await;
        rig.settle().await;
        assert_eq!(rig.backup_status(&backup).await, "gone");
    }
}
