//! `holdfast node ls`: machines and their disks. (`holdfast node` alone is such a machine.)

use std::collections::BTreeMap;
use std::process::ExitCode;

use api::longhorn::Node;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::listing::{self, List, Row, age, by_name, or_dash};
use crate::output;
use crate::units::bytes;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List machines that hold copies of volumes.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        list: List,
        #[command(flatten)]
        at: Connection,
    },
    /// Put no new copies on a machine; those it has stay.
    Cordon {
        name: String,
        #[command(flatten)]
        at: Connection,
    },
    /// Put copies on a machine again.
    Uncordon {
        name: String,
        #[command(flatten)]
        at: Connection,
    },
}

impl Row for Node {
    const HEAD: &'static [&'static str] =
        &["NODE", "READY", "SCHEDULABLE", "DISKS", "FREE", "OF", "COPIES", "AGE"];
    const WIDE: &'static [&'static str] = &["WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let disks = self.status.as_ref().and_then(|it| it.disk_status.clone()).unwrap_or_default();
        let sum = |of: fn(&api::longhorn::DiskStatus) -> Option<i64>| {
            disks.values().filter_map(of).map(i64::unsigned_abs).sum::<u64>()
        };
        let copies: usize =
            disks.values().map(|it| it.scheduled_replica.as_ref().map_or(0, BTreeMap::len)).sum();
        vec![
            self.name_any(),
            condition(self, "Ready").0,
            condition(self, "Schedulable").0,
            disks.len().to_string(),
            bytes(sum(|it| it.storage_available)),
            bytes(sum(|it| it.storage_maximum)),
            copies.to_string(),
            age(self, now),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![or_dash(&why(self))]
    }
}

/// Status and message of a condition.
fn condition(node: &Node, kind: &str) -> (String, String) {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_deref());
    let found = conditions.unwrap_or_default().iter().find(|it| it.kind == kind);
    found.map_or_else(
        || ("-".to_owned(), String::new()),
        |it| (it.status.as_str().to_owned(), it.message.clone().unwrap_or_default()),
    )
}

pub(crate) fn ready(node: &Node) -> bool {
    condition(node, "Ready").0 == "True"
}

/// What its conditions say against it, and those of its disks.
pub(crate) fn why(node: &Node) -> String {
    let of_node = ["Ready", "Schedulable"]
        .into_iter()
        .map(|kind| condition(node, kind))
        .filter(|(status, _)| status != "True")
        .map(|(_, message)| message);
    let disks = node.status.as_ref().and_then(|it| it.disk_status.clone()).unwrap_or_default();
    let of_disks = disks.into_iter().flat_map(|(name, disk)| {
        let bad = disk.conditions.unwrap_or_default().into_iter();
        bad.filter(|it| it.status.as_str() != "True")
            .map(move |it| format!("disk {name}: {}", it.message.unwrap_or_default()))
    });
    let told: Vec<_> = of_node.chain(of_disks).filter(|it| !it.is_empty()).collect();
    told.join("; ")
}

pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls { list, at } => {
            listing::list(&at.volumes::<Node>().await?, &list, |_| true, by_name).await?;
        }
        Command::Cordon { name, at } => schedule(&at, &name, false).await?,
        Command::Uncordon { name, at } => schedule(&at, &name, true).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn schedule(at: &Connection, name: &str, allow: bool) -> anyhow::Result<()> {
    let api = at.volumes::<Node>().await?;
    let patch = json!({ "spec": { "allowScheduling": allow } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("change node {name}")))?;
    let end = if allow { "takes new copies" } else { "takes no new copies" };
    Ok(output::say(&format!("node {name} {end}"))?)
}
