//! Machines that hold copies, and their disks.

use api::longhorn::{DiskStatus, Node};
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::node::{condition, room, why};
use people::units::bytes;

use super::{Content, tone};
use crate::view::{Cell, Section, Table};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let nodes = visit.reader().volumes::<Node>().await?;
    let mut content = Content::titled("Nodes");
    content.sections.push(Section::Table(Table {
        title: "All nodes".to_owned(),
        head: &["Node", "Ready", "Schedulable", "Copies", "Free", "Capacity", "Age", "Why"],
        rows: nodes.items.iter().map(|it| row(it, visit.now)).collect(),
        none: "There are no nodes.",
        foot: nodes.foot(),
    }));
    content.sections.push(Section::Table(Table {
        title: "Disks".to_owned(),
        head: &["Node", "Disk", "Path", "In use", "Free", "Scheduled", "Capacity"],
        rows: nodes.items.iter().flat_map(disks).collect(),
        none: "There are no disks.",
        foot: None,
    }));
    Ok(content)
}

fn row(node: &Node, now: Timestamp) -> Vec<Cell> {
    let room = room([node]);
    let word = |kind: &str| {
        let (status, _) = condition(node, kind);
        Cell::badge(
            tone(&status),
            match status.as_str() {
                "True" => "yes".to_owned(),
                "False" => "no".to_owned(),
                other => other.to_owned(),
            },
        )
    };
    vec![
        Cell::text(node.name_any()),
        word("Ready"),
        word("Schedulable"),
        Cell::text(room.copies.to_string()),
        Cell::text(bytes(room.free_bytes)),
        Cell::text(bytes(room.capacity_bytes)),
        Cell::text(people::age(node, now)),
        Cell::text(why(node)),
    ]
}

fn disks(node: &Node) -> Vec<Vec<Cell>> {
    let disks = node.status.as_ref().and_then(|it| it.disk_status.clone()).unwrap_or_default();
    disks.into_iter().map(|(name, disk)| of_disk(node, name, &disk)).collect()
}

fn of_disk(node: &Node, name: String, disk: &DiskStatus) -> Vec<Cell> {
    let size = |of: Option<i64>| of.unwrap_or(0).unsigned_abs();
    let (free, all) = (size(disk.storage_available), size(disk.storage_maximum));
    let used = all.saturating_sub(free).saturating_mul(100).checked_div(all).unwrap_or(0);
    vec![
        Cell::text(node.name_any()),
        Cell::text(name),
        Cell::text(disk.disk_path.clone().unwrap_or_default()),
        Cell::Progress { percent: i32::try_from(used).unwrap_or(100), text: format!("{used} %") },
        Cell::text(bytes(free)),
        Cell::text(bytes(size(disk.storage_scheduled))),
        Cell::text(bytes(all)),
    ]
}
