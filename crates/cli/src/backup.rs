//! `holdfast backup`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use api::longhorn::{Backup, BackupState, BackupStatus, BackupTarget, Snapshot};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _, ResourceExt};
use people::backup::{obstacle, progress, stand, state, time, verified, volume_of};
use people::or_dash;
use people::redact::without_password;
use people::units::{bytes_of, date};
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::listing::{self, Form, List, Rm, Row};
use crate::output::{self, Hint};
use crate::retention::{self, Keep};
use crate::volume::parse_label;
use crate::waiting::{Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List backups, oldest first.
    #[command(visible_alias = "list")]
    Ls {
        /// Only backups of this volume.
        volume: Option<String>,
        #[command(flatten)]
        list: List,
        #[command(flatten)]
        at: Connection,
    },
    /// Show one backup: its URL, its progress, and what it waits for.
    Show {
        name: String,
        #[command(flatten)]
        show: Form,
        #[command(flatten)]
        at: Connection,
    },
    /// Back up a volume, from a new snapshot unless one is named.
    Create(Create),
    /// Delete backups; the data is deleted in the background, and the backup disappears afterwards.
    #[command(visible_alias = "delete")]
    Rm(Rm),
    /// Retry a failed deletion now.
    Retry {
        name: String,
        #[command(flatten)]
        at: Connection,
    },
    /// Delete the backups of a volume that no retention rule keeps.
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
pub struct Create {
    volume: String,
    /// The snapshot to back up; by default, a new one.
    #[arg(long)]
    snapshot: Option<String>,
    /// Name of the backup; by default, the volume and the time.
    #[arg(long)]
    name: Option<String>,
    /// The backup target; by default, the volume's own.
    #[arg(long)]
    target: Option<String>,
    /// Upload every block, including those the target has already.
    #[arg(long)]
    full: bool,
    /// Label stored with the backup.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: Connection,
}

#[derive(Debug, clap::Args)]
pub struct Forget {
    volume: String,
    #[command(flatten)]
    keep: Keep,
    /// Show what would be deleted, and delete nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: Connection,
}

impl Create {
    /// What the tour asks for.
    pub(crate) fn demo(
        volume: &str,
        name: &str,
        target: &str,
        at: &Connection,
        wait: &Wait,
    ) -> Self {
        Self {
            volume: volume.to_owned(),
            snapshot: None,
            name: Some(name.to_owned()),
            target: Some(target.to_owned()),
            full: false,
            labels: Vec::new(),
            wait: wait.clone(),
            at: at.clone(),
        }
    }
}

impl Row for Backup {
    const HEAD: &'static [&'static str] =
        &["BACKUP", "VOLUME", "DATE", "SIZE", "NEW", "AGE", "STATE", "VERIFIED"];
    const WIDE: &'static [&'static str] = &["TARGET", "SNAPSHOT", "URL"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let none = BackupStatus::default();
        let status = self.status.as_ref().unwrap_or(&none);
        let at = time(self);
        vec![
            self.name_any(),
            or_dash(&volume_of(self)),
            at.map_or_else(|| "-".to_owned(), date),
            bytes_of(status.size.as_deref()),
            bytes_of(status.newly_upload_data_size.as_deref()),
            at.map_or_else(|| "-".to_owned(), |at| people::units::age(at, now)),
            stand(self),
            verified(self, now),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        let none = BackupStatus::default();
        let status = self.status.as_ref().unwrap_or(&none);
        vec![
            or_dash(status.backup_target_name.as_deref().unwrap_or_default()),
            or_dash(status.snapshot_name.as_deref().unwrap_or_default()),
            or_dash(&without_password(status.url.as_deref().unwrap_or_default())),
        ]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls { volume, list, at } => {
            let api = at.volumes::<Backup>().await?;
            let keep = |it: &Backup| volume.as_ref().is_none_or(|wanted| *wanted == volume_of(it));
            listing::list(&api, &list, keep, |a, b| time(a).cmp(&time(b))).await?;
        }
        Command::Show { name, show, at } => {
            let api = at.volumes::<Backup>().await?;
            let backup = api.get(&name).await;
            let backup =
                backup.map_err(|error| explained(error, &format!("show backup {name}")))?;
            listing::print_one(&backup, show.output)?;
            let why = obstacle(&backup);
            if matches!(show.output, output::Format::Table | output::Format::Wide) {
                let url = backup.status.as_ref().and_then(|it| it.url.as_deref());
                if let Some(url) = url.filter(|it| !it.is_empty()) {
                    output::say(&format!("\nurl    {}", without_password(url)))?;
                }
                if !why.is_empty() {
                    output::say(&format!("why    {why}"))?;
                }
            }
        }
        Command::Create(args) => create(&args).await?,
        Command::Rm(rm) => remove(&rm.at.volumes::<Backup>().await?, &rm.names, &rm.wait).await?,
        Command::Retry { name, at } => {
            retry(&at.volumes::<Backup>().await?, &name).await?;
        }
        Command::Forget(args) => forget(&args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn create(args: &Create) -> anyhow::Result<()> {
    let client = args.at.client().await?;
    let volume = &args.volume;
    crate::volume::ordinary(&client, volume, &format!("back up {volume}")).await?;
    if let Some(target) = &args.target {
        let targets: Api<BackupTarget> = Api::namespaced(client.clone(), crate::NAMESPACE);
        let found = targets.get(target).await;
        found.map_err(|error| explained(error, &format!("find target {target}")))?;
    }
    let snapshots: Api<Snapshot> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let (snapshot, name) = if let Some(snapshot) = &args.snapshot {
        known(&snapshots, snapshot, volume).await?;
        let name = args.name.clone().unwrap_or_else(|| crate::snapshot::named(volume));
        (snapshot.clone(), name)
    } else {
        let (wait, chosen) = (Wait::up_to(args.wait.timeout), args.name.as_deref());
        let taken = crate::snapshot::take(&snapshots, volume, chosen, &wait).await?;
        (taken.clone(), taken)
    };
    let asked = people::backup::Asked {
        volume: &args.volume,
        name: &name,
        snapshot: &snapshot,
        target: args.target.as_deref(),
        labels: args.labels.iter().cloned().collect(),
        full: args.full,
    };
    let backups: Api<Backup> = Api::namespaced(client, crate::NAMESPACE);
    backups
        .create(&PostParams::default(), &asked.object())
        .await
        .map_err(|error| explained(error, &format!("back up volume {}", args.volume)))?;
    args.wait.until(&backups, &name, made).await?;
    let end = if args.wait.wait { "is complete" } else { "has started" };
    Ok(output::say(&format!("backup {name} of volume {} {end}", args.volume))?)
}

/// Refuses a snapshot that is not there, or is another volume's.
async fn known(snapshots: &Api<Snapshot>, name: &str, volume: &str) -> anyhow::Result<()> {
    let found = snapshots.get(name).await;
    let found = found.map_err(|error| explained(error, &format!("find snapshot {name}")))?;
    let of = found.spec.volume.unwrap_or_default();
    if of != volume {
        return Err(anyhow::anyhow!("snapshot {name} is of volume {of}, not of {volume}"))
            .hint(format!("see its snapshots with `holdfast snapshot ls {volume}`"));
    }
    Ok(())
}

fn made(backup: Option<&Backup>) -> Stand {
    let Some(backup) = backup else { return Stand::Failed("it was removed".to_owned()) };
    match state(backup) {
        BackupState::Completed => Stand::Done,
        BackupState::Error | BackupState::Unknown | BackupState::Deleting => {
            Stand::Failed(or_dash(&obstacle(backup)))
        }
        BackupState::New
        | BackupState::Pending
        | BackupState::InProgress
        | BackupState::Other(_) => going(backup),
    }
}

/// How far it is, and what stands in its way.
pub(crate) fn going(backup: &Backup) -> Stand {
    let how = match obstacle(backup) {
        none if none.is_empty() => stand(backup),
        why => format!("{}: {why}", stand(backup)),
    };
    Stand::part(progress(backup), how)
}

async fn retry(api: &Api<Backup>, name: &str) -> anyhow::Result<()> {
    let found = api.get(name).await;
    let found = found.map_err(|error| explained(error, &format!("find backup {name}")))?;
    if found.meta().deletion_timestamp.is_none() {
        return Err(anyhow::anyhow!("backup {name} is not being deleted: it is {}", stand(&found)))
            .hint(format!("delete it with `holdfast backup rm {name}`"));
    }
    let patch = json!({ "metadata": { "annotations": { "holdfast.io/retry-now": "true" } } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("find backup {name}")))?;
    Ok(output::say(&format!("the deletion of backup {name} is being retried"))?)
}

pub(crate) async fn remove(api: &Api<Backup>, names: &[String], wait: &Wait) -> anyhow::Result<()> {
    for name in names {
        api.delete(name, &DeleteParams::default())
            .await
            .map_err(|error| explained(error, &format!("delete backup {name}")))?;
    }
    for name in names {
        wait.until(api, name, |backup| match backup {
            None => Stand::Done,
            Some(it) => going(it),
        })
        .await?;
        let end = if wait.wait { "is deleted" } else { "is being deleted" };
        output::say(&format!("backup {name} {end}"))?;
    }
    Ok(())
}

async fn forget(args: &Forget) -> anyhow::Result<()> {
    if args.keep.is_empty() {
        return Err(anyhow::anyhow!("no retention rule is given for volume {}", args.volume))
            .hint("give one, for example --keep-daily 7; to delete all backups, name them with `holdfast backup rm`");
    }
    let client = args.at.client().await?;
    let api: Api<Backup> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let found = api.list(&ListParams::default()).await;
    let found = found.map_err(|error| explained(error, "list backups"))?;
    if !found.items.iter().any(|it| volume_of(it) == args.volume) {
        // Backups outlive their volume, and a volume may have none yet; a mistyped name has neither.
        crate::volume::found(&client, &args.volume).await?;
        return Ok(output::say(&format!("volume {} has no backups", args.volume))?);
    }
    let judged = judged(&found.items, &args.volume, &args.keep, Timestamp::now());
    let rows: Vec<_> = judged.iter().map(Judged::cells).collect();
    output::say(&output::table(&["BACKUP", "TARGET", "DATE", "VERDICT", "RULES"], &rows))?;
    let gone = judged.iter().filter(|it| it.kept_by.is_none()).map(|it| it.name.clone());
    let gone: Vec<String> = gone.collect();
    match (args.dry_run, gone.len(), judged.len()) {
        (true, many, all) => output::say(&format!("{many} of {all} would be deleted"))?,
        (false, 0, all) => output::say(&format!("nothing to delete: all {all} are kept"))?,
        (false, ..) => remove(&api, &gone, &args.wait).await?,
    }
    Ok(())
}

/// A backup, and what becomes of it.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    name: String,
    target: String,
    at: Timestamp,
    /// None: it goes.
    kept_by: Option<String>,
}

impl Judged {
    fn cells(&self) -> Vec<String> {
        let verdict = if self.kept_by.is_some() { "keep" } else { "remove" };
        let why = or_dash(self.kept_by.as_deref().unwrap_or_default());
        let date = date(self.at);
        vec![self.name.clone(), or_dash(&self.target), date, verdict.to_owned(), why]
    }
}

/// The rules hold in each target by itself: what is in one does not stand in for what is in another.
/// What is not complete is not a backup to choose among, and neither is what somebody else counts on.
fn judged(all: &[Backup], volume: &str, keep: &Keep, now: Timestamp) -> Vec<Judged> {
    let mut targets: BTreeMap<String, Vec<&Backup>> = BTreeMap::new();
    for it in all {
        let is_whole = state(it) == BackupState::Completed;
        if volume_of(it) == volume && is_whole && it.meta().deletion_timestamp.is_none() {
            let status = it.status.as_ref();
            let target = status.and_then(|it| it.backup_target_name.clone()).unwrap_or_default();
            targets.entry(target).or_default().push(it);
        }
    }
    let mut judged = Vec::new();
    for (target, of_target) in targets {
        let free = of_target.iter().filter(|it| user(it).is_none());
        let free: Vec<(String, Timestamp)> =
            free.filter_map(|it| Some((it.name_any(), time(it)?))).collect();
        let kept = retention::kept(&free, keep, now);
        for it in of_target {
            let Some(at) = time(it) else { continue };
            let name = it.name_any();
            let kept_by = user(it).or_else(|| kept.get(&name).map(|why| why.join(", ")));
            judged.push(Judged { name, target: target.clone(), at, kept_by });
        }
    }
    judged.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
    judged
}

/// Whoever made it for itself, and removes it itself.
fn user(backup: &Backup) -> Option<String> {
    let asked = backup.spec.labels.as_ref();
    let stored = backup.status.as_ref().and_then(|it| it.labels.as_ref());
    let of_velero = |it: &BTreeMap<String, String>| it.get("holdfast.io/velero-backup").cloned();
    if let Some(name) = asked.and_then(of_velero).or_else(|| stored.and_then(of_velero)) {
        return Some(format!("data of Velero's backup {name}"));
    }
    let is_id = |name: &str, prefix: &str| {
        let id = name.strip_prefix(prefix).unwrap_or_default();
        id.len() == 36 && id.chars().all(|it| it.is_ascii_hexdigit() || it == '-')
    };
    let of_block = is_id(&backup.name_any(), "backup-") && is_id(&volume_of(backup), "volume-");
    of_block.then(|| "Block Storage's".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(name: &str, target: &str, day: u8, labels: &serde_json::Value) -> Backup {
        let made = format!("2026-11-{day:02}T02:00:00Z");
        serde_json::from_value(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Backup",
            "metadata": {"name": name}, "spec": {"labels": labels},
            "status": {"state": "Completed", "volumeName": "v", "backupTargetName": target,
                "snapshotCreatedAt": made},
        }))
        .unwrap()
    }

    #[test]
    fn each_target_is_counted_by_itself_and_what_others_count_on_stays() {
        let none = json!({});
        let all = [
            backup("near-1", "near", 1, &none),
            backup("near-2", "near", 2, &none),
            backup("far-1", "far", 1, &none),
            backup("far-2", "far", 2, &none),
            backup("velero", "near", 1, &json!({"holdfast.io/velero-backup": "nightly"})),
        ];
        let keep = Keep::newest(1);
        let now = "2026-11-16T00:00:00Z".parse().unwrap();
        let found = judged(&all, "v", &keep, now);
        let gone: Vec<&str> =
            found.iter().filter(|it| it.kept_by.is_none()).map(|it| it.name.as_str()).collect();
        assert_eq!(gone, ["far-1", "near-1"]);
        let velero = found.iter().find(|it| it.name == "velero").unwrap();
        assert_eq!(velero.kept_by.as_deref(), Some("data of Velero's backup nightly"));
        assert_eq!(judged(&all, "another", &keep, now), []);
    }
}
