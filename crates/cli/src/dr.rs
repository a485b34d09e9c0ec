//! `holdfast dr`: volumes that follow the backups of another, and take over.

use std::process::ExitCode;

use api::longhorn::{Backup, Engine, Volume, VolumeState};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use people::standby::{Following, activation, is_standby, make_standby};
use people::{or_dash, volume as told};

use crate::connection::{Connection, explained};
use crate::listing::by_name;
use crate::output::{self, Format, Hint};
use crate::restore;
use crate::volume;
use crate::waiting::{Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List standby volumes, and how far each is behind its source.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        show: crate::listing::Form,
        #[command(flatten)]
        at: Connection,
    },
    /// Make a standby volume that follows the backups of a volume, from one of them on.
    Create {
        /// A backup of the volume to follow; it goes on with each newer one.
        backup: String,
        /// What to call the standby volume.
        name: String,
        /// How many copies.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=20))]
        replicas: i32,
        #[command(flatten)]
        at: Connection,
    },
    /// Make a standby volume an ordinary one, with the newest backup in it.
    Activate {
        name: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls { show, at } => ls(&at, show.output).await?,
        Command::Create { backup, name, replicas, at } => {
            let client = at.client().await?;
            let backups: Api<Backup> = Api::namespaced(client.clone(), crate::NAMESPACE);
            let mut spec = restore::from(&backups, &backup, replicas).await?;
            make_standby(&mut spec);
            let volumes: Api<Volume> = Api::namespaced(client, crate::NAMESPACE);
            volume::made(&volumes, &Volume::new(&name, spec), &Wait::NOT).await?;
        }
        Command::Activate { name, wait, at } => activate(&at, &name, &wait).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ls(at: &Connection, format: Format) -> anyhow::Result<()> {
    let client = at.client().await?;
    let volumes: Api<Volume> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let engines: Api<Engine> = Api::namespaced(client, crate::NAMESPACE);
    let all = ListParams::default();
    let mut volumes =
        volumes.list(&all).await.map_err(|error| explained(error, "list volumes"))?.items;
    volumes.retain(is_standby);
    volumes.sort_by(by_name);
    if !matches!(format, Format::Table | Format::Wide) {
        return crate::listing::print(&volumes, format);
    }
    if volumes.is_empty() {
        eprintln!("there are no standby volumes here");
        return Ok(());
    }
    let engines = engines.list(&all).await.map_err(|error| explained(error, "list engines"))?;
    let now = Timestamp::now();
    let rows: Vec<_> = volumes
        .iter()
        .map(|it| {
            let name = it.name_any();
            let engine = engines
                .items
                .iter()
                .find(|engine| engine.spec.instance.volume_name.as_deref() == Some(&name));
            let following = Following::of(it, engine);
            let status = it.status.clone().unwrap_or_default();
            let at = status.last_backup_at.and_then(|it| it.get());
            vec![
                name,
                or_dash(told::state(it).as_str()),
                or_dash(told::robustness(it).as_str()),
                following.told(),
                or_dash(&following.holds),
                or_dash(&following.newest),
                at.map_or_else(|| "-".to_owned(), |at| people::units::age(at, now)),
            ]
        })
        .collect();
    let head = ["NAME", "STATE", "ROBUSTNESS", "FOLLOWS", "HOLDS", "NEWEST", "NEWEST AGE"];
    Ok(output::say(&output::table(&head, &rows))?)
}

pub(crate) async fn activate(at: &Connection, name: &str, wait: &Wait) -> anyhow::Result<()> {
    let volumes = at.volumes::<Volume>().await?;
    let volume = volumes.get(name).await;
    let volume = volume.map_err(|error| explained(error, &format!("find volume {name}")))?;
    if !is_standby(&volume) {
        return Err(anyhow::anyhow!("volume {name} is not a standby volume"))
            .hint("see which are with `holdfast dr ls`");
    }
    volumes
        .patch(name, &PatchParams::default(), &Patch::Merge(&activation()))
        .await
        .map_err(|error| explained(error, &format!("activate volume {name}")))?;
    wait.until(&volumes, name, |it| {
        let Some(it) = it else { return Stand::Failed("it was removed".to_owned()) };
        let standby = it.status.as_ref().is_some_and(|it| it.is_standby == Some(true));
        let required = it.status.as_ref().is_some_and(|it| it.restore_required == Some(true));
        match told::state(it) {
            VolumeState::Detached if !standby && !required => Stand::Done,
            other => {
                Stand::Going(format!("{}, taking in the newest backup", or_dash(other.as_str())))
            }
        }
    })
    .await?;
    let end = if wait.wait { "is an ordinary volume" } else { "is being activated" };
    Ok(output::say(&format!("volume {name} {end}"))?)
}
