//! What is said of a running engine, and what is asked of it. Pure: from the resource, one look at
//! the engine, and what is under way.
//!
//! Restores follow three rules: the newest backup is all that copies are told; it is asked for as long
//! as one copy lacks it and does not restore; and what all copies hold is only noted, never waited for.
//!
//! Another volume is copied once in the life of an engine: asked for while no copy has begun, and never
//! again after that. What became of it is told, and whoever told the engine begins anew with other copies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::longhorn::{
    EngineCloneStatus, EnginePurgeStatus, EngineRebuildStatus, EngineRestoreStatus, EngineSpec,
    EngineStatus, Frontend, ProgressState, ReplicaMode,
};
use api::scalar::{Stamp, TextInt, Time};
use jiff::Timestamp;

use super::look::Look;

/// A copy that is write-only though nothing fills it any more is given up after this.
const STRANDED: Duration = Duration::from_secs(30);

/// Everything that is looked at.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing that was seen")]
pub(crate) struct Seen<'a> {
    pub(crate) now: Timestamp,
    pub(crate) spec: &'a EngineSpec,
    pub(crate) status: &'a EngineStatus,
    pub(crate) look: &'a Look,
    /// Whether the look went as far as the replicas; otherwise what was known of them stays.
    pub(crate) is_full: bool,
    /// The copy this process is adding now.
    pub(crate) adding: Option<&'a str>,
    /// Copies whose last try to be added failed a moment ago.
    pub(crate) resting: &'a BTreeSet<String>,
    /// Whether a restore is being asked for now.
    pub(crate) asking_restore: bool,
    /// Whether a restore may be asked for: a place is free and no pause runs.
    pub(crate) may_restore: bool,
    /// Whether growing may be asked for: no pause runs.
    pub(crate) may_expand: bool,
    /// What copies answered that were asked to restore and cannot.
    pub(crate) rejections: &'a BTreeMap<String, String>,
    /// Whether another volume is being copied by this process's command.
    pub(crate) asking_clone: bool,
    /// Why that could not be asked for.
    pub(crate) clone_failure: Option<&'a str>,
    /// Size of the volume in the store, where it is known.
    pub(crate) backup_size: Option<i64>,
    /// Its image is older than those whose replicas decide by themselves what a restore needs.
    pub(crate) is_older: bool,
}

/// What is asked of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is in the engine and in nobody's plan.
    Remove {
        address: String,
    },
    /// Fill a new copy: from the others, or, for a volume that restores, from the backup.
    Add {
        name: String,
        address: String,
        restore: bool,
    },
    /// It is filled: let it serve.
    Verify {
        address: String,
    },
    /// It can no longer be filled.
    Fail {
        address: String,
    },
    Expand {
        size: i64,
    },
    StartFrontend,
    StopFrontend,
    Restore {
        backup: String,
    },
    /// Copy a snapshot of another volume, `snap://VOLUME/SNAPSHOT`.
    Clone {
        source: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// The part of the status that is the engine's own; the rest is as it was.
    pub(crate) status: EngineStatus,
    pub(crate) acts: Vec<Act>,
    /// Something is under way: look again soon.
    pub(crate) busy: bool,
}

pub(crate) fn decide(seen: &Seen<'_>) -> Verdict {
    let status = status(seen);
    let acts = acts(seen, &status);
    let busy = !acts.is_empty() || is_busy(seen, &status);
    Verdict { status, acts, busy }
}

/// An engine that does not run says nothing.
pub(crate) fn silent(status: &EngineStatus) -> EngineStatus {
    EngineStatus {
        instance: status.instance.clone(),
        current_size: status.current_size,
        // Snapshots are on disk all the same.
        snapshots: status.snapshots.clone(),
        ..EngineStatus::default()
    }
}

fn requested(spec: &EngineSpec) -> Option<&str> {
    spec.requested_backup_restore.as_deref().filter(|name| !name.is_empty())
}

fn data_source(spec: &EngineSpec) -> Option<&str> {
    spec.requested_data_source.as_deref().filter(|url| !url.is_empty())
}

fn wanted_size(spec: &EngineSpec) -> i64 {
    spec.instance.volume_size.map_or(0, |size| size.0)
}

/// Name by address, of copies that are planned or were.
fn names(seen: &Seen<'_>) -> BTreeMap<String, String> {
    let known = seen.status.current_replica_address_map.iter().flatten();
    let planned = seen.spec.replica_address_map.iter().flatten();
    let next = seen.spec.upgraded_replica_address_map.iter().flatten();
    let all = known.chain(planned).chain(next);
    all.map(|(name, at)| (format!("tcp://{at}"), name.clone())).collect()
}

/// It makes way for another image, which has not been heard of yet.
pub(crate) fn is_cut_off(spec: &EngineSpec, status: &EngineStatus) -> bool {
    upgrades(spec) && status.instance.current_image != spec.instance.image
}

/// It is told to make way for another image.
fn upgrades(spec: &EngineSpec) -> bool {
    spec.upgraded_replica_address_map.as_ref().is_some_and(|map| !map.is_empty())
}

/// Address by name, of copies that are planned: those of the next engine once it has taken over.
fn planned(spec: &EngineSpec, status: &EngineStatus) -> BTreeMap<String, String> {
    let is_next = upgrades(spec) && status.instance.current_image == spec.instance.image;
    let map = if is_next { &spec.upgraded_replica_address_map } else { &spec.replica_address_map };
    let map = map.iter().flatten();
    map.map(|(name, at)| (name.clone(), format!("tcp://{at}"))).collect()
}

fn status(seen: &Seen<'_>) -> EngineStatus {
    let (look, old) = (seen.look, seen.status);
    let names = names(seen);
    let modes: BTreeMap<String, ReplicaMode> = look
        .modes
        .iter()
        .map(|(address, mode)| {
            let unknown = || format!("UNKNOWN-{address}");
            (names.get(address).cloned().unwrap_or_else(unknown), mode.clone())
        })
        .collect();
    let current = look.modes.keys().filter_map(|address| {
        Some((names.get(address)?.clone(), address.strip_prefix("tcp://")?.to_owned()))
    });
    let is_listed = |address: &String| look.modes.contains_key(address);
    let restores = restores(seen, is_listed);
    EngineStatus {
        instance: old.instance.clone(),
        current_size: Some(TextInt(look.size)),
        current_replica_address_map: Some(current.collect()),
        replica_transition_time_map: Some(transitions(seen, &modes)),
        replica_mode_map: Some(modes),
        endpoint: Some(look.endpoint.clone()),
        last_restored_backup: Some(consensus(seen, &restores)),
        purge_status: Some(merged(seen, &look.purges, old.purge_status.as_ref())),
        rebuild_status: Some(rebuilds(seen, &restores)),
        restore_status: Some(restores),
        snapshots: snapshots(seen),
        snapshots_error: Some(if seen.is_full {
            look.snapshots_error.clone()
        } else {
            old.snapshots_error.clone().unwrap_or_default()
        }),
        is_expanding: Some(look.is_expanding),
        last_expansion_error: Some(look.last_expansion_error.clone()),
        last_expansion_failed_at: Some(Stamp::from(look.last_expansion_failed_at.as_str())),
        clone_status: Some(clones(seen)),
        backup_status: old.backup_status.clone(),
    }
}

fn transitions(seen: &Seen<'_>, modes: &BTreeMap<String, ReplicaMode>) -> BTreeMap<String, Stamp> {
    let old_modes = seen.status.replica_mode_map.as_ref();
    let old_times = seen.status.replica_transition_time_map.as_ref();
    let now = || Stamp::from(Time::new(seen.now));
    let time = |(name, mode): (&String, &ReplicaMode)| {
        let same = old_modes.and_then(|old| old.get(name)) == Some(mode);
        let since = old_times.and_then(|old| old.get(name)).filter(|_| same).cloned();
        (name.clone(), since.unwrap_or_else(now))
    };
    modes.iter().map(time).collect()
}

/// What a replica did not answer now stays as it was known, while the engine has it.
fn merged<T: Clone>(
    seen: &Seen<'_>,
    now: &BTreeMap<String, T>,
    old: Option<&BTreeMap<String, T>>,
) -> BTreeMap<String, T> {
    let old = old.into_iter().flatten();
    let both = old.chain(now).map(|(address, it)| (address.clone(), it.clone()));
    let mut all: BTreeMap<String, T> = both.collect();
    all.retain(|address, _| seen.look.modes.contains_key(address));
    all
}

fn restores(
    seen: &Seen<'_>,
    is_listed: impl Fn(&String) -> bool,
) -> BTreeMap<String, EngineRestoreStatus> {
    if requested(seen.spec).is_none() {
        return BTreeMap::new();
    }
    let mut all = merged(seen, &seen.look.restores, seen.status.restore_status.as_ref());
    for (address, text) in seen.rejections.iter().filter(|(address, _)| is_listed(address)) {
        let status = all.entry(address.clone()).or_default();
        status.error = Some(text.clone());
        status.state = Some(ProgressState::Error);
    }
    all
}

const NEVER_BEGUN: &str = "the copy into this replica was not begun with the others";

/// Only what replicas say now: what they said before may be of an earlier try.
fn clones(seen: &Seen<'_>) -> BTreeMap<String, EngineCloneStatus> {
    if data_source(seen.spec).is_none() {
        return BTreeMap::new();
    }
    if !seen.is_full {
        return seen.status.clone_status.clone().unwrap_or_default();
    }
    let mut all = seen.look.clones.clone();
    let begun = |it: &EngineCloneStatus| !is_unbegun(it);
    let over = !seen.asking_clone
        && all.values().any(begun)
        && !all.values().any(|it| is_true(it.is_cloning));
    let why = seen.clone_failure.or(over.then_some(NEVER_BEGUN));
    for status in all.values_mut().filter(|it| is_unbegun(it)) {
        if let Some(why) = why {
            status.error = Some(why.to_owned());
            status.state = Some(ProgressState::Error);
        }
    }
    all
}

fn is_unbegun(status: &EngineCloneStatus) -> bool {
    matches!(status.state, None | Some(ProgressState::Unset))
}

/// Asked for once, when every copy can be written and none has begun.
fn clone(seen: &Seen<'_>, source: &str) -> Option<Act> {
    let ready = |(address, mode): (&String, &ReplicaMode)| {
        *mode == ReplicaMode::ReadWrite && seen.look.clones.get(address).is_some_and(is_unbegun)
    };
    let may = seen.is_full
        && !seen.asking_clone
        && seen.clone_failure.is_none()
        && !seen.look.modes.is_empty()
        && seen.look.modes.iter().all(ready);
    may.then(|| Act::Clone { source: source.to_owned() })
}

fn rebuilds(
    seen: &Seen<'_>,
    restores: &BTreeMap<String, EngineRestoreStatus>,
) -> BTreeMap<String, EngineRebuildStatus> {
    let is_filled =
        |address: &String| seen.look.modes.get(address) == Some(&ReplicaMode::WriteOnly);
    // A volume that restores has its copies filled from the backup: that is their rebuild.
    if requested(seen.spec).is_some() {
        let filled = seen.look.modes.keys().filter(|address| is_filled(address));
        return filled.map(|address| (address.clone(), filling(restores.get(address)))).collect();
    }
    let mut all = merged(seen, &seen.look.rebuilds, seen.status.rebuild_status.as_ref());
    // One that serves was rebuilt; what is told of it is of an earlier day.
    all.retain(|address, _| is_filled(address));
    all
}

fn filling(restore: Option<&EngineRestoreStatus>) -> EngineRebuildStatus {
    let restore = restore.cloned().unwrap_or_default();
    let has_failed = is_set(restore.error.as_ref());
    EngineRebuildStatus {
        is_rebuilding: Some(!has_failed),
        progress: Some(restore.progress.unwrap_or(0)),
        state: Some(if has_failed { ProgressState::Error } else { ProgressState::InProgress }),
        error: restore.error,
        ..EngineRebuildStatus::default()
    }
}

fn snapshots(seen: &Seen<'_>) -> Option<BTreeMap<String, api::longhorn::EngineSnapshot>> {
    seen.look.snapshots.clone().or_else(|| seen.status.snapshots.clone())
}

/// The backup that every copy holds.
fn consensus(seen: &Seen<'_>, restores: &BTreeMap<String, EngineRestoreStatus>) -> String {
    let working = seen.look.modes.iter().filter(|(_, mode)| **mode != ReplicaMode::Error);
    let held: BTreeSet<&str> = working
        .map(|(address, _)| {
            restores.get(address).and_then(|it| it.last_restored.as_deref()).unwrap_or_default()
        })
        .collect();
    match held.first() {
        Some(backup) if held.len() == 1 => (*backup).to_owned(),
        Some(_) | None => String::new(),
    }
}

fn is_true(flag: Option<bool>) -> bool {
    flag == Some(true)
}

fn is_set(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn acts(seen: &Seen<'_>, status: &EngineStatus) -> Vec<Act> {
    // Nothing is asked of one that makes way for another.
    if upgrades(seen.spec) {
        return Vec::new();
    }
    let mut acts = removals(seen);
    acts.extend(frontend(seen));
    // Nothing else is done to a volume that is not itself yet.
    if let Some(source) = data_source(seen.spec) {
        acts.extend(clone(seen, source));
        return acts;
    }
    if wanted_size(seen.spec) > seen.look.size && seen.look.size > 0 {
        acts.extend(expansion(seen));
        return acts;
    }
    if seen.look.is_expanding {
        return acts;
    }
    acts.extend(addition(seen));
    match requested(seen.spec) {
        Some(backup) => acts.extend(restore(seen, status, backup)),
        None => acts.extend(stranded(seen, status)),
    }
    acts
}

/// The copies of the engine that no plan knows. The last one that can be read stays.
fn removals(seen: &Seen<'_>) -> Vec<Act> {
    let planned: BTreeSet<String> = planned(seen.spec, seen.status).into_values().collect();
    if planned.is_empty() {
        return Vec::new();
    }
    let modes = &seen.look.modes;
    let stays = |address: &String| planned.contains(address);
    let readable_stays =
        modes.iter().any(|(address, mode)| *mode == ReplicaMode::ReadWrite && stays(address));
    let goes = modes.iter().filter(|(address, mode)| {
        !stays(address) && (readable_stays || **mode != ReplicaMode::ReadWrite)
    });
    let mut acts: Vec<Act> =
        goes.map(|(address, _)| Act::Remove { address: address.clone() }).collect();
    // An engine does not let go of the only one that it has.
    if acts.len() == modes.len() {
        acts.pop();
    }
    acts
}

fn frontend(seen: &Seen<'_>) -> Option<Act> {
    let has = match seen.spec.frontend.as_ref() {
        None | Some(Frontend::None) => false,
        Some(
            Frontend::BlockDevice
            | Frontend::Iscsi
            | Frontend::Nvmf
            | Frontend::Ublk
            | Frontend::Other(_),
        ) => true,
    };
    let wanted = has && !is_true(seen.spec.disable_frontend);
    let readable = seen.look.modes.values().any(|mode| *mode == ReplicaMode::ReadWrite);
    match (wanted, seen.look.frontend_up) {
        (true, false) if readable => Some(Act::StartFrontend),
        (false, true) => Some(Act::StopFrontend),
        (true, _) | (false, false) => None,
    }
}

/// A copy that is being filled cannot grow with the others.
fn expansion(seen: &Seen<'_>) -> Vec<Act> {
    let filling = seen.look.modes.iter().filter(|(_, mode)| **mode == ReplicaMode::WriteOnly);
    let mut acts: Vec<Act> =
        filling.map(|(address, _)| Act::Fail { address: address.clone() }).collect();
    if acts.is_empty() && !seen.look.is_expanding && seen.may_expand && seen.adding.is_none() {
        acts.push(Act::Expand { size: wanted_size(seen.spec) });
    }
    acts
}

/// One copy at a time is filled, and only where there is one to go on with.
fn addition(seen: &Seen<'_>) -> Option<Act> {
    let modes = &seen.look.modes;
    let readable = modes.values().any(|mode| *mode == ReplicaMode::ReadWrite);
    let filling = modes.values().any(|mode| *mode == ReplicaMode::WriteOnly);
    // Replicas of an older engine cannot be filled from a backup.
    let cannot = seen.is_older && requested(seen.spec).is_some();
    if !readable || filling || cannot || seen.adding.is_some() || seen.asking_restore {
        return None;
    }
    let (name, address) = planned(seen.spec, seen.status)
        .into_iter()
        .find(|(name, address)| !modes.contains_key(address) && !seen.resting.contains(name))?;
    Some(Act::Add { name, address, restore: requested(seen.spec).is_some() })
}

fn restore(seen: &Seen<'_>, status: &EngineStatus, backup: &str) -> Vec<Act> {
    let empty = BTreeMap::new();
    let restores = status.restore_status.as_ref().unwrap_or(&empty);
    let failed = |it: &EngineRestoreStatus| is_set(it.error.as_ref());
    let purging = |it: &EnginePurgeStatus| is_true(it.is_purging);
    if !seen.is_full
        || status.purge_status.iter().flatten().any(|(_, it)| purging(it))
        || restores.values().any(failed)
    {
        return Vec::new();
    }
    let working = seen.look.modes.iter().filter(|(_, mode)| **mode != ReplicaMode::Error);
    let of = |address: &String| seen.look.restores.get(address);
    let mut acts: Vec<Act> = working
        .clone()
        .filter(|(address, mode)| {
            let filled = |it: &EngineRestoreStatus| {
                !is_true(it.is_restoring) && is_set(it.last_restored.as_ref())
            };
            **mode == ReplicaMode::WriteOnly && of(address).is_some_and(filled)
        })
        .map(|(address, _)| Act::Verify { address: address.clone() })
        .collect();
    let lacks = |it: &EngineRestoreStatus| {
        it.last_restored.as_deref() != Some(backup) && !is_true(it.is_restoring)
    };
    let needed = working.clone().any(|(address, _)| of(address).is_some_and(lacks));
    // Those of an older engine are asked together: one that restores is waited for.
    let is_at_rest = |it: &EngineRestoreStatus| !is_true(it.is_restoring);
    let all_rest = working.clone().all(|(address, _)| of(address).is_some_and(is_at_rest));
    let fits = seen.backup_size.is_none_or(|size| size == seen.look.size);
    let readable = working.clone().any(|(_, mode)| *mode == ReplicaMode::ReadWrite);
    if needed
        && fits
        && readable
        && (all_rest || !seen.is_older)
        && seen.may_restore
        && !seen.asking_restore
        && seen.adding.is_none()
    {
        acts.push(Act::Restore { backup: backup.to_owned() });
    }
    acts
}

/// Copies that are write-only and that nobody fills: filled ones serve, others are given up.
fn stranded(seen: &Seen<'_>, status: &EngineStatus) -> Vec<Act> {
    let names = names(seen);
    let filling = seen.look.modes.iter().filter(|(address, mode)| {
        **mode == ReplicaMode::WriteOnly && seen.adding != Some(address.as_str())
    });
    filling
        .filter_map(|(address, _)| {
            let rebuild = seen.look.rebuilds.get(address)?;
            if is_true(rebuild.is_rebuilding) {
                return None;
            }
            if rebuild.state == Some(ProgressState::Complete) {
                return Some(Act::Verify { address: address.clone() });
            }
            let since = names
                .get(address)
                .and_then(|name| status.replica_transition_time_map.as_ref()?.get(name)?.get())?;
            let age = seen.now.duration_since(since);
            let limit = jiff::SignedDuration::try_from(STRANDED).unwrap_or_default();
            // One of a clock that was ahead is not waited for.
            (age >= limit || age < -limit).then(|| Act::Fail { address: address.clone() })
        })
        .collect()
}

fn is_busy(seen: &Seen<'_>, status: &EngineStatus) -> bool {
    let restoring = requested(seen.spec)
        .is_some_and(|backup| status.last_restored_backup.as_deref() != Some(backup));
    let purging = status.purge_status.iter().flatten().any(|(_, it)| is_true(it.is_purging));
    let uneven = seen.look.modes.values().any(|mode| *mode != ReplicaMode::ReadWrite)
        || seen.look.modes.len() != planned(seen.spec, seen.status).len();
    restoring
        || upgrades(seen.spec)
        || data_source(seen.spec).is_some()
        || purging
        || uneven
        || seen.adding.is_some()
        || seen.look.is_expanding
        || wanted_size(seen.spec) != seen.look.size
}

#[cfg(test)]
mod tests;
