//! A replica's report as the message callers know. Only translates.

use rpc::{Features, ptypes};

use crate::disk::{DiskReport, Report};
use crate::server::core::Core;

/// What is known beside the report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) features: Features,
    pub(crate) revision_counter: bool,
}

pub(crate) fn replica(core: &mut Core, context: Context) -> ptypes::Replica {
    let standing = match core.standing() {
        Ok(standing) => serde_json::to_string(standing).unwrap_or_default(),
        // Whoever claims it is told.
        Err(_) => String::new(),
    };
    let report = core.replica.report();
    let mark = core.replica.unmap_mark_removed;
    let disks = disks(&report);
    ptypes::Replica {
        dirty: report.is_dirty,
        rebuilding: report.is_rebuilding,
        head: report.head,
        parent: report.parent,
        size: report.size_bytes.to_string(),
        sector_size: report.sector_bytes,
        backing_file: report.backing_file,
        state: report.state.to_string(),
        chain: report.chain.iter().map(ToString::to_string).collect(),
        disks,
        remain_snapshots: small(report.remaining_snapshots),
        revision_counter: report.revision_counter,
        last_modify_time: report.head_modified_ns,
        head_file_size: signed(report.head_allocated_bytes),
        revision_counter_disabled: !context.revision_counter,
        unmap_mark_disk_chain_removed: mark,
        snapshot_count_usage: small(report.snapshot_count_usage),
        snapshot_size_usage: signed(report.snapshot_size_usage_bytes),
        snapshot_count_total: small(report.snapshot_count_total),
        holdfast_features: context.features.0,
        holdfast_engines: core.owner.engines(),
        holdfast_standing: standing,
    }
}

fn disks(report: &Report) -> std::collections::HashMap<String, ptypes::DiskInfo> {
    report.disks.iter().map(|(name, disk)| (name.clone(), info(name, disk))).collect()
}

fn info(name: &str, disk: &DiskReport) -> ptypes::DiskInfo {
    ptypes::DiskInfo {
        name: name.to_owned(),
        parent: disk.parent.clone(),
        children: disk.children.iter().map(|child| (child.clone(), true)).collect(),
        removed: disk.removed,
        user_created: disk.user_created,
        created: disk.created.clone(),
        size: disk.allocated_bytes.to_string(),
        labels: disk.labels.clone().into_iter().collect(),
    }
}

fn small(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
