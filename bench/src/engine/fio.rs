//! Loads put on an NBD export by `fio`.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::engine::tool;
use serde_json::Value;

use super::table::Unit;

/// What fio is told to do.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// `rw`, `bs`, `iodepth`.
    pub(crate) kind: &'static str,
    pub(crate) block: &'static str,
    pub(crate) depth: u32,
    pub(crate) more: &'static [&'static str],
}

impl Job {
    const fn random(name: &'static str, kind: &'static str, depth: u32) -> Self {
        Self { name, kind, block: "4k", depth, more: &[] }
    }

    pub(crate) fn unit(&self) -> Unit {
        if self.block == "4k" { Unit::PerSecond } else { Unit::MebibytesPerSecond }
    }
}

pub(crate) const JOBS: &[Job] = &[
    Job::random("4k random read, depth 1", "randread", 1),
    Job::random("4k random read, depth 32", "randread", 32),
    Job::random("4k random write, depth 1", "randwrite", 1),
    Job::random("4k random write, depth 32", "randwrite", 32),
    Job { more: &["--rwmixread=70"], ..Job::random("4k mixed 70/30, depth 32", "randrw", 32) },
    Job { block: "1m", ..Job::random("1m sequential read, depth 4", "read", 4) },
    Job { block: "1m", ..Job::random("1m sequential write, depth 4", "write", 4) },
    Job { more: &["--fsync=1"], ..Job::random("4k write, flush after each", "randwrite", 1) },
    Job { more: &["--fsync=8"], ..Job::random("4k write, flush after 8", "randwrite", 8) },
];

#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) operations: f64,
    per_second: f64,
    mebibytes_per_second: f64,
    pub(crate) mean_us: f64,
}

impl Figures {
    pub(crate) fn value(&self, job: &Job) -> f64 {
        match job.unit() {
            Unit::PerSecond => self.per_second,
            Unit::MebibytesPerSecond => self.mebibytes_per_second,
        }
    }
}

pub(crate) fn run(job: &Job, uri: &str, seconds: u32, size_mib: u64) -> Result<Figures> {
    let program = tool("fio", "measuring").context("no fio")?;
    let mut command = Command::new(program);
    command.current_dir(std::env::temp_dir());
    command.args(["--name=load", "--ioengine=nbd", "--output-format=json", "--time_based"]);
    command.args(["--norandommap", "--randrepeat=1", "--refill_buffers", "--gtod_reduce=0"]);
    command.arg(format!("--uri={uri}")).arg(format!("--rw={}", job.kind));
    command.arg(format!("--bs={}", job.block)).arg(format!("--iodepth={}", job.depth));
    command.arg(format!("--runtime={seconds}")).arg(format!("--size={size_mib}m"));
    let output = command.args(job.more).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fio: {}: {text}{errors}", output.status);
    // Remarks may stand before the JSON.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let report: Value = serde_json::from_str(json).context("cannot read what fio printed")?;
    let figures = figures(&report).context("fio reports no job")?;
    eprintln!(
        "  {}: {:.0}/s, {:.0} MiB/s, {:.0} us",
        job.name, figures.per_second, figures.mebibytes_per_second, figures.mean_us
    );
    Ok(figures)
}

fn figures(report: &Value) -> Option<Figures> {
    let job = report.pointer("/jobs/0")?;
    let get = |path: &str| job.pointer(path)?.as_f64();
    let (reads, writes) = (get("/read/total_ios")?, get("/write/total_ios")?);
    let operations = reads + writes;
    let time = get("/read/lat_ns/mean")? * reads + get("/write/lat_ns/mean")? * writes;
    Some(Figures {
        operations,
        per_second: get("/read/iops")? + get("/write/iops")?,
        mebibytes_per_second: (get("/read/bw_bytes")? + get("/write/bw_bytes")?) / 1024.0 / 1024.0,
        mean_us: time / operations / 1000.0,
    })
}

/// A file without holes and without repetition.
pub(crate) fn fill(path: &Path, size_bytes: u64) -> Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..size_bytes / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::peer::QemuNbd;

    #[test]
    fn every_load_can_be_put_on_the_peer() {
        let installed = |name: &str| tool(name, "loads of fio").is_some();
        if !(installed("fio") && installed("qemu-nbd")) {
            return;
        }
        let peer = QemuNbd::start(16 << 20).unwrap();
        for job in JOBS {
            let figures = run(job, &peer.uri(), 1, 16).unwrap();
            assert!(figures.value(job) > 0.0 && figures.mean_us > 0.0, "{job:?}: {figures:?}");
        }
    }
}
