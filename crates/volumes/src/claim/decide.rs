//! What is done about a claim, and about a persistent volume. Pure.
//!
//! A claim: volume first, then the persistent volume that stands for it, then the two are bound: the
//! persistent volume knows its claim before the claim knows it. A persistent volume whose claim is
//! gone is released, and then kept or deleted, its volume first.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

/// Who makes the volumes of a class, and serves them.
pub(super) const DRIVER: &str = "driver.longhorn.io";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What a claim needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimStep {
    Nothing,
    /// Make the volume and the persistent volume.
    Provision,
    /// The volume that it names has to be told of it, and it of the volume.
    Bind,
    /// It is bound, and says so no more.
    Show,
    /// The volume it was bound to is gone.
    Lost,
    /// It asks for more than it has.
    Grow,
}

pub(super) struct ClaimSeen<'a> {
    pub(super) claim: &'a PersistentVolumeClaim,
    pub(super) class: Option<&'a StorageClass>,
    /// The persistent volume it names, or the one made for it.
    pub(super) volume: Option<&'a PersistentVolume>,
    pub(super) asked_bytes: Option<i64>,
    pub(super) has_bytes: Option<i64>,
    /// The size of what is behind the persistent volume, unless it is being restored.
    pub(super) behind_bytes: Option<i64>,
}

/// Name of the volume and of the persistent volume of a claim.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> Option<String> {
    claim.metadata.uid.as_ref().map(|uid| format!("pvc-{uid}"))
}

pub(super) fn claim(seen: &ClaimSeen<'_>) -> ClaimStep {
    let ClaimSeen { claim, class, volume, .. } = *seen;
    if claim.metadata.deletion_timestamp.is_some() {
        return ClaimStep::Nothing;
    }
    let named = named_volume(claim);
    let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("Pending");
    match (named, volume) {
        (None, _) if !is_ours(claim, class) => ClaimStep::Nothing,
        (None, None) => ClaimStep::Provision,
        (None, Some(_)) => ClaimStep::Bind,
        (Some(_), None) if phase == "Bound" => ClaimStep::Lost,
        (Some(_), None) => ClaimStep::Nothing,
        (Some(_), Some(volume)) if !is_served(volume) => ClaimStep::Nothing,
        (Some(_), Some(volume)) if !fits(volume, claim) => ClaimStep::Nothing,
        (Some(_), Some(volume)) if !knows(volume, claim) => ClaimStep::Bind,
        (Some(_), Some(_)) if phase != "Bound" => ClaimStep::Show,
        (Some(_), Some(_)) if grows(seen) => ClaimStep::Grow,
        (Some(_), Some(_)) => ClaimStep::Nothing,
    }
}

/// It asks for more than it has, and may; or has less than it was told, as one that is made from a
/// smaller backup.
fn grows(seen: &ClaimSeen<'_>) -> bool {
    let (Some(asked), Some(has)) = (seen.asked_bytes, seen.has_bytes) else { return false };
    let may = seen.class.is_some_and(|class| class.allow_volume_expansion == Some(true));
    if asked > has { may } else { seen.behind_bytes.is_some_and(|behind| behind < asked) }
}

fn named_volume(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref().and_then(|it| it.volume_name.as_deref());
    name.filter(|it| !it.is_empty())
}

/// Whether volumes of its class come from here, now.
fn is_ours(claim: &PersistentVolumeClaim, class: Option<&StorageClass>) -> bool {
    let Some(class) = class.filter(|class| class.provisioner == DRIVER) else { return false };
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let is_awaited =
        claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(SELECTED_NODE));
    // A claim with a selector asks for a volume that somebody made.
    let selects = claim.spec.as_ref().is_some_and(|it| it.selector.is_some());
    (!waits || is_awaited) && !selects
}

pub(super) fn is_served(volume: &PersistentVolume) -> bool {
    let csi = volume.spec.as_ref().and_then(|it| it.csi.as_ref());
    csi.is_some_and(|csi| csi.driver == DRIVER)
}

/// Whether the volume is free, or kept for this claim.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(kept) = volume.spec.as_ref().and_then(|it| it.claim_ref.as_ref()) else { return true };
    kept.name == claim.metadata.name
        && kept.namespace == claim.metadata.namespace
        && kept
            .uid
            .as_ref()
            .is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
}

/// Whether it says that it is this very claim's.
pub(super) fn knows(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let kept = volume.spec.as_ref().and_then(|it| it.claim_ref.as_ref());
    kept.is_some_and(|kept| kept.uid.is_some() && kept.uid == claim.metadata.uid)
        && volume.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Bound")
}

/// The persistent volume that a claim has. The one that it names may be anybody's: it counts only if
/// it names the claim, too.
pub(super) fn bound<V: std::ops::Deref<Target = PersistentVolume>>(
    claim: &PersistentVolumeClaim,
    find: impl Fn(&str) -> Option<V>,
) -> Option<V> {
    let named = find(claim.spec.as_ref()?.volume_name.as_deref()?)?;
    knows(&named, claim).then_some(named)
}

/// What a persistent volume needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeStep {
    Nothing,
    /// Say its phase.
    Show(&'static str),
    /// Ask for the deletion of the volume behind it.
    DeleteVolume,
    /// That one is gone: it goes as well.
    Delete,
}

pub(super) struct VolumeSeen<'a> {
    pub(super) volume: &'a PersistentVolume,
    /// The claim it is kept for.
    pub(super) claim: Option<&'a PersistentVolumeClaim>,
    /// Whether that could not be read.
    pub(super) claim_unreadable: bool,
    /// Whether there still is a volume behind it.
    pub(super) exists: bool,
}

pub(super) fn volume(seen: &VolumeSeen<'_>) -> VolumeStep {
    let volume = seen.volume;
    if !is_served(volume) || seen.claim_unreadable {
        return VolumeStep::Nothing;
    }
    let spec = volume.spec.as_ref();
    let kept = spec.and_then(|it| it.claim_ref.as_ref());
    let phase = volume.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("Pending");
    let show = |wanted: &'static str| {
        if phase == wanted { VolumeStep::Nothing } else { VolumeStep::Show(wanted) }
    };
    let Some(kept) = kept else { return show("Available") };
    let uid = kept.uid.as_ref().filter(|uid| !uid.is_empty());
    let Some(uid) = uid else { return show("Available") };
    // Another claim of the same name is another claim.
    if seen.claim.is_some_and(|claim| claim.metadata.uid.as_ref() == Some(uid)) {
        return VolumeStep::Nothing;
    }
    if phase != "Released" {
        return VolumeStep::Show("Released");
    }
    match spec.and_then(|it| it.persistent_volume_reclaim_policy.as_deref()) {
        Some("Delete") if seen.exists => VolumeStep::DeleteVolume,
        Some("Delete") if volume.metadata.deletion_timestamp.is_none() => VolumeStep::Delete,
        _ => VolumeStep::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn a_claim(change: Value) -> PersistentVolumeClaim {
        let mut base = json!({
            "metadata": {"name": "c", "namespace": "team", "uid": "u1"},
            "spec": {"storageClassName": "longhorn"},
        });
        merge(&mut base, change);
        serde_json::from_value(base).unwrap()
    }

    fn a_volume(change: Value) -> PersistentVolume {
        let mut base = json!({
            "metadata": {"name": "pvc-u1"},
            "spec": {
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": DRIVER, "volumeHandle": "pvc-u1"},
                "claimRef": {"name": "c", "namespace": "team", "uid": "u1"},
            },
            "status": {"phase": "Bound"},
        });
        merge(&mut base, change);
        serde_json::from_value(base).unwrap()
    }

    fn merge(base: &mut Value, change: Value) {
        match (base, change) {
            (Value::Object(base), Value::Object(change)) => {
                for (key, value) in change {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
            (base, change) => *base = change,
        }
    }

    fn class(provisioner: &str, mode: &str) -> StorageClass {
        let class = json!({"provisioner": provisioner, "volumeBindingMode": mode,
            "allowVolumeExpansion": true});
        serde_json::from_value(class).unwrap()
    }

    fn step(
        claim: &PersistentVolumeClaim,
        class: Option<&StorageClass>,
        volume: Option<&PersistentVolume>,
        bytes: (i64, i64),
    ) -> ClaimStep {
        let seen = ClaimSeen {
            claim,
            class,
            volume,
            asked_bytes: Some(bytes.0),
            has_bytes: Some(bytes.1),
            behind_bytes: None,
        };
        super::claim(&seen)
    }

    #[test]
    fn a_claim_grows_where_its_class_lets_it_and_to_what_it_was_told() {
        let bound =
            a_claim(json!({"spec": {"volumeName": "pvc-u1"}, "status": {"phase": "Bound"}}));
        let made = a_volume(json!({}));
        let open = class(DRIVER, "Immediate");
        let shut = StorageClass { allow_volume_expansion: None, ..open.clone() };
        for (class, asked, has, behind, wanted) in [
            (Some(&open), 2, 1, Some(1), ClaimStep::Grow),
            (Some(&shut), 2, 1, Some(1), ClaimStep::Nothing),
            (None, 2, 1, Some(1), ClaimStep::Nothing),
            // Made from a backup that is smaller, which is restored.
            (Some(&shut), 2, 2, Some(1), ClaimStep::Grow),
            // Which is still being restored.
            (Some(&shut), 2, 2, None, ClaimStep::Nothing),
            (Some(&open), 2, 2, Some(2), ClaimStep::Nothing),
            (Some(&open), 1, 2, Some(2), ClaimStep::Nothing),
        ] {
            let seen = ClaimSeen {
                claim: &bound,
                class,
                volume: Some(&made),
                asked_bytes: Some(asked),
                has_bytes: Some(has),
                behind_bytes: behind,
            };
            assert_eq!(super::claim(&seen), wanted, "{asked} {has} {behind:?}");
        }
    }

    #[test]
    fn a_claim_has_the_volume_that_it_names_only_if_that_names_it_too() {
        let claim = a_claim(json!({"spec": {"volumeName": "pvc-u1"}}));
        let of =
            |volume: PersistentVolume| bound(&claim, |_| Some(std::sync::Arc::new(volume.clone())));
        assert!(of(a_volume(json!({}))).is_some());
        for anothers in [
            json!({"spec": {"claimRef": {"namespace": "victim", "uid": "u2"}}}),
            json!({"spec": {"claimRef": {"uid": null}}}),
            json!({"spec": {"claimRef": null}}),
            json!({"status": {"phase": "Available"}}),
        ] {
            assert!(of(a_volume(anothers.clone())).is_none(), "{anothers}");
        }
        assert!(bound(&claim, |_| None::<std::sync::Arc<PersistentVolume>>).is_none());
    }

    #[test]
    fn a_claim_goes_its_way_to_a_volume() {
        let ours = class(DRIVER, "Immediate");
        let fresh = a_claim(json!({}));
        assert_eq!(step(&fresh, Some(&ours), None, (1, 1)), ClaimStep::Provision);
        let made = a_volume(json!({}));
        assert_eq!(step(&fresh, Some(&ours), Some(&made), (1, 1)), ClaimStep::Bind);
        let named = a_claim(json!({"spec": {"volumeName": "pvc-u1"}}));
        assert_eq!(step(&named, Some(&ours), Some(&made), (1, 1)), ClaimStep::Show);
        let bound =
            a_claim(json!({"spec": {"volumeName": "pvc-u1"}, "status": {"phase": "Bound"}}));
        assert_eq!(step(&bound, Some(&ours), Some(&made), (1, 1)), ClaimStep::Nothing);
        assert_eq!(step(&bound, Some(&ours), Some(&made), (2, 1)), ClaimStep::Grow);
        assert_eq!(step(&bound, Some(&ours), None, (1, 1)), ClaimStep::Lost);
    }

    #[test]
    fn claims_of_others_are_left_alone() {
        let ours = class(DRIVER, "Immediate");
        let left: Vec<(_, _, Option<PersistentVolume>)> = vec![
            (a_claim(json!({})), Some(class("other", "Immediate")), None),
            (a_claim(json!({})), Some(class(DRIVER, "WaitForFirstConsumer")), None),
            (a_claim(json!({})), None, None),
            (a_claim(json!({"spec": {"selector": {}}})), Some(ours.clone()), None),
            (
                a_claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
                Some(ours.clone()),
                None,
            ),
            // A volume that is somebody else's is not taken, whatever the claim names.
            (
                a_claim(json!({"spec": {"volumeName": "pvc-u1"}})),
                Some(ours.clone()),
                Some(a_volume(json!({"spec": {"claimRef": {"name": "other"}}}))),
            ),
            (
                a_claim(json!({"spec": {"volumeName": "pvc-u1"}})),
                Some(ours.clone()),
                Some(a_volume(json!({"spec": {"claimRef": {"uid": "u0"}}}))),
            ),
            (
                a_claim(json!({"spec": {"volumeName": "pvc-u1"}})),
                Some(ours.clone()),
                Some(a_volume(json!({"spec": {"csi": {"driver": "other"}}}))),
            ),
        ];
        for (claim, class, volume) in left {
            let found = step(&claim, class.as_ref(), volume.as_ref(), (1, 1));
            assert_eq!(found, ClaimStep::Nothing, "{claim:?}");
        }
        let awaited = a_claim(json!({"metadata": {"annotations": {SELECTED_NODE: "n"}}}));
        let waits = class(DRIVER, "WaitForFirstConsumer");
        assert_eq!(step(&awaited, Some(&waits), None, (1, 1)), ClaimStep::Provision);
        // Restored with its volume: kept for the name, not yet for this claim.
        let restored = a_claim(json!({"spec": {"volumeName": "pvc-u1"}}));
        let kept = a_volume(
            json!({"spec": {"claimRef": {"uid": null}}, "status": {"phase": "Available"}}),
        );
        assert_eq!(step(&restored, Some(&ours), Some(&kept), (1, 1)), ClaimStep::Bind);
    }

    #[test]
    fn a_volume_is_deleted_only_when_its_claim_is_gone_and_the_policy_says_so() {
        let claim = a_claim(json!({}));
        let other = a_claim(json!({"metadata": {"uid": "u2"}}));
        let released = json!({"status": {"phase": "Released"}});
        let mut kept = released.clone();
        merge(&mut kept, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
        for (change, claim, unreadable, exists, wanted) in [
            (json!({}), Some(&claim), false, true, VolumeStep::Nothing),
            (json!({}), None, false, true, VolumeStep::Show("Released")),
            (json!({}), Some(&other), false, true, VolumeStep::Show("Released")),
            (json!({}), None, true, true, VolumeStep::Nothing),
            (released.clone(), None, false, true, VolumeStep::DeleteVolume),
            (released.clone(), None, false, false, VolumeStep::Delete),
            (kept, None, false, true, VolumeStep::Nothing),
            (json!({"spec": {"claimRef": null}}), None, false, true, VolumeStep::Show("Available")),
            (
                json!({"spec": {"claimRef": {"uid": null}}}),
                None,
                false,
                true,
                VolumeStep::Show("Available"),
            ),
            (json!({"spec": {"csi": {"driver": "other"}}}), None, false, true, VolumeStep::Nothing),
        ] {
            let made = a_volume(change.clone());
            let seen = VolumeSeen { volume: &made, claim, claim_unreadable: unreadable, exists };
            assert_eq!(super::volume(&seen), wanted, "{change}");
        }
    }
}
