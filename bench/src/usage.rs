//! What processes cost: time and memory, as the kernel tells it.

use std::fs::File;
use std::path::Path;

use anyhow::Result;

/// Ticks of `/proc/PID/stat` in a second; the same on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// User and system time of a process so far, in seconds.
pub(crate) fn processor_seconds(pid: u32) -> f64 {
    ticks(&format!("/proc/{pid}/stat"), 11, 2)
}

/// So many times that stand in a row in such a file, together.
fn ticks(path: &str, first: usize, count: usize) -> f64 {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    // The name, in parentheses, may hold anything; the numbers come after it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = numbers.split_whitespace().skip(first).take(count);
    ticks.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

/// As [`processor_seconds`], with those it started that have ended.
pub(crate) fn family_seconds(pid: u32) -> f64 {
    ticks(&format!("/proc/{pid}/stat"), 11, 4)
}

/// Processes started by this one.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    listed.split_whitespace().filter_map(|it| it.parse().ok()).collect()
}

pub(crate) fn is_in_memory(dir: &Path) -> Result<bool> {
    Ok(rustix::fs::statfs(dir)?.f_type == TMPFS_MAGIC)
}

/// User and system time of all children that have ended and were waited for, with theirs.
pub(crate) fn children_seconds() -> f64 {
    ticks("/proc/self/stat", 13, 2)
}

/// The most memory that was resident since the start, or since [`forget_peak`].
pub(crate) fn peak_bytes(pid: u32) -> Option<u64> {
    Some(field(&format!("/proc/{pid}/status"), "VmHWM:")? * 1024)
}

/// Only as root, or of one's own processes.
pub(crate) fn forget_peak(pid: u32) -> std::io::Result<()> {
    use std::io::Write as _;
    File::options().write(true).open(format!("/proc/{pid}/clear_refs"))?.write_all(b"5")
}

/// Bytes that a process has read with `read` and the like, from files and sockets.
pub(crate) fn read_bytes(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}/io"), "rchar:")
}

/// Memory that can be had without swapping.
pub(crate) fn available_bytes() -> Option<u64> {
    Some(field("/proc/meminfo", "MemAvailable:")? * 1024)
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
