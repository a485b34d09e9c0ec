//! Whose a volume is, and how what was asked for stands. Pure.

use std::time::Duration;

use api::condition::Status;
use api::longhorn::{Backup, BackupState, BackupTarget, Replica, Snapshot, Volume, VolumeState};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::Value;

use super::DRIVER;

/// How something that was asked for stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stand {
    /// Not yet, for this reason.
    Waits(String),
    Done,
    Failed(String),
}

/// Why the data of a claim is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Left {
    /// Nobody wanted it, or there is none.
    Quietly(&'static str),
    /// Somebody may miss it.
    Warned(&'static str),
    /// It was to be taken, and whence is not known.
    Failed(String),
}

/// How old a claim may be and still be taken for one that was made together with its backup.
const YOUNG: SignedDuration = SignedDuration::from_secs(30);

/// Whether a claim has no volume only because it was just made. By a clock that was set back it comes from
/// the future, and is young.
pub(super) fn may_yet_bind(claim: &Value, now: Timestamp) -> bool {
    let at = |path: &str| claim.pointer(path).and_then(Value::as_str);
    let made = at("/metadata/creationTimestamp").and_then(|it| it.parse::<Timestamp>().ok());
    at("/spec/volumeName").is_none_or(str::is_empty)
        && made.is_some_and(|made| now.duration_since(made) < YOUNG)
}

/// The name of the volume behind a claim. What the claim says is not enough: anybody who may make
/// claims can name any persistent volume, but only its own knows it.
pub(super) fn behind(claim: &Value, persistent: Option<&PersistentVolume>) -> Result<String, Left> {
    let at = |path: &str| claim.pointer(path).and_then(Value::as_str);
    if at("/spec/volumeName").is_none_or(str::is_empty) {
        return Err(Left::Quietly("the claim has no volume yet"));
    }
    let Some(spec) = persistent.and_then(|it| it.spec.as_ref()) else {
        return Err(Left::Warned("its persistent volume is not there"));
    };
    let kept = spec.claim_ref.as_ref();
    let is_its = kept.is_some_and(|it| {
        it.uid.as_deref() == at("/metadata/uid")
            && it.name.as_deref() == at("/metadata/name")
            && it.namespace.as_deref() == at("/metadata/namespace")
    });
    if !is_its {
        return Err(Left::Warned("its persistent volume belongs to another claim"));
    }
    match &spec.csi {
        Some(csi) if csi.driver == DRIVER => Ok(csi.volume_handle.clone()),
        _ => Err(Left::Warned("no way to take the data of this volume")),
    }
}

/// Snapshots of a volume, with the backup each was taken for, that a backup which has ended may
/// remove: not its own, which the next one builds on, and none that another backup still reads.
pub(super) fn superseded(
    found: impl IntoIterator<Item = (String, String)>,
    own: &str,
    reads_on: impl Fn(&str) -> bool,
) -> Vec<String> {
    let old = found.into_iter().filter(|(name, backup)| name != own && !reads_on(backup));
    old.map(|(name, _)| name).collect()
}

/// Why no data can be had of a volume, however long it is waited for: none of its copies has a place.
pub(super) fn unplaced(volume: &Volume, copies: &[Replica]) -> Option<String> {
    let conditions = volume.status.as_ref().and_then(|it| it.conditions.as_ref());
    let scheduled = conditions.into_iter().flatten().find(|it| it.kind == "Scheduled")?;
    let has_place =
        |it: &Replica| it.spec.instance.node_id.as_deref().is_some_and(|node| !node.is_empty());
    (scheduled.status == Status::False && !copies.iter().any(has_place)).then(|| {
        let why = scheduled.message.clone().unwrap_or_default();
        format!("no copy of the volume {} has a place: {why}", volume.name_any())
    })
}

/// How long something is waited for. What a tenant asks for holds up others: it may ask for less.
pub(crate) fn within(asked: Option<Duration>, usual: Duration, is_tenants: bool) -> Duration {
    match asked {
        Some(asked) if is_tenants => asked.min(usual),
        Some(asked) => asked,
        None => usual,
    }
}

/// Whether a target can be sent to.
pub(super) fn target(target: Option<&BackupTarget>) -> Stand {
    let Some(target) = target else {
        return Stand::Waits("the backup target is not there".to_owned());
    };
    let status = target.status.as_ref();
    if status.is_some_and(|it| it.available == Some(true)) {
        return Stand::Done;
    }
    let conditions = status.and_then(|it| it.conditions.as_ref());
    let why = conditions.into_iter().flatten().find(|it| it.kind == "Unavailable");
    let why = why.and_then(|it| it.message.clone()).unwrap_or_default();
    Stand::Waits(format!("the backup target is not available: {why}"))
}

pub(super) fn has_url(target: Option<&BackupTarget>) -> bool {
    target.is_some_and(|it| it.spec.backup_target_url.as_deref().is_some_and(|url| !url.is_empty()))
}

pub(super) fn snapshot(snapshot: Option<&Snapshot>) -> Stand {
    let Some(snapshot) = snapshot else {
        return Stand::Failed("the snapshot of the volume was lost".to_owned());
    };
    let status = snapshot.status.as_ref();
    if status.is_some_and(|it| it.ready_to_use == Some(true)) {
        return Stand::Done;
    }
    let why = status.and_then(|it| it.error.clone()).filter(|it| !it.is_empty());
    Stand::Waits(why.unwrap_or_else(|| "the snapshot is not taken yet".to_owned()))
}

pub(super) fn backup(backup: Option<&Backup>) -> Stand {
    let Some(backup) = backup else {
        return Stand::Failed("the backup of the volume was deleted".to_owned());
    };
    let status = backup.status.clone().unwrap_or_default();
    let said = |key: &str| status.messages.as_ref().and_then(|it| it.get(key)).cloned();
    match status.state {
        Some(BackupState::Completed) => Stand::Done,
        Some(BackupState::Error | BackupState::Unknown) => {
            let why = status.error.clone().filter(|it| !it.is_empty()).or_else(|| said("error"));
            Stand::Failed(why.unwrap_or_else(|| "the backup of the volume failed".to_owned()))
        }
        Some(BackupState::Deleting) => {
            Stand::Failed("the backup of the volume is being deleted".to_owned())
        }
        _ => {
            let percent = status.progress.unwrap_or_default();
            Stand::Waits(
                said("info").unwrap_or_else(|| format!("{percent} % of the volume is sent")),
            )
        }
    }
}

/// Whether a volume that is made from a backup holds all of it.
pub(super) fn restored(volume: Option<&Volume>) -> Stand {
    let Some(volume) = volume else {
        return Stand::Failed("the restored volume was deleted".to_owned());
    };
    let status = volume.status.clone().unwrap_or_default();
    let condition =
        |kind: &str| status.conditions.iter().flatten().find(|it| it.kind == kind).cloned();
    let restore = condition("Restore");
    let is = |reason: &str| restore.as_ref().is_some_and(|it| it.reason.as_deref() == Some(reason));
    let said = restore.as_ref().and_then(|it| it.message.clone()).filter(|it| !it.is_empty());
    if is("RestoreFailure") {
        return Stand::Failed(
            said.unwrap_or_else(|| "the restore of the volume failed".to_owned()),
        );
    }
    let begun = status.restore_initiated == Some(true);
    if begun
        && status.restore_required == Some(false)
        && status.state == Some(VolumeState::Detached)
    {
        return Stand::Done;
    }
    let unplaced = condition("Scheduled").filter(|it| it.status == Status::False);
    let unplaced = unplaced.and_then(|it| it.message).filter(|it| !it.is_empty());
    Stand::Waits(said.or(unplaced).unwrap_or_else(|| "the volume is being restored".to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_without_a_place_is_not_waited_for() {
        let volume: Volume = serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {},
            "status": {"conditions": [{"type": "Scheduled", "status": "False",
                "message": "insufficient storage"}]}}))
        .unwrap();
        let copy = |node: &str| -> Replica {
            serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": {"nodeID": node}}))
                .unwrap()
        };
        let why = unplaced(&volume, &[copy("")]).unwrap();
        assert_eq!(why, "no copy of the volume v has a place: insufficient storage");
        // One copy of three has one: it can be read.
        assert_eq!(unplaced(&volume, &[copy(""), copy("n1")]), None);
        assert_eq!(unplaced(&Volume::default(), &[copy("")]), None);
    }

    #[test]
    fn a_tenant_waits_no_longer_than_is_usual() {
        let (usual, long, short) =
            (Duration::from_mins(10), Duration::from_hours(87600), Duration::from_secs(5));
        assert_eq!(within(Some(long), usual, true), usual);
        assert_eq!(within(Some(short), usual, true), short);
        assert_eq!(within(None, usual, true), usual);
        assert_eq!(within(Some(long), usual, false), long);
    }

    fn claim() -> Value {
        json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {"volumeName": "pv"}})
    }

    fn persistent(uid: &str, driver: &str) -> PersistentVolume {
        serde_json::from_value(json!({"spec": {
            "claimRef": {"name": "c", "namespace": "n", "uid": uid},
            "csi": {"driver": driver, "volumeHandle": "v"}}}))
        .unwrap()
    }

    #[test]
    fn only_the_volume_that_knows_the_claim_is_its() {
        assert_eq!(behind(&claim(), Some(&persistent("u", DRIVER))), Ok("v".to_owned()));
        // A claim that names the volume of another claim.
        assert_eq!(
            behind(&claim(), Some(&persistent("of another", DRIVER))),
            Err(Left::Warned("its persistent volume belongs to another claim"))
        );
        assert!(matches!(behind(&claim(), Some(&persistent("u", "other"))), Err(Left::Warned(_))));
        assert!(matches!(behind(&claim(), None), Err(Left::Warned(_))));
        let unbound = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {}});
        assert!(matches!(behind(&unbound, None), Err(Left::Quietly(_))));
    }

    #[test]
    fn a_claim_that_was_made_with_its_backup_may_yet_get_a_volume() {
        let made = |volume: &str| {
            json!({"metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"volumeName": volume}})
        };
        let at = |second: i64| Timestamp::from_second(1_767_225_600 + second).unwrap();
        assert!(may_yet_bind(&made(""), at(1)) && may_yet_bind(&made(""), at(-60)));
        assert!(!may_yet_bind(&made("pv"), at(1)), "it has one");
        assert!(!may_yet_bind(&made(""), at(31)), "it had its time");
        assert!(!may_yet_bind(&json!({"spec": {}}), at(1)));
    }

    #[test]
    fn the_stand_of_a_backup_says_why_it_waits_or_failed() {
        let of = |status: Value| -> Stand {
            let made: Backup =
                serde_json::from_value(json!({"spec": {}, "status": status})).unwrap();
            backup(Some(&made))
        };
        assert_eq!(of(json!({"state": "Completed"})), Stand::Done);
        assert_eq!(of(json!({"state": "Error", "error": "no"})), Stand::Failed("no".to_owned()));
        assert_eq!(
            of(json!({"state": "Pending", "messages": {"info": "Waiting"}})),
            Stand::Waits("Waiting".to_owned())
        );
        assert_eq!(
            of(json!({"state": "InProgress", "progress": 40})),
            Stand::Waits("40 % of the volume is sent".to_owned())
        );
        assert!(matches!(of(json!({"state": "Deleting"})), Stand::Failed(_)));
        assert!(matches!(backup(None), Stand::Failed(_)));
    }

    #[test]
    fn a_volume_is_restored_when_it_needs_no_more_and_rests() {
        let of = |status: Value| -> Stand {
            let made: Volume =
                serde_json::from_value(json!({"spec": {}, "status": status})).unwrap();
            restored(Some(&made))
        };
        let over = json!({"state": "detached", "restoreInitiated": true, "restoreRequired": false});
        assert_eq!(of(over), Stand::Done);
        // Just made, and still at it.
        for status in [
            json!({"state": "detached"}),
            json!({"state": "attached", "restoreInitiated": true, "restoreRequired": true}),
            json!({"state": "attached", "restoreInitiated": true, "restoreRequired": false}),
        ] {
            assert!(matches!(of(status.clone()), Stand::Waits(_)), "{status}");
        }
        let failed = json!({"state": "detached", "conditions": [
            {"type": "Restore", "status": "False", "reason": "RestoreFailure", "message": "lost"}]});
        assert_eq!(of(failed), Stand::Failed("lost".to_owned()));
    }

    #[test]
    fn a_snapshot_that_vanished_has_failed() {
        assert!(matches!(snapshot(None), Stand::Failed(_)));
        let ready: Snapshot =
            serde_json::from_value(json!({"spec": {}, "status": {"readyToUse": true}})).unwrap();
        assert_eq!(snapshot(Some(&ready)), Stand::Done);
        let waits: Snapshot =
            serde_json::from_value(json!({"spec": {}, "status": {"error": "not attached"}}))
                .unwrap();
        assert_eq!(snapshot(Some(&waits)), Stand::Waits("not attached".to_owned()));
    }

    #[test]
    fn a_snapshot_that_another_backup_reads_is_kept() {
        let found = [("own", "b"), ("old", "a"), ("read", "c")]
            .map(|(name, backup)| (name.to_owned(), backup.to_owned()));
        assert_eq!(superseded(found, "own", |backup| backup == "c"), ["old"]);
    }
}
