//! What is told of single objects for `/metrics`: how whole a volume is, when it was last backed up,
//! since when a standby volume is behind, which deletions are under way, how targets and nodes are.
//!
//! Each pass looks at one object, when that changes: what it costs is what changed.

use std::sync::Arc;

use api::longhorn::{Backup, BackupTarget, Engine, Node, Robustness, Volume};
use reconcile::{Context, Fact, Failure, Key, Loop, Metrics, Next, Reconciler, Store};

use crate::{NAMESPACE, engine};

const DEGRADED: Fact = Fact {
    metric: "volume_degraded",
    label: "volume",
    help: "Whether a volume lacks a copy: 1 or 0",
};
const FAULTED: Fact = Fact {
    metric: "volume_faulted",
    label: "volume",
    help: "Whether a volume has no copy left to serve: 1 or 0",
};
const LAST_BACKUP: Fact = Fact {
    metric: "volume_last_backup_timestamp_seconds",
    label: "volume",
    help: "When the newest backup of a volume was made; none if it has none",
};
const BEHIND_SINCE: Fact = Fact {
    metric: "standby_behind_since_timestamp_seconds",
    label: "volume",
    help: "When the newest backup was made that a standby volume does not hold; none if it does",
};
const NODE_READY: Fact =
    Fact { metric: "node_ready", label: "node", help: "Whether a node is ready: 1 or 0" };
const DELETION_SINCE: Fact = Fact {
    metric: "backup_deletion_requested_timestamp_seconds",
    label: "backup",
    help: "Since when a backup is to be deleted; none once it is",
};
const AVAILABLE: Fact = Fact {
    metric: "backup_target_available",
    label: "target",
    help: "Whether a backup target can be used: 1 or 0; none if it has no address",
};
const DAMAGED: Fact = Fact {
    metric: "backup_target_damaged",
    label: "target",
    help: "Whether the last verification of a backup target found damage: 1 or 0",
};
const VERIFIED: Fact = Fact {
    metric: "backup_target_verified_timestamp_seconds",
    label: "target",
    help: "When the last verification of a backup target ended",
};

/// All that the controllers of this crate tell.
pub const FACTS: &[Fact] = &[
    DEGRADED,
    FAULTED,
    LAST_BACKUP,
    BEHIND_SINCE,
    NODE_READY,
    DELETION_SINCE,
    AVAILABLE,
    DAMAGED,
    VERIFIED,
];

/// Facts of an object, or that there is nothing to tell.
type Figures<const N: usize> = [(Fact, Option<i64>); N];

fn of_volume(volume: Option<&Volume>, engine: Option<&Engine>) -> Figures<4> {
    let status = volume.and_then(|it| it.status.as_ref());
    let is = |wanted: Robustness| {
        volume.map(|_| i64::from(status.and_then(|it| it.robustness.clone()) == Some(wanted)))
    };
    let at = status.and_then(|it| it.last_backup_at.as_ref()?.get());
    let at = at.map(jiff::Timestamp::as_second);
    let is_standby = status.is_some_and(|it| it.is_standby == Some(true));
    let newest = status.and_then(|it| it.last_backup.as_deref()).unwrap_or_default();
    let holds = engine
        .and_then(|it| it.status.as_ref()?.last_restored_backup.as_deref())
        .unwrap_or_default();
    [
        (DEGRADED, is(Robustness::Degraded)),
        (FAULTED, is(Robustness::Faulted)),
        // That of a standby volume is its source's.
        (LAST_BACKUP, at.filter(|_| !is_standby)),
        (BEHIND_SINCE, at.filter(|_| is_standby && newest != holds)),
    ]
}

fn of_node(node: Option<&Node>) -> Figures<1> {
    let is_ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|it| it.conditions.as_deref());
        let ready = conditions.unwrap_or_default().iter().find(|it| it.kind == "Ready");
        ready.is_some_and(|it| it.status.as_str() == "True")
    };
    [(NODE_READY, node.map(|it| i64::from(is_ready(it))))]
}

fn of_backup(backup: Option<&Backup>) -> Figures<1> {
    let since = backup.and_then(|it| it.metadata.deletion_timestamp.as_ref());
    [(DELETION_SINCE, since.map(|it| it.0.as_second()))]
}

fn of_target(target: Option<&BackupTarget>) -> Figures<3> {
    let status = target.and_then(|it| it.status.as_ref());
    let has_address = target
        .is_some_and(|it| it.spec.backup_target_url.as_ref().is_some_and(|it| !it.is_empty()));
    let available = i64::from(status.and_then(|it| it.available) == Some(true));
    let verified = status.and_then(|it| it.verification.as_ref());
    let damaged = verified.and_then(|it| it.result.as_deref()).map(|it| i64::from(it == "Damaged"));
    [
        (AVAILABLE, has_address.then_some(available)),
        (DAMAGED, damaged),
        (VERIFIED, verified.and_then(|it| it.finished_at).map(|it| it.timestamp().as_second())),
    ]
}

/// Tells what a look at an object comes to.
struct Teller<L> {
    metrics: Metrics,
    look: L,
}

impl<L, const N: usize> Reconciler for Teller<L>
where
    L: Fn(&Key) -> Figures<N> + Send + Sync + 'static,
{
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        for (fact, value) in (self.look)(key) {
            self.metrics.tell(&fact, &key.name, value);
        }
        Ok(Next::WAIT)
    }
}

fn teller<L>(context: &Context, look: L) -> Arc<Teller<L>> {
    Arc::new(Teller { metrics: context.metrics.clone(), look })
}

/// Of volumes and nodes, until it is dropped.
pub(crate) async fn tell_of_volumes(
    context: &Context,
    (volumes, engines): (&Store<Volume>, &Store<Engine>),
    nodes: &Store<Node>,
) {
    let (own, theirs) = (volumes.clone(), engines.clone());
    let of_volumes = teller(context, move |key: &Key| {
        let engine = engine::active(&theirs, &key.name);
        of_volume(own.get(key).as_deref(), engine.as_deref())
    });
    let own = nodes.clone();
    let of_nodes = teller(context, move |key: &Key| of_node(own.get(key).as_deref()));
    tokio::join!(
        Loop::new("volume-figures", context)
            .on(volumes)
            .on_related(engines, |it: &Engine| {
                let volume = it.spec.instance.volume_name.as_deref();
                volume.map(|it| Key::new(NAMESPACE, it)).into_iter().collect()
            })
            .run(of_volumes),
        Loop::new("node-figures", context).on(nodes).run(of_nodes),
    );
}

/// Of backups and targets, until it is dropped.
pub(crate) async fn tell_of_backups(
    context: &Context,
    backups: &Store<Backup>,
    targets: &Store<BackupTarget>,
) {
    let own = backups.clone();
    let of_backups = teller(context, move |key: &Key| of_backup(own.get(key).as_deref()));
    let own = targets.clone();
    let of_targets = teller(context, move |key: &Key| of_target(own.get(key).as_deref()));
    tokio::join!(
        Loop::new("backup-figures", context).on(backups).run(of_backups),
        Loop::new("target-figures", context).on(targets).run(of_targets),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(status: &Value) -> Volume {
        let object = json!({"metadata": {"name": "v"}, "spec": {}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn engine(holds: &str) -> Engine {
        let object = json!({"metadata": {"name": "v-e"}, "spec": {"volumeName": "v"},
            "status": {"lastRestoredBackup": holds}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_volume_tells_how_whole_it_is_and_when_it_was_backed_up() {
        let seen = volume(&json!({"robustness": "degraded", "lastBackup": "b",
            "lastBackupAt": "2026-01-02T03:04:05Z"}));
        let at = "2026-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().as_second();
        assert_eq!(
            of_volume(Some(&seen), None),
            [
                (DEGRADED, Some(1)),
                (FAULTED, Some(0)),
                (LAST_BACKUP, Some(at)),
                (BEHIND_SINCE, None),
            ]
        );
        assert!(of_volume(None, None).iter().all(|(_, value)| value.is_none()));
    }

    #[test]
    fn a_standby_volume_is_behind_until_it_holds_the_newest_backup() {
        let seen = volume(&json!({"isStandby": true, "lastBackup": "b2",
            "lastBackupAt": "2026-01-02T03:04:05Z"}));
        let behind = |holds: &str| of_volume(Some(&seen), Some(&engine(holds)))[3].1;
        assert!(behind("b1").is_some() && behind("").is_some());
        assert_eq!(behind("b2"), None);
        assert_eq!(of_volume(Some(&seen), None)[2].1, None, "its backups are its source's");
    }

    #[test]
    fn a_backup_tells_since_when_it_is_to_go() {
        let mut backup = Backup::default();
        assert_eq!(of_backup(Some(&backup)), [(DELETION_SINCE, None)]);
        let at = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
        backup.metadata.deletion_timestamp = Some(at);
        assert!(of_backup(Some(&backup))[0].1.is_some());
    }

    #[test]
    fn a_target_tells_whether_it_can_be_used_and_what_verification_found() {
        let target = |url: &str, status: Value| -> BackupTarget {
            let object = json!({"metadata": {"name": "t"}, "spec": {"backupTargetURL": url},
                "status": status});
            serde_json::from_value(object).unwrap()
        };
        let values = |it: &BackupTarget| of_target(Some(it)).map(|(_, value)| value);
        assert_eq!(values(&target("", json!({}))), [None, None, None]);
        let seen = target(
            "vfs:///x",
            json!({"available": true, "verification":
            {"result": "Damaged", "finishedAt": "1970-01-01T00:01:00Z"}}),
        );
        assert_eq!(values(&seen), [Some(1), Some(1), Some(60)]);
        assert_eq!(values(&target("vfs:///x", json!({})))[0], Some(0));
    }

    #[test]
    fn a_node_tells_whether_it_is_ready() {
        let node = |status: &str| -> Node {
            let object = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"conditions":
                [{"type": "Ready", "status": status}]}});
            serde_json::from_value(object).unwrap()
        };
        assert_eq!(of_node(Some(&node("True"))), [(NODE_READY, Some(1))]);
        assert_eq!(of_node(Some(&node("False"))), [(NODE_READY, Some(0))]);
        assert_eq!(of_node(None), [(NODE_READY, None)]);
    }
}
