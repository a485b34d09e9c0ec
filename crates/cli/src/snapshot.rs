//! `holdfast snapshot`.

use std::process::ExitCode;

use api::longhorn::Snapshot;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use people::snapshot::{asked, ready, taken};
use people::units::{bytes, date};
use people::{age, or_dash};

use crate::connection::{Connection, explained};
use crate::listing::{self, List, Rm, Row};
use crate::output;
use crate::waiting::{Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List snapshots, oldest first.
    #[command(visible_alias = "list")]
    Ls {
        /// Only snapshots of this volume.
        volume: Option<String>,
        #[command(flatten)]
        list: List,
        #[command(flatten)]
        at: Connection,
    },
    /// Take a snapshot of a volume.
    Create {
        volume: String,
        /// Name of the snapshot; by default, the volume and the time.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
    /// Delete snapshots; data that newer ones need is merged first.
    #[command(visible_alias = "delete")]
    Rm(Rm),
}

impl Row for Snapshot {
    const HEAD: &'static [&'static str] = &["SNAPSHOT", "VOLUME", "TAKEN", "SIZE", "READY", "AGE"];
    const WIDE: &'static [&'static str] = &["PARENT", "ERROR"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.as_ref();
        vec![
            self.name_any(),
            or_dash(self.spec.volume.as_deref().unwrap_or_default()),
            taken(self).map_or_else(|| "-".to_owned(), date),
            status
                .and_then(|it| it.size)
                .map_or_else(|| "-".to_owned(), |it| bytes(it.unsigned_abs())),
            if ready(self) { "yes".to_owned() } else { "no".to_owned() },
            age(self, now),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        let status = self.status.as_ref();
        vec![
            or_dash(status.and_then(|it| it.parent.as_deref()).unwrap_or_default()),
            or_dash(status.and_then(|it| it.error.as_deref()).unwrap_or_default()),
        ]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls { volume, list, at } => {
            let api = at.volumes::<Snapshot>().await?;
            let keep = |it: &Snapshot| volume.is_none() || it.spec.volume == volume;
            listing::list(&api, &list, keep, |a, b| taken(a).cmp(&taken(b))).await?;
        }
        Command::Create { volume, name, wait, at } => {
            let client = at.client().await?;
            crate::volume::ordinary(&client, &volume, &format!("take a snapshot of {volume}"))
                .await?;
            let api = Api::namespaced(client, crate::NAMESPACE);
            let name = take(&api, &volume, name.as_deref(), &wait).await?;
            let end = if wait.wait { "is taken" } else { "is being taken" };
            output::say(&format!("snapshot {name} of volume {volume} {end}"))?;
        }
        Command::Rm(rm) => rm.run::<Snapshot>().await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A name that says of what and when.
pub(crate) fn named(of: &str) -> String {
    people::snapshot::named(of, Timestamp::now())
}

/// Takes a snapshot and says what it is called: as chosen, or after its volume and the time.
pub(crate) async fn take(
    api: &Api<Snapshot>,
    volume: &str,
    chosen: Option<&str>,
    wait: &Wait,
) -> anyhow::Result<String> {
    let name = ask(api, volume, chosen).await?;
    wait.until(api, &name, |it| match it {
        None => Stand::Failed("it was removed".to_owned()),
        Some(it) if ready(it) => Stand::Done,
        Some(it) => {
            let error = it.status.as_ref().and_then(|it| it.error.as_deref()).unwrap_or_default();
            Stand::Going(if error.is_empty() { "being taken".to_owned() } else { error.to_owned() })
        }
    })
    .await?;
    Ok(name)
}

/// How many may be asked for within one second without a name of their own.
const MAX_ALIKE: usize = 100;

async fn ask(api: &Api<Snapshot>, volume: &str, chosen: Option<&str>) -> anyhow::Result<String> {
    let first = chosen.map_or_else(|| named(volume), str::to_owned);
    let mut name = first.clone();
    for place in 2..=MAX_ALIKE {
        match api.create(&PostParams::default(), &asked(volume, &name)).await {
            Ok(_) => return Ok(name),
            // Nobody has chosen this name, so nobody can choose another.
            Err(kube::Error::Api(status)) if status.code == 409 && chosen.is_none() => {
                name = format!("{first}-{place}");
            }
            Err(error) => {
                return Err(explained(error, &format!("take a snapshot of volume {volume}")));
            }
        }
    }
    anyhow::bail!("{MAX_ALIKE} snapshots of volume {volume} were taken within a second")
}
