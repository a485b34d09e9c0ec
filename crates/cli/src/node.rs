//! `holdfast node ls`: machines and their disks. (`holdfast node` alone is such a machine.)

use std::process::ExitCode;

use api::longhorn::Node;
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use people::node::{condition, room, why};
use people::units::bytes;
use people::{age, or_dash};
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::listing::{Ls, Row};
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List nodes.
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Schedule no new copies on a node; existing copies stay.
    Cordon {
        name: String,
        #[command(flatten)]
        at: Connection,
    },
    /// Allow new copies on a node again.
    Uncordon {
        name: String,
        #[command(flatten)]
        at: Connection,
    },
}

impl Row for Node {
    const HEAD: &'static [&'static str] =
        &["NODE", "READY", "SCHEDULABLE", "DISKS", "FREE", "CAPACITY", "COPIES", "AGE"];
    const WIDE: &'static [&'static str] = &["WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let room = room([self]);
        vec![
            self.name_any(),
            yes_or_no(&condition(self, "Ready").0),
            yes_or_no(&condition(self, "Schedulable").0),
            room.disks.to_string(),
            bytes(room.free_bytes),
            bytes(room.capacity_bytes),
            room.copies.to_string(),
            age(self, now),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![or_dash(&why(self))]
    }
}

/// The status of a condition in the words of the other tables.
fn yes_or_no(status: &str) -> String {
    match status {
        "True" => "yes".to_owned(),
        "False" => "no".to_owned(),
        other => other.to_lowercase(),
    }
}

pub fn run(command: Command) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(obey(command))
}

async fn obey(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(ls) => ls.run::<Node>().await?,
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
