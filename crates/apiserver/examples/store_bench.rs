//! Figures of the object store on this machine: durable creations, lists, opening, memory.
//!
//! `cargo run --release -p apiserver --example store_bench [FOLDER]`; the folder decides which disk
//! is measured.

#![expect(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use apiserver::store::{Change, Expected, Key, Options, Store, Write};
use futures::stream::{StreamExt, TryStreamExt};
use serde_json::json;

const OBJECTS: usize = 10_000;
/// Brings an object to about 0.65 KiB.
const PADDING_BYTES: usize = 380;

fn creation(number: usize) -> Write {
    let name = format!("object-{number:06}");
    let object = json!({
        "apiVersion": "bench.example.com/v1",
        "kind": "Thing",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": format!("8f14e45f-ceea-467f-a9f2-{number:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
            "labels": {"app": "bench", "part": format!("{}", number % 10)},
        },
        "spec": {"text": "x".repeat(PADDING_BYTES)},
    });
    Write {
        key: Key::new("things.bench.example.com", "default", name),
        expected: Expected::Absent,
        require: Vec::new(),
        change: Change::Put(object),
    }
}

async fn create(
    store: &Store,
    numbers: std::ops::Range<usize>,
    in_flight: usize,
) -> Result<(), Box<dyn Error>> {
    let count = numbers.len();
    let before = store.stats().figures();
    let started = Instant::now();
    futures::stream::iter(numbers)
        .map(|number| store.write(creation(number)))
        .buffer_unordered(in_flight)
        .try_for_each(|_stored| std::future::ready(Ok(())))
        .await?;
    let took = started.elapsed();
    let after = store.stats().figures();
    println!(
        "create, {in_flight:3} in flight: {:8.0} per s ({count} in {took:.2?}, {} commits)",
        per_second(count, took),
        after.batches - before.batches,
    );
    Ok(())
}

fn per_second(count: usize, took: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took.as_secs_f64()
}

/// Resident memory in KiB.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn best_of(times: usize, mut action: impl FnMut()) -> Duration {
    let measure = |()| {
        let started = Instant::now();
        action();
        started.elapsed()
    };
    std::iter::repeat_n((), times).map(measure).min().unwrap_or_default()
}

async fn measure(folder: &Path) -> Result<(), Box<dyn Error>> {
    let file = folder.join("objects.db");
    let idle = resident_kib().unwrap_or(0);
    let store = Store::open(&file, &Options::default())?;
    create(&store, 0..1_000, 1).await?;
    create(&store, 1_000..5_000, 16).await?;
    create(&store, 5_000..OBJECTS, 256).await?;
    let resource = "things.bench.example.com";
    let bytes: usize = store.list(resource, None).items.iter().map(|item| item.body.len()).sum();
    println!("objects: {OBJECTS} of {} bytes", bytes / OBJECTS);
    let took = best_of(20, || drop(store.list(resource, None)));
    println!("list of {OBJECTS}: {took:.1?}");
    let took = best_of(20, || drop(store.list_page(resource, None, None, 500)));
    println!("page of 500: {took:.1?}");
    let held = resident_kib().unwrap_or(0).saturating_sub(idle);
    println!("resident, with history: {held} KiB more than before");
    println!("{:?}", store.stats().figures());
    store.close().await;
    drop(store);
    let size = std::fs::metadata(&file)?.len();
    let started = Instant::now();
    let store = Store::open(&file, &Options::default())?;
    println!("open with {OBJECTS} ({size} bytes): {:.1?}", started.elapsed());
    store.close().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(folder.path()))
}
