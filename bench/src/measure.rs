//! What an operation costs: time, processor, memory, bytes.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::process::Process;

use crate::usage;

const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) wall_s: f64,
    /// User and system time of all processes of the subject, without the S3 server.
    pub(crate) cpu_s: f64,
    /// Of the largest process.
    pub(crate) peak_bytes: u64,
    /// To the store or from it.
    pub(crate) moved_bytes: u64,
}

impl Cost {
    /// The one whose time is in the middle.
    pub(crate) fn median(mut costs: Vec<Self>) -> Option<Self> {
        costs.sort_by(|one, other| one.wall_s.total_cmp(&other.wall_s));
        costs.get(costs.len() / 2).copied()
    }

    /// One after the other.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            wall_s: self.wall_s + next.wall_s,
            cpu_s: self.cpu_s + next.cpu_s,
            peak_bytes: self.peak_bytes.max(next.peak_bytes),
            moved_bytes: self.moved_bytes + next.moved_bytes,
        }
    }
}

/// Of times that are sorted.
pub(crate) fn percentile(times: &[Duration], of_hundred: usize) -> Duration {
    let last = times.len().saturating_sub(1);
    times.get(last * of_hundred / 100).copied().unwrap_or_default()
}

/// Runs a program to its end. `moved_bytes` is what it read, sockets and files together.
pub(crate) fn run(command: &mut Command, dir: &Path) -> Result<(Cost, String)> {
    let (out, err) = (dir.join("command.stdout"), dir.join("command.stderr"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let (before, start) = (usage::children_seconds(), Instant::now());
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let (mut peak_bytes, mut moved_bytes) = (0, 0);
    let status = loop {
        // Both only grow: what was seen last is what it came to.
        peak_bytes = usage::peak_bytes(child.id()).unwrap_or(0).max(peak_bytes);
        moved_bytes = usage::read_bytes(child.id()).unwrap_or(0).max(moved_bytes);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::park_timeout(LOOK_EVERY);
    };
    let wall_s = start.elapsed().as_secs_f64();
    let cpu_s = usage::children_seconds() - before;
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    if !status.success() {
        bail!("{command:?} ended with {status}: {}{}", text(&out), text(&err));
    }
    Ok((Cost { wall_s, cpu_s, peak_bytes, moved_bytes }, text(&out)))
}

/// Watches a process until there is something to see. `moved_bytes` is what it read meanwhile.
pub(crate) fn until<T>(
    process: &mut Process,
    timeout: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<(Cost, T)> {
    let pid = process.id();
    let (cpu_s, read) = (usage::processor_seconds(pid), usage::read_bytes(pid).unwrap_or(0));
    let (start, mut peak_bytes) = (Instant::now(), 0);
    loop {
        let found = look();
        peak_bytes = usage::peak_bytes(pid).unwrap_or(0).max(peak_bytes);
        if let Some(found) = found {
            let cost = Cost {
                wall_s: start.elapsed().as_secs_f64(),
                cpu_s: usage::processor_seconds(pid) - cpu_s,
                peak_bytes,
                moved_bytes: usage::read_bytes(pid).unwrap_or(0).saturating_sub(read),
            };
            return Ok((cost, found));
        }
        if let Ok(status) = process.wait_for_exit(Duration::ZERO) {
            bail!("the process ended with {status}: {}", process.stderr());
        }
        if start.elapsed() > timeout {
            bail!("it took more than {timeout:?}: {}", process.stderr());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Bytes of all files below a directory.
pub(crate) fn stored_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => stored_bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

/// Waits until nothing of what was written before is still on its way to the disk.
pub(crate) fn settle(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// [`settle`], and so much free memory that was in use a moment ago. A virtual machine gets memory it
/// never touched at a tenth of the speed: whoever is measured first would pay for all.
pub(crate) fn settle_with_memory(dir: &Path, bytes: u64) -> Result<()> {
    settle(dir)?;
    let bytes = bytes.min(usage::available_bytes().unwrap_or(0) / 2);
    drop(std::hint::black_box(vec![1_u8; usize::try_from(bytes)?]));
    Ok(())
}
