//! `holdfast status`: the one screen an operator looks at.
//!
//! [`World`] is what was read, [`Summary`] what it means; between them is a pure function.

use std::process::ExitCode;

use api::longhorn::{
    Backup, BackupState, BackupTarget, Engine, Node, RecurringJob, Robustness, Volume, VolumeState,
};
use api::nonadmin::NonAdminBackup;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use crate::connection::{Connection, explained};
use crate::dr::{Following, is_standby};
use crate::listing::{Form, Object, or_dash};
use crate::output::{self, Format};
use crate::units::bytes;
use crate::{backup, node, target, volume};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    show: Form,
    /// End with exit code 1 if anything needs attention.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    at: Connection,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.at.client().await?;
    let version = client.apiserver_version().await;
    let version = version.map_err(|error| explained(error, "reach the API"))?;
    let world = World::read(&client).await?;
    let summary = Summary::of(&world, Timestamp::now());
    output::say(&match args.show.output {
        Format::Table | Format::Wide | Format::Name => summary.text(&version.git_version),
        Format::Json | Format::Yaml => output::machine(&summary, args.show.output)?,
    })?;
    Ok(if args.check && !summary.attention.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What there is, as far as these rights reach.
#[derive(Debug, Default)]
struct World {
    nodes: Vec<Node>,
    volumes: Vec<Volume>,
    engines: Vec<Engine>,
    backups: Vec<Backup>,
    targets: Vec<BackupTarget>,
    jobs: Vec<RecurringJob>,
    tenants: Vec<NonAdminBackup>,
    /// Kinds that may not be seen.
    hidden: Vec<String>,
}

impl World {
    async fn read(client: &Client) -> anyhow::Result<Self> {
        let mut hidden = Vec::new();
        Ok(Self {
            nodes: volumes(client, &mut hidden).await?,
            volumes: volumes(client, &mut hidden).await?,
            engines: volumes(client, &mut hidden).await?,
            backups: volumes(client, &mut hidden).await?,
            targets: volumes(client, &mut hidden).await?,
            jobs: volumes(client, &mut hidden).await?,
            tenants: seen(&Api::all(client.clone()), &mut hidden).await?,
            hidden,
        })
    }
}

async fn volumes<K>(client: &Client, hidden: &mut Vec<String>) -> anyhow::Result<Vec<K>>
where
    K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    seen(&Api::namespaced(client.clone(), crate::NAMESPACE), hidden).await
}

/// All objects of a kind; none if they are hidden from this caller or unknown to this cluster.
async fn seen<K: Object>(api: &Api<K>, hidden: &mut Vec<String>) -> anyhow::Result<Vec<K>> {
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            hidden.push(K::plural(&()).into_owned());
            Ok(Vec::new())
        }
        Err(error) => Err(explained(error, &format!("list {}", K::plural(&())))),
    }
}

/// What it means.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    nodes: Nodes,
    volumes: Volumes,
    backups: Backups,
    tenants: Tenants,
    /// Work under way, in words.
    work: Vec<String>,
    /// What a person should look at, worst first.
    attention: Vec<String>,
    hidden: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Nodes {
    ready: usize,
    all: usize,
    free_bytes: u64,
    capacity_bytes: u64,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Volumes {
    all: usize,
    attached: usize,
    healthy: usize,
    degraded: usize,
    faulted: usize,
    standby: usize,
    bytes: u64,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Backups {
    completed: usize,
    failed: usize,
    deleting: usize,
    /// The newest complete one.
    newest: Option<String>,
    newest_age_seconds: Option<i64>,
    targets: usize,
    targets_reachable: usize,
    jobs: usize,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tenants {
    backups: usize,
    queued: usize,
    refused: usize,
}

impl Summary {
    fn of(world: &World, now: Timestamp) -> Self {
        Self {
            nodes: nodes(&world.nodes),
            volumes: count_volumes(&world.volumes),
            backups: backups(world, now),
            tenants: tenants(&world.tenants),
            work: work(world),
            attention: attention(world),
            hidden: world.hidden.clone(),
        }
    }

    fn text(&self, server: &str) -> String {
        let (nodes, volumes) = (&self.nodes, &self.volumes);
        let (backups, tenants) = (&self.backups, &self.tenants);
        let verdict = if self.attention.is_empty() { "all is well" } else { "needs attention" };
        let newest = match (&backups.newest, backups.newest_age_seconds) {
            (Some(name), Some(age)) => format!("newest {name}, {} old", spoken(age)),
            _ => "none complete".to_owned(),
        };
        let mut lines = vec![
            format!("Holdfast at a server of version {server}: {verdict}"),
            String::new(),
            format!(
                "nodes     {} of {} ready, {} free of {}",
                nodes.ready,
                nodes.all,
                bytes(nodes.free_bytes),
                bytes(nodes.capacity_bytes)
            ),
            format!(
                "volumes   {}: {} attached, {} healthy, {} degraded, {} faulted, {} standby; {}",
                volumes.all,
                volumes.attached,
                volumes.healthy,
                volumes.degraded,
                volumes.faulted,
                volumes.standby,
                bytes(volumes.bytes)
            ),
            format!(
                "backups   {} complete, {} failed, {} being removed; {newest}",
                backups.completed, backups.failed, backups.deleting
            ),
            format!(
                "targets   {} of {} reachable; {} jobs",
                backups.targets_reachable, backups.targets, backups.jobs
            ),
            format!(
                "tenants   {} backups, {} queued, {} refused",
                tenants.backups, tenants.queued, tenants.refused
            ),
        ];
        let mut part = |title: &str, of: &[String]| {
            if !of.is_empty() {
                lines.push(String::new());
                lines.push(title.to_owned());
                lines.extend(of.iter().map(|it| format!("  {it}")));
            }
        };
        part("Under way", &self.work);
        part("Needs attention", &self.attention);
        if !self.hidden.is_empty() {
            part("Not visible with these rights", &[self.hidden.join(", ")]);
        }
        lines.join("\n")
    }
}

fn spoken(seconds: i64) -> String {
    let now = Timestamp::from_second(seconds).unwrap_or_default();
    crate::units::age(Timestamp::UNIX_EPOCH, now)
}

fn nodes(nodes: &[Node]) -> Nodes {
    let disks = || {
        nodes
            .iter()
            .filter_map(|it| it.status.as_ref()?.disk_status.as_ref())
            .flat_map(|it| it.values())
    };
    let sum = |of: fn(&api::longhorn::DiskStatus) -> Option<i64>| {
        disks().filter_map(of).map(i64::unsigned_abs).sum()
    };
    Nodes {
        ready: nodes.iter().filter(|it| node::ready(it)).count(),
        all: nodes.len(),
        free_bytes: sum(|it| it.storage_available),
        capacity_bytes: sum(|it| it.storage_maximum),
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
        newest: newest.map(ResourceExt::name_any),
        newest_age_seconds: newest
            .and_then(backup::time)
            .map(|at| now.as_second().saturating_sub(at.as_second()).max(0)),
        targets: world.targets.iter().filter(|it| target::has_url(it)).count(),
        targets_reachable: world
            .targets
            .iter()
            .filter(|it| it.status.as_ref().is_some_and(|it| it.available == Some(true)))
            .count(),
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
        refused: requests.iter().filter(|it| !crate::tenant::refused(it).is_empty()).count(),
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
            told.push(format!("standby {name}: {}", following.told()));
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

fn attention(world: &World) -> Vec<String> {
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
    for it in &world.targets {
        let available = it.status.as_ref().is_some_and(|it| it.available == Some(true));
        if target::has_url(it) && !available {
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
            told.push(format!("volume {} lacks a copy: it is degraded", it.name_any()));
        }
        let scheduled = volume::why(it);
        if !scheduled.is_empty() && volume::robustness(it) != Robustness::Faulted {
            told.push(format!("volume {}: {scheduled}", it.name_any()));
        }
    }
    for it in &world.jobs {
        let status = it.status.clone().unwrap_or_default();
        if matches!(status.last_result.as_deref(), Some("Failed" | "DeadlineExceeded")) {
            let message = or_dash(&status.last_message.unwrap_or_default());
            told.push(format!("job {} failed last time: {message}", it.name_any()));
        }
    }
    told
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
        let [first, second, third] = summary.attention.as_slice() else {
            panic!("{:?}", summary.attention)
        };
        assert!(first.starts_with("volume b is faulted"), "{first}");
        assert!(second.contains("backup late failed: the disk is full"), "{second}");
        assert!(third.contains("volume a lacks a copy"), "{third}");
        assert_eq!((summary.volumes.healthy, summary.volumes.attached), (1, 3));
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
        assert!(summary.text("v1").contains("newest new, 1h old"));
    }
}
