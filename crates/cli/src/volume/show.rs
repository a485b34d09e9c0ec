//! One volume: its copies, snapshots, and why it is as it is.

use api::longhorn::{Engine, Replica, Snapshot, Volume};
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use people::or_dash;
use people::redact::without_password;
use people::volume::{Copy, why};

use crate::connection::{Connection, explained};
use crate::listing::{self, Row};
use crate::output::{self, Format};

pub(super) async fn show(at: &Connection, name: &str, format: Format) -> anyhow::Result<()> {
    let client = at.client().await?;
    let volume = super::found(&client, name).await?;
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
        lines.push(format!("made from    {}", without_password(from)));
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
