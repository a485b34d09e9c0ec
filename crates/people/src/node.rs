//! Machines and their disks.

use std::collections::BTreeMap;

use api::longhorn::{DiskStatus, Node};

/// Status and message of a condition.
pub fn condition(node: &Node, kind: &str) -> (String, String) {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_deref());
    let found = conditions.unwrap_or_default().iter().find(|it| it.kind == kind);
    found.map_or_else(
        || ("-".to_owned(), String::new()),
        |it| (it.status.as_str().to_owned(), it.message.clone().unwrap_or_default()),
    )
}

pub fn ready(node: &Node) -> bool {
    condition(node, "Ready").0 == "True"
}

/// What its conditions say against it, and those of its disks.
pub fn why(node: &Node) -> String {
    let of_node = ["Ready", "Schedulable"]
        .into_iter()
        .map(|kind| condition(node, kind))
        .filter(|(status, _)| status != "True")
        .map(|(_, message)| message);
    let told: Vec<_> = of_node.chain(disks_against(node)).filter(|it| !it.is_empty()).collect();
    told.join("; ")
}

/// What the conditions of its disks say against them.
pub fn disks_against(node: &Node) -> Vec<String> {
    let disks = node.status.as_ref().and_then(|it| it.disk_status.clone()).unwrap_or_default();
    let told = disks.into_iter().flat_map(|(name, disk)| {
        let bad = disk.conditions.unwrap_or_default().into_iter();
        bad.filter(|it| it.status.as_str() != "True")
            .map(move |it| format!("disk {name}: {}", it.message.unwrap_or_default()))
    });
    told.collect()
}

/// What all disks of some machines come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub disks: usize,
    pub free_bytes: u64,
    pub capacity_bytes: u64,
    pub copies: usize,
}

pub fn room<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Room {
    let disks: Vec<&DiskStatus> = nodes
        .into_iter()
        .filter_map(|it| it.status.as_ref()?.disk_status.as_ref())
        .flat_map(BTreeMap::values)
        .collect();
    let sum = |of: fn(&DiskStatus) -> Option<i64>| {
        disks.iter().filter_map(|it| of(it)).map(i64::unsigned_abs).sum()
    };
    Room {
        disks: disks.len(),
        free_bytes: sum(|it| it.storage_available),
        capacity_bytes: sum(|it| it.storage_maximum),
        copies: disks.iter().map(|it| it.scheduled_replica.as_ref().map_or(0, BTreeMap::len)).sum(),
    }
}
