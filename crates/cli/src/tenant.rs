//! `holdfast tenant`: backups and restores of one's own namespace.

use std::process::ExitCode;

use anyhow::Context as _;
use api::duration::GoDuration;
use api::nonadmin::{NonAdminBackup, NonAdminRestore};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use people::tenant::{self, Told};
use people::{age, or_dash};

use crate::connection::{Connection, explained};
use crate::listing::{self, List, Object, Row, by_name};
use crate::output::{self, Hint};
use crate::waiting::{Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List backups of namespaces, with their positions in the queue.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        space: Spaces,
        #[command(flatten)]
        list: List,
    },
    /// List restores of namespaces.
    Restores {
        #[command(flatten)]
        space: Spaces,
        #[command(flatten)]
        list: List,
    },
    /// Back up a namespace.
    Backup {
        name: String,
        /// How long to keep the backup, for example 720h.
        #[arg(long)]
        ttl: Option<String>,
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        wait: Wait,
    },
    /// Restore objects of a namespace from one of its backups.
    Restore {
        backup: String,
        /// Name of the restore; by default, the name of the backup and the time.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        space: Space,
        #[command(flatten)]
        wait: Wait,
    },
    /// Delete a backup with its data.
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
    /// The namespace; by default, the one of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    at: Connection,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Spaces {
    /// In all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    one: Space,
}

impl Spaces {
    async fn api<K>(&self) -> anyhow::Result<Api<K>>
    where
        K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        if self.all_namespaces {
            return Ok(Api::all(self.one.at.client().await?));
        }
        self.one.api().await
    }
}

impl Space {
    async fn api<K>(&self) -> anyhow::Result<Api<K>>
    where
        K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let client = self.at.client().await?;
        Ok(match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        })
    }
}

fn cells<K: kube::Resource>(told: &Told, object: &K, now: Timestamp) -> Vec<String> {
    vec![
        or_dash(&object.namespace().unwrap_or_default()),
        object.name_any(),
        or_dash(told.phase()),
        or_dash(&told.executor),
        told.place.map_or_else(|| "-".to_owned(), |it| it.to_string()),
        age(object, now),
    ]
}

/// Whether the executor is done with it.
fn stand(told: &Told) -> Stand {
    match told.executor.as_str() {
        "Completed" => Stand::Done,
        "PartiallyFailed" | "Failed" | "FailedValidation" => {
            Stand::Failed(format!("it ended as {}", told.executor))
        }
        _ if !told.why.is_empty() => Stand::Failed(told.why.clone()),
        "" => Stand::Going("accepted".to_owned()),
        other => Stand::Going(match told.place {
            Some(place) if place > 1 => format!("{other}, place {place} in the queue"),
            _ => other.to_owned(),
        }),
    }
}

const HEAD: &[&str] = &["NAMESPACE", "NAME", "REQUEST", "EXECUTOR", "QUEUE", "AGE"];

impl Row for NonAdminBackup {
    const HEAD: &'static [&'static str] = HEAD;
    const WIDE: &'static [&'static str] = &["WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        cells(&tenant::backup(self), self, now)
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![or_dash(&tenant::backup(self).why)]
    }
}

impl Row for NonAdminRestore {
    const HEAD: &'static [&'static str] = HEAD;
    const WIDE: &'static [&'static str] = &["WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        cells(&tenant::restore(self), self, now)
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![or_dash(&tenant::restore(self).why)]
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
            let found = space.api::<NonAdminBackup>().await?.get(&backup).await;
            found.map_err(|error| explained(error, &format!("restore from backup {backup}")))?;
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
        ttl.get().context("invalid --ttl").hint("write it like 720h or 30m")?;
    }
    api.create(&PostParams::default(), &tenant::asked_backup(name, ttl))
        .await
        .map_err(|error| explained(error, &format!("request backup {name}")))?;
    wait.until(api, name, |it| it.map_or_else(gone, |it| stand(&tenant::backup(it)))).await?;
    let end = if wait.wait { "is complete" } else { "has been requested" };
    Ok(output::say(&format!("backup {name} {end}"))?)
}

pub(crate) async fn restore(
    api: &Api<NonAdminRestore>,
    backup: &str,
    name: &str,
    wait: &Wait,
) -> anyhow::Result<()> {
    api.create(&PostParams::default(), &tenant::asked_restore(name, backup))
        .await
        .map_err(|error| explained(error, &format!("request restore {name}")))?;
    wait.until(api, name, |it| it.map_or_else(gone, |it| stand(&tenant::restore(it)))).await?;
    let end = if wait.wait { "is complete" } else { "has been requested" };
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
    api.patch(name, &PatchParams::default(), &Patch::Merge(&tenant::deletion()))
        .await
        .map_err(|error| explained(error, &format!("delete backup {name}")))?;
    wait.until(api, name, |it| match it {
        None => Stand::Done,
        Some(_) => Stand::Going("being deleted with its data".to_owned()),
    })
    .await?;
    let end = if wait.wait { "is deleted" } else { "is being deleted" };
    Ok(output::say(&format!("backup {name} {end}"))?)
}
