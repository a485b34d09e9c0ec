//! `holdfast tenant`: backups and restores of one's own namespace.

use std::process::ExitCode;

use anyhow::Context as _;
use api::duration::GoDuration;
use api::nonadmin::{
    NonAdminBackup, NonAdminBackupSpec, NonAdminRestore, NonAdminRestoreSpec, Phase,
};
use api::velero;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::listing::{self, List, Object, Row, age, by_name, or_dash};
use crate::output::{self, Hint};
use crate::waiting::{Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List backups of namespaces, with their places in the queue.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        list: List,
    },
    /// List restores of namespaces.
    Restores {
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        list: List,
    },
    /// Back up a namespace.
    Backup {
        name: String,
        /// How long it is kept, as 720h.
        #[arg(long)]
        ttl: Option<String>,
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        wait: Wait,
    },
    /// Bring objects of a namespace back from one of its backups.
    Restore {
        backup: String,
        /// What to call the restore; without it, the backup and the time.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        wait: Wait,
    },
    /// Remove a backup with its data.
    Rm {
        name: String,
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        wait: Wait,
    },
}

#[derive(Debug, Clone, clap::Args)]
pub struct Space {
    /// The namespace; without it, the one of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Those of every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    at: Connection,
}

impl Space {
    async fn api<K>(&self) -> anyhow::Result<Api<K>>
    where
        K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let client = self.at.client().await?;
        Ok(match &self.namespace {
            _ if self.all_namespaces => Api::all(client),
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        })
    }
}

/// What a request tells of itself, whichever kind it is.
struct Told {
    phase: Option<Phase>,
    executor: String,
    place: Option<i64>,
    why: String,
}

fn backup_told(it: &NonAdminBackup) -> Told {
    let status = it.status.clone().unwrap_or_default();
    let executor = status.velero_backup.and_then(|it| it.status);
    Told {
        phase: status.phase,
        executor: phase_of(executor.map(|it| serde_json::to_value(it).unwrap_or_default())),
        place: status.queue_info.map(|it| it.estimated_queue_position),
        why: refusal(status.conditions.as_deref().unwrap_or_default()),
    }
}

fn restore_told(it: &NonAdminRestore) -> Told {
    let status = it.status.clone().unwrap_or_default();
    let executor = status.velero_restore.and_then(|it| it.status);
    Told {
        phase: status.phase,
        executor: phase_of(executor.map(|it| serde_json::to_value(it).unwrap_or_default())),
        place: status.queue_info.map(|it| it.estimated_queue_position),
        why: refusal(status.conditions.as_deref().unwrap_or_default()),
    }
}

fn phase_of(status: Option<serde_json::Value>) -> String {
    let phase = status.and_then(|it| it.get("phase").and_then(|it| it.as_str().map(str::to_owned)));
    phase.unwrap_or_default()
}

fn refusal(conditions: &[api::condition::Condition]) -> String {
    let refused =
        conditions.iter().find(|it| it.kind == "Accepted" && it.status.as_str() == "False");
    refused.map(|it| it.message.clone()).unwrap_or_default()
}

impl Told {
    fn cells<K: kube::Resource>(&self, object: &K, now: Timestamp) -> Vec<String> {
        let phase = self.phase.as_ref().map(Phase::as_str).unwrap_or_default();
        vec![
            or_dash(&object.namespace().unwrap_or_default()),
            object.name_any(),
            or_dash(phase),
            or_dash(&self.executor),
            self.place.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            age(object, now),
        ]
    }

    /// Whether the executor is done with it.
    fn stand(&self) -> Stand {
        match self.executor.as_str() {
            "Completed" => Stand::Done,
            "PartiallyFailed" | "Failed" | "FailedValidation" => {
                Stand::Failed(format!("it ended as {}", self.executor))
            }
            _ if !self.why.is_empty() => Stand::Failed(self.why.clone()),
            "" => Stand::Going("accepted".to_owned()),
            other => Stand::Going(match self.place {
                Some(place) if place > 1 => format!("{other}, place {place} in the queue"),
                _ => other.to_owned(),
            }),
        }
    }
}

const HEAD: &[&str] = &["NAMESPACE", "NAME", "REQUEST", "EXECUTOR", "QUEUE", "AGE"];

impl Row for NonAdminBackup {
    const HEAD: &'static [&'static str] = HEAD;
    const WIDE: &'static [&'static str] = &["WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        backup_told(self).cells(self, now)
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![or_dash(&backup_told(self).why)]
    }
}

impl Row for NonAdminRestore {
    const HEAD: &'static [&'static str] = HEAD;
    const WIDE: &'static [&'static str] = &["WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        restore_told(self).cells(self, now)
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![or_dash(&restore_told(self).why)]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls { space, list } => {
            listing::list(&space.api::<NonAdminBackup>().await?, &list, |_| true, by_name).await?;
        }
        Command::Restores { space, list } => {
            listing::list(&space.api::<NonAdminRestore>().await?, &list, |_| true, by_name).await?;
        }
        Command::Backup { name, ttl, space, wait } => {
            back_up(&space.api().await?, &name, ttl.as_deref(), &wait).await?;
        }
        Command::Restore { backup, name, space, wait } => {
            let name = name.unwrap_or_else(|| crate::snapshot::named(&backup));
            restore(&space.api().await?, &backup, &name, &wait).await?;
        }
        Command::Rm { name, space, wait } => {
            let api = space.api::<NonAdminBackup>().await?;
            remove(&api, &name, &wait).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn back_up(
    api: &Api<NonAdminBackup>,
    name: &str,
    ttl: Option<&str>,
    wait: &Wait,
) -> anyhow::Result<()> {
    let ttl = ttl.map(GoDuration::from);
    if let Some(ttl) = &ttl {
        ttl.get().context("the ttl cannot be used").hint("write it as 720h or 30m")?;
    }
    let spec = NonAdminBackupSpec {
        backup_spec: Some(velero::BackupSpec { ttl, ..velero::BackupSpec::default() }),
        ..NonAdminBackupSpec::default()
    };
    api.create(&PostParams::default(), &NonAdminBackup::new(name, spec))
        .await
        .map_err(|error| explained(error, &format!("ask for backup {name}")))?;
    wait.until(api, name, |it| it.map_or_else(gone, |it| backup_told(it).stand())).await?;
    let end = if wait.wait { "is complete" } else { "is asked for" };
    Ok(output::say(&format!("backup {name} {end}"))?)
}

pub(crate) async fn restore(
    api: &Api<NonAdminRestore>,
    backup: &str,
    name: &str,
    wait: &Wait,
) -> anyhow::Result<()> {
    let spec = NonAdminRestoreSpec {
        restore_spec: Some(velero::RestoreSpec {
            backup_name: Some(backup.to_owned()),
            ..velero::RestoreSpec::default()
        }),
    };
    api.create(&PostParams::default(), &NonAdminRestore::new(name, spec))
        .await
        .map_err(|error| explained(error, &format!("ask for restore {name}")))?;
    wait.until(api, name, |it| it.map_or_else(gone, |it| restore_told(it).stand())).await?;
    let end = if wait.wait { "is complete" } else { "is asked for" };
    Ok(output::say(&format!("restore {name} {end}"))?)
}

fn gone() -> Stand {
    Stand::Failed("it was removed".to_owned())
}

/// By the request's own field: the object alone can go without its data.
pub(crate) async fn remove(
    api: &Api<NonAdminBackup>,
    name: &str,
    wait: &Wait,
) -> anyhow::Result<()> {
    let patch = json!({ "spec": { "deleteBackup": true } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("remove backup {name}")))?;
    wait.until(api, name, |it| match it {
        None => Stand::Done,
        Some(_) => Stand::Going("being removed with its data".to_owned()),
    })
    .await?;
    let end = if wait.wait { "is gone" } else { "is being removed" };
    Ok(output::say(&format!("backup {name} {end}"))?)
}

/// Why a request was not accepted, if it was not.
pub(crate) fn refused(backup: &NonAdminBackup) -> String {
    backup_told(backup).why
}
