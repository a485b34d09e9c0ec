//! A worker that stands still while others work, and goes on when its work is theirs or nobody's: what it
//! still asks of the backend leaves nothing behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use super::rig::{NEW, Rig, id_of};
use crate::worker::Worker;
use crate::worker::backend::{
    Backend, BackendError, BackupOrder, Capacity, Progress, Saved, Stored, Taken, VolumeOrder,
};
use crate::worker::simulated::Simulated;

/// The same backend on a long way: one of the calls is held on it.
#[derive(Debug)]
struct Far {
    near: Arc<Simulated>,
    /// Calls until the one that is held.
    left: AtomicUsize,
    held: Semaphore,
    go: Semaphore,
}

impl Far {
    fn new(near: Arc<Simulated>, left: usize) -> Self {
        let (held, go) = (Semaphore::new(0), Semaphore::new(0));
        Self { near, left: AtomicUsize::new(left), held, go }
    }

    async fn way(&self) -> &Simulated {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.held.add_permits(1);
            let _ = self.go.acquire().await;
        }
        &self.near
    }
}

#[async_trait]
impl Backend for Far {
    async fn ensure_volume(&self, order: &VolumeOrder) -> Result<Progress<()>, BackendError> {
        self.way().await.ensure_volume(order).await
    }

    async fn remove_volume(&self, name: &str) -> Result<Progress<()>, BackendError> {
        self.way().await.remove_volume(name).await
    }

    async fn extend_volume(&self, name: &str, gib: i64) -> Result<Progress<()>, BackendError> {
        self.way().await.extend_volume(name, gib).await
    }

    async fn ensure_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<Progress<Taken>, BackendError> {
        self.way().await.ensure_snapshot(volume, name).await
    }

    async fn ask_revert(&self, volume: &str, snapshot: &str) -> Result<(), BackendError> {
        self.way().await.ask_revert(volume, snapshot).await
    }

    async fn find_revert(
        &self,
        volume: &str,
        snapshot: &str,
    ) -> Result<Progress<()>, BackendError> {
        self.way().await.find_revert(volume, snapshot).await
    }

    async fn cancel_revert(&self, volume: &str) -> Result<(), BackendError> {
        self.way().await.cancel_revert(volume).await
    }

    async fn remove_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<Progress<()>, BackendError> {
        self.way().await.remove_snapshot(volume, name).await
    }

    async fn start_backup(&self, order: &BackupOrder) -> Result<(), BackendError> {
        self.way().await.start_backup(order).await
    }

    async fn find_backup(&self, name: &str) -> Result<Option<Progress<Saved>>, BackendError> {
        self.way().await.find_backup(name).await
    }

    async fn find_stored(&self, handle: &str) -> Result<Option<Stored>, BackendError> {
        self.way().await.find_stored(handle).await
    }

    async fn remove_backup(
        &self,
        name: &str,
        handle: Option<&str>,
    ) -> Result<Progress<()>, BackendError> {
        self.way().await.remove_backup(name, handle).await
    }

    async fn connect(
        &self,
        volume: &str,
        attachment: &str,
        connector: &Value,
    ) -> Result<Progress<Value>, BackendError> {
        self.way().await.connect(volume, attachment, connector).await
    }

    async fn disconnect(
        &self,
        volume: &str,
        attachment: &str,
    ) -> Result<Progress<()>, BackendError> {
        self.way().await.disconnect(volume, attachment).await
    }

    async fn connections(&self, volume: &str) -> Result<Vec<String>, BackendError> {
        self.way().await.connections(volume).await
    }

    async fn capacity(&self) -> Result<Capacity, BackendError> {
        self.way().await.capacity().await
    }
}

/// What is asked for and then called off, and of which volume.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Volume,
    Clone,
    Snapshot,
    Backup,
    Restore,
    RestoreNew,
}

const WISHES: [Wish; 6] =
    [Wish::Volume, Wish::Clone, Wish::Snapshot, Wish::Backup, Wish::Restore, Wish::RestoreNew];

/// Requests that call it off.
type CallOff = Vec<(&'static str, String, Value)>;

async fn ask(rig: &Rig, wish: Wish, (volume, backup): (&str, &str)) -> CallOff {
    let force =
        |of: &str, id: &str| ("POST", format!("/{of}/{id}/action"), json!({"os-force_delete": {}}));
    let restore = async |body: Value| {
        let body = json!({ "restore": body });
        let asked = rig.call("POST", &format!("/backups/{backup}/restore"), body, NEW).await;
        assert_eq!(asked.code, 202, "{asked:?}");
        let volume = asked.body["restore"]["volume_id"].as_str().unwrap().to_owned();
        let unset = json!({"os-reset_status": {"backup_status": null}});
        vec![
            (
                "POST",
                format!("/backups/{backup}/action"),
                json!({"os-reset_status": {"status": "available"}}),
            ),
            ("POST", format!("/volumes/{volume}/action"), unset),
            force("volumes", &volume),
        ]
    };
    let volume_of = async |body: Value| {
        let made = rig.call("POST", "/volumes", json!({ "volume": body }), NEW).await;
        vec![force("volumes", &id_of(&made, "volume"))]
    };
    match wish {
        Wish::Volume => volume_of(json!({"size": 1})).await,
        Wish::Clone => volume_of(json!({"source_volid": volume})).await,
        Wish::Snapshot => {
            let body = json!({"snapshot": {"volume_id": volume}});
            let made = rig.call("POST", "/snapshots", body, NEW).await;
            vec![force("snapshots", &id_of(&made, "snapshot"))]
        }
        Wish::Backup => vec![force("backups", &id_of(&rig.backup(volume, false).await, "backup"))],
        Wish::Restore => {
            let target = rig.volume().await;
            restore(json!({"volume_id": target})).await
        }
        Wish::RestoreNew => restore(json!({})).await,
    }
}

/// Everything the backend has that no row tells of.
async fn unknown(rig: &Rig) -> Vec<String> {
    let column = async |sql: &str| {
        let rows = rig.store.db.fetch(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.text("it").unwrap()).collect::<BTreeSet<_>>()
    };
    let volumes = column("SELECT COALESCE(name_id, id) AS it FROM volumes WHERE deleted = 0").await;
    let mut snapshots = column("SELECT id AS it FROM snapshots WHERE deleted = 0").await;
    let copies = "SELECT temp_snapshot_id AS it FROM backups WHERE deleted = 0 \
         AND temp_snapshot_id IS NOT NULL";
    snapshots.extend(column(copies).await);
    let backups = column("SELECT id AS it FROM backups WHERE deleted = 0").await;
    let mut unknown: Vec<String> =
        rig.backend.volumes().into_iter().filter(|it| !volumes.contains(it)).collect();
    unknown.extend(rig.backend.snapshots().into_iter().filter(|it| !snapshots.contains(it)));
    unknown.extend(rig.backend.backups().into_iter().filter(|it| !backups.contains(it)));
    unknown
}

#[tokio::test]
async fn what_a_late_worker_asks_for_leaves_nothing_behind() {
    let (rig, tasks) = (Rig::new().await, tasks::Tasks::new());
    let volume = rig.volume().await;
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    let (mut held, mut known, mut left_over) = (0, BTreeSet::new(), Vec::new());
    for wish in WISHES {
        // Passes before the one that stands still, and calls before the one that is held in it.
        let moments = (0..4).flat_map(|it| [(it, 0), (it, 1)]);
        for (passes, calls, is_called_off) in
            moments.flat_map(|(passes, calls)| [(passes, calls, true), (passes, calls, false)])
        {
            let mut call_off = ask(&rig, wish, (&volume, &backup)).await;
            call_off.retain(|_| is_called_off);
            rig.passes(passes).await;
            rig.hurry().await;
            let free = "UPDATE workers SET owner = NULL, lease_until = NULL";
            rig.store.db.execute(free, &[]).await.unwrap();
            let far = Arc::new(Far::new(rig.backend.clone(), calls));
            let late = Worker {
                name: format!("late-{wish:?}-{passes}-{calls}"),
                backend: far.clone(),
                ..rig.worker.clone()
            };
            // The other work of the pass goes on.
            let (end, mut ended) = oneshot::channel();
            tasks.spawn("late", async move {
                let _ = end.send(late.pass().await);
            });
            let stands = tokio::select! {
                _ = far.held.acquire() => true,
                _ = &mut ended => false,
            };
            held += usize::from(stands);
            for (method, path, body) in call_off {
                let seen = rig.call(method, &path, body, NEW).await;
                // What is done already has nothing that could be called off.
                assert!([202, 400].contains(&seen.code), "{method} {path}: {seen:?}");
            }
            let over = "UPDATE workers SET lease_until = '2000-01-01T00:00:00.000000'";
            rig.store.db.execute(over, &[]).await.unwrap();
            // Others finish what is due, as long as the late one stands still.
            for _ in 0..20 {
                rig.worker.pass().await.unwrap();
            }
            far.go.add_permits(1);
            if stands {
                ended.await.unwrap().unwrap();
            }
            rig.settle().await;
            let mut unknown = unknown(&rig).await;
            unknown.retain(|it| known.insert(it.clone()));
            if !unknown.is_empty() {
                left_over.push(format!("{wish:?}, {passes} {calls} {is_called_off}: {unknown:?}"));
            }
        }
    }
    assert!(held > 10, "only {held} stood still");
    assert!(left_over.is_empty(), "{left_over:#?}");
}
