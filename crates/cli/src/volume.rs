//! `holdfast volume`.

mod attach;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use api::longhorn::{Engine, Robustness, Volume, VolumeState};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use people::redact::without_password;
use people::standby::is_standby;
use people::units::{bytes, parse_duration, parse_volume_size};
use people::volume::{empty, robustness, scheduled, state, why};
use people::{age, or_dash};
use serde_json::json;

pub(crate) use self::attach::attach;
use crate::connection::{Connection, explained};
use crate::listing::{Form, Ls, Rm, Row};
use crate::output::{self, Hint};
use crate::waiting::{Beside, Stand, Wait};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List volumes.
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Show one volume with its copies, snapshots and problems.
    Show {
        name: String,
        #[command(flatten)]
        show: Form,
        #[command(flatten)]
        at: Connection,
    },
    /// Create a volume, empty or as a clone of another.
    Create(Create),
    /// Attach a volume and print its NBD address.
    Attach {
        name: String,
        /// The node to attach to; by default, a node that holds a copy.
        #[arg(long)]
        node: Option<String>,
        /// How long to wait at most, for example 90s or 5m.
        #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
        timeout: Duration,
        #[command(flatten)]
        at: Connection,
    },
    /// Detach a volume that was attached with `attach`.
    Detach {
        name: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
    /// Expand a volume, attached or detached.
    Expand {
        name: String,
        /// The new size, for example 20GiB.
        #[arg(value_parser = parse_volume_size)]
        size: u64,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
    /// Delete volumes with their copies and snapshots; backups are kept.
    #[command(visible_alias = "delete")]
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub struct Create {
    name: String,
    /// Size, for example 10GiB: a multiple of 2 MiB.
    #[arg(long, value_parser = parse_volume_size)]
    size: u64,
    /// Number of copies.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=20))]
    replicas: i32,
    /// Clone this volume, or one of its snapshots: VOLUME or VOLUME/SNAPSHOT.
    #[arg(long, value_name = "SOURCE")]
    clone_of: Option<String>,
    /// The default target of its backups.
    #[arg(long)]
    target: Option<String>,
    /// Label of the volume; recurring jobs select volumes by labels.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: Connection,
}

pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Row for Volume {
    const HEAD: &'static [&'static str] =
        &["NAME", "STATE", "ROBUSTNESS", "SIZE", "USED", "COPIES", "NODE", "LAST BACKUP", "AGE"];
    const WIDE: &'static [&'static str] = &["FROM", "WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.as_ref();
        let last = status.and_then(|it| it.last_backup_at.as_ref()?.get());
        vec![
            self.name_any(),
            or_dash(state(self).as_str()),
            or_dash(robustness(self).as_str()),
            self.spec.size.map_or_else(|| "-".to_owned(), |it| bytes(it.0.unsigned_abs())),
            status
                .and_then(|it| it.actual_size)
                .map_or_else(|| "-".to_owned(), |it| bytes(it.unsigned_abs())),
            self.spec.number_of_replicas.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            or_dash(status.and_then(|it| it.current_node_id.as_deref()).unwrap_or_default()),
            last.map_or_else(|| "never".to_owned(), |at| people::units::age(at, now) + " ago"),
            age(self, now),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        let source = self.spec.from_backup.as_deref().or(self.spec.data_source.as_deref());
        vec![or_dash(&without_password(source.unwrap_or_default())), or_dash(&why(self))]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(ls) => ls.run::<Volume>().await?,
        Command::Show { name, show, at } => show::show(&at, &name, show.output).await?,
        Command::Create(args) => create(&args).await?,
        Command::Attach { name, node, timeout, at } => {
            let uri = attach(&at, &name, node, timeout).await?;
            output::say(&uri)?;
        }
        Command::Detach { name, wait, at } => attach::detach(&at, &name, &wait).await?,
        Command::Expand { name, size, wait, at } => expand(&at, &name, size, &wait).await?,
        Command::Rm(rm) => rm.run::<Volume>().await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: &Create) -> anyhow::Result<()> {
    let api = args.at.volumes::<Volume>().await?;
    let size = i64::try_from(args.size)?;
    let mut volume = Volume::new(&args.name, empty(size, args.replicas));
    volume.spec.data_source = args.clone_of.as_deref().map(data_source);
    volume.spec.backup_target_name.clone_from(&args.target);
    volume.metadata.labels = Some(args.labels.iter().cloned().collect());
    made(&api, &volume, &args.wait).await
}

/// `VOLUME` or `VOLUME/SNAPSHOT`, as resources say it.
fn data_source(text: &str) -> String {
    if text.contains('/') { format!("snap://{text}") } else { format!("vol://{text}") }
}

/// Makes a volume, and stays until it can be used.
pub(crate) async fn made(api: &Api<Volume>, volume: &Volume, wait: &Wait) -> anyhow::Result<()> {
    let name = volume.name_any();
    api.create(&PostParams::default(), volume)
        .await
        .map_err(|error| explained(error, &format!("create volume {name}")))?;
    until_usable(api, &name, wait).await?;
    let end = if wait.wait { "is ready" } else { "is being created" };
    Ok(output::say(&format!("volume {name} {end}"))?)
}

/// Stays until a volume has all that it is made from.
pub(crate) async fn until_usable(api: &Api<Volume>, name: &str, wait: &Wait) -> anyhow::Result<()> {
    let engines = Api::namespaced(api.clone().into_client(), crate::NAMESPACE);
    let filling = Filling { engines, volume: name };
    wait.until_seen(api, name, usable, &filling).await
}

/// How far the copies of a volume are; its engine knows.
struct Filling<'a> {
    engines: Api<Engine>,
    volume: &'a str,
}

impl Beside for Filling<'_> {
    async fn look(&self) -> Option<(i32, String)> {
        let wanted = ListParams::default().labels(&format!("longhornvolume={}", self.volume));
        // It is looked at for a word on the way; whether it can be had decides nothing.
        let found = self.engines.list(&wanted).await.ok()?;
        people::volume::filling(found.items.first()?.status.as_ref()?)
    }
}

/// A volume by its name.
pub(crate) async fn found(client: &Client, name: &str) -> anyhow::Result<Volume> {
    let volumes: Api<Volume> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let found = volumes.get(name).await;
    found.map_err(|error| explained(error, &format!("find volume {name}")))
}

/// A volume that is its users' own: a standby volume belongs to its source until it is activated.
pub(crate) async fn ordinary(client: &Client, name: &str, what: &str) -> anyhow::Result<Volume> {
    let volume = found(client, name).await?;
    if is_standby(&volume) {
        return Err(anyhow::anyhow!("cannot {what}: volume {name} is a standby volume"))
            .hint(format!("activate it first with `holdfast dr activate {name} --wait`"));
    }
    Ok(volume)
}

/// Whether a new volume has all that it was made from, and room for its copies.
fn usable(volume: Option<&Volume>) -> Stand {
    let Some(volume) = volume else { return Stand::Failed("it was removed".to_owned()) };
    let status = volume.status.clone().unwrap_or_default();
    if robustness(volume) == Robustness::Faulted {
        return Stand::Failed(or_dash(&why(volume)));
    }
    let clone = status.clone_status.as_ref().and_then(|it| it.state.as_ref());
    if clone.is_some_and(|it| it.as_str() == "failed") {
        return Stand::Failed("its source could not be copied".to_owned());
    }
    let copies = volume.spec.data_source.as_deref().is_some_and(|it| !it.is_empty())
        && clone.is_none_or(|it| it.as_str() != "completed");
    let restores = volume.spec.from_backup.as_deref().is_some_and(|it| !it.is_empty())
        && (status.restore_initiated != Some(true) || status.restore_required == Some(true));
    // No copy of it can have begun without a place.
    if scheduled(volume) == Some(false) {
        return Stand::Going(format!("no room for its copies: {}", or_dash(&why(volume))));
    }
    match state(volume) {
        VolumeState::Detached if scheduled(volume).is_none() => {
            Stand::Going("scheduling its copies".to_owned())
        }
        VolumeState::Detached if !copies && !restores => Stand::Done,
        VolumeState::Attached if !copies && !restores => Stand::Done,
        _ if restores => Stand::Going("restoring".to_owned()),
        _ if copies => Stand::Going("copying its source".to_owned()),
        other => Stand::Going(match why(volume) {
            none if none.is_empty() && other == VolumeState::Unset => "being created".to_owned(),
            none if none.is_empty() => other.as_str().to_owned(),
            why => format!("{}: {why}", or_dash(other.as_str())),
        }),
    }
}

pub(crate) async fn expand(
    at: &Connection,
    name: &str,
    size: u64,
    wait: &Wait,
) -> anyhow::Result<()> {
    ordinary(&at.client().await?, name, &format!("expand {name}")).await?;
    let volumes = at.volumes::<Volume>().await?;
    let patch = json!({ "spec": { "size": size.to_string() } });
    volumes
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("expand volume {name}")))?;
    let engines = at.volumes::<Engine>().await?;
    let wanted = ListParams::default().labels(&format!("longhornvolume={name}"));
    let found = engines.list(&wanted).await.map_err(|error| explained(error, "list engines"))?;
    if let Some(engine) = found.items.first() {
        wait.until(&engines, &engine.name_any(), |engine| {
            let Some(status) = engine.and_then(|it| it.status.as_ref()) else {
                return Stand::Failed("it was removed".to_owned());
            };
            let reached = status.current_size.is_some_and(|it| it.0.unsigned_abs() >= size);
            match (reached, status.last_expansion_error.as_deref().unwrap_or_default()) {
                (true, _) => Stand::Done,
                (false, "") => Stand::Going("growing".to_owned()),
                (false, why) => Stand::Going(format!("growing; last tried: {why}")),
            }
        })
        .await?;
    }
    let end = if wait.wait { "now has" } else { "is growing to" };
    Ok(output::say(&format!("volume {name} {end} {}", bytes(size)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(scheduled: Option<&str>) -> Volume {
        let condition = |it: &str| json!([{"type": "Scheduled", "status": it, "message": "insufficient storage"}]);
        let conditions = scheduled.map_or_else(|| json!([]), condition);
        serde_json::from_value(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": {"name": "v"},
            "spec": {}, "status": {"state": "detached", "conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn a_volume_is_ready_when_its_copies_have_places() {
        assert!(matches!(usable(Some(&volume(Some("True")))), Stand::Done));
        assert!(matches!(usable(Some(&volume(None))), Stand::Going(_)));
        let Stand::Going(told) = usable(Some(&volume(Some("False")))) else { panic!("ready") };
        assert_eq!(told, "no room for its copies: insufficient storage");
    }
}
