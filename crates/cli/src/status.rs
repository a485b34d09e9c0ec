//! `holdfast status`: the one screen an operator looks at. What it means is said by
//! [`people::summary`].

use std::process::ExitCode;

use api::nonadmin::NonAdminBackup;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use people::summary::{Summary, Verdict, World};
use people::units::bytes;

use crate::connection::{Connection, explained};
use crate::listing::{Form, Object};
use crate::output::{self, Format};

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
    let world = read(&client).await?;
    let summary = Summary::of(&world, Timestamp::now());
    output::say(&match args.show.output {
        Format::Table | Format::Wide | Format::Name => text(&summary, &version.git_version),
        Format::Json | Format::Yaml => output::machine(&summary, args.show.output)?,
    })?;
    let is_well = matches!(summary.verdict(), Verdict::Well | Verdict::WellAsFarAsSeen);
    Ok(if args.check && !is_well { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What there is, as far as these rights reach.
pub async fn read(client: &Client) -> anyhow::Result<World> {
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
    part("Under way", &summary.work);
    part("Needs attention", &summary.attention);
    if !summary.hidden.is_empty() {
        part("Not visible with these rights", &[summary.hidden.join(", ")]);
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
