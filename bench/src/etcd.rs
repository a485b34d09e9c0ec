//! Snapshots and restores of an etcd, measured as its users run them: a real etcd, our commands as
//! processes on a local store, beside `etcdctl` and `etcdutl` in the same run.

mod ours;
mod peers;
mod source;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::etcd::{Seat, data_dir, program};
use testkit::process::Scratch;

use crate::measure::{Cost, settle};
use ours::{Guard, Packing, Store};
use source::Source;
use table::{Operation, Results};

/// For anything that is waited for.
const TIMEOUT: Duration = Duration::from_mins(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Keys of 1 KiB in the base.
    #[arg(long, default_value_t = 200_000)]
    keys: u32,
    /// Single puts after it, over a quarter of the keys.
    #[arg(long, default_value_t = 100_000)]
    revisions: u32,
    /// Puts on their way at a time.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Each operation so often; the one in the middle counts.
    #[arg(long, default_value_t = 3)]
    runs: u32,
}

/// What is measured, and how to do it once.
type Work<'w> = (Operation, &'w mut dyn FnMut() -> Result<Cost>);

struct Bench<'o> {
    options: &'o Options,
    scratch: Scratch,
    results: Results,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    for name in ["etcd", "etcdctl", "etcdutl"] {
        program(name).map_err(anyhow::Error::msg)?;
    }
    let start = Instant::now();
    let mut bench = Bench { options, scratch: Scratch::new()?, results: Results::default() };
    let load_before = table::load();
    let source = Source::start(bench.path(), options)?;
    source.fill()?;
    let base = bench.path().join("base.db");
    bench.fulls(&source, &base).context("full snapshots")?;
    bench.base_restores(&base).context("restores of the base")?;
    bench.collect(&source).context("collecting")?;
    bench.whole_restores(&source, &base).context("restores of everything")?;
    let stopped = source.stop()?;
    bench.initialize(&stopped).context("initialize")?;
    bench.compact().context("compact")?;
    println!("{}", bench.results.table(options.revisions));
    println!("{}", table::remarks(load_before, start.elapsed()));
    Ok(())
}

impl Bench<'_> {
    fn path(&self) -> &Path {
        self.scratch.path()
    }

    fn store(&self, name: &'static str) -> Store {
        Store::new(self.path(), name)
    }

    /// Runs every one of `works` once before any of them again, so that what else goes on on the
    /// machine meets all alike.
    fn in_turns(&mut self, works: &mut [Work<'_>]) -> Result<()> {
        let mut costs = vec![Vec::new(); works.len()];
        for _ in 0..self.options.runs.max(1) {
            for ((operation, work), costs) in works.iter_mut().zip(&mut costs) {
                settle(self.scratch.path())?;
                costs.push(work().with_context(|| operation.name())?);
            }
        }
        for ((operation, _), costs) in works.iter().zip(costs) {
            let cost = Cost::median(costs).context("nothing was measured")?;
            self.results.add(*operation, cost);
        }
        Ok(())
    }

    /// Leaves the last of each: the stores `gzip` and `plain`, and `base`.
    fn fulls(&mut self, source: &Source, base: &Path) -> Result<()> {
        let (gzip, plain) = (self.store("gzip"), self.store("plain"));
        let dir = self.path().to_owned();
        let full = |store: &Store, packing| -> Result<Cost> {
            store.clear()?;
            let (guard, cost) = Guard::start(source.endpoint(), store, packing)?;
            guard.stop()?;
            Ok(cost)
        };
        self.in_turns(&mut [
            (Operation::Save, &mut || peers::save(source.endpoint(), base, &dir)),
            (Operation::FullGzip, &mut || full(&gzip, Packing::Gzip)),
            (Operation::FullPlain, &mut || full(&plain, Packing::Plain)),
        ])?;
        self.results.note(Operation::Save, stored(base));
        self.results.note(Operation::FullGzip, gzip.stored_bytes());
        self.results.note(Operation::FullPlain, plain.stored_bytes());
        Ok(())
    }

    fn base_restores(&mut self, base: &Path) -> Result<()> {
        let (gzip, plain) = (self.store("gzip"), self.store("plain"));
        let (dir, seat) = (self.path().to_owned(), Seat::new("restored")?);
        let ours = |store: &Store| -> Result<Cost> {
            let cost = ours::restore(store, &seat, &dir)?;
            remove(&data_dir(&dir, &seat.name))?;
            Ok(cost)
        };
        self.in_turns(&mut [
            (Operation::Utl, &mut || peers::restore(base, &dir)),
            (Operation::RestoreGzip, &mut || ours(&gzip)),
            (Operation::RestorePlain, &mut || ours(&plain)),
        ])?;
        gzip.clear()?;
        plain.clear()
    }

    /// Puts the revisions while a guard collects them in the store `whole`.
    fn collect(&mut self, source: &Source) -> Result<()> {
        let store = self.store("whole");
        let (mut guard, _) = Guard::start(source.endpoint(), &store, Packing::Gzip)?;
        let before = store.stored_bytes();
        settle(self.path())?;
        let (cost, put_s) = guard.collect(&store, || source.change())?;
        guard.stop()?;
        self.results.add(Operation::Collect, cost);
        self.results.note(Operation::Collect, store.stored_bytes().saturating_sub(before));
        self.results.collected(put_s, store.deltas().len());
        Ok(())
    }

    /// The last one of ours is booted, and must have the hash of the source.
    fn whole_restores(&mut self, source: &Source, base: &Path) -> Result<()> {
        let store = self.store("whole");
        let (dir, seat) = (self.path().to_owned(), Seat::new("restored")?);
        let all = dir.join("all.db");
        peers::save(source.endpoint(), &all, &dir)?;
        let data = data_dir(&dir, &seat.name);
        self.in_turns(&mut [
            (Operation::UtlAgain, &mut || peers::restore(base, &dir)),
            (Operation::UtlWhole, &mut || peers::restore(&all, &dir)),
            (Operation::RestoreWhole, &mut || {
                remove(&data)?;
                ours::restore(&store, &seat, &dir)
            }),
        ])?;
        std::fs::remove_file(&all)?;
        std::fs::remove_file(base)?;
        let (expected, found) = (source.hash()?, source::hash_of(&seat, &dir)?);
        ensure!(expected == found, "restored {found:?}, and the source has {expected:?}");
        remove(&data)
    }

    fn initialize(&mut self, stopped: &Path) -> Result<()> {
        let store = self.store("whole");
        self.in_turns(&mut [
            (Operation::Sanity, &mut || ours::initialize(&store, stopped, "sanity")),
            (Operation::Validate, &mut || ours::initialize(&store, stopped, "full")),
        ])?;
        remove(stopped)
    }

    fn compact(&mut self) -> Result<()> {
        let store = self.store("whole");
        let dir = self.path().to_owned();
        let mut result_bytes = 0;
        self.in_turns(&mut [(Operation::Compact, &mut || {
            let (cost, result) = ours::compact(&store, &dir)?;
            result_bytes = stored(&result);
            std::fs::remove_file(&result)?;
            Ok(cost)
        })])?;
        self.results.note(Operation::Compact, result_bytes);
        Ok(())
    }
}

fn stored(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
