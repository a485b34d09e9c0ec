//! `holdfast volume`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use api::longhorn::{
    AttacherType, AttachmentTicket, Engine, Node, Replica, Robustness, Snapshot, Volume,
    VolumeAttachment, VolumeState,
};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use people::units::{bytes, parse_volume_size};
use people::volume::{Copy, empty, robustness, state, why};
use people::{age, or_dash};
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::listing::{self, Form, Ls, Rm, Row};
use crate::output::{self, Format, Hint};
use crate::waiting::{Stand, Wait};

/// The ticket by which this command attaches.
const TICKET: &str = "holdfast-cli";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List volumes.
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Show one volume: its copies, snapshots, and why it is as it is.
    Show {
        name: String,
        #[command(flatten)]
        show: Form,
        #[command(flatten)]
        at: Connection,
    },
    /// Make a volume: empty, or as a copy of another.
    Create(Create),
    /// Attach a volume and print where it is served.
    Attach {
        name: String,
        /// The node to attach to; without it, the only one, or one that holds a copy.
        #[arg(long)]
        node: Option<String>,
        /// How many seconds to stay at most.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        timeout: u64,
        #[command(flatten)]
        at: Connection,
    },
    /// Detach a volume that `attach` attached.
    Detach {
        name: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
    /// Make a volume larger, attached or not.
    Expand {
        name: String,
        /// The new size, as 20GiB.
        #[arg(value_parser = parse_volume_size)]
        size: u64,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
    /// Remove volumes with all their copies and snapshots; backups stay.
    #[command(visible_alias = "delete")]
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub struct Create {
    name: String,
    /// How large, as 10GiB: a multiple of 2 MiB.
    #[arg(long, value_parser = parse_volume_size)]
    size: u64,
    /// How many copies.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=20))]
    replicas: i32,
    /// Copy this volume, or this snapshot of it: VOLUME or VOLUME/SNAPSHOT.
    #[arg(long, value_name = "SOURCE")]
    clone_of: Option<String>,
    /// Labels of the volume, as key=value; recurring jobs choose by them.
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
        vec![or_dash(source.unwrap_or_default()), or_dash(&why(self))]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(ls) => ls.run::<Volume>().await?,
        Command::Show { name, show, at } => self::show(&at, &name, show.output).await?,
        Command::Create(args) => create(&args).await?,
        Command::Attach { name, node, timeout, at } => {
            let uri = attach(&at, &name, node, timeout).await?;
            output::say(&uri)?;
        }
        Command::Detach { name, wait, at } => detach(&at, &name, &wait).await?,
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
        .map_err(|error| explained(error, &format!("make volume {name}")))?;
    wait.until(api, &name, usable).await?;
    let end = if wait.wait { "is ready" } else { "is being made" };
    Ok(output::say(&format!("volume {name} {end}"))?)
}

/// Whether a new volume has all that it was made from, and room for its copies.
pub(crate) fn usable(volume: Option<&Volume>) -> Stand {
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
    match state(volume) {
        VolumeState::Detached if !copies && !restores => Stand::Done,
        VolumeState::Attached if !copies && !restores => Stand::Done,
        _ if restores => Stand::Going("restoring".to_owned()),
        _ if copies => Stand::Going("copying its source".to_owned()),
        other => Stand::Going(match why(volume) {
            none if none.is_empty() => or_dash(other.as_str()),
            why => format!("{}: {why}", or_dash(other.as_str())),
        }),
    }
}

/// Attaches and says where the volume is served.
pub(crate) async fn attach(
    at: &Connection,
    name: &str,
    node: Option<String>,
    timeout: u64,
) -> anyhow::Result<String> {
    let client = at.client().await?;
    let volumes: Api<Volume> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let volume = volumes
        .get(name)
        .await
        .map_err(|error| explained(error, &format!("find volume {name}")))?;
    let node = match node {
        Some(node) => node,
        None => choose_node(&client, name, &volume).await?,
    };
    let ticket = AttachmentTicket {
        id: Some(TICKET.to_owned()),
        kind: Some(AttacherType::LonghornApi),
        node_id: Some(node),
        parameters: Some(BTreeMap::from([("disableFrontend".to_owned(), "false".to_owned())])),
        generation: None,
    };
    let attachments: Api<VolumeAttachment> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let patch = json!({ "spec": { "attachmentTickets": { TICKET: ticket } } });
    attachments
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("attach volume {name}")))?;
    let wait = Wait { wait: true, timeout };
    wait.until(&attachments, name, ticket_stand).await?;
    let engines: Api<Engine> = Api::namespaced(client, crate::NAMESPACE);
    endpoint(&engines, name, &wait).await
}

fn ticket_stand(attachment: Option<&VolumeAttachment>) -> Stand {
    let Some(attachment) = attachment else { return Stand::Failed("it was removed".to_owned()) };
    let statuses = attachment.status.as_ref();
    let ticket = statuses
        .and_then(|it| it.attachment_ticket_statuses.as_ref())
        .and_then(|it| it.get(TICKET));
    match ticket {
        Some(ticket) if ticket.satisfied => Stand::Done,
        Some(ticket) => {
            let conditions = ticket.conditions.as_deref().unwrap_or_default();
            let mut told = conditions.iter().filter_map(|it| it.message.as_deref());
            Stand::Going(or_dash(told.rfind(|it| !it.is_empty()).unwrap_or("attaching")))
        }
        None => Stand::Going("asked for".to_owned()),
    }
}

/// Where the engine of a volume serves it: a moment after it is attached.
async fn endpoint(engines: &Api<Engine>, volume: &str, wait: &Wait) -> anyhow::Result<String> {
    let wanted = ListParams::default().labels(&format!("longhornvolume={volume}"));
    let found = engines.list(&wanted).await.map_err(|error| explained(error, "list engines"))?;
    let engine = found.items.first().map(ResourceExt::name_any);
    let engine = engine.ok_or_else(|| anyhow::anyhow!("volume {volume} has no engine"))?;
    wait.until(engines, &engine, |it| match it.map(served_at) {
        None => Stand::Failed("it was removed".to_owned()),
        Some(None) => Stand::Going("about to serve".to_owned()),
        Some(Some(_)) => Stand::Done,
    })
    .await?;
    let engine = engines.get(&engine).await.map_err(|error| explained(error, "find the engine"))?;
    served_at(&engine)
        .ok_or_else(|| anyhow::anyhow!("volume {volume} is attached and not served"))
        .hint(format!("look at it with `holdfast volume show {volume}`"))
}

fn served_at(engine: &Engine) -> Option<String> {
    engine.status.as_ref()?.endpoint.clone().filter(|it| !it.is_empty())
}

/// The node it is on, else one that holds a copy and can serve.
async fn choose_node(client: &kube::Client, name: &str, volume: &Volume) -> anyhow::Result<String> {
    let here = volume.status.as_ref().and_then(|it| it.current_node_id.clone());
    if let Some(here) = here.filter(|it| !it.is_empty()) {
        return Ok(here);
    }
    let nodes: Api<Node> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map_err(|error| explained(error, "list nodes"))?;
    let ready: Vec<_> = nodes.items.iter().filter(|it| people::node::ready(it)).collect();
    let replicas: Api<Replica> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let wanted = ListParams::default().labels(&format!("longhornvolume={name}"));
    let replicas =
        replicas.list(&wanted).await.map_err(|error| explained(error, "list replicas"))?;
    let holds = |node: &str| {
        replicas.items.iter().any(|it| it.spec.instance.node_id.as_deref() == Some(node))
    };
    let chosen = ready.iter().find(|it| holds(&it.name_any())).or(ready.first());
    chosen
        .map(|it| it.name_any())
        .ok_or_else(|| anyhow::anyhow!("no node is ready"))
        .hint("look at them with `holdfast node ls`")
}

async fn detach(at: &Connection, name: &str, wait: &Wait) -> anyhow::Result<()> {
    let attachments = at.volumes::<VolumeAttachment>().await?;
    let patch = json!({ "spec": { "attachmentTickets": { TICKET: null } } });
    attachments
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("detach volume {name}")))?;
    let volumes = at.volumes::<Volume>().await?;
    wait.until(&volumes, name, |volume| match volume.map(state) {
        None => Stand::Failed("it was removed".to_owned()),
        Some(VolumeState::Detached) => Stand::Done,
        Some(other) => Stand::Going(or_dash(other.as_str())),
    })
    .await?;
    let end = if wait.wait { "is detached" } else { "is being detached" };
    Ok(output::say(&format!("volume {name} {end}"))?)
}

pub(crate) async fn expand(
    at: &Connection,
    name: &str,
    size: u64,
    wait: &Wait,
) -> anyhow::Result<()> {
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
    let end = if wait.wait { "has" } else { "is to have" };
    Ok(output::say(&format!("volume {name} {end} {}", bytes(size)))?)
}

async fn show(at: &Connection, name: &str, format: Format) -> anyhow::Result<()> {
    let client = at.client().await?;
    let volumes: Api<Volume> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let volume = volumes
        .get(name)
        .await
        .map_err(|error| explained(error, &format!("show volume {name}")))?;
    if format != Format::Table && format != Format::Wide {
        return listing::print_one(&volume, format);
    }
    let mine = ListParams::default().labels(&format!("longhornvolume={name}"));
    let engines: Api<Engine> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let replicas: Api<Replica> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let snapshots: Api<Snapshot> = Api::namespaced(client, crate::NAMESPACE);
    let engines = engines.list(&mine).await.map_err(|error| explained(error, "list engines"))?;
    let replicas = replicas.list(&mine).await.map_err(|error| explained(error, "list replicas"))?;
    let all = ListParams::default();
    let snapshots =
        snapshots.list(&all).await.map_err(|error| explained(error, "list snapshots"))?;
    let of_it =
        snapshots.items.into_iter().filter(|it| it.spec.volume.as_deref() == Some(name)).collect();
    let text = described(&volume, engines.items.first(), &replicas.items, of_it);
    Ok(output::say(&text)?)
}

fn described(
    volume: &Volume,
    engine: Option<&Engine>,
    replicas: &[Replica],
    mut snapshots: Vec<Snapshot>,
) -> String {
    let now = Timestamp::now();
    let mut lines = vec![output::table(Volume::HEAD, &[volume.cells(now)])];
    if let Some(from) = volume.spec.from_backup.as_deref().or(volume.spec.data_source.as_deref()) {
        lines.push(format!("made from    {from}"));
    }
    let status = engine.and_then(|it| it.status.clone()).unwrap_or_default();
    if let Some(endpoint) = status.endpoint.as_deref().filter(|it| !it.is_empty()) {
        lines.push(format!("served at    {endpoint}"));
    }
    let told = why(volume);
    if !told.is_empty() {
        lines.push(format!("why          {told}"));
    }
    let copies = replicas.iter().map(|it| Copy::of(it, &status));
    let rows: Vec<_> = copies
        .map(|it| vec![it.name, it.mode.to_owned(), it.state, it.node, or_dash(&it.work)])
        .collect();
    lines.push(String::new());
    lines.push(output::table(&["COPY", "MODE", "STATE", "NODE", "WORK"], &rows));
    if !snapshots.is_empty() {
        snapshots.sort_by_key(people::snapshot::taken);
        let rows: Vec<_> = snapshots.iter().map(|it| it.cells(now)).collect();
        lines.push(String::new());
        lines.push(output::table(Snapshot::HEAD, &rows));
    }
    lines.join("\n")
}
