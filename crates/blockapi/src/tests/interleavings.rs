//! Many clients, any order: the two fields never say what must not be.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::rig::{NEW, OLD, Rig};

/// What a client does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Backup,
    BackupForced,
    Extend,
    Reserve,
    Unreserve,
    Attach,
    Detach,
    Delete,
    Transfer,
    Snapshot,
    Restore,
    Work,
    FailBackups(bool),
    Hold(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => Just(Act::Backup),
        2 => Just(Act::BackupForced),
        2 => Just(Act::Extend),
        1 => Just(Act::Reserve),
        1 => Just(Act::Unreserve),
        2 => Just(Act::Attach),
        2 => Just(Act::Detach),
        1 => Just(Act::Delete),
        1 => Just(Act::Transfer),
        1 => Just(Act::Snapshot),
        2 => Just(Act::Restore),
        6 => Just(Act::Work),
        1 => any::<bool>().prop_map(Act::FailBackups),
        1 => any::<bool>().prop_map(Act::Hold),
    ];
    prop::collection::vec(act, 1..40)
}

/// The table of what is allowed, written a second time: (status, backup) and an act.
fn allowed(act: Act, status: &str, backup: Option<&str>) -> Option<bool> {
    let idle = matches!(backup, None | Some("error_backing-up"));
    let backing = backup == Some("backing-up");
    let bad = backup == Some("error_restoring");
    let resting = ["available", "in-use"].contains(&status);
    Some(match act {
        Act::Backup => status == "available" && idle,
        Act::BackupForced => resting && idle,
        Act::Extend => resting && (idle || backing),
        Act::Reserve => status == "available" && (idle || backing),
        Act::Delete => ["available", "error", "error_extending"].contains(&status) && (idle || bad),
        Act::Transfer => status == "available" && idle,
        Act::Snapshot => resting && (idle || backing),
        _ => return None,
    })
}

struct World {
    rig: Rig,
    volume: String,
    size: i64,
    server: String,
}

impl World {
    async fn act(&mut self, act: Act) -> Option<u16> {
        let (rig, volume) = (&self.rig, self.volume.as_str());
        let answer = match act {
            Act::Backup => rig.backup(volume, false).await,
            Act::BackupForced => rig.backup(volume, true).await,
            Act::Extend => {
                self.size += 1;
                rig.action(volume, "os-extend", json!({"new_size": self.size}), OLD).await
            }
            Act::Reserve => rig.action(volume, "os-reserve", Value::Null, NEW).await,
            Act::Unreserve => rig.action(volume, "os-unreserve", Value::Null, NEW).await,
            Act::Attach => {
                let args = json!({"mountpoint": "/dev/vdb", "instance_uuid": self.server});
                rig.action(volume, "os-attach", args, OLD).await
            }
            Act::Detach => rig.action(volume, "os-detach", json!({}), OLD).await,
            Act::Delete => {
                rig.call("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await
            }
            Act::Transfer => {
                let body = json!({"transfer": {"volume_id": volume}});
                rig.call("POST", "/volume-transfers", body, NEW).await
            }
            Act::Snapshot => {
                let body = json!({"snapshot": {"volume_id": volume}});
                rig.call("POST", "/snapshots", body, NEW).await
            }
            Act::Restore => {
                let found = rig.get("/backups?status=available&limit=1", NEW).await;
                let backup = found.body["backups"][0]["id"].as_str()?.to_owned();
                let body = json!({"restore": {"volume_id": volume}});
                rig.call("POST", &format!("/backups/{backup}/restore"), body, NEW).await
            }
            Act::Work => {
                rig.passes(1).await;
                return None;
            }
            Act::FailBackups(fail) => {
                let why = fail.then(|| "no".to_owned());
                rig.backend.mood(|moods| moods.fail_backups = why);
                return None;
            }
            Act::Hold(hold) => {
                rig.backend.mood(|moods| {
                    moods.hold_backups = hold;
                    moods.hold_restores = hold;
                });
                return None;
            }
        };
        Some(answer.code)
    }

    /// What must hold after every act.
    async fn check(&self) {
        let running = "SELECT COUNT(*) AS n FROM backups WHERE volume_id = $1 AND deleted = 0 \
             AND status = 'creating' AND snapshot_id IS NULL";
        let row = self.rig.store.db.fetch_one(running, &[self.volume.as_str().into()]).await;
        let running = row.unwrap().unwrap().int("n").unwrap();
        let Some(volume) = self.rig.store.volume(&self.volume, None).await.unwrap() else {
            assert_eq!(running, 0, "a backup of a volume that is gone");
            return;
        };
        let backup = volume.backup_status.as_deref();
        assert!(running <= 1, "two backups at once");
        assert_eq!(running == 1, backup == Some("backing-up"), "{backup:?} with {running} running");
        if volume.status == "deleting" {
            assert!(!matches!(backup, Some("backing-up" | "restoring-backup")), "{backup:?}");
        }
        let live = volume.attachments.iter().any(|it| it.status == "attached");
        if volume.status == "available" {
            assert!(!live, "available with an attachment");
        }
        assert!(!(backup == Some("restoring-backup") && live), "attached while it is restored");
    }
}

async fn explore(acts: Vec<Act>) {
    let rig = Rig::new().await;
    let (volume, other) = (rig.volume().await, rig.volume().await);
    let _ = other;
    let server = uuid::Uuid::new_v4().to_string();
    let mut world = World { rig, volume, size: 1, server };
    for act in acts {
        let seen = world.rig.store.volume(&world.volume, None).await.unwrap();
        let code = world.act(act).await;
        if let (Some(seen), Some(code)) = (seen, code) {
            let has_snapshots =
                world.rig.store.latest_snapshot(&world.volume).await.unwrap().is_some();
            let told = allowed(act, &seen.status, seen.backup_status.as_deref());
            let blocked = matches!(act, Act::Delete) && has_snapshots;
            if let (Some(told), false) = (told, blocked) {
                let at = (&seen.status, &seen.backup_status);
                assert_eq!(code < 300, told, "{act:?} at {at:?} gave {code}");
            }
        }
        world.check().await;
    }
    world.rig.backend.mood(|moods| {
        moods.hold_backups = false;
        moods.hold_restores = false;
    });
    world.rig.settle().await;
    world.check().await;
    if let Some(volume) = world.rig.store.volume(&world.volume, None).await.unwrap() {
        assert!(!matches!(
            volume.backup_status.as_deref(),
            Some("backing-up" | "restoring-backup")
        ));
        assert!(!["creating", "extending", "deleting"].contains(&volume.status.as_str()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_order_keeps_the_two_fields_true(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(explore(acts));
    }
}

/// The same at once: acts of many clients interleave as they like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_at_once_keep_the_two_fields_true() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let world = Arc::new(tokio::sync::Mutex::new(()));
        let rig = &rig;
        let clients = (0..8).map(|client| {
            let (volume, world) = (volume.clone(), world.clone());
            async move {
                for round in 0..6 {
                    match (client + round) % 4 {
                        0 => drop(rig.backup(&volume, true).await),
                        1 => {
                            let size = 2 + client * 6 + round;
                            let args = json!({"new_size": size});
                            drop(rig.action(&volume, "os-extend", args, NEW).await);
                        }
                        2 => {
                            let args = json!({"mountpoint": "/dev/vdb", "host_name": "h"});
                            drop(rig.action(&volume, "os-attach", args, NEW).await);
                            drop(rig.action(&volume, "os-detach", json!({}), NEW).await);
                        }
                        _ => {
                            let _one = world.lock().await;
                            rig.passes(1).await;
                        }
                    }
                }
            }
        });
        futures::future::join_all(clients).await;
        rig.settle().await;
        let (status, backup) = rig.both(&volume).await;
        assert_eq!((status.as_str(), backup), ("available", None));
    }
}
