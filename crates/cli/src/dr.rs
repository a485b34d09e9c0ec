//! `holdfast dr`: volumes that follow the backups of another, and take over.

use std::process::ExitCode;
use std::time::Duration;

use api::longhorn::{Backup, Engine, Volume, VolumeState};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use people::standby::{Following, activation, is_standby, make_standby};
use people::{or_dash, volume as told};

use crate::connection::{Connection, explained};
use crate::listing::by_name;
use crate::output::{self, Columns, Format, Hint};
use crate::restore;
use crate::volume;
use crate::waiting::{Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List standby volumes and their lag.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        show: crate::listing::Form,
        /// Keep running, and print each change.
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        at: Connection,
    },
    /// Create a standby volume that follows the backups of a volume, starting from one of them.
    Create {
        /// A backup of the volume to follow; newer backups are restored as they appear.
        backup: String,
        /// The name of the standby volume.
        name: String,
        /// Number of copies.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=20))]
        replicas: i32,
        #[command(flatten)]
        at: Connection,
    },
    /// Turn a standby volume into an ordinary one, with the newest backup restored.
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
        Command::Ls { show, watch, at } => ls(&at, show.output, watch).await?,
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

const HEAD: [&str; 7] = ["NAME", "STATE", "ROBUSTNESS", "FOLLOWS", "HOLDS", "NEWEST", "NEWEST AGE"];
/// How often they are looked at anew: what is told of one is in two objects.
const EVERY: Duration = Duration::from_secs(2);

async fn ls(at: &Connection, format: Format, watch: bool) -> anyhow::Result<()> {
    let client = at.client().await?;
    let mut found = Standby::all(&client).await?;
    if watch && matches!(format, Format::Table | Format::Wide) {
        return follow(&client, &found).await;
    }
    match format {
        Format::Table | Format::Wide if found.is_empty() => {
            eprintln!("no standby volumes found");
        }
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            let rows: Vec<_> = found.iter().map(|it| it.cells(now)).collect();
            output::say(&output::table(&HEAD, &rows))?;
        }
        Format::Json | Format::Yaml | Format::Name => loop {
            let volumes: Vec<_> = found.iter().map(|it| it.volume.clone()).collect();
            crate::listing::print(&volumes, format)?;
            if !watch {
                break;
            }
            found = changed(&client, &found).await?;
        },
    }
    Ok(())
}

/// A standby volume and how it follows.
#[derive(Clone)]
struct Standby {
    volume: Volume,
    following: Following,
}

impl Standby {
    async fn all(client: &Client) -> anyhow::Result<Vec<Self>> {
        let volumes: Api<Volume> = Api::namespaced(client.clone(), crate::NAMESPACE);
        let engines: Api<Engine> = Api::namespaced(client.clone(), crate::NAMESPACE);
        let all = ListParams::default();
        let found = volumes.list(&all).await.map_err(|error| explained(error, "list volumes"))?;
        let engines = engines.list(&all).await.map_err(|error| explained(error, "list engines"))?;
        let mut found: Vec<Volume> = found.items.into_iter().filter(is_standby).collect();
        found.sort_by(by_name);
        let with_engine = found.into_iter().map(|volume| {
            let name = volume.name_any();
            let own = |it: &&Engine| it.spec.instance.volume_name.as_deref() == Some(&name);
            let following = Following::of(&volume, engines.items.iter().find(own));
            Self { volume, following }
        });
        Ok(with_engine.collect())
    }

    /// What does not change with the clock.
    fn facts(&self) -> Vec<String> {
        vec![
            self.volume.name_any(),
            or_dash(told::state(&self.volume).as_str()),
            or_dash(told::robustness(&self.volume).as_str()),
            self.following.told(),
            or_dash(&self.following.holds),
            or_dash(&self.following.newest),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let at = self.volume.status.as_ref().and_then(|it| it.last_backup_at.as_ref()?.get());
        let age = at.map_or_else(|| "-".to_owned(), |at| people::units::age(at, now));
        [self.facts(), vec![age]].concat()
    }
}

/// Those that are not as they were, once there are any.
async fn changed(client: &Client, before: &[Standby]) -> anyhow::Result<Vec<Standby>> {
    loop {
        tokio::time::sleep(EVERY).await;
        let now = Standby::all(client).await?;
        let facts = |of: &[Standby]| of.iter().map(Standby::facts).collect::<Vec<_>>();
        if facts(&now) != facts(before) {
            return Ok(now);
        }
    }
}

async fn follow(client: &Client, first: &[Standby]) -> anyhow::Result<()> {
    let mut columns = Columns::default();
    let rows: Vec<_> = first.iter().map(|it| it.cells(Timestamp::now())).collect();
    output::say(&columns.table(&HEAD, &rows))?;
    let mut before = first.to_vec();
    loop {
        let now = changed(client, &before).await?;
        let is_known = |it: &&Standby| before.iter().any(|old| old.facts() == it.facts());
        for it in now.iter().filter(|it| !is_known(it)) {
            output::say(&columns.row(&it.cells(Timestamp::now())))?;
        }
        let names: Vec<_> = now.iter().map(|it| it.volume.name_any()).collect();
        for gone in before.iter().filter(|it| !names.contains(&it.volume.name_any())) {
            output::say(&format!("{} is no longer a standby volume", gone.volume.name_any()))?;
        }
        before = now;
    }
}

pub(crate) async fn activate(at: &Connection, name: &str, wait: &Wait) -> anyhow::Result<()> {
    let volumes = at.volumes::<Volume>().await?;
    let volume = volumes.get(name).await;
    let volume = volume.map_err(|error| explained(error, &format!("find volume {name}")))?;
    if !is_standby(&volume) {
        return Err(anyhow::anyhow!("volume {name} is not a standby volume"))
            .hint("list standby volumes with `holdfast dr ls`");
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
                Stand::Going(format!("{}, restoring the newest backup", or_dash(other.as_str())))
            }
        }
    })
    .await?;
    let end = if wait.wait { "is an ordinary volume" } else { "is being activated" };
    Ok(output::say(&format!("volume {name} {end}"))?)
}
