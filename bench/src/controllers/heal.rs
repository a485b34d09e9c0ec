//! A standby volume with real processes: how soon a copy that crashed is restored anew.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::volumes::Rig;
use tokio::runtime::Runtime;

use super::{LONGHORN, Options};
use crate::measure::percentile;

const MEBIBYTES: u64 = 64;

pub(super) fn measure(options: &Options, runtime: &Runtime) -> Result<()> {
    println!(
        "\n## A copy of a standby volume is killed ({MEBIBYTES} MiB, two copies, real processes)\n"
    );
    let rig = Rig::start();
    rig.volume("source", MEBIBYTES, 2);
    rig.attach("source");
    let mut content = e2e::volumes::Content::new();
    rig.write("source", &mut content, 0, MEBIBYTES, 7);
    rig.backup("source", "first");
    rig.make_from_backup("standby", "first", 2, true);
    rig.until("the standby volume is there", || {
        rig.text("lhv", "standby", "/status/lastBackup") == "first" && rig.is_healthy("standby")
    });
    let (mut begun, mut whole) = (Vec::new(), Vec::new());
    for number in 0..options.crashes {
        let crash = runtime.block_on(crash(&rig, number))?;
        begun.push(crash.begun);
        whole.push(crash.whole);
    }
    for (what, mut times) in [("restore asked for", begun), ("healthy again", whole)] {
        times.sort_unstable();
        println!(
            "- crash seen to {what}: {:.2} s in the middle, {:.2} s at most, of {}",
            percentile(&times, 50).as_secs_f64(),
            percentile(&times, 100).as_secs_f64(),
            times.len()
        );
    }
    Ok(())
}

/// From the moment that a copy is seen to be gone.
struct Crash {
    begun: Duration,
    whole: Duration,
}

async fn crash(rig: &Rig, number: usize) -> Result<Crash> {
    let endpoint = rig.server.endpoint();
    let mut connection = endpoint.connect().await?;
    let list = connection.get(&format!("{LONGHORN}/replicas")).await?.json();
    let victim = list["items"].as_array().into_iter().flatten().find(|it| {
        it["spec"]["volumeName"] == "standby" && it["status"]["currentState"] == "running"
    });
    let victim = victim.and_then(|it| it["metadata"]["name"].as_str()).context("no copy runs")?;
    let pid = process_of(victim).with_context(|| format!("no process of {victim}"))?;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!("{LONGHORN}/engines?watch=true&resourceVersion={from}");
    let mut engines = endpoint.connect().await?.watch(&path).await?;
    let path = format!("{LONGHORN}/replicas?watch=true&resourceVersion={from}");
    let mut replicas = endpoint.connect().await?.watch(&path).await?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    loop {
        let event = replicas.next().await.context("the watch ended")?;
        let object = &event["object"];
        let ended = object["status"]["currentState"] != "running" || event["type"] == "DELETED";
        if object["metadata"]["name"] == victim && ended {
            break;
        }
    }
    let seen = Instant::now();
    let mut begun = None;
    loop {
        let event = engines.next().await.context("the watch ended")?;
        let engine = &event["object"];
        if engine["spec"]["volumeName"] != "standby" {
            continue;
        }
        let modes = engine["status"]["replicaModeMap"].as_object().cloned().unwrap_or_default();
        let others = || modes.iter().filter(|(name, _)| *name != victim);
        if begun.is_none() && others().any(|(_, mode)| mode == "WO") {
            begun = Some(seen.elapsed());
        }
        let good = others().filter(|(_, mode)| mode.as_str() == Some("RW")).count();
        if let (Some(begun), 2) = (begun, good) {
            println!(
                "- crash {number}: {:.2} s, {:.2} s",
                begun.as_secs_f64(),
                seen.elapsed().as_secs_f64()
            );
            return Ok(Crash { begun, whole: seen.elapsed() });
        }
    }
}

/// The process whose command line names a replica.
fn process_of(replica: &str) -> Option<rustix::process::Pid> {
    let all = std::fs::read_dir("/proc").ok()?;
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let names = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(replica) && line.contains("replica")
    };
    pids.into_iter().find(names).and_then(rustix::process::Pid::from_raw)
}
