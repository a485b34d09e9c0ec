//! What a replica says of itself. Only looks, and never fails: what cannot be read is left out.

use std::collections::BTreeMap;
use std::path::Path;

use durable::{Disk, RealDisk};

use crate::disk::chain::{CHAIN_MAX, Chain};
use crate::disk::counter::{self, Counter};
use crate::disk::meta::Labels;
use crate::disk::names::DiskName;
use crate::disk::replica::{Replica, State, checked_head, read_chain};

/// Everything a caller may want to know; never an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub state: State,
    pub is_dirty: bool,
    pub is_rebuilding: bool,
    pub head: String,
    pub parent: String,
    pub size_bytes: i64,
    pub sector_bytes: i64,
    pub backing_file: String,
    /// Not removed, head first.
    pub chain: Vec<DiskName>,
    pub disks: BTreeMap<String, DiskReport>,
    pub remaining_snapshots: usize,
    pub revision_counter: i64,
    pub head_modified_ns: i64,
    pub head_allocated_bytes: u64,
    pub snapshot_count_usage: usize,
    pub snapshot_size_usage_bytes: u64,
    /// Head and backing file included.
    pub snapshot_count_total: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskReport {
    pub parent: String,
    pub children: Vec<String>,
    pub removed: bool,
    pub user_created: bool,
    pub created: String,
    pub allocated_bytes: u64,
    pub labels: Labels,
}

impl Replica {
    pub fn report(&self) -> Report {
        let state = self.state();
        let closed;
        let (meta, chain) = if let Some(opened) = &self.opened {
            (opened.meta.clone(), Some(&opened.chain))
        } else {
            let meta = self.find_meta().ok().flatten().unwrap_or_default();
            closed = checked_head(&meta).and_then(|head| read_chain(&self.dir, &head)).ok();
            (meta, closed.as_ref())
        };
        let counter = match &self.opened {
            Some(opened) => opened.counter.as_ref().map_or(0, Counter::value),
            None if self.options.revision_counter => counter::read(&self.dir).unwrap_or(0),
            None => 0,
        };
        let mut report = Report {
            state,
            is_dirty: self.opened.as_ref().map_or(meta.dirty, |opened| opened.is_dirty),
            is_rebuilding: meta.rebuilding,
            head: meta.head.clone(),
            parent: meta.parent,
            size_bytes: meta.size,
            sector_bytes: meta.sector_size,
            backing_file: meta.backing_file_path.clone(),
            chain: Vec::new(),
            disks: BTreeMap::new(),
            remaining_snapshots: 0,
            revision_counter: counter,
            head_modified_ns: 0,
            head_allocated_bytes: 0,
            snapshot_count_usage: 0,
            snapshot_size_usage_bytes: 0,
            snapshot_count_total: 0,
        };
        if let Some(chain) = chain {
            self.report_disks(&mut report, chain);
        }
        if !meta.backing_file_path.is_empty() {
            let disk = DiskReport {
                allocated_bytes: RealDisk
                    .look(Path::new(&meta.backing_file_path))
                    .map_or(0, |found| found.allocated_bytes),
                ..DiskReport::default()
            };
            report.disks.insert(meta.backing_file_path, disk);
        }
        report.snapshot_count_total = report.disks.len();
        report
    }

    fn report_disks(&self, report: &mut Report, chain: &Chain) {
        let kept = |name: &&DiskName| chain.get(name).is_some_and(|disk| !disk.removed);
        report.chain = chain.live().iter().filter(kept).cloned().collect();
        report.remaining_snapshots = CHAIN_MAX.saturating_sub(chain.live().len());
        for (name, disk) in chain.disks() {
            let found = self.dir.look(name.as_str()).ok();
            let allocated_bytes = found.map_or(0, |found| found.allocated_bytes);
            if name == chain.head() {
                report.head_modified_ns = found.map_or(0, |found| nanoseconds(found.modified));
                report.head_allocated_bytes = allocated_bytes;
            } else if !disk.removed {
                report.snapshot_count_usage += 1;
                report.snapshot_size_usage_bytes += allocated_bytes;
            }
            let disk = DiskReport {
                parent: disk.parent.as_ref().map(DiskName::to_string).unwrap_or_default(),
                children: chain.children(name).map(DiskName::to_string).collect(),
                removed: disk.removed,
                user_created: disk.user_created,
                created: disk.created.clone(),
                allocated_bytes,
                labels: disk.labels.clone().unwrap_or_default(),
            };
            report.disks.insert(name.to_string(), disk);
        }
    }
}

fn nanoseconds((seconds, nanoseconds): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
