//! Volumes, measured from where their clients stand: NBD over loopback beside `qemu-nbd` on a raw
//! file in the same run, and the socket frontend beside what is known of the older engine.

mod fio;
mod frames;
mod peer;
mod subject;
mod table;

use anyhow::{Context, Result, ensure};
use e2e::engine::{Frontend, MIB, Setup, Volume};

use fio::Job;
use subject::Subject;
use table::{Cell, Measured};

use crate::usage;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Only measurements whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Bytes of each volume, in MiB; all of it is written to before.
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Volumes without revision counters.
    #[arg(long)]
    no_counters: bool,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    fn setup(&self, replicas: usize, frontend: Frontend) -> Setup {
        Setup {
            replicas,
            size_bytes: self.size_mib * MIB,
            frontend,
            revision_counter: !self.no_counters,
            ..Setup::default()
        }
    }
}

/// How many replicas the two volumes of ours have.
const REPLICAS: [usize; 2] = [1, 3];

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        !usage::is_in_memory(&std::env::temp_dir())?,
        "{} is in memory; name a directory on a disk with --dir",
        std::env::temp_dir().display()
    );
    if options.wants("nbd") || fio::JOBS.iter().any(|job| options.wants(job.name)) {
        over_nbd(options)?;
    }
    if options.wants("socket") {
        over_socket(options)?;
    }
    Ok(())
}

/// All three are up for the whole run, and each measurement is taken of one after the other: what
/// else goes on on the machine then meets all of them alike.
fn over_nbd(options: &Options) -> Result<()> {
    let mut subjects = vec![Subject::qemu(options.size_mib * MIB)?];
    for replicas in REPLICAS {
        subjects.push(Subject::ours(options.setup(replicas, Frontend::Nbd))?);
    }
    let scratch = testkit::process::Scratch::new()?;
    let image = scratch.path().join("image");
    fio::fill(&image, options.size_mib * MIB)?;
    let mut rows = Vec::new();
    // First of all, so that everything else meets volumes that are full and in the page cache.
    let measured = subjects.iter().map(|it| it.copy_in(&image)).collect::<Result<Vec<_>>>()?;
    rows.push(("nbdcopy in".to_owned(), table::Unit::MebibytesPerSecond, measured));
    let measured = subjects.iter().map(Subject::copy_out).collect::<Result<Vec<_>>>()?;
    rows.push(("nbdcopy out".to_owned(), table::Unit::MebibytesPerSecond, measured));
    for job in fio::JOBS.iter().filter(|job| options.wants("nbd") || options.wants(job.name)) {
        let measured = subjects
            .iter()
            .map(|subject| measure(job, subject, options).context(subject.name()))
            .collect::<Result<Vec<_>>>()
            .context(job.name)?;
        rows.push((job.name.to_owned(), job.unit(), measured));
    }
    println!("{}", table::beside_qemu(&rows));
    println!("{}", table::processor(&rows));
    println!("{}", table::memory(&subjects));
    Ok(())
}

fn measure(job: &Job, subject: &Subject, options: &Options) -> Result<Measured> {
    let before = subject.processor_seconds();
    let result = fio::run(job, &subject.uri(), options.seconds, options.size_mib)?;
    let spent = subject.processor_seconds() - before;
    Ok(Measured {
        value: result.value(job),
        latency_us: result.mean_us,
        cpu_us: spent * 1e6 / result.operations,
    })
}

/// The same loads as were put on the older engine, through the same kind of socket.
fn over_socket(options: &Options) -> Result<()> {
    if e2e::engine::skip_unless_root("the socket frontend lies where only root may write") {
        return Ok(());
    }
    let mut cells = Vec::new();
    for replicas in REPLICAS {
        let volume = Volume::start(options.setup(replicas, Frontend::Socket));
        let info = volume.cli().json(&["info"]);
        let socket = info.get("endpoint").and_then(|it| it.as_str()).context("no endpoint")?;
        let blocks = options.size_mib * MIB;
        frames::fill(socket.as_ref(), blocks)?;
        for load in frames::LOADS {
            let value = frames::run(socket.as_ref(), load, blocks, options.seconds)?;
            eprintln!("  socket, {replicas} replicas, {}: {value:.0}", load.name);
            cells.push(Cell { replicas, load: load.name, value });
        }
    }
    println!("{}", table::beside_older(&cells));
    Ok(())
}
