//! `World` is what was read, `Summary` what it means; between them is a pure function.

use api::longhorn::{
    Backup, BackupState, BackupTarget, Engine, Node, RecurringJob, Robustness, Volume, VolumeState,
};
use api::nonadmin::NonAdminBackup;
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use serde::Serialize;

use crate::standby::{Following, is_standby};
use crate::{backup, node, or_dash, target, tenant, volume};

/// What there is, as far as these rights reach.
#[derive(Debug, Default)]
pub struct World {
    pub nodes: Vec<Node>,
    pub volumes: Vec<Volume>,
    pub engines: Vec<Engine>,
    pub backups: Vec<Backup>,
    pub targets: Vec<BackupTarget>,
    pub jobs: Vec<RecurringJob>,
    pub tenants: Vec<NonAdminBackup>,
    /// Kinds that may not be seen.
    pub hidden: Vec<String>,
}

/// What it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub nodes: Nodes,
    pub volumes: Volumes,
    pub backups: Backups,
    pub tenants: Tenants,
    /// Work under way, in words.
    pub work: Vec<String>,
    /// What a person should look at, worst first.
    pub attention: Vec<String>,
    pub hidden: Vec<String>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    pub ready: usize,
    pub all: usize,
    pub free_bytes: u64,
    pub capacity_bytes: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volumes {
    pub all: usize,
    pub attached: usize,
    pub healthy: usize,
    pub degraded: usize,
    pub faulted: usize,
    pub standby: usize,
    pub bytes: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backups {
    pub completed: usize,
    pub failed: usize,
    pub deleting: usize,
    /// The newest complete one.
    pub newest: Option<String>,
    pub newest_age_seconds: Option<i64>,
    pub targets: usize,
    pub targets_reachable: usize,
    pub jobs: usize,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenants {
    pub backups: usize,
    pub queued: usize,
    pub refused: usize,
}

/// All of it in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Well,
    /// Some kinds are hidden from this caller.
    WellAsFarAsSeen,
    /// Nothing that runs can be seen, so nothing can be said of it.
    Blind,
    NeedsAttention,
}

impl Verdict {
    pub fn told(self) -> &'static str {
        match self {
            Self::Well => "all is well",
            Self::WellAsFarAsSeen => "all is well, as far as these permissions show",
            Self::Blind => "nothing is visible with these permissions",
            Self::NeedsAttention => "needs attention",
        }
    }
}

impl Summary {
    pub fn verdict(&self) -> Verdict {
        let of_volumes = ["nodes", "volumes", "backups", "backuptargets"];
        let is_hidden = |kind: &&str| self.hidden.iter().any(|it| it == kind);
        let is_blind = of_volumes.iter().all(is_hidden) && self.tenants.backups == 0;
        match (self.attention.is_empty(), self.hidden.is_empty()) {
            (false, _) => Verdict::NeedsAttention,
            (true, true) => Verdict::Well,
            (true, false) if is_blind => Verdict::Blind,
            (true, false) => Verdict::WellAsFarAsSeen,
        }
    }

    pub fn of(world: &World, now: Timestamp) -> Self {
        Self {
            nodes: nodes(&world.nodes),
            volumes: count_volumes(&world.volumes),
            backups: backups(world, now),
            tenants: tenants(&world.tenants),
            work: work(world),
            attention: attention(world, now),
            hidden: world.hidden.clone(),
        }
    }
}

fn nodes(nodes: &[Node]) -> Nodes {
    let room = node::room(nodes);
    Nodes {
        ready: nodes.iter().filter(|it| node::ready(it)).count(),
        all: nodes.len(),
        free_bytes: room.free_bytes,
        capacity_bytes: room.capacity_bytes,
    }
}

fn count_volumes(volumes: &[Volume]) -> Volumes {
    let with =
        |wanted: Robustness| volumes.iter().filter(|it| volume::robustness(it) == wanted).count();
    Volumes {
        all: volumes.len(),
        attached: volumes.iter().filter(|it| volume::state(it) == VolumeState::Attached).count(),
        healthy: with(Robustness::Healthy),
        degraded: with(Robustness::Degraded),
        faulted: with(Robustness::Faulted),
        standby: volumes.iter().filter(|it| is_standby(it)).count(),
        bytes: volumes.iter().filter_map(|it| it.spec.size).map(|it| it.0.unsigned_abs()).sum(),
    }
}

fn backups(world: &World, now: Timestamp) -> Backups {
    let with =
        |wanted: BackupState| world.backups.iter().filter(|it| backup::state(it) == wanted).count();
    let complete = world.backups.iter().filter(|it| backup::state(it) == BackupState::Completed);
    let newest = complete.max_by_key(|it| backup::time(it));
    Backups {
        completed: with(BackupState::Completed),
        failed: with(BackupState::Error),
        deleting: with(BackupState::Deleting),
        newest: newest.map(kube_core::ResourceExt::name_any),
        newest_age_seconds: newest
            .and_then(backup::time)
            .map(|at| now.as_second().saturating_sub(at.as_second()).max(0)),
        targets: world.targets.iter().filter(|it| target::has_url(it)).count(),
        targets_reachable: world.targets.iter().filter(|it| target::is_available(it)).count(),
        jobs: world.jobs.len(),
    }
}

fn tenants(requests: &[NonAdminBackup]) -> Tenants {
    let place = |it: &NonAdminBackup| {
        it.status.as_ref()?.queue_info.as_ref().map(|it| it.estimated_queue_position)
    };
    Tenants {
        backups: requests.len(),
        queued: requests.iter().filter(|it| place(it).is_some_and(|it| it > 0)).count(),
        refused: requests.iter().filter(|it| !tenant::backup(it).why.is_empty()).count(),
    }
}

fn work(world: &World) -> Vec<String> {
    let mut told = Vec::new();
    for engine in &world.engines {
        let Some(status) = &engine.status else { continue };
        let name = engine.spec.instance.volume_name.clone().unwrap_or_default();
        let addresses = status.current_replica_address_map.clone().unwrap_or_default();
        for (copy, address) in addresses {
            let doing = volume::work(status, &format!("tcp://{address}"));
            if !doing.is_empty() {
                told.push(format!("volume {name}: copy {copy} {doing}"));
            }
        }
    }
    for it in &world.volumes {
        let name = it.name_any();
        let of_it = |engine: &&Engine| engine.spec.instance.volume_name.as_deref() == Some(&name);
        if is_standby(it) {
            let following = Following::of(it, world.engines.iter().find(of_it));
            if following.progress.is_some() || !following.is_up_to_date() {
                told.push(format!("standby {name}: {}", following.told()));
            }
        }
    }
    for it in &world.backups {
        match backup::state(it) {
            BackupState::Pending | BackupState::InProgress | BackupState::Deleting => {
                let why = backup::obstacle(it);
                let why = if why.is_empty() { why } else { format!(" ({why})") };
                let (name, volume) = (it.name_any(), backup::volume_of(it));
                told.push(format!("backup {name} of {volume}: {}{why}", backup::stand(it)));
            }
            BackupState::New
            | BackupState::Completed
            | BackupState::Error
            | BackupState::Unknown
            | BackupState::Other(_) => {}
        }
    }
    for it in world
        .jobs
        .iter()
        .filter(|it| it.status.as_ref().is_some_and(|status| status.running == Some(true)))
    {
        told.push(format!("job {}: running", it.name_any()));
    }
    told
}

fn attention(world: &World, now: Timestamp) -> Vec<String> {
    let mut told = Vec::new();
    for it in &world.volumes {
        if volume::robustness(it) == Robustness::Faulted {
            told.push(format!(
                "volume {} is faulted: {}; see `holdfast volume show {0}`",
                it.name_any(),
                or_dash(&volume::why(it))
            ));
        }
    }
    for it in world.nodes.iter().filter(|it| !node::ready(it)) {
        told.push(format!("node {} is not ready: {}", it.name_any(), or_dash(&node::why(it))));
    }
    for it in world.nodes.iter().filter(|it| node::ready(it)) {
        for why in node::disks_against(it) {
            told.push(format!("node {}: {why}; see docs/operations/disk-full.md", it.name_any()));
        }
    }
    for it in &world.targets {
        if target::has_url(it) && !target::is_available(it) {
            let why = or_dash(&target::why(it));
            told.push(format!("target {} cannot be reached: {why}", it.name_any()));
        }
        let damaged = it.status.as_ref().and_then(|it| it.verification.as_ref());
        if let Some(found) = damaged.filter(|it| it.result.as_deref() == Some("Damaged")) {
            let message = found.message.clone().unwrap_or_default();
            told.push(format!("target {} holds damaged backups: {message}", it.name_any()));
        }
    }
    for it in &world.backups {
        if backup::state(it) == BackupState::Error {
            let why = or_dash(&backup::obstacle(it));
            told.push(format!("backup {} failed: {why}", it.name_any()));
        }
    }
    for it in &world.volumes {
        if volume::robustness(it) == Robustness::Degraded {
            told.push(format!("volume {} is degraded: it lacks a copy", it.name_any()));
        }
        let scheduled = volume::why(it);
        if !scheduled.is_empty() && volume::robustness(it) != Robustness::Faulted {
            told.push(format!("volume {}: {scheduled}", it.name_any()));
        }
    }
    told.extend(world.backups.iter().filter_map(|it| without_store(it, &world.targets)));
    told.extend(world.volumes.iter().filter_map(|it| left_behind(it, &world.engines, now)));
    for it in &world.jobs {
        let status = it.status.clone().unwrap_or_default();
        if matches!(status.last_result.as_deref(), Some("Failed" | "DeadlineExceeded")) {
            let message = or_dash(&status.last_message.unwrap_or_default());
            told.push(format!("job {} failed last time: {message}", it.name_any()));
        }
    }
    told.extend(world.tenants.iter().filter_map(failed_request));
    if world.nodes.is_empty()
        && !world.volumes.is_empty()
        && !world.hidden.iter().any(|it| it == "nodes")
    {
        told.push("there is no node to serve volumes: start one with `holdfast node`".to_owned());
    }
    told
}

/// A tenant's backup that failed. One that was not accepted is the tenant's to mend, and only counted.
fn failed_request(it: &NonAdminBackup) -> Option<String> {
    let executor = tenant::backup(it).executor;
    let is_failed = matches!(executor.as_str(), "Failed" | "PartiallyFailed" | "FailedValidation");
    let (namespace, name) = (it.namespace().unwrap_or_default(), it.name_any());
    is_failed.then(|| {
        format!("backup {name} of namespace {namespace} ended {executor}: see `kubectl describe nab {name} -n {namespace}`")
    })
}

/// A backup that waits for a store nobody has named.
fn without_store(it: &Backup, targets: &[BackupTarget]) -> Option<String> {
    if !matches!(backup::state(it), BackupState::New | BackupState::Pending) {
        return None;
    }
    let of_status = it.status.as_ref().and_then(|it| it.backup_target_name.clone());
    let named = of_status.or_else(|| it.labels().get("backup-target").cloned());
    let name = named.filter(|it| !it.is_empty()).unwrap_or_else(|| "default".to_owned());
    let target = targets.iter().find(|it| it.name_any() == name)?;
    (!target::has_url(target)).then(|| {
        let backup = it.name_any();
        format!("backup {backup} waits: target {name} has no URL; see `holdfast target set`")
    })
}

/// A standby volume that takes nothing in, though there has long been something newer.
fn left_behind(it: &Volume, engines: &[Engine], now: Timestamp) -> Option<String> {
    const PATIENCE_SECONDS: i64 = 15 * 60;
    if !is_standby(it) {
        return None;
    }
    let name = it.name_any();
    let engine = engines.iter().find(|it| it.spec.instance.volume_name.as_deref() == Some(&name));
    let following = Following::of(it, engine);
    let newest = it.status.as_ref()?.last_backup_at.as_ref()?.get()?;
    let waited = now.as_second().saturating_sub(newest.as_second());
    let is_idle = following.progress.is_none() && !following.is_up_to_date();
    (is_idle && waited > PATIENCE_SECONDS).then(|| {
        let (newest, holds) = (or_dash(&following.newest), or_dash(&following.holds));
        format!("standby {name} holds {holds} and does not restore {newest}")
    })
}

#[cfg(test)]
mod tests {
    use api::longhorn::{BackupStatus, VolumeSpec, VolumeStatus};

    use super::*;

    fn volume(name: &str, robustness: Robustness) -> Volume {
        let mut it = Volume::new(name, VolumeSpec::default());
        it.status = Some(VolumeStatus {
            robustness: Some(robustness),
            state: Some(VolumeState::Attached),
            ..VolumeStatus::default()
        });
        it
    }

    fn backup(name: &str, state: BackupState, at: &str) -> Backup {
        let mut it = Backup::new(name, api::longhorn::BackupSpec::default());
        it.status = Some(BackupStatus {
            state: Some(state),
            snapshot_created_at: Some(at.into()),
            error: Some("the disk is full".to_owned()),
            ..BackupStatus::default()
        });
        it
    }

    #[test]
    fn what_is_wrong_needs_attention_worst_first() {
        let world = World {
            volumes: vec![
                volume("a", Robustness::Degraded),
                volume("b", Robustness::Faulted),
                volume("c", Robustness::Healthy),
            ],
            backups: vec![backup("late", BackupState::Error, "2026-11-16T02:00:00Z")],
            ..World::default()
        };
        let summary = Summary::of(&world, "2026-11-16T03:00:00Z".parse().unwrap());
        let [first, second, third, last] = summary.attention.as_slice() else {
            panic!("{:?}", summary.attention)
        };
        assert!(first.starts_with("volume b is faulted"), "{first}");
        assert!(second.contains("backup late failed: the disk is full"), "{second}");
        assert!(third.contains("volume a is degraded"), "{third}");
        assert!(last.contains("there is no node"), "{last}");
        assert_eq!((summary.volumes.healthy, summary.volumes.attached), (1, 3));
    }

    #[test]
    fn who_sees_nothing_is_not_told_that_all_is_well() {
        let now = "2026-11-16T03:00:00Z".parse().unwrap();
        let hidden = |kinds: &[&str]| {
            let hidden = kinds.iter().map(|it| (*it).to_owned()).collect();
            Summary::of(&World { hidden, ..World::default() }, now).verdict()
        };
        assert_eq!(hidden(&[]), Verdict::Well);
        assert_eq!(hidden(&["recurringjobs"]), Verdict::WellAsFarAsSeen);
        assert_eq!(hidden(&["nodes", "volumes", "backups", "backuptargets"]), Verdict::Blind);
    }

    #[test]
    fn what_waits_for_ever_and_disks_that_are_full_need_attention() {
        let json = serde_json::json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "n"},
            "spec": {}, "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "diskStatus": {"d": {"conditions": [
                    {"type": "Schedulable", "status": "False", "message": "the disk is full"}]}}},
        });
        let mut standby = volume("s", Robustness::Healthy);
        standby.spec.standby = Some(true);
        if let Some(status) = standby.status.as_mut() {
            status.last_backup = Some("new".to_owned());
            status.last_backup_at = Some("2026-11-16T02:00:00Z".into());
        }
        let world = World {
            nodes: vec![serde_json::from_value(json).unwrap()],
            volumes: vec![standby],
            backups: vec![backup("b", BackupState::Pending, "2026-11-16T02:00:00Z")],
            targets: vec![BackupTarget::new("default", api::longhorn::BackupTargetSpec::default())],
            ..World::default()
        };
        let told = Summary::of(&world, "2026-11-16T03:00:00Z".parse().unwrap()).attention;
        let [disk, waits, behind] = told.as_slice() else { panic!("{told:?}") };
        assert!(disk.starts_with("node n: disk d: the disk is full"), "{disk}");
        assert!(waits.starts_with("backup b waits: target default has no URL"), "{waits}");
        assert!(behind.starts_with("standby s holds - and does not restore new"), "{behind}");
        let soon = Summary::of(&world, "2026-11-16T02:05:00Z".parse().unwrap()).attention;
        assert_eq!(soon.len(), 2, "{soon:?}");
    }

    /// A condition is not against its volume because it is true.
    #[test]
    fn a_standby_volume_that_follows_is_well_and_a_restore_that_failed_is_named() {
        let now = "2026-11-16T03:00:00Z".parse().unwrap();
        let told = |status: &str, reason: &str| {
            let mut it = volume("s", Robustness::Healthy);
            let condition = serde_json::json!({
                "type": "Restore", "status": status, "reason": reason, "message": "the message"});
            let condition = serde_json::from_value(condition).unwrap();
            it.status.as_mut().unwrap().conditions = Some(vec![condition]);
            let node = serde_json::json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "n"},
                "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let nodes = vec![serde_json::from_value(node).unwrap()];
            Summary::of(&World { nodes, volumes: vec![it], ..World::default() }, now).attention
        };
        assert_eq!(told("True", "Following"), [""; 0]);
        assert_eq!(told("True", "RestoreInProgress"), [""; 0]);
        assert_eq!(told("False", ""), [""; 0]);
        assert_eq!(told("False", "RestoreFailure"), ["volume s: the message"]);
    }

    #[test]
    fn the_newest_complete_backup_counts() {
        let world = World {
            backups: vec![
                backup("old", BackupState::Completed, "2026-11-15T02:00:00Z"),
                backup("new", BackupState::Completed, "2026-11-16T02:00:00Z"),
                backup("broken", BackupState::Error, "2026-11-16T02:30:00Z"),
            ],
            ..World::default()
        };
        let summary = Summary::of(&world, "2026-11-16T03:00:00Z".parse().unwrap());
        assert_eq!(summary.backups.newest.as_deref(), Some("new"));
        assert_eq!(summary.backups.newest_age_seconds, Some(3600));
    }
}
