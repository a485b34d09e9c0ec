//! `holdfast status`: the one screen an operator looks at. What it means is said by
//! [`people::summary`].

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use api::nonadmin::NonAdminBackup;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use people::summary::{Summary, Verdict, World};
use people::units::{bytes, count};

use crate::connection::{Connection, explained};
use crate::listing::{Form, Object};
use crate::output::{self, Format};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    show: Form,
    /// Exit with code 1 if anything needs attention.
    #[arg(long)]
    check: bool,
    /// Keep running, and refresh when something changes.
    #[arg(short, long, conflicts_with = "check")]
    watch: bool,
    #[command(flatten)]
    at: Connection,
}

/// How often it is looked at anew.
const EVERY: Duration = Duration::from_secs(2);
/// Takes a terminal back to its first line, and what was below it away.
const ANEW: &[u8] = b"\x1b[H\x1b[2J\x1b[3J";

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.at.client().await?;
    let version = client.apiserver_version().await;
    let version = version.map_err(|error| explained(error, "reach the API server"))?;
    if args.watch {
        return watch(&client, args.show.output, &version.git_version).await;
    }
    let world = read(&client).await?;
    let summary = Summary::of(&world, Timestamp::now());
    output::say(&screen(&summary, args.show.output, &version.git_version)?)?;
    let is_well = matches!(summary.verdict(), Verdict::Well | Verdict::WellAsFarAsSeen);
    Ok(if args.check && !is_well { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn screen(summary: &Summary, format: Format, server: &str) -> anyhow::Result<String> {
    Ok(match format {
        Format::Table | Format::Wide | Format::Name => text(summary, server),
        Format::Json | Format::Yaml => output::machine(summary, format)?,
    })
}

/// Shows it again and again; a server that does not answer for a while is waited for.
async fn watch(client: &Client, format: Format, server: &str) -> anyhow::Result<ExitCode> {
    let is_screen =
        std::io::stdout().is_terminal() && matches!(format, Format::Table | Format::Wide);
    let mut last = String::new();
    let mut is_away = false;
    loop {
        match read(client).await {
            Ok(world) => {
                is_away = false;
                let shown = screen(&Summary::of(&world, Timestamp::now()), format, server)?;
                if shown != last {
                    if is_screen {
                        std::io::stdout().lock().write_all(ANEW)?;
                    }
                    output::say(&shown)?;
                    last = shown;
                }
            }
            Err(error) if !is_away => {
                is_away = true;
                let told = telemetry::Chain(error.as_ref()).to_string();
                eprintln!("it is waited for: {}", output::plain(&told));
            }
            Err(_) => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What there is, as far as these rights reach.
pub fn read(client: &Client) -> BoxFuture<'_, anyhow::Result<World>> {
    Box::pin(look(client))
}

async fn look(client: &Client) -> anyhow::Result<World> {
    let mut hidden = Vec::new();
    Ok(World {
        nodes: volumes(client, &mut hidden).await?,
        volumes: volumes(client, &mut hidden).await?,
        engines: volumes(client, &mut hidden).await?,
        backups: volumes(client, &mut hidden).await?,
        targets: volumes(client, &mut hidden).await?,
        jobs: volumes(client, &mut hidden).await?,
        tenants: tenants(client, &mut hidden).await?,
        hidden,
    })
}

/// Requests of every namespace, else those of the one of the kubeconfig.
async fn tenants(client: &Client, hidden: &mut Vec<String>) -> anyhow::Result<Vec<NonAdminBackup>> {
    let mut of_all = Vec::new();
    let found = seen(&Api::all(client.clone()), &mut of_all).await?;
    if of_all.is_empty() {
        return Ok(found);
    }
    let before = hidden.len();
    let found = seen(&Api::default_namespaced(client.clone()), hidden).await?;
    if hidden.len() == before {
        hidden.push("requests of other namespaces".to_owned());
    }
    Ok(found)
}

async fn volumes<K>(client: &Client, hidden: &mut Vec<String>) -> anyhow::Result<Vec<K>>
where
    K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    seen(&Api::namespaced(client.clone(), people::NAMESPACE), hidden).await
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

fn text(summary: &Summary, server: &str) -> String {
    let (nodes, volumes) = (&summary.nodes, &summary.volumes);
    let (backups, tenants) = (&summary.backups, &summary.tenants);
    let verdict = summary.verdict().told();
    let newest = match (&backups.newest, backups.newest_age_seconds) {
        (Some(name), Some(age)) => format!("newest {name}, {} old", spoken(age)),
        _ => "none complete".to_owned(),
    };
    let mut lines = vec![
        format!("Holdfast, API server {server}: {verdict}"),
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
            "backups   {} complete, {} failed, {} being deleted; {newest}",
            backups.completed, backups.failed, backups.deleting
        ),
        format!(
            "targets   {} of {} reachable; {}",
            backups.targets_reachable,
            backups.targets,
            count(backups.jobs, "recurring job")
        ),
        format!(
            "tenants   {}, {} queued, {} refused",
            count(tenants.backups, "backup"),
            tenants.queued,
            tenants.refused
        ),
    ];
    let mut part = |title: &str, of: &[String]| {
        if !of.is_empty() {
            lines.push(String::new());
            lines.push(title.to_owned());
            lines.extend(of.iter().map(|it| format!("  {it}")));
        }
    };
    part("In progress", &summary.work);
    part("Needs attention", &summary.attention);
    if !summary.hidden.is_empty() {
        part("Not visible with these permissions", &[summary.hidden.join(", ")]);
    }
    lines.join("\n")
}

fn spoken(seconds: i64) -> String {
    let now = Timestamp::from_second(seconds).unwrap_or_default();
    people::units::age(Timestamp::UNIX_EPOCH, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_backup_is_named_with_its_age() {
        let mut summary = Summary::of(&World::default(), Timestamp::UNIX_EPOCH);
        assert!(text(&summary, "v1").contains("none complete"));
        summary.backups.newest = Some("new".to_owned());
        summary.backups.newest_age_seconds = Some(3600);
        assert!(text(&summary, "v1").contains("newest new, 1h old"));
    }
}
