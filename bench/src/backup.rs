//! Backups, measured from where their users stand: replicas and an engine as processes, the commands
//! of the engine, a directory and an S3 server, beside restic and borg in the same run.

mod calls;
mod contents;
mod limits;
mod ours;
mod peers;
mod s3;
mod table;
mod target;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use testkit::process::Scratch;

use contents::Data;
use ours::Ours;
use peers::{Kind, Peer};
use table::{Operation, Results, Who};
use target::Target;

/// Backups that are made side by side where nobody measures: a replica remembers so many.
const TOGETHER: usize = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Size of the volume, in MiB.
    #[arg(long, default_value_t = 4096)]
    size_mib: u64,
    /// What the contents of the volume are made of.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Blocks that our commands exchange with the target at a time.
    #[arg(long, default_value_t = 8)]
    concurrent: u32,
    /// Backups of the volume when one is deleted.
    #[arg(long, default_value_t = 100)]
    backups: u64,
    /// Leave restic and borg out.
    #[arg(long)]
    no_peers: bool,
    /// `directory` or `s3`; both without it.
    #[arg(long)]
    only: Option<String>,
}

impl Options {
    /// The backup that is deleted.
    fn middle(&self) -> String {
        match self.backups / 2 {
            number @ 3.. => format!("backup-{number}"),
            _ => "scattered".to_owned(),
        }
    }

    fn wants(&self, target: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == target)
    }
}

/// What all of it is made with.
struct Bench<'o> {
    options: &'o Options,
    data: Data,
    image: PathBuf,
    scratch: Scratch,
    results: Results,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let data = Data::new(options.size_mib << 20, options.seed)?;
    let scratch = Scratch::new()?;
    let image = scratch.path().join("volume.img");
    data.write(&image)?;
    let limits = limits::measure(data, scratch.path())?;
    let mut bench = Bench { options, data, image, scratch, results: Results::default() };
    if options.wants("directory") {
        let target = Target::directory(bench.path().join("store"))?;
        bench.all(&target)?;
        let (syncs, blocks) = calls::syncs_of_a_backup(&bench.image, bench.path())?;
        calls::print("syncs of a full backup to a directory", syncs, blocks);
    }
    if options.wants("s3") {
        let target = Target::s3(bench.path().join("s3"))?;
        bench.all(&target)?;
    }
    println!("{}", bench.results.speeds());
    println!("{}", bench.results.costs(data));
    println!("{}", bench.results.aims(data));
    println!("{}", table::limits(&limits, &bench.results, data));
    Ok(())
}

impl Bench<'_> {
    fn path(&self) -> &Path {
        self.scratch.path()
    }

    fn all(&mut self, target: &Target) -> Result<()> {
        self.ours(target).context("holdfast")?;
        target.clear()?;
        let (copied, synced) = peers::copy(&self.image, self.path())?;
        self.results.add(target.name(), Operation::RestoreOne, Who::Copy, copied);
        self.results.add(target.name(), Operation::RestoreOne, Who::CopySynced, synced);
        if self.options.no_peers {
            return Ok(());
        }
        for (kind, who) in [(Kind::Restic, Who::Restic), (Kind::Borg, Who::Borg)] {
            if kind.can_use(target) {
                self.peer(target, kind, who).context(kind.name())?;
                target.clear()?;
            }
        }
        Ok(())
    }

    fn ours(&mut self, target: &Target) -> Result<()> {
        let (data, image, concurrent) = (self.data, self.image.clone(), self.options.concurrent);
        let ours = Ours::start(target, data, &image, self.scratch.path(), concurrent)?;
        let mut add = |operation, cost| {
            self.results.add(target.name(), operation, Who::Holdfast, cost);
        };
        ours.snapshot("full")?;
        let before = target.requests();
        add(Operation::Full, ours.back_up("full")?);
        if let (Some(before), Some(after)) = (before, target.requests()) {
            calls::print(
                "S3 requests of a full backup",
                after - before,
                data.full_bytes() / contents::CHUNK as u64,
            );
        }
        add(Operation::RestoreOne, ours.restore("full", 1, true)?);
        add(Operation::RestoreThree, ours.restore("full", 3, true)?);
        for (operation, name, changes) in [
            (Operation::Contiguous, "contiguous", data.contiguous()),
            (Operation::Scattered, "scattered", data.scattered()),
        ] {
            ours.change(&changes)?;
            ours.snapshot(name)?;
            add(operation, ours.back_up(name)?);
        }
        ours.change(&data.single(3))?;
        ours.snapshot("backup-3")?;
        add(Operation::Single, ours.back_up("backup-3")?);
        let numbers: Vec<u64> = (4..self.options.backups).collect();
        for some in numbers.chunks(TOGETHER) {
            let mut names = Vec::new();
            for number in some {
                let name = format!("backup-{number}");
                ours.change(&data.single(*number))?;
                ours.snapshot(&name)?;
                names.push(name);
            }
            ours.back_up_all(&names)?;
        }
        add(Operation::Delete, ours.delete(&self.options.middle())?);
        Ok(())
    }

    fn peer(&mut self, target: &Target, kind: Kind, who: Who) -> Result<()> {
        let data = self.data;
        let peer = Peer::start(kind, target, data, &self.image, self.scratch.path())?;
        let changes = data.scattered();
        let mut add = |operation, cost| self.results.add(target.name(), operation, who, cost);
        add(Operation::Full, peer.back_up("full")?);
        add(Operation::RestoreOne, peer.restore("full", true)?);
        peer.change(&changes)?;
        let cost = peer.back_up("scattered");
        peer.revert(&changes)?;
        add(Operation::Scattered, cost?);
        // Making so many takes them minutes: once is enough.
        if !target.is_s3() {
            for number in 2..self.options.backups {
                peer.add(&format!("backup-{number}"), number)?;
            }
            add(Operation::Delete, peer.delete(&self.options.middle())?);
        }
        Ok(())
    }
}
